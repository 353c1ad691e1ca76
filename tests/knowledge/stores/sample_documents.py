"""Small documents, vectors and entities to store."""

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any

from headgate.knowledge.data_model import (
    NO_FILTERS,
    ChunkRecord,
    DocumentFilters,
    Entity,
    IngestedDocument,
    Mention,
    NewChunk,
    NewEntity,
    NewRelationship,
    SourceRecord,
)
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.search.text_analysis import terms, words

START = 1_800_000_000.0
MODEL = "a model"


class Clock:
    """A time of day that the test sets forward."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time


def document(
    file: str,
    *texts: str,
    entities: Sequence[NewEntity] = (),
    relationships: Sequence[NewRelationship] = (),
    **source: Any,
) -> IngestedDocument:
    """A document with one chunk for each text."""
    header = file
    return IngestedDocument(
        source=SourceRecord(file=file, **{"digest": digest(*texts), "ingested": START, **source}),
        chunks=tuple(
            NewChunk(text=text, header=header, tokens=len(text.split()), digest=digest(header, text))
            for text in texts
        ),
        entities=tuple(entities),
        relationships=tuple(relationships),
    )


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def vector(*numbers: float) -> bytes:
    """A vector in this direction, of length one."""
    length = math.sqrt(sum(number * number for number in numbers))
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def entity(name: str, *places: int, kind: str = "ORG", confidence: float = 0.9, **more: Any) -> NewEntity:
    """An entity that stands once in each of the chunks at these places."""
    mentions = tuple(Mention(place, 0, len(name), confidence) for place in places)
    return NewEntity(type=kind, name=name, confidence=confidence, mentions=mentions, **more)


def related(source: str, kind: str, target: str, confidence: float = 0.9, **more: Any) -> NewRelationship:
    return NewRelationship(source=source, target=target, type=kind, confidence=confidence, **more)


async def found(
    store: KnowledgeStore, query: str, filters: DocumentFilters = NO_FILTERS, limit: int = 100
) -> dict[int, float]:
    """What a search by words finds, the best first."""
    hits = await store.match_terms(terms(query), limit, filters)
    return {hit.chunk_id: hit.score for hit in hits}


async def near(
    store: KnowledgeStore, *numbers: float, filters: DocumentFilters = NO_FILTERS, limit: int = 100
) -> list[int]:
    """The chunks nearest to this direction, the nearest first."""
    return [hit.chunk_id for hit in await store.nearest(vector(*numbers), limit, filters)]


def phrase(text: str) -> DocumentFilters:
    return DocumentFilters(phrases=(tuple(words(text)),))


async def all_chunks(store: KnowledgeStore) -> list[ChunkRecord]:
    return [chunk async for chunk in store.iter_chunks()]


async def all_entities(store: KnowledgeStore) -> dict[str, Entity]:
    return {entity.name: entity async for entity in store.iter_entities()}


async def all_relationships(store: KnowledgeStore) -> set[tuple[int, int, str]]:
    return {(one.source_id, one.target_id, one.type) async for one in store.iter_relationships()}
