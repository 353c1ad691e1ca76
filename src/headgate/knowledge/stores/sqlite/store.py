"""The knowledge store in one SQLite file, knowledge.db."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from headgate.domain.errors import StoreFailed, StoreUnavailable
from headgate.knowledge.data_model import (
    ChunkRecord,
    DocumentFilters,
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
from headgate.knowledge.stores.row_mapping import (
    chunk_from_row,
    entity_from_row,
    relationship_from_row,
    source_from_row,
)
from headgate.knowledge.stores.sqlite import (
    chunk_queries,
    document_writes,
    graph_queries,
    graph_updates,
    schema,
)
from headgate.knowledge.stores.sqlite.schema import KNOWLEDGE_MIGRATIONS, REPLACED, explain_error
from headgate.knowledge.stores.sqlite.vector_index import SqliteVectorIndex
from headgate.search.block_postings import ScoredChunk
from headgate.storage.sqlite.database_file import open_database_file
from headgate.storage.sqlite.group_commit import GroupCommit

T = TypeVar("T")

# In the order of `Mentioned`. Crossed, so that they are read by their own key and need not be sorted.
MENTIONS = (
    "SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence"
    " FROM mentions AS m CROSS JOIN entities AS e ON e.id = m.entity_id"
)
# The columns by which rows come, as numbers: ids are first, and mentions have none.
BY_ID = "1"
BY_PLACE = "1, 2, 4, 5"
_READ_AT_ONCE = 500
_SNAPSHOT_BUSY_SECONDS = 5.0


async def iter_rows(
    path: Path, select: str, made: Callable[[Sequence[Any]], T], order: str = BY_ID
) -> AsyncGenerator[T, None]:
    """Each row in this order; what is committed meanwhile is not among them.

    Raises StoreFailed, sqlite3.Error or OSError.
    """
    # One thread for all of it: who goes away in the middle of a read closes after that read, not beneath it.
    thread = ThreadPoolExecutor(1, "export")
    aside = partial(asyncio.get_running_loop().run_in_executor, thread)
    try:
        connection = await aside(_open_snapshot, path)
        try:
            rows = await aside(_begin_select, connection, f"{select} ORDER BY {order}")
            while some := await aside(rows.fetchmany, _READ_AT_ONCE):
                for row in some:
                    yield made(row)
        finally:
            connection.interrupt()
            await aside(connection.close)
    finally:
        thread.shutdown(wait=False)


def _open_snapshot(path: Path) -> sqlite3.Connection:
    open_database_file(path, KNOWLEDGE_MIGRATIONS, _SNAPSHOT_BUSY_SECONDS).close()
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _begin_select(connection: sqlite3.Connection, select: str) -> sqlite3.Cursor:
    # A transaction sees the file as it is at its first read.
    connection.execute("BEGIN")
    return connection.execute(select)


log = logging.getLogger("headgate.storage")


# A commit of another process is over long before that.
_BUSY_SECONDS = 5.0


@asynccontextmanager
async def open_sqlite_store(
    path: Path, *, now: Callable[[], float] = time.time, busy_seconds: float = _BUSY_SECONDS
) -> AsyncIterator["SqliteKnowledgeStore"]:
    """The store in this file while the block lasts; the file is opened when it is first used, and made then.

    A file that cannot be used gives StoreAway with each use, and is left as it is.
    """
    async with (
        GroupCommit(path, KNOWLEDGE_MIGRATIONS, busy_seconds=busy_seconds) as group_commit,
        # A thread of its own, so that the two searches of a query run side by side.
        GroupCommit(path, KNOWLEDGE_MIGRATIONS, busy_seconds=busy_seconds) as beside,
    ):
        yield SqliteKnowledgeStore(path, group_commit, beside, now)


class SqliteKnowledgeStore:
    """The store that `knowledge.store` describes; `now` is the time of day."""

    def __init__(
        self, path: Path, group_commit: GroupCommit, beside: GroupCommit, now: Callable[[], float]
    ) -> None:
        self._path = path
        self._group_commit = group_commit
        self._reader = beside
        self._now = now
        self._is_ours = False
        # Which file it was when it was last found to be well.
        self._checked: tuple[int, int] | None = None
        # Whether there was another one, or none, when it was last looked at.
        self._is_replaced = False
        # Why it could not be used the last time; empty while it can.
        self._trouble = ""
        # Each is used by the thread of one of the two.
        self._filter_cache = chunk_queries.FilterCache()
        self._reader_filter_cache = chunk_queries.FilterCache()
        self._vector_index = SqliteVectorIndex()

    # What a search reads.

    async def revision(self) -> int:
        """Grows with every change that any reader could see."""
        return await self._read(lambda connection: schema.read_counter(connection, "revision"))

    async def model_fingerprint(self) -> str:
        """The fingerprint of the embedder whose vectors are kept; empty when there are none."""
        return await self._read(schema.model_fingerprint)

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        """The chunks nearest to a vector, by cosine."""

        def nearest(connection: sqlite3.Connection) -> list[ScoredChunk]:
            allowed = self._reader_filter_cache.matching_chunks(connection, filters)
            return self._vector_index.nearest(connection, vector, limit, allowed)

        return await self._read(nearest, self._reader)

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        """The chunks with the best BM25 score for these stems."""

        def containing(connection: sqlite3.Connection) -> list[ScoredChunk]:
            allowed = self._filter_cache.matching_chunks(connection, filters)
            return chunk_queries.match_terms(connection, terms, limit, allowed)

        return await self._read(containing)

    async def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms; a term that none has is left out."""
        return await self._read(lambda connection: chunk_queries.document_frequencies(connection, terms))

    async def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRecord]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: chunk_queries.chunks(connection, ids))

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        """The sources that pass, by the names of their files."""
        return await self._read(lambda connection: chunk_queries.source_ids(connection, filters))

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: chunk_queries.sources(connection, ids))

    async def statistics(self) -> StoreStatistics:
        """What there is."""
        return await self._read(chunk_queries.statistics)

    # What walks the graph.

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        """The entities that have one of these as the key of their name, of an alias, or as external id."""
        return await self._read(lambda connection: graph_queries.find_by_keys(connection, keys))

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias of the entities of these types, with the entity's id; of all without types."""
        return await self._read(lambda connection: graph_queries.list_names(connection, types))

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: graph_queries.entities(connection, ids))

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: graph_queries.relationships(connection, ids))

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""
        return await self._read(lambda connection: graph_queries.edges(connection, entity_ids))

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        """What is one step away from this entity, all of it at one moment."""
        return await self._read(lambda connection: graph_queries.neighbourhood(connection, entity_id))

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of, by the chunk's id."""
        return await self._read(lambda connection: graph_queries.mentioned_entities(connection, chunk_ids))

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""
        return await self._read(
            lambda connection: graph_queries.chunks_mentioning(connection, entity_id, limit)
        )

    # What ingestion writes.

    async def source_digests(self) -> dict[str, str]:
        """The digest of every source by its file."""
        return await self._read(
            lambda connection: dict(connection.execute("SELECT file, digest FROM sources ORDER BY file"))
        )

    async def reindex(self) -> int:
        """Cut the words of all chunks anew where an older version did it otherwise; returns how many."""
        return await self._write(document_writes.reindex)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""
        return await self._write(
            lambda connection: document_writes.replace_document(connection, document, self._now())
        )

    async def remove_sources(self, files: Sequence[str]) -> int:
        """These sources leave with all that was known only by them; returns how many chunks that was."""
        return await self._write(
            lambda connection: document_writes.remove_sources(connection, files, self._now())
        )

    async def set_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model; those of another are dropped. Returns how many."""
        return await self._write(lambda connection: document_writes.set_model(connection, model, dimensions))

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet, by id, each as the text that is embedded: header, then text."""
        return await self._read(lambda connection: document_writes.chunks_without_vector(connection, limit))

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there; returns how many. None of another model."""
        return await self._write(lambda connection: document_writes.store_vectors(connection, model, vectors))

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before; raises UncertainEnds."""
        # Who is meant is told by names, and these may be as an older version wrote them.
        await self.reindex()
        return await self._write(
            lambda connection: graph_updates.import_graph(
                connection, origin, entities, relationships, self._now()
            )
        )

    async def delete_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves; returns how many entities that was."""
        return await self._write(
            lambda connection: graph_updates.delete_graph(connection, origin, self._now())
        )

    async def graph_origins(self) -> list[str]:
        """The names under which something was imported."""
        return await self._read(graph_queries.graph_origins)

    async def imported_entities(self) -> list[NewEntity]:
        """Everybody whom imports speak of, by id, as these alone tell of him."""
        return await self._read(graph_queries.imported_entities)

    # What an export reads.

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        """By id."""
        return self._iter_rows(chunk_queries.SOURCES, source_from_row)

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        """By id."""
        return self._iter_rows(chunk_queries.CHUNKS, chunk_from_row)

    def iter_entities(self) -> AsyncIterator[Entity]:
        """By id."""
        return self._iter_rows(graph_queries.ENTITIES, entity_from_row)

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        """By id."""
        return self._iter_rows(graph_queries.RELATIONSHIPS, relationship_from_row)

    def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        """By chunk, by entity, then as they stand in the text."""
        return self._iter_rows(MENTIONS, lambda row: MentionRecord(*row), BY_PLACE)

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say, by id; and at whom else a relationship of theirs ends, as it is known."""
        return await self._read(graph_queries.imported_graph)

    async def check(self) -> None:
        """Raise StoreAway when nothing could be asked of it; a file that is not there yet is not made."""
        with self._translate_errors():
            there = await asyncio.to_thread(_identity, self._path)
            # Our connections would go on with the file that was there before.
            self._is_replaced = self._checked is not None and there != self._checked
            self._refuse_replaced()
        if there is not None:
            # A file that fails is opened anew with the next use, whichever it is then.
            self._checked = None
            await self.revision()
            self._checked = there

    async def _iter_rows(
        self, select: str, made: Callable[[Sequence[Any]], T], order: str = BY_ID
    ) -> AsyncIterator[T]:
        with self._translate_errors():
            await self._refuse_foreign()
            async with aclosing(iter_rows(self._path, select, made, order)) as rows:
                async for one in rows:
                    yield one

    # The file.

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._translate_errors():
            await self._refuse_foreign()
            return await self._group_commit.write(work)

    async def _read(
        self, work: Callable[[sqlite3.Connection], T], group_commit: GroupCommit | None = None
    ) -> T:
        def at_one_moment(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                # Some failures have ended it already, and it is they that are told.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        with self._translate_errors():
            await self._refuse_foreign()
            return await (group_commit or self._group_commit).read(at_one_moment)

    async def _refuse_foreign(self) -> None:
        self._refuse_replaced()
        if not self._is_ours:
            await asyncio.to_thread(schema.refuse_foreign, self._path)
            self._is_ours = True

    def _refuse_replaced(self) -> None:
        if self._is_replaced:
            raise StoreFailed(REPLACED)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """The caller gets StoreAway; the log has the reason, once for each time that it changes."""
        try:
            yield
        except (StoreFailed, sqlite3.Error, OSError) as error:
            why = explain_error(error)
            if why != self._trouble:
                log.warning("knowledge store cannot be used", extra={"reason": why})
            self._trouble = why
            raise StoreUnavailable(why) from error
        if self._trouble:
            self._trouble = ""
            log.info("knowledge store can be used again")


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells this file from another of its name; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
