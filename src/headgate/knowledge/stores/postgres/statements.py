"""Runs statements, and reads and locks the row of counters that every change updates."""

from dataclasses import astuple, dataclass, fields
from typing import Any, Final, TypeVar

import msgspec

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.stores.store_connection import IdKind
from headgate.storage.postgres.connection_pool import Connection

T = TypeVar("T")

TABLES_EMPTIED: Final = (
    "somebody emptied tables of the documents in this database; drop them, and ingest again"
)


@dataclass(slots=True)
class StoreCounters:
    """The counters of the store: one row, which every change locks first."""

    revision: int
    # The ids that were given last; none is ever given again.
    last_source: int
    last_chunk: int
    last_entity: int
    last_relationship: int
    chunks: int
    # How many stems the chunks have in all.
    length: int
    vectors: int
    model: str
    dimensions: int
    # How the words of all chunks were cut.
    words_edition: int

    def new_ids(self, of: IdKind, count: int) -> range:
        """Ids that nothing has had yet, from 1."""
        first = int(getattr(self, f"last_{of}")) + 1
        setattr(self, f"last_{of}", first + count - 1)
        return range(first, first + count)


_COUNTER_COLUMNS: Final = tuple(field.name for field in fields(StoreCounters))


async def fetch_rows(
    connection: Connection, statement: str, *values: object, binary: bool = False
) -> list[tuple[Any, ...]]:
    async with connection.cursor(binary=binary) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall()


async def execute(connection: Connection, statement: str, *values: object) -> int:
    """How many rows a statement has changed."""
    return (await connection.execute(statement, values)).rowcount


async def read_counters(connection: Connection, *, lock: bool = False) -> StoreCounters:
    """The current counters; with `lock` other writers wait until this transaction ends."""
    statement = f"SELECT {', '.join(_COUNTER_COLUMNS)} FROM knowledge_meta"
    found = await fetch_rows(connection, statement + (" FOR UPDATE" if lock else ""))
    if not found:
        raise StoreUnavailable(TABLES_EMPTIED)
    return StoreCounters(*found[0])


async def read_revision(connection: Connection) -> int:
    """The revision alone, which every search reads."""
    found = await fetch_rows(connection, "SELECT revision FROM knowledge_meta")
    if not found:
        raise StoreUnavailable(TABLES_EMPTIED)
    return int(found[0][0])


async def save_counters(connection: Connection, now: StoreCounters) -> None:
    """Save the counters with a new revision, which invalidates what readers have cached."""
    now.revision += 1
    assignments = ", ".join(f"{name} = %s" for name in _COUNTER_COLUMNS)
    await execute(connection, f"UPDATE knowledge_meta SET {assignments}", *astuple(now))


def storable(value: T) -> T:
    """The same with texts that PostgreSQL can keep: there is no room for the character NUL in them."""
    if b"\\u0000" not in msgspec.json.encode(value):
        return value
    return msgspec.convert(_without_nul(msgspec.to_builtins(value)), type(value))


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list | tuple):
        return [_without_nul(one) for one in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(one) for key, one in value.items()}
    return value
