"""The Protocols of the document server: embedder, entity extractor, and the parts of a store."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from headgate.knowledge.data_model import (
    ChunkRecord,
    DocumentFilters,
    Edge,
    Entity,
    IngestedDocument,
    Neighbourhood,
    NewChunk,
    NewEntity,
    NewRelationship,
    Relationship,
    ReplaceResult,
    SourceRecord,
    StoreStatistics,
)
from headgate.search.block_postings import ScoredChunk


class AsyncEmbedder(Protocol):
    """An embedder that is asked on the loop and works elsewhere; vectors are little-endian float32."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same text would get another vector."""

    async def load(self) -> None:
        """Be ready, which may take a moment; raises ConfigError when the model cannot be used."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has, once it is loaded; 0 as long as nobody knows."""

    async def embed_query(self, text: str) -> bytes:
        """The vector of what somebody asks, soon or not at all; raises EmbedderAway."""

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text; raises EmbedderAway."""


ExtractedGraph = tuple[tuple[NewEntity, ...], tuple[NewRelationship, ...]]


class EntityExtractor(Protocol):
    """Finds entities and relationships in documents; used by one thread."""

    @property
    def version(self) -> str:
        """Changes when it would find something else in the same chunks: these are extracted again then."""

    def extract(self, chunks: Sequence[NewChunk]) -> ExtractedGraph:
        """The entities of one document with their mentions, and the relationships its sentences state."""


# Makes the extractor of one ingestion; the argument has the entities that were imported before.
ExtractorFactory = Callable[[Sequence[NewEntity]], EntityExtractor]


class IndexReader(Protocol):
    """What a search reads. Everything raises StoreAway when the store cannot be had."""

    async def revision(self) -> int:
        """Grows with every change that any reader could see."""

    async def model_fingerprint(self) -> str:
        """The fingerprint of the embedder whose vectors are kept; empty when there are none."""

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        """The chunks nearest to a vector of little-endian float32 and length one, by cosine.

        The best first, rounded to six digits; equal ones by id. Those without a vector are not found, and
        none is where the store has vectors of other dimensions.
        """

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        """The chunks with the best BM25 score for these stems, see `bm25`; the best first, then by id."""

    async def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """How many chunks have each of the terms; a term that none has is left out."""

    async def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRecord]:
        """Those that are still there, by id."""

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        """The sources that pass, by the names of their files."""

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        """Those that are still there, by id."""

    async def statistics(self) -> StoreStatistics:
        """What there is."""


class GraphReader(Protocol):
    """What walks from entity to entity. Everything raises StoreAway when the store cannot be had."""

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        """The entities that have one of these as the key of their name, of an alias, or as external id."""

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias of the entities of these types, with the entity's id; of all without types."""

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """Those that are still there, by id."""

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """Those that are still there, by id."""

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        """What is one step away from this entity, all of it at one moment."""

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """Which entities each of the chunks speaks of, by the chunk's id."""

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first of the chunks that speak of an entity, by id."""


class IndexWriter(Protocol):
    """What ingestion writes. Each method is one step that is done or not, also when the process is killed."""

    async def source_digests(self) -> dict[str, str]:
        """The digest of every source by its file."""

    async def reindex(self) -> int:
        """Cut the words of all chunks anew, if an older version did it otherwise; returns how many chunks.

        Until then some words of a query may not be found. Whoever stores or removes a document first does
        this too, so that nothing is left behind of what was cut otherwise.
        """

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""

    async def remove_sources(self, files: Sequence[str]) -> int:
        """These sources leave with all that was known only by them; returns how many chunks that was."""

    async def set_model(self, model: str, dimensions: int) -> int:
        """From now on vectors are of this model; those of another are dropped. Returns how many."""

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet, by id, each as the text that is embedded: header, then text."""

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Keep the vectors of those chunks that are still there; returns how many. None of another model."""

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """What `origin` says replaces all that it said before; returns how many of each there are now.

        Raises UncertainEnds for relationships whose ends are not known, or fit several entities.
        """

    async def delete_graph(self, origin: str) -> int:
        """Everything that was imported under this name leaves; returns how many entities that was."""

    async def graph_origins(self) -> list[str]:
        """The names under which something was imported."""

    async def imported_entities(self) -> list[NewEntity]:
        """Everybody whom imports speak of, by id, as these alone tell of him."""


class MentionRecord(msgspec.Struct, frozen=True):
    """Where a chunk speaks of an entity: from and to which character of its text."""

    chunk_id: int
    entity_id: int
    # As the entity is called now, which need not be what stands there.
    entity_name: str
    start: int
    end: int
    confidence: float


class SnapshotReader(Protocol):
    """What an export reads: all of it, as it was at one moment."""

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        """By id."""

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        """By id."""

    def iter_entities(self) -> AsyncIterator[Entity]:
        """By id."""

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        """By id."""

    def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        """By chunk, by entity, then as they stand in the text."""

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        """What imports alone say, by id; and at whom else a relationship of theirs ends, as it is known."""


class KnowledgeStore(IndexReader, GraphReader, IndexWriter, SnapshotReader, Protocol):
    """The whole store; it is opened and closed by whoever made it."""

    async def check(self) -> None:
        """Raise StoreAway when it cannot be read; nothing is made by that."""
