"""The connection Protocol of both stores, the statements of each engine, and the values of their rows."""

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from headgate.knowledge.data_model import ChunkRecord, Entity, NewChunk, Relationship, SourceRecord


def source_from_row(row: Sequence[Any]) -> SourceRecord:
    """A source from its columns."""
    return SourceRecord(**dict(zip(SourceRecord.__struct_fields__, row, strict=True)))


def chunk_from_row(row: Sequence[Any]) -> ChunkRecord:
    """A chunk from its columns and those of its source."""
    return ChunkRecord(**dict(zip(ChunkRecord.__struct_fields__, row, strict=True)))


def entity_from_row(row: Sequence[Any]) -> Entity:
    """An entity from its columns; aliases and attributes are JSON."""
    members = dict(zip(Entity.__struct_fields__, row, strict=True))
    members["aliases"] = tuple(msgspec.json.decode(members["aliases"]))
    members["attributes"] = msgspec.json.decode(members["attributes"])
    members["imported"] = bool(members["imported"])
    return Entity(**members)


def relationship_from_row(row: Sequence[Any]) -> Relationship:
    """A relationship from its columns; attributes are JSON."""
    members = dict(zip(Relationship.__struct_fields__, row, strict=True))
    members["attributes"] = msgspec.json.decode(members["attributes"])
    return Relationship(**members)


T = TypeVar("T")

Row = tuple[Any, ...]
IdKind = Literal["source", "chunk", "entity", "relationship"]

_NAME_LINE: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class StoreSql(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statements of one engine; the values of each come in the same order in every engine.

    A statement on `ids` or `keys` takes one list; a statement for `execute_rows` takes the columns of a row.
    """

    # Sources and chunks.
    sources_by_id: str
    chunks_by_id: str
    source_digests: str
    find_source: str
    find_sources: str
    save_source: str
    delete_sources: str
    chunk_digests: str
    move_chunks: str
    chunks_without_vector: str
    statistics: str
    count_entity_types: str
    count_relationship_types: str
    count_categories: str
    count_doc_types: str
    # Entities, their names and mentions.
    entities_by_id: str
    entities_by_key: str
    entity_ids: str
    list_names: str
    save_entities: str
    toggle_imported: str
    delete_entities: str
    delete_names: str
    insert_names: str
    mentions_of_chunks: str
    insert_mentions: str
    delete_mentions: str
    delete_mentions_of_entities: str
    mentioned_entities: str
    chunks_mentioning: str
    # Relationships.
    relationships_by_id: str
    find_relationships: str
    insert_relationships: str
    update_relationships: str
    delete_relationships: str
    edges: str
    neighbours: str
    neighbour_changes: str
    # Claims of documents and imports.
    entity_claims_by_owner: str
    entity_claims_by_id: str
    insert_entity_claims: str
    delete_entity_claims: str
    relationship_claims_by_owner: str
    relationship_claims_by_id: str
    insert_relationship_claims: str
    delete_relationship_claims: str
    delete_claims_of_relationships: str
    imported_entity_claims: str
    imported_relationship_claims: str
    graph_origins: str
    # Whole tables, for an export.
    all_sources: str
    all_chunks: str
    all_entities: str
    all_relationships: str
    all_mentions: str


def read_statements(path: Path) -> StoreSql:
    """The statements of a file, each after a line `-- name: ...`."""
    _, *parts = _NAME_LINE.split(path.read_text("utf-8"))
    statements = {
        name: text.strip().removesuffix(";") for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return msgspec.convert(statements, StoreSql)


class StoreConnection(Protocol):
    """One transaction of a store. Reads and writes of other transactions do not show in it."""

    @property
    def sql(self) -> StoreSql:
        """The statements in the SQL of this engine."""

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """All rows of a statement."""

    async def fetch_matching(self, statement: str, keys: Sequence[Row]) -> list[Row]:
        """The rows of a statement for each of the keys, in any order."""

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement; returns how many rows it changed."""

    async def execute_rows(self, statement: str, rows: Sequence[Row]) -> None:
        """Run a statement for each row, in order."""

    def listed(self, values: Iterable[int | str]) -> object:
        """A list as one value of a statement."""

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a computation that may take long, without blocking the event loop."""


class WriteConnection(StoreConnection, Protocol):
    """A transaction that writes; no other one writes at the same time."""

    async def new_ids(self, kind: IdKind, count: int) -> range:
        """Ids that were never used before, from 1."""

    async def bump_revision(self) -> None:
        """Let readers see that the store has changed; the last step of a change."""

    async def analyzer_version(self) -> int:
        """The version of the analyzer that made the terms of all chunks."""

    async def reindex_chunks(self) -> int:
        """Make the terms of all chunks again with the analyzer of this version; returns how many chunks."""

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
