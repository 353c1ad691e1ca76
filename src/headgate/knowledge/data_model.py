"""The records of a knowledge store: sources, chunks, entities and relationships, and the filters on them."""

import unicodedata
from typing import Any, NamedTuple

import msgspec

# The types of entities that count as vendors, ours and common ones of imports.
VENDOR_TYPES = frozenset({"ORG", "ORGANIZATION", "ORGANISATION", "COMPANY", "VENDOR", "SUPPLIER"})


class DocumentFilters(msgspec.Struct, frozen=True):
    """Which chunks are looked at; what is empty does not matter, and of several words one suffices."""

    categories: tuple[str, ...] = ()
    # The path of a source as it was ingested; a * matches anything.
    files: tuple[str, ...] = ()
    doc_types: tuple[str, ...] = ()
    # Days such as 2026-11-16, both of them included.
    date_from: str = ""
    date_to: str = ""
    # Each in words as `domain.words.words` makes them; all of them stand in the chunk, word for word.
    phrases: tuple[tuple[str, ...], ...] = ()

    @property
    def source_filters(self) -> "DocumentFilters":
        """The filters that apply to whole sources."""
        return msgspec.structs.replace(self, phrases=())


NO_FILTERS = DocumentFilters()


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One document."""

    id: int = 0
    # Its path relative to what was ingested, with slashes.
    file: str
    category: str = ""
    # markdown, text, html, pdf, docx, csv, json, or a type of the document's own metadata.
    doc_type: str = ""
    title: str = ""
    # The date of the document or of its file; empty when unknown.
    date: str = ""
    # A digest of its bytes and of the versions of its readers: an equal one is not read again.
    digest: str = ""
    size_bytes: int = 0
    chunks: int = 0
    # When it was ingested, in seconds since 1970.
    ingested: float = 0.0


class ChunkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a document, as a search shows it."""

    id: int
    source_id: int
    file: str
    category: str
    doc_type: str
    date: str
    # From 0, of `total`.
    index: int
    total: int
    text: str
    # `file > Section > Sub`.
    header: str
    tokens: int


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """A person, an organisation or a thing that documents or imports name."""

    id: int
    # ORG, PERSON, PRODUCT or PLACE, or what an import calls it.
    type: str
    name: str
    aliases: tuple[str, ...] = ()
    # From 0 to 1.
    confidence: float = 1.0
    # The number of its mentions in documents.
    mentions: int = 0
    attributes: dict[str, Any] = {}
    # The id that an import gave it.
    external_id: str = ""
    # When it last changed, in seconds since 1970.
    updated: float = 0.0
    # Whether any import has a claim about it.
    imported: bool = False


class Relationship(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is so between two entities."""

    id: int
    source_id: int
    target_id: int
    type: str
    confidence: float = 1.0
    attributes: dict[str, Any] = {}
    updated: float = 0.0


class Edge(NamedTuple):
    """A relationship without its details, for walking."""

    id: int
    source_id: int
    target_id: int
    type: str
    confidence: float


class Neighbour(NamedTuple):
    """An entity without its details, for sorting."""

    id: int
    type: str
    name: str
    confidence: float
    mentions: int


class Neighbourhood(NamedTuple):
    """The entities one relationship away from an entity."""

    # By id, without the entity itself.
    neighbours: list[Neighbour]
    # By id.
    edges: list[Edge]
    # When any of these last changed, in seconds since 1970; 0 when there are none.
    updated: float


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a store."""

    sources: int = 0
    chunks: int = 0
    # Chunks with a vector, and the model of the vectors.
    vectors: int = 0
    model: str = ""
    tokens: int = 0
    entities: dict[str, int] = {}
    relationships: dict[str, int] = {}
    mentions: int = 0
    categories: dict[str, int] = {}
    doc_types: dict[str, int] = {}
    # The days of the oldest and of the newest document; empty when none has a date.
    first_date: str = ""
    last_date: str = ""
    revision: int = 0
    size_bytes: int = 0


def name_key(name: str) -> str:
    """The key of a name: independent of case, spacing and the coding of accents."""
    # Taken apart before and put together after: only so ΐ and its capital, which is of three parts, are one.
    folded = unicodedata.normalize("NFD", name).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


# On the way in.


class NewChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a document that is to be stored."""

    text: str
    header: str
    tokens: int
    # A digest of header and text: an unchanged chunk keeps its id and its vector.
    digest: str


class Mention(NamedTuple):
    """A mention of an entity: the index of the chunk in its document, and the span in its text."""

    chunk_index: int
    start: int
    end: int
    confidence: float


class NewEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entity that was imported, or found in a text."""

    type: str
    name: str
    aliases: tuple[str, ...] = ()
    confidence: float = 1.0
    attributes: dict[str, Any] = {}
    external_id: str = ""
    mentions: tuple[Mention, ...] = ()


class NewRelationship(msgspec.Struct, frozen=True, kw_only=True):
    """A relationship that was imported, or found in a text; both ends are names, aliases or external ids."""

    source: str
    target: str
    type: str
    confidence: float = 1.0
    attributes: dict[str, Any] = {}


class IngestedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A source with its chunks, entities and relationships, which replace the earlier ones."""

    source: SourceRecord
    chunks: tuple[NewChunk, ...] = ()
    entities: tuple[NewEntity, ...] = ()
    relationships: tuple[NewRelationship, ...] = ()


class ReplaceResult(NamedTuple):
    """How many chunks of a document were added, kept and removed."""

    added: int
    kept: int
    removed: int
