"""The connection Protocol of both stores, the statements of each engine, and the records of their rows."""

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from headgate.knowledge.data_model import NewChunk

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

Row = tuple[Any, ...]
IdKind = Literal["source", "chunk", "entity", "relationship"]

_NAME_LINE: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def read_statements(path: Path) -> Mapping[str, str]:
    """The statements of a file by name, each after a line `-- name: ...`.

    Every engine has the same names, and takes the values of each in the same order. A statement on `ids` or
    `keys` takes one list; a statement for `execute_rows` takes the columns of a row.
    """
    _, *parts = _NAME_LINE.split(path.read_text("utf-8"))
    return {name: text.strip().removesuffix(";") for name, text in zip(parts[::2], parts[1::2], strict=True)}


def record_from_row(record: type[RecordT], row: Sequence[Any]) -> RecordT:
    """A record from its columns, in the order of its fields; aliases and attributes are JSON."""
    members = dict(zip(record.__struct_fields__, row, strict=True))
    if "attributes" in members:
        members["attributes"] = msgspec.json.decode(members["attributes"])
    if "aliases" in members:
        members["aliases"] = tuple(msgspec.json.decode(members["aliases"]))
        members["imported"] = bool(members["imported"])
    return record(**members)


class StoreConnection(Protocol):
    """One transaction of a store. Reads and writes of other transactions do not show in it.

    A `statement` is the name of one of the engine's statements.
    """

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """All rows of a statement."""

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        """The rows of a statement for each of the keys, in any order."""

    async def execute(self, statement: str, *values: object) -> None:
        """Run a statement."""

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for each row, in order."""

    def posting_key(self, stem: str) -> str:
        """The key of a stem's postings: itself, unless it is too long for an index."""

    def listed(self, values: Iterable[int | str]) -> object:
        """A list as one value of a statement."""

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a computation that may take long, without blocking the event loop."""


class WriteConnection(StoreConnection, Protocol):
    """A transaction that writes; no other one writes at the same time."""

    # The time of day of all its changes.
    now: float

    async def new_ids(self, kind: IdKind, count: int) -> range:
        """Ids that were never used before, from 1."""

    async def bump_revision(self) -> None:
        """Let readers see that the store has changed; the last step of a change."""

    async def analyzer_version(self) -> int:
        """The version of the analyzer that made the terms of all chunks."""

    async def forget_terms(self) -> tuple[int, int]:
        """Expect the terms of this version's analyzer; returns how many chunks there are, and the last id."""

    async def index_again(self, stored: Sequence[Row]) -> None:
        """Make the terms of chunks again; each is given as id, header and text."""

    async def insert_chunks(self, source_id: int, chunks: Sequence[tuple[int, int, NewChunk]]) -> None:
        """Store and index new chunks, each with its id and its position in the source."""

    async def delete_chunks(self, ids: Sequence[int]) -> None:
        """Delete chunks with their terms and vectors; their mentions are deleted with the graph."""


def complete(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, as all work on a synchronous connection does."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine on a synchronous connection waited for something")
