"""The Protocols of the document server: embedder, entity extractor, and the parts of a store."""

from collections.abc import AsyncIterator, Mapping, Sequence
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
    """An embedder that does not block the event loop; vectors are little-endian float32."""

    @property
    def name(self) -> str:
        """The display name of the model."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same text would get another vector."""

    async def load(self) -> None:
        """Be ready, which may take a moment; raises ConfigError when the model cannot be used."""

    @property
    def dimensions(self) -> int:
        """The length of a vector, once the model is loaded; 0 while it is unknown."""

    async def embed_query(self, text: str) -> bytes:
        """The vector of a query, within a short timeout; raises EmbedderUnavailable."""

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text; raises EmbedderUnavailable."""


ExtractedGraph = tuple[tuple[NewEntity, ...], tuple[NewRelationship, ...]]


class EntityExtractor(Protocol):
    """Finds entities and relationships in documents; used by one thread."""

    @property
    def version(self) -> str:
        """Changes when it would find something else in the same chunks: these are extracted again then."""

    def extract(self, chunks: Sequence[NewChunk]) -> ExtractedGraph:
        """The entities of one document with their mentions, and the relationships its sentences state."""


class IndexReader(Protocol):
    """The part of a store that a search reads. Every method raises StoreUnavailable."""

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
        """The existing ones of these ids, by id."""

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        """The sources that pass, by the names of their files."""

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        """The existing ones of these ids, by id."""

    async def statistics(self) -> StoreStatistics:
        """The counts of everything in the store."""


class GraphReader(Protocol):
    """The part of a store that reads the graph. Every method raises StoreUnavailable."""

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        """The entities that have one of these as the key of their name, of an alias, or as external id."""

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        """Every name and alias of the entities of these types, with the entity's id; of all without types."""

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        """The existing ones of these ids, by id."""

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        """The existing ones of these ids, by id."""

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        """Every relationship that begins or ends at one of these, by its id."""

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        """The entities one relationship away from this entity, in one snapshot."""

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        """The entities that each of the chunks mentions, by the chunk's id."""

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        """The first chunks that mention an entity, by id."""


class IndexWriter(Protocol):
    """The part of a store that ingestion writes. Each method is atomic, also when the process is killed."""

    async def source_digests(self) -> dict[str, str]:
        """The digest of every source by its file."""

    async def reindex(self) -> int:
        """Cut the words of all chunks anew, if an older version did it otherwise; returns how many chunks.

        Until then some words of a query may not be found. Storing or removing a document does
        this too, so that nothing is left behind of what was cut otherwise.
        """

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""

    async def remove_sources(self, files: Sequence[str]) -> int:
        """These sources leave with all that was known only by them; returns how many chunks that was."""

    async def set_model(self, model: str, dimensions: int) -> int:
        """Expect vectors of this model from now on, and drop those of another; returns how many."""

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        """Chunks that have no vector yet, by id, each as the text that is embedded: header, then text."""

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        """Store the vectors of existing chunks; returns how many. Vectors of another model are ignored."""

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        """Replace the import `origin`; returns how many entities and relationships it has.

        Raises UnresolvedEndpoints for relationships whose ends match no entity, or several.
        """

    async def delete_graph(self, origin: str) -> int:
        """Remove everything that was imported under this name; returns how many entities the import had."""

    async def graph_origins(self) -> list[str]:
        """The names under which something was imported."""

    async def imported_entities(self) -> list[NewEntity]:
        """Every entity of an import, by id, as the imports alone describe it."""


class MentionRecord(msgspec.Struct, frozen=True):
    """A mention of an entity: the span in the text of a chunk."""

    chunk_id: int
    entity_id: int
    # As the entity is called now, which need not be what stands there.
    entity_name: str
    start: int
    end: int
    confidence: float


class SnapshotReader(Protocol):
    """The part of a store that an export reads: each iterator is a snapshot."""

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
        """The graph of the imports alone, by id, with the entities at the ends of their relationships."""


class KnowledgeStore(IndexReader, GraphReader, IndexWriter, SnapshotReader, Protocol):
    """The whole store; its creator opens and closes it."""

    async def check(self) -> None:
        """Raise StoreUnavailable when it cannot be read; creates nothing."""
