"""The knowledge store over any SQL engine; the engines add transactions, full text and vectors."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from headgate.knowledge.data_model import (
    ChunkRecord,
    Entity,
    IngestedDocument,
    NewEntity,
    NewRelationship,
    Relationship,
    ReplaceResult,
    SourceRecord,
)
from headgate.knowledge.interfaces import MentionRecord
from headgate.knowledge.stores import document_writes, graph_writes, store_reads
from headgate.knowledge.stores.store_connection import RecordT, StoreConnection, WriteConnection

T = TypeVar("T")
P = ParamSpec("P")

ReadWork = Callable[[StoreConnection], Coroutine[Any, Any, T]]
WriteWork = Callable[[WriteConnection], Coroutine[Any, Any, T]]


def _reading(
    work: Callable[Concatenate[StoreConnection, P], Coroutine[Any, Any, T]], *, primary: bool = False
) -> Callable[Concatenate["SqlKnowledgeStore", P], Coroutine[Any, Any, T]]:
    """The method of a store that runs `work` in a transaction; see `_read` for `primary`."""

    async def read(self: "SqlKnowledgeStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._read(lambda connection: work(connection, *args, **kwargs), primary=primary)

    return read


class SqlKnowledgeStore(ABC):
    """The part of a KnowledgeStore that is the same in every engine; see that Protocol for the methods."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is the time of day."""
        self._now = now

    @abstractmethod
    async def _read(self, work: ReadWork[T], *, primary: bool = False) -> T:
        """Run work in a transaction that only reads.

        It may read a replica; the primary has everything that was written before.
        """

    @abstractmethod
    async def _write(self, work: WriteWork[T], *, timeout_seconds: float | None = None) -> T:
        """Run work in a transaction that commits at its end; None is the usual timeout."""

    @abstractmethod
    def _iter_records(self, statement: str, record: type[RecordT]) -> AsyncIterator[RecordT]:
        """Each row of a statement, as one snapshot."""

    # IndexReader

    chunks = _reading(store_reads.chunks)
    sources = _reading(store_reads.sources)
    statistics = _reading(store_reads.statistics)

    # GraphReader

    find_by_keys = _reading(store_reads.find_by_keys)
    list_names = _reading(store_reads.list_names)
    entities = _reading(store_reads.entities)
    relationships = _reading(store_reads.relationships)
    edges = _reading(store_reads.edges)
    neighbourhood = _reading(store_reads.neighbourhood)
    mentioned_entities = _reading(store_reads.mentioned_entities)
    chunks_mentioning = _reading(store_reads.chunks_mentioning)

    # IndexWriter

    source_digests = _reading(store_reads.source_digests, primary=True)
    chunks_without_vector = _reading(store_reads.chunks_without_vector, primary=True)
    graph_origins = _reading(store_reads.graph_origins, primary=True)
    imported_entities = _reading(store_reads.imported_entities, primary=True)

    async def reindex(self) -> int:
        return await self._write(document_writes.reindex)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        return await self._write(
            lambda connection: document_writes.replace_document(connection, document, self._now())
        )

    async def remove_sources(self, files: Sequence[str]) -> int:
        return await self._write(
            lambda connection: document_writes.remove_sources(connection, files, self._now())
        )

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        # Names decide which entity is meant, and an older version may have stored their keys.
        await self.reindex()
        return await self._write(
            lambda connection: graph_writes.import_graph(
                connection, origin, entities, relationships, self._now()
            )
        )

    async def delete_graph(self, origin: str) -> int:
        return await self._write(
            lambda connection: graph_writes.delete_graph(connection, origin, self._now())
        )

    # SnapshotReader

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        return self._iter_records("all_sources", SourceRecord)

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        return self._iter_records("all_chunks", ChunkRecord)

    def iter_entities(self) -> AsyncIterator[Entity]:
        return self._iter_records("all_entities", Entity)

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        return self._iter_records("all_relationships", Relationship)

    def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        return self._iter_records("all_mentions", MentionRecord)

    imported_graph = _reading(store_reads.imported_graph, primary=True)
