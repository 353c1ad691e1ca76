"""The knowledge store in PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from headgate.domain.errors import StoreUnavailable
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
from headgate.knowledge.stores.postgres import (
    chunk_queries,
    document_writes,
    graph_queries,
    graph_updates,
    schema,
    vector_index,
)
from headgate.knowledge.stores.postgres.chunk_queries import passing_sources, select_chunks
from headgate.knowledge.stores.postgres.postings import analyze_chunks
from headgate.knowledge.stores.postgres.statements import (
    CHUNK,
    SOURCE,
    fetch_rows,
    read_counters,
    read_revision,
    storable,
)
from headgate.knowledge.stores.postgres.vector_index import nearest
from headgate.knowledge.stores.row_mapping import (
    chunk_from_row,
    entity_from_row,
    relationship_from_row,
    source_from_row,
)
from headgate.search.block_postings import ScoredChunk
from headgate.storage.postgres.connection_pool import (
    Connection,
    PostgresDatabase,
    ReplicatedDatabase,
    open_databases,
)

T = TypeVar("T")

# In the order of `Mentioned`, and as it stands in the texts.
MENTIONS: Final = (
    "SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence"
    " FROM knowledge_mentions AS m JOIN knowledge_entities AS e ON e.id = m.entity_id"
    " ORDER BY m.chunk_id, m.entity_id, m.start, m.stop"
)
# So much is in memory at once.
_ROWS_AT_ONCE: Final = 500
# Whoever exports may take as long as it takes; one that has been forgotten must not hold on for good.
_MOST_SECONDS: Final = 3600.0


async def iter_rows(
    database: PostgresDatabase, statement: str, made: Callable[[Sequence[Any]], T]
) -> AsyncIterator[T]:
    """What `made` makes of each row; raises StoreAway."""
    async with (
        database.open_snapshot(_MOST_SECONDS) as connection,
        connection.cursor(name="everything") as cursor,
    ):
        await cursor.execute(statement)
        while found := await cursor.fetchmany(_ROWS_AT_ONCE):
            for row in found:
                yield made(row)


# The words of millions of chunks, once after an update.
_CUT_SECONDS: Final = 7200.0


@asynccontextmanager
async def open_store_on(
    url: str, replica_url: str | None, now: Callable[[], float], connections: tuple[int, int]
) -> AsyncIterator["PostgresKnowledgeStore"]:
    """The store, while the block lasts; see `opening.open_store`."""
    async with open_databases(
        url, replica_url, schema.ensure_schema, version=read_revision, connections=connections
    ) as databases:
        # Tried once, so that the log says at the start what is wrong; all of it may be mended meanwhile.
        with suppress(StoreUnavailable):
            await databases.primary.prepare()
        yield PostgresKnowledgeStore(databases, now)


class PostgresKnowledgeStore:
    """Searches read wherever it is quickest; ingestion reads where it writes, so that it sees what it did."""

    def __init__(self, databases: ReplicatedDatabase, now: Callable[[], float]) -> None:
        self._databases = databases
        self._primary = databases.primary
        self._now = now

    # Passages.

    async def revision(self) -> int:
        """Grows with every change."""
        return await self._databases.read_statement(read_revision)

    async def model_fingerprint(self) -> str:
        """The fingerprint of the embedder."""
        return (await self._databases.read(read_counters)).model

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        """The chunks nearest to a vector."""

        async def find(connection: Connection) -> list[ScoredChunk]:
            selection = await select_chunks(connection, filters)
            return await nearest(connection, await read_counters(connection), vector, limit, selection)

        return await self._databases.read(find)

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        """The chunks with the best BM25 score."""
        return await self._databases.read(
            lambda connection: chunk_queries.match_terms(connection, terms, limit, filters)
        )

    async def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms."""
        return await self._databases.read(
            lambda connection: chunk_queries.document_frequencies(connection, terms)
        )

    async def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRecord]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: chunk_queries.chunks(connection, ids))

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        """The sources that pass, by the names of their files."""
        found = await self._databases.read(lambda connection: passing_sources(connection, filters))
        return [id for id, _ in found]

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: chunk_queries.sources(connection, ids))

    async def statistics(self) -> StoreStatistics:
        """What there is."""
        return await self._databases.read(chunk_queries.statistics)

    # Graph.

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        """The entities with one of these keys."""
        return await self._databases.read(lambda connection: graph_queries.find_by_keys(connection, keys))

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias."""
        return await self._databases.read(lambda connection: graph_queries.list_names(connection, types))

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: graph_queries.entities(connection, ids))

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: graph_queries.relationships(connection, ids))

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship of these."""
        return await self._databases.read(lambda connection: graph_queries.edges(connection, entity_ids))

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        """What is one step away from this entity."""
        return await self._databases.read(
            lambda connection: graph_queries.neighbourhood(connection, entity_id)
        )

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of."""
        return await self._databases.read(
            lambda connection: graph_queries.mentioned_entities(connection, chunk_ids)
        )

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""
        return await self._databases.read(
            lambda connection: graph_queries.chunks_mentioning(connection, entity_id, limit)
        )

    # Intake.

    async def source_digests(self) -> dict[str, str]:
        """The digest of every source by its file."""
        return dict(
            await self._primary.read(
                lambda connection: fetch_rows(connection, "SELECT file, digest FROM knowledge_sources")
            )
        )

    async def reindex(self) -> int:
        """Cut the words of all chunks anew where an older version did it otherwise."""
        return await self._primary.write(document_writes.reindex, seconds=_CUT_SECONDS)

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """The document is stored as it is now."""
        document = storable(document)
        # Before anything is locked: it takes as long as the rest.
        words = await analyze_chunks([(chunk.header, chunk.text) for chunk in document.chunks])
        return await self._primary.write(
            lambda connection: document_writes.replace_document(connection, document, words, self._now())
        )

    async def remove_sources(self, files: Sequence[str]) -> int:
        """These sources leave."""
        return await self._primary.write(
            lambda connection: document_writes.remove_sources(connection, files, self._now())
        )

    async def set_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model."""
        return await self._primary.write(
            lambda connection: vector_index.set_model(connection, model, dimensions)
        )

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet."""
        return await self._primary.read(
            lambda connection: vector_index.chunks_without_vector(connection, limit)
        )

    async def store_vectors(self, model: str, kept: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there."""
        return await self._primary.write(
            lambda connection: vector_index.store_vectors(connection, model, kept)
        )

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before."""
        # Who is meant is told by names, and these may be as an older version wrote them.
        await self.reindex()
        return await self._primary.write(
            lambda connection: graph_updates.import_graph(
                connection,
                storable(origin),
                list(map(storable, entities)),
                list(map(storable, relationships)),
                self._now(),
            )
        )

    async def delete_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves."""
        return await self._primary.write(
            lambda connection: graph_updates.delete_graph(connection, storable(origin), self._now())
        )

    async def graph_origins(self) -> list[str]:
        """The names under which something was imported."""
        return await self._primary.read(graph_queries.graph_origins)

    async def imported_entities(self) -> list[NewEntity]:
        """Everybody whom imports speak of."""
        return await self._primary.read(graph_queries.imported_entities)

    # Everything.

    async def check(self) -> None:
        """Raise StoreAway when it cannot be read."""
        await self.revision()

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        """By id."""
        return iter_rows(
            self._primary, f"SELECT {SOURCE} FROM knowledge_sources ORDER BY id", source_from_row
        )

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        """By id."""
        return iter_rows(self._primary, f"SELECT {CHUNK} ORDER BY c.id", chunk_from_row)

    def iter_entities(self) -> AsyncIterator[Entity]:
        """By id."""
        return iter_rows(self._primary, f"{graph_queries.ENTITIES} ORDER BY id", entity_from_row)

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        """By id."""
        return iter_rows(self._primary, f"{graph_queries.RELATIONSHIPS} ORDER BY id", relationship_from_row)

    def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        """By chunk, by entity, then as they stand in the text."""
        return iter_rows(self._primary, MENTIONS, lambda row: MentionRecord(*row))

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say."""
        return await self._primary.read(graph_queries.imported_graph)
