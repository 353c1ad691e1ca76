"""The knowledge store over any SQL engine; the engines add transactions, full text and vectors."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from headgate.knowledge.data_model import (
    ChunkRecord,
    Edge,
    Entity,
    IngestedDocument,
    Neighbourhood,
    NewEntity,
    NewRelationship,
    Relationship,
    ReplaceResult,
    SourceRecord,
    StoreStatistics,
)
from headgate.knowledge.interfaces import MentionRecord
from headgate.knowledge.stores import document_writes, graph_reads, graph_writes
from headgate.knowledge.stores.store_connection import (
    StoreConnection,
    StoreSql,
    WriteConnection,
    chunk_from_row,
    entity_from_row,
    relationship_from_row,
    source_from_row,
)

T = TypeVar("T")

ReadWork = Callable[[StoreConnection], Coroutine[Any, Any, T]]
WriteWork = Callable[[WriteConnection], Coroutine[Any, Any, T]]


class SqlKnowledgeStore(ABC):
    """The part of a KnowledgeStore that is the same in every engine; see that Protocol for the methods."""

    def __init__(self, sql: StoreSql, now: Callable[[], float]) -> None:
        """`now` is the time of day."""
        self._sql = sql
        self._now = now

    @abstractmethod
    async def _read(self, work: ReadWork[T]) -> T:
        """Run work in a transaction that only reads; it may read a replica."""

    @abstractmethod
    async def _read_primary(self, work: ReadWork[T]) -> T:
        """As `_read`, and sees everything that was written before."""

    @abstractmethod
    async def _write(self, work: WriteWork[T], *, timeout_seconds: float | None = None) -> T:
        """Run work in a transaction that commits at its end; None is the usual timeout."""

    @abstractmethod
    def _iter_rows(self, statement: str, from_row: Callable[[Sequence[Any]], T]) -> AsyncIterator[T]:
        """Each row of a statement, as one snapshot."""

    # IndexReader

    async def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRecord]:
        """The existing chunks of these ids."""
        return await self._read(lambda connection: _chunks(connection, ids))

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        """The existing sources of these ids."""
        return await self._read(lambda connection: _sources(connection, ids))

    async def statistics(self) -> StoreStatistics:
        """The counts of everything in the store."""
        return await self._read(_statistics)

    # GraphReader

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        """The entities whose name, alias or external id has one of these keys."""
        return await self._read(lambda connection: graph_reads.find_by_keys(connection, keys))

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias with the entity's id; of these types, or of all."""
        return await self._read(lambda connection: graph_reads.list_names(connection, types))

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """The existing entities of these ids."""
        return await self._read(lambda connection: graph_reads.entities(connection, ids))

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """The existing relationships of these ids."""
        return await self._read(lambda connection: graph_reads.relationships(connection, ids))

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""
        return await self._read(lambda connection: graph_reads.edges(connection, entity_ids))

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        """The entities one relationship away from this entity, in one snapshot."""
        return await self._read(lambda connection: graph_reads.neighbourhood(connection, entity_id))

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """The entities that each of the chunks mentions, by the chunk's id."""
        return await self._read(lambda connection: graph_reads.mentioned_entities(connection, chunk_ids))

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first chunks that mention an entity, by id."""
        return await self._read(
            lambda connection: graph_reads.chunks_mentioning(connection, entity_id, limit)
        )

    # IndexWriter

    async def source_digests(self) -> dict[str, str]:
        """The digest of every source by its file."""
        return dict(await self._read_primary(lambda connection: connection.fetch(self._sql.source_digests)))

    async def reindex(self) -> int:
        """Index all chunks again if an older analyzer did it; returns how many."""
        return await self._write(document_writes.reindex)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """Store the current version of a document; an unchanged chunk keeps its id and its vector."""
        return await self._write(
            lambda connection: document_writes.replace_document(connection, document, self._now())
        )

    async def remove_sources(self, files: Sequence[str]) -> int:
        """Remove sources and everything that only they support; returns how many chunks they had."""
        return await self._write(
            lambda connection: document_writes.remove_sources(connection, files, self._now())
        )

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks without a vector, by id, each as the text to embed: header, then text."""
        rows = await self._read_primary(
            lambda connection: connection.fetch(self._sql.chunks_without_vector, limit)
        )
        return [(id, f"{header}\n{text}") for id, header, text in rows]

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """Replace everything that was imported under this name; raises UnresolvedEndpoints."""
        # Names decide which entity is meant, and an older version may have stored their keys.
        await self.reindex()
        return await self._write(
            lambda connection: graph_writes.import_graph(
                connection, origin, entities, relationships, self._now()
            )
        )

    async def delete_graph(self, origin: str) -> int:
        """Remove everything that was imported under this name; returns how many entities the import had."""
        return await self._write(
            lambda connection: graph_writes.delete_graph(connection, origin, self._now())
        )

    async def graph_origins(self) -> list[str]:
        """The names of the imports."""
        return await self._read_primary(graph_reads.graph_origins)

    async def imported_entities(self) -> list[NewEntity]:
        """Every entity of an import, by id, as the imports alone describe it."""
        return await self._read_primary(graph_reads.imported_entities)

    # SnapshotReader

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        """By id."""
        return self._iter_rows(self._sql.all_sources, source_from_row)

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        """By id."""
        return self._iter_rows(self._sql.all_chunks, chunk_from_row)

    def iter_entities(self) -> AsyncIterator[Entity]:
        """By id."""
        return self._iter_rows(self._sql.all_entities, entity_from_row)

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        """By id."""
        return self._iter_rows(self._sql.all_relationships, relationship_from_row)

    def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        """By chunk, by entity, then by position in the text."""
        return self._iter_rows(self._sql.all_mentions, lambda row: MentionRecord(*row))

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """The graph of the imports alone, by id, with the entities at the ends of their relationships."""
        return await self._read_primary(graph_reads.imported_graph)


async def _chunks(connection: StoreConnection, ids: Sequence[int]) -> dict[int, ChunkRecord]:
    rows = await connection.fetch(connection.sql.chunks_by_id, connection.listed(ids))
    return {row[0]: chunk_from_row(row) for row in rows}


async def _sources(connection: StoreConnection, ids: Sequence[int]) -> dict[int, SourceRecord]:
    rows = await connection.fetch(connection.sql.sources_by_id, connection.listed(ids))
    return {row[0]: source_from_row(row) for row in rows}


async def _statistics(connection: StoreConnection) -> StoreStatistics:
    sql = connection.sql
    [row] = await connection.fetch(sql.statistics)
    sources, chunks, vectors, model, tokens, mentions, first_date, last_date, revision, size_bytes = row
    return StoreStatistics(
        sources=sources,
        chunks=chunks,
        vectors=vectors,
        model=model,
        tokens=int(tokens),
        entities=dict(await connection.fetch(sql.count_entity_types)),
        relationships=dict(await connection.fetch(sql.count_relationship_types)),
        mentions=int(mentions),
        categories=dict(await connection.fetch(sql.count_categories)),
        doc_types=dict(await connection.fetch(sql.count_doc_types)),
        first_date=first_date,
        last_date=last_date,
        revision=revision,
        size_bytes=int(size_bytes),
    )
