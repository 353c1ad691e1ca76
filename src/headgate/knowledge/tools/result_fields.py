"""The JSON fields of tool results, and the envelope around them: pagination, warnings, metadata."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headgate import __version__
from headgate.knowledge.data_model import ChunkRecord, Entity, Relationship, SourceRecord
from headgate.knowledge.search.query import ChunkRanking, RankedChunk
from headgate.knowledge.search.query import SearchNotice as Notice

# Up to this a number is one token, from there on two: models read numbers in groups of three digits.
_ONE_TOKEN = 1000


class EnvelopeMetadata(msgspec.Struct, frozen=True):
    """When an answer is given, what it is called, and which version gives it."""

    # Seconds since 1970.
    wall_clock: Callable[[], float]
    # Another one each time.
    request_id: Callable[[], str]
    version: str = __version__


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer came about."""

    operation: str
    tokens_estimated: int
    cache_hit: bool
    execution_time_ms: float


def pagination(cursor: str | None, page_size: int, total: int) -> dict[str, Any]:
    """The pagination object of an answer."""
    return {
        "cursor": cursor,
        "page_size": page_size,
        "has_more": cursor is not None,
        "total_available": total,
    }


def with_warnings(answer: dict[str, Any], warnings: Sequence[Notice]) -> dict[str, Any]:
    """The answer with the warnings, when there are some."""
    return {**answer, "warnings": encode_warnings(warnings)} if warnings else answer


def encode_warnings(warnings: Iterable[Notice]) -> list[dict[str, str]]:
    """Each with level, code, message and suggestion."""
    return [msgspec.structs.asdict(warning) for warning in warnings]


def desktop_envelope(
    answer: dict[str, Any], warnings: Sequence[Notice], handling: ExecutionInfo, metadata: EnvelopeMetadata
) -> dict[str, Any]:
    """The answer in its envelope; `tokens_used` is not known yet, see `with_tokens`."""
    return {
        "_metadata": envelope_header(handling.operation, "success", metadata),
        **answer,
        "execution_context": {
            "tokens_estimated": handling.tokens_estimated,
            "tokens_used": 0,
            "cache_hit": handling.cache_hit,
            "execution_time_ms": handling.execution_time_ms,
        },
        "warnings": encode_warnings(warnings),
    }


def envelope_header(operation: str, status: str, metadata: EnvelopeMetadata) -> dict[str, Any]:
    """The metadata of an envelope."""
    return {
        "operation": operation,
        "version": metadata.version,
        "timestamp": iso_timestamp(metadata.wall_clock()),
        "request_id": metadata.request_id(),
        "status": status,
    }


def with_tokens(answer: dict[str, Any], tokens: int) -> int:
    """Write into the envelope how many tokens the answer has, that number among them; returns it."""
    used = tokens + 1 if tokens >= _ONE_TOKEN else tokens
    answer["execution_context"]["tokens_used"] = used
    return used


def iso_timestamp(seconds: float) -> str | None:
    """A time as ISO 8601 in UTC; None for an unknown one."""
    if seconds <= 0:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_SNIPPET: Final = 200
# About what one takes in an answer, and what is around all of them, as it was counted for typical ones.
FRAME_TOKENS: Final = 120
SOURCE_TOKENS: Final = 50
ENTITY_TOKENS: Final = 25
WHOLE_ENTITY_TOKENS: Final = 45
RELATIONSHIP_TOKENS: Final = 35
ID_TOKENS: Final = 4

SOURCE_FIELDS: Final = (
    "source_id",
    "source_file",
    "source_category",
    "doc_type",
    "title",
    "date",
    "total_chunks",
    "size_bytes",
    "ingested_at",
)


def chunk_fields(chunk: ChunkRecord) -> dict[str, Any]:
    """The fields of all modes, except for scores."""
    return {
        "chunk_id": chunk.id,
        "chunk_text": chunk.text,
        "chunk_snippet": snippet(chunk.text),
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


def snippet(text: str) -> str:
    """The beginning, with dots when there is more."""
    return text if len(text) <= _SNIPPET else f"{text[:_SNIPPET]}..."


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
