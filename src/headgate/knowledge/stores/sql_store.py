"""The knowledge store over any SQL engine; the engines add transactions, full text and vectors."""

from abc import ABC, abstractmethod
from collections import defaultdict
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
from headgate.knowledge.search.analyzer import ANALYZER_VERSION
from headgate.knowledge.stores import graph_writes, postings, store_reads
from headgate.knowledge.stores.store_connection import RecordT, StoreConnection, WriteConnection
from headgate.search.block_postings import BLOCK_CHUNKS

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


def _writing(
    work: Callable[Concatenate[WriteConnection, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SqlKnowledgeStore", P], Coroutine[Any, Any, T]]:
    """The method of a store that runs `work` in a transaction that commits."""

    async def write(self: "SqlKnowledgeStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(lambda connection: work(connection, *args, **kwargs))

    return write


async def replace_document(connection: WriteConnection, document: IngestedDocument) -> ReplaceResult:
    """Store the current version of a document; an unchanged chunk keeps its id and its vector."""
    await _upgrade_index(connection)
    source_id = await _save_source(connection, document)
    before: dict[int, str] = dict(await connection.fetch("chunk_digests", source_id))
    free: defaultdict[str, list[int]] = defaultdict(list)
    for id, digest in before.items():
        free[digest].append(id)
    # Each stored chunk is used once; None is a new one.
    matched = [free[chunk.digest].pop(0) if free[chunk.digest] else None for chunk in document.chunks]
    gone = sorted(set(before).difference(matched))
    await connection.delete_chunks(gone)
    kept = sum(id is not None for id in matched)
    fresh = iter(await connection.new_ids("chunk", len(matched) - kept))
    ids = [id if id is not None else next(fresh) for id in matched]
    placed = list(enumerate(zip(ids, document.chunks, strict=True)))
    await connection.execute_rows(
        "move_chunks", [(position, chunk.tokens, id) for position, (id, chunk) in placed if id in before]
    )
    await connection.insert_chunks(
        source_id, [(id, position, chunk) for position, (id, chunk) in placed if id not in before]
    )
    await graph_writes.update_document_graph(connection, source_id, document, list(before), ids)
    await connection.bump_revision()
    return ReplaceResult(len(ids) - kept, kept, len(gone))


async def remove_sources(connection: WriteConnection, files: Sequence[str]) -> int:
    """Remove sources and everything that only they support; returns how many chunks they had."""
    chunks_by_source: dict[int, list[int]] = {}
    for source_id, chunk_id in await connection.fetch("find_sources", connection.listed(files)):
        chunks_by_source.setdefault(source_id, []).extend([] if chunk_id is None else [chunk_id])
    if not chunks_by_source:
        return 0
    await _upgrade_index(connection)
    nothing = IngestedDocument(source=SourceRecord(file=""))
    for source_id, chunk_ids in chunks_by_source.items():
        await graph_writes.update_document_graph(connection, source_id, nothing, chunk_ids, [])
    gone = [id for chunk_ids in chunks_by_source.values() for id in chunk_ids]
    await connection.delete_chunks(gone)
    await connection.execute("delete_sources", connection.listed(chunks_by_source))
    await connection.bump_revision()
    return len(gone)


async def reindex(connection: WriteConnection) -> int:
    """Index all chunks again if an older analyzer did it; returns how many."""
    names, chunks = await _upgrade_index(connection)
    if names or chunks:
        await connection.bump_revision()
    return chunks


async def _upgrade_index(connection: WriteConnection) -> tuple[int, int]:
    """Bring names and terms up to date with the analyzer; returns how many entities and chunks changed."""
    if await connection.analyzer_version() == ANALYZER_VERSION:
        return 0, 0
    names = await graph_writes.rebuild_name_keys(connection)
    chunks, last = await connection.forget_terms()
    # One block after the other, so that each is written once and only its texts are in memory.
    for first in range(0, last + 1 if chunks else 0, BLOCK_CHUNKS):
        if stored := await connection.fetch("chunk_texts", first, first + BLOCK_CHUNKS - 1):
            await connection.index_again(stored)
    return names, chunks


async def _save_source(connection: WriteConnection, document: IngestedDocument) -> int:
    source = document.source
    known = await connection.fetch("find_source", source.file)
    source_id = int(known[0][0]) if known else (await connection.new_ids("source", 1))[0]
    tokens = sum(chunk.tokens for chunk in document.chunks)
    await connection.execute(
        "save_source",
        *(source_id, source.file, source.category, source.category.casefold()),
        *(source.doc_type, source.doc_type.casefold(), source.title, source.date, source.digest),
        *(source.size_bytes, len(document.chunks), tokens, source.ingested),
    )
    return source_id


class SqlKnowledgeStore(ABC):
    """The part of a KnowledgeStore that is the same in every engine; see that Protocol for the methods."""

    def __init__(self, now: Callable[[], float]) -> None:
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
    document_frequencies = _reading(postings.document_frequencies)

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

    reindex = _writing(reindex)
    replace_document = _writing(replace_document)
    remove_sources = _writing(remove_sources)
    delete_graph = _writing(graph_writes.delete_graph)

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        # Names decide which entity is meant, and an older version may have stored their keys.
        await self.reindex()
        return await self._write(
            lambda connection: graph_writes.import_graph(connection, origin, entities, relationships)
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
