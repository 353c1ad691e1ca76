"""The store of documents in PostgreSQL, which `knowledge.store` describes."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from headgate.domain.errors import StoreAway
from headgate.knowledge.store import Mentioned
from headgate.knowledge.values import (
    Chunk,
    Document,
    Edge,
    Entity,
    Filters,
    Found,
    NewEntity,
    NewRelationship,
    Relationship,
    Replaced,
    Source,
    Statistics,
    Vicinity,
)
from headgate.storage.columns import chunk_of, entity_of, relationship_of, source_of
from headgate.storage.postgres.knowledge import graph, linking, passages, schema, vectors, writing
from headgate.storage.postgres.knowledge.everything import MENTIONS, every
from headgate.storage.postgres.knowledge.nearness import nearest
from headgate.storage.postgres.knowledge.postings import cut
from headgate.storage.postgres.knowledge.rows import CHUNK, SOURCE, numbers, revision, rows, storable
from headgate.storage.postgres.knowledge.selecting import passing_sources, select
from headgate.storage.postgres.pool import Connection, Databases, connected

# The words of millions of chunks, once after an update.
_CUT_SECONDS: Final = 7200.0


@asynccontextmanager
async def opened(
    url: str, replica_url: str | None, now: Callable[[], float], connections: tuple[int, int]
) -> AsyncIterator["PostgresStore"]:
    """The store, while the block lasts; see `opening.open_store`."""
    async with connected(
        url, replica_url, schema.ensure, version=revision, connections=connections
    ) as databases:
        # Tried once, so that the log says at the start what is wrong; all of it may be mended meanwhile.
        with suppress(StoreAway):
            await databases.primary.prepare()
        yield PostgresStore(databases, now)


class PostgresStore:
    """Searches read wherever it is quickest; ingestion reads where it writes, so that it sees what it did."""

    def __init__(self, databases: Databases, now: Callable[[], float]) -> None:
        self._databases = databases
        self._primary = databases.primary
        self._now = now

    # Passages.

    async def revision(self) -> int:
        """Grows with every change."""
        return await self._databases.glance(revision)

    async def model(self) -> str:
        """The fingerprint of the embedder."""
        return (await self._databases.read(numbers)).model

    async def nearest(self, vector: bytes, limit: int, filters: Filters) -> list[Found]:
        """The chunks nearest to a vector."""

        async def find(connection: Connection) -> list[Found]:
            selection = await select(connection, filters)
            return await nearest(connection, await numbers(connection), vector, limit, selection)

        return await self._databases.read(find)

    async def containing(self, terms: Sequence[str], limit: int, filters: Filters) -> list[Found]:
        """The chunks with the best BM25 score."""
        return await self._databases.read(
            lambda connection: passages.containing(connection, terms, limit, filters)
        )

    async def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms."""
        return await self._databases.read(lambda connection: passages.frequencies(connection, terms))

    async def chunks(self, ids: Sequence[int]) -> dict[int, Chunk]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: passages.chunks(connection, ids))

    async def source_ids(self, filters: Filters) -> list[int]:
        """The sources that pass, by the names of their files."""
        found = await self._databases.read(lambda connection: passing_sources(connection, filters))
        return [id for id, _ in found]

    async def sources(self, ids: Sequence[int]) -> dict[int, Source]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: passages.sources(connection, ids))

    async def statistics(self) -> Statistics:
        """What there is."""
        return await self._databases.read(passages.statistics)

    # Graph.

    async def named(self, keys: Sequence[str]) -> list[Entity]:
        """The entities with one of these keys."""
        return await self._databases.read(lambda connection: graph.named(connection, keys))

    async def names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias."""
        return await self._databases.read(lambda connection: graph.names(connection, types))

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: graph.entities(connection, ids))

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there."""
        return await self._databases.read(lambda connection: graph.relationships(connection, ids))

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship of these."""
        return await self._databases.read(lambda connection: graph.edges(connection, entity_ids))

    async def around(self, entity_id: int) -> Vicinity:
        """What is one step away from this entity."""
        return await self._databases.read(lambda connection: graph.around(connection, entity_id))

    async def mentioned(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of."""
        return await self._databases.read(lambda connection: graph.mentioned(connection, chunk_ids))

    async def mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""
        return await self._databases.read(lambda connection: graph.mentioning(connection, entity_id, limit))

    # Intake.

    async def digests(self) -> dict[str, str]:
        """The digest of every source by its file."""
        return dict(
            await self._primary.read(
                lambda connection: rows(connection, "SELECT file, digest FROM knowledge_sources")
            )
        )

    async def cut_again(self) -> int:
        """Cut the words of all chunks anew where an older version did it otherwise."""
        return await self._primary.write(writing.cut_again, seconds=_CUT_SECONDS)

    async def replace(self, document: Document) -> Replaced:
        """The document is stored as it is now."""
        document = storable(document)
        # Before anything is locked: it takes as long as the rest.
        words = await cut([(chunk.header, chunk.text) for chunk in document.chunks])
        return await self._primary.write(
            lambda connection: writing.replace(connection, document, words, self._now())
        )

    async def remove(self, files: Sequence[str]) -> int:
        """These sources leave."""
        return await self._primary.write(lambda connection: writing.remove(connection, files, self._now()))

    async def use_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model."""
        return await self._primary.write(lambda connection: vectors.use_model(connection, model, dimensions))

    async def without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet."""
        return await self._primary.read(lambda connection: vectors.without_vector(connection, limit))

    async def keep_vectors(self, model: str, kept: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there."""
        return await self._primary.write(lambda connection: vectors.keep_vectors(connection, model, kept))

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before."""
        # Who is meant is told by names, and these may be as an older version wrote them.
        await self.cut_again()
        return await self._primary.write(
            lambda connection: linking.import_graph(
                connection,
                storable(origin),
                list(map(storable, entities)),
                list(map(storable, relationships)),
                self._now(),
            )
        )

    async def forget_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves."""
        return await self._primary.write(
            lambda connection: linking.forget_graph(connection, storable(origin), self._now())
        )

    async def origins(self) -> list[str]:
        """The names under which something was imported."""
        return await self._primary.read(graph.origins)

    async def imported(self) -> list[NewEntity]:
        """Everybody whom imports speak of."""
        return await self._primary.read(graph.imported)

    # Everything.

    async def check(self) -> None:
        """Raise StoreAway when it cannot be read."""
        await self.revision()

    def every_source(self) -> AsyncIterator[Source]:
        """By id."""
        return every(self._primary, f"SELECT {SOURCE} FROM knowledge_sources ORDER BY id", source_of)

    def every_chunk(self) -> AsyncIterator[Chunk]:
        """By id."""
        return every(self._primary, f"SELECT {CHUNK} ORDER BY c.id", chunk_of)

    def every_entity(self) -> AsyncIterator[Entity]:
        """By id."""
        return every(self._primary, f"{graph.ENTITIES} ORDER BY id", entity_of)

    def every_relationship(self) -> AsyncIterator[Relationship]:
        """By id."""
        return every(self._primary, f"{graph.RELATIONSHIPS} ORDER BY id", relationship_of)

    def every_mention(self) -> AsyncIterator[Mentioned]:
        """By chunk, by entity, then as they stand in the text."""
        return every(self._primary, MENTIONS, lambda row: Mentioned(*row))

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say."""
        return await self._primary.read(graph.imported_graph)
