"""The JSON fields of tool results, and about how many tokens each takes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headgate.knowledge.data_model import ChunkRecord, Entity, Relationship, SourceRecord
from headgate.knowledge.search.query import ChunkRanking, RankedChunk
from headgate.knowledge.search.query import SearchNotice as Notice

_SNIPPET: Final = 200
# About what one takes in an answer, and what is around all of them, as it was counted for typical ones.
FRAME_TOKENS: Final = 120
SOURCE_TOKENS: Final = 50
ENTITY_TOKENS: Final = 25
WHOLE_ENTITY_TOKENS: Final = 45
RELATIONSHIP_TOKENS: Final = 35
ID_TOKENS: Final = 4
SOURCE_FIELDS: Final = (
    *("source_id", "source_file", "source_category", "doc_type", "title", "date", "total_chunks"),
    *("size_bytes", "ingested_at"),
)


def with_warnings(answer: dict[str, Any], warnings: Sequence[Notice]) -> dict[str, Any]:
    """The answer with the warnings, when there are some."""
    return {**answer, "warnings": list(map(msgspec.structs.asdict, warnings))} if warnings else answer


def iso_timestamp(seconds: float) -> str | None:
    """A time as ISO 8601 in UTC; None for an unknown one."""
    if seconds <= 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def chunk_fields(chunk: ChunkRecord) -> dict[str, Any]:
    """The fields of all modes, except for scores; the snippet is the beginning of the text."""
    text = chunk.text
    return {
        "chunk_id": chunk.id,
        "chunk_text": text,
        "chunk_snippet": text if len(text) <= _SNIPPET else f"{text[:_SNIPPET]}...",
        "source_file": chunk.file,
        "source_category": chunk.category,
        "context_header": chunk.header,
        "chunk_index": chunk.index,
        "total_chunks": chunk.total,
        "chunk_token_count": chunk.tokens,
    }


def ranked_chunk_fields(
    chunk: ChunkRecord | None, ranked: RankedChunk, ranking: ChunkRanking
) -> dict[str, Any]:
    """How a chunk was found, and the chunk itself where it was read."""
    return {
        **(chunk_fields(chunk) if chunk is not None else {}),
        "chunk_id": ranked.chunk_id,
        "similarity_score": _rounded(ranked.similarity),
        "bm25_score": _rounded(ranked.bm25),
        "hybrid_score": _rounded(ranked.score),
        "rank": ranked.rank,
        "score_type": str(ranking.strategy),
        "explanation": ranking.explain(ranked) if ranking.explain is not None else None,
    }


def source_fields(source: SourceRecord) -> dict[str, Any]:
    """One document."""
    return {
        "source_id": source.id,
        "source_file": source.file,
        "source_category": source.category,
        "doc_type": source.doc_type,
        "title": source.title,
        "date": source.date or None,
        "total_chunks": source.chunks,
        "size_bytes": source.size_bytes,
        "ingested_at": iso_timestamp(source.ingested),
    }


def entity_fields(entity: Entity, *, whole: bool = False) -> dict[str, Any]:
    """One entity, with aliases and attributes when it is requested whole."""
    view: dict[str, Any] = {
        "entity_id": entity.id,
        "name": entity.name,
        "entity_type": entity.type,
        "confidence": _rounded(entity.confidence),
        "mentions": entity.mentions,
    }
    if whole:
        view |= {"aliases": list(entity.aliases), "attributes": entity.attributes}
    return view


def relationship_fields(
    relationship: Relationship, names: Mapping[int, Entity], *, whole: bool = False
) -> dict[str, Any]:
    """One relationship, with the names of its ends as far as they are known."""
    ends = [names.get(id) for id in (relationship.source_id, relationship.target_id)]
    source, target = (end.name if end is not None else None for end in ends)
    view: dict[str, Any] = {
        "relationship_id": relationship.id,
        "relationship_type": relationship.type,
        "source_id": relationship.source_id,
        "source_name": source,
        "target_id": relationship.target_id,
        "target_name": target,
        "confidence": _rounded(relationship.confidence),
    }
    if whole:
        view["attributes"] = relationship.attributes
    return view


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 6)
