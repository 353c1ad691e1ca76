"""What keeps documents and the graph: SQLite in one file, or PostgreSQL; both pass the same tests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

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


class Passages(Protocol):
    """What a search reads. Everything raises StoreAway when the store cannot be had."""

    async def revision(self) -> int:
        """Grows with every change that any reader could see."""

    async def model(self) -> str:
        """The fingerprint of the embedder whose vectors are kept; empty when there are none."""

    async def nearest(self, vector: bytes, limit: int, filters: Filters) -> list[Found]:
        """The chunks nearest to a vector of little-endian float32 and length one, by cosine.

        The best first, rounded to six digits; equal ones by id. Those without a vector are not found, and
        none is where the store has vectors of other dimensions.
        """

    async def containing(self, terms: Sequence[str], limit: int, filters: Filters) -> list[Found]:
        """The chunks with the best BM25 score for these stems, see `bm25`; the best first, then by id."""

    async def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms; a term that none has is left out."""

    async def chunks(self, ids: Sequence[int]) -> dict[int, Chunk]:
        """Those that are still there, by id."""

    async def source_ids(self, filters: Filters) -> list[int]:
        """The sources that pass, by the names of their files."""

    async def sources(self, ids: Sequence[int]) -> dict[int, Source]:
        """Those that are still there, by id."""

    async def statistics(self) -> Statistics:
        """What there is."""


class Graph(Protocol):
    """What walks from entity to entity. Everything raises StoreAway when the store cannot be had."""

    async def named(self, keys: Sequence[str]) -> list[Entity]:
        """The entities that have one of these as the key of their name, of an alias, or as external id."""

    async def names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias of the entities of these types, with the entity's id; of all without types."""

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there, by id."""

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there, by id."""

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""

    async def around(self, entity_id: int) -> Vicinity:
        """What is one step away from this entity, all of it at one moment."""

    async def mentioned(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of, by the chunk's id."""

    async def mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""


class Intake(Protocol):
    """What ingestion writes. Each method is one step that is done or not, also when the process is killed."""

    async def digests(self) -> dict[str, str]:
        """The digest of every source by its file."""

    async def cut_again(self) -> int:
        """Cut the words of all chunks anew, if an older version did it otherwise; returns how many chunks.

        Until then some words of a query may not be found. Whoever stores or removes a document first does
        this too, so that nothing is left behind of what was cut otherwise.
        """

    async def replace(self, document: Document) -> Replaced:
        """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""

    async def remove(self, files: Sequence[str]) -> int:
        """These sources leave with all that was known only by them; returns how many chunks that was."""

    async def use_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model; those of another are dropped. Returns how many."""

    async def without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet, by id, each as the text that is embedded: header, then text."""

    async def keep_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there; returns how many. None of another model."""

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before; returns how many of each there are now.

        Raises UncertainEnds for relationships whose ends are not known, or fit several entities.
        """

    async def forget_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves; returns how many entities that was."""

    async def origins(self) -> list[str]:
        """The names under which something was imported."""

    async def imported(self) -> list[NewEntity]:
        """Everybody whom imports speak of, by id, as these alone tell of him."""


class Mentioned(msgspec.Struct, frozen=True):
    """Where a chunk speaks of an entity: from and to which character of its text."""

    chunk_id: int
    entity_id: int
    # As the entity is called now, which need not be what stands there.
    entity_name: str
    start: int
    end: int
    confidence: float


class Everything(Protocol):
    """What an export reads: all of it, as it was at one moment."""

    def every_source(self) -> AsyncIterator[Source]:
        """By id."""

    def every_chunk(self) -> AsyncIterator[Chunk]:
        """By id."""

    def every_entity(self) -> AsyncIterator[Entity]:
        """By id."""

    def every_relationship(self) -> AsyncIterator[Relationship]:
        """By id."""

    def every_mention(self) -> AsyncIterator[Mentioned]:
        """By chunk, by entity, then as they stand in the text."""

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say, by id; and at whom else a relationship of theirs ends, as it is known."""


class Store(Passages, Graph, Intake, Everything, Protocol):
    """The whole store; it is opened and closed by whoever made it."""

    async def check(self) -> None:
        """Raise StoreAway when it cannot be read; nothing is made by that."""
