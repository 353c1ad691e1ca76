"""knowledge.db: the store that `knowledge.store` describes, in one file for one machine."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headgate.delivery.ledger import StoreFailed
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
from headgate.storage.knowledge import everything, graph, linking, passages, schema, writing
from headgate.storage.knowledge.nearness import Nearness
from headgate.storage.knowledge.remedies import REPLACED, explained
from headgate.storage.sqlite.group_commit import GroupCommit

log = logging.getLogger("headgate.storage")

T = TypeVar("T")

# A commit of another process is over long before that.
_BUSY_SECONDS = 5.0


@asynccontextmanager
async def open_store(
    path: Path, *, now: Callable[[], float] = time.time, busy_seconds: float = _BUSY_SECONDS
) -> AsyncIterator["KnowledgeFile"]:
    """The store in this file while the block lasts; the file is opened when it is first used, and made then.

    A file that cannot be used gives StoreAway with each use, and is left as it is.
    """
    async with (
        GroupCommit(path, schema.TABLES, busy_seconds=busy_seconds) as group_commit,
        # A thread of its own, so that the two searches of a query run side by side.
        GroupCommit(path, schema.TABLES, busy_seconds=busy_seconds) as beside,
    ):
        yield KnowledgeFile(path, group_commit, beside, now)


class KnowledgeFile:
    """The store that `knowledge.store` describes; `now` is the time of day."""

    def __init__(
        self, path: Path, group_commit: GroupCommit, beside: GroupCommit, now: Callable[[], float]
    ) -> None:
        self._path = path
        self._group_commit = group_commit
        self._beside = beside
        self._now = now
        self._is_ours = False
        # Which file it was when it was last found to be well.
        self._checked: tuple[int, int] | None = None
        # Whether there was another one, or none, when it was last looked at.
        self._is_replaced = False
        # Why it could not be used the last time; empty while it can.
        self._trouble = ""
        # Each is used by the thread of one of the two.
        self._sieve = passages.Sieve()
        self._sieve_beside = passages.Sieve()
        self._nearness = Nearness()

    # What a search reads.

    async def revision(self) -> int:
        """Grows with every change that any reader could see."""
        return await self._read(lambda connection: schema.number(connection, "revision"))

    async def model(self) -> str:
        """The fingerprint of the embedder whose vectors are kept; empty when there are none."""
        return await self._read(schema.model_of)

    async def nearest(self, vector: bytes, limit: int, filters: Filters) -> list[Found]:
        """The chunks nearest to a vector, by cosine."""

        def nearest(connection: sqlite3.Connection) -> list[Found]:
            allowed = self._sieve_beside.passing(connection, filters)
            return self._nearness.nearest(connection, vector, limit, allowed)

        return await self._read(nearest, self._beside)

    async def containing(self, terms: Sequence[str], limit: int, filters: Filters) -> list[Found]:
        """The chunks with the best BM25 score for these stems."""

        def containing(connection: sqlite3.Connection) -> list[Found]:
            allowed = self._sieve.passing(connection, filters)
            return passages.containing(connection, terms, limit, allowed)

        return await self._read(containing)

    async def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms; a term that none has is left out."""
        return await self._read(lambda connection: passages.frequencies(connection, terms))

    async def chunks(self, ids: Sequence[int]) -> dict[int, Chunk]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: passages.chunks(connection, ids))

    async def source_ids(self, filters: Filters) -> list[int]:
        """The sources that pass, by the names of their files."""
        return await self._read(lambda connection: passages.source_ids(connection, filters))

    async def sources(self, ids: Sequence[int]) -> dict[int, Source]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: passages.sources(connection, ids))

    async def statistics(self) -> Statistics:
        """What there is."""
        return await self._read(passages.statistics)

    # What walks the graph.

    async def named(self, keys: Sequence[str]) -> list[Entity]:
        """The entities that have one of these as the key of their name, of an alias, or as external id."""
        return await self._read(lambda connection: graph.named(connection, keys))

    async def names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias of the entities of these types, with the entity's id; of all without types."""
        return await self._read(lambda connection: graph.names(connection, types))

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: graph.entities(connection, ids))

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there, by id."""
        return await self._read(lambda connection: graph.relationships(connection, ids))

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""
        return await self._read(lambda connection: graph.edges(connection, entity_ids))

    async def around(self, entity_id: int) -> Vicinity:
        """What is one step away from this entity, all of it at one moment."""
        return await self._read(lambda connection: graph.around(connection, entity_id))

    async def mentioned(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of, by the chunk's id."""
        return await self._read(lambda connection: graph.mentioned(connection, chunk_ids))

    async def mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""
        return await self._read(lambda connection: graph.mentioning(connection, entity_id, limit))

    # What ingestion writes.

    async def digests(self) -> dict[str, str]:
        """The digest of every source by its file."""
        return await self._read(
            lambda connection: dict(connection.execute("SELECT file, digest FROM sources ORDER BY file"))
        )

    async def cut_again(self) -> int:
        """Cut the words of all chunks anew where an older version did it otherwise; returns how many."""
        return await self._do(writing.cut_again)

    async def replace(self, document: Document) -> Replaced:
        """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""
        return await self._do(lambda connection: writing.replace(connection, document, self._now()))

    async def remove(self, files: Sequence[str]) -> int:
        """These sources leave with all that was known only by them; returns how many chunks that was."""
        return await self._do(lambda connection: writing.remove(connection, files, self._now()))

    async def use_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model; those of another are dropped. Returns how many."""
        return await self._do(lambda connection: writing.use_model(connection, model, dimensions))

    async def without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet, by id, each as the text that is embedded: header, then text."""
        return await self._read(lambda connection: writing.without_vector(connection, limit))

    async def keep_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there; returns how many. None of another model."""
        return await self._do(lambda connection: writing.keep_vectors(connection, model, vectors))

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before; raises UncertainEnds."""
        # Who is meant is told by names, and these may be as an older version wrote them.
        await self.cut_again()
        return await self._do(
            lambda connection: linking.import_graph(connection, origin, entities, relationships, self._now())
        )

    async def forget_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves; returns how many entities that was."""
        return await self._do(lambda connection: linking.forget_graph(connection, origin, self._now()))

    async def origins(self) -> list[str]:
        """The names under which something was imported."""
        return await self._read(graph.origins)

    async def imported(self) -> list[NewEntity]:
        """Everybody whom imports speak of, by id, as these alone tell of him."""
        return await self._read(graph.imported)

    # What an export reads.

    def every_source(self) -> AsyncIterator[Source]:
        """By id."""
        return self._every(passages.SOURCES, source_of)

    def every_chunk(self) -> AsyncIterator[Chunk]:
        """By id."""
        return self._every(passages.CHUNKS, chunk_of)

    def every_entity(self) -> AsyncIterator[Entity]:
        """By id."""
        return self._every(graph.ENTITIES, entity_of)

    def every_relationship(self) -> AsyncIterator[Relationship]:
        """By id."""
        return self._every(graph.RELATIONSHIPS, relationship_of)

    def every_mention(self) -> AsyncIterator[Mentioned]:
        """By chunk, by entity, then as they stand in the text."""
        return self._every(everything.MENTIONS, lambda row: Mentioned(*row), everything.BY_PLACE)

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say, by id; and at whom else a relationship of theirs ends, as it is known."""
        return await self._read(graph.imported_graph)

    async def check(self) -> None:
        """Raise StoreAway when nothing could be asked of it; a file that is not there yet is not made."""
        with self._translated():
            there = await asyncio.to_thread(_identity, self._path)
            # Our connections would go on with the file that was there before.
            self._is_replaced = self._checked is not None and there != self._checked
            self._refuse_replaced()
        if there is not None:
            # A file that fails is opened anew with the next use, whichever it is then.
            self._checked = None
            await self.revision()
            self._checked = there

    async def _every(
        self, select: str, made: Callable[[Sequence[Any]], T], order: str = everything.BY_ID
    ) -> AsyncIterator[T]:
        with self._translated():
            await self._refuse_foreign()
            async with aclosing(everything.every(self._path, select, made, order)) as rows:
                async for one in rows:
                    yield one

    # The file.

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._translated():
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

        with self._translated():
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
    def _translated(self) -> Iterator[None]:
        """The caller gets StoreAway; the log has the reason, once for each time that it changes."""
        try:
            yield
        except (StoreFailed, sqlite3.Error, OSError) as error:
            why = explained(error)
            if why != self._trouble:
                log.warning("knowledge store cannot be used", extra={"reason": why})
            self._trouble = why
            raise StoreAway(why) from error
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
