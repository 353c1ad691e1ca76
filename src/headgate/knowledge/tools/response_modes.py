"""What an answer contains: response modes, the fields of each result, and compact JSON with tables."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from headgate.knowledge.data_model import ChunkRecord, Entity, Relationship, SourceRecord
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.search.query import ChunkRanking, RankedChunk
from headgate.knowledge.search.query import SearchNotice as Notice


class ResponseMode(StrEnum):
    """From the cheapest to the richest."""

    IDS_ONLY = "ids_only"
    METADATA = "metadata"
    PREVIEW = "preview"
    FULL = "full"
    # The richest that the caller's budget affords.
    AUTO = "auto"


RICHEST_FIRST: Final = (ResponseMode.FULL, ResponseMode.PREVIEW, ResponseMode.METADATA, ResponseMode.IDS_ONLY)
# About what a result takes in an answer, which is reserved before anything is looked for.
TOKENS_PER_RESULT: Final[Mapping[ResponseMode, int]] = {
    ResponseMode.IDS_ONLY: 10,
    ResponseMode.METADATA: 250,
    ResponseMode.PREVIEW: 500,
    ResponseMode.FULL: 1500,
}

_IDS: Final = ("chunk_id", "hybrid_score", "rank")
_METADATA: Final = (*_IDS, "source_file", "source_category", "chunk_index", "total_chunks")
# The fields of a search result by mode.
RESULT_FIELDS: Final[Mapping[ResponseMode, tuple[str, ...]]] = {
    ResponseMode.IDS_ONLY: _IDS,
    ResponseMode.METADATA: _METADATA,
    ResponseMode.PREVIEW: (*_METADATA, "chunk_snippet", "context_header"),
    ResponseMode.FULL: (
        *("chunk_id", "chunk_text", "similarity_score", "bm25_score", "hybrid_score", "rank", "score_type"),
        *("source_file", "source_category", "context_header", "chunk_index", "total_chunks"),
        "chunk_token_count",
    ),
}
_SCORES: Final = frozenset({"hybrid_score", "rank", "similarity_score", "bm25_score", "score_type"})
# The fields of a chunk that was fetched by id, and so has no scores.
CHUNK_FIELDS: Final[Mapping[ResponseMode, tuple[str, ...]]] = {
    mode: tuple(field for field in fields if field not in _SCORES) for mode, fields in RESULT_FIELDS.items()
}
VENDOR_FIELDS: Final[Mapping[ResponseMode, tuple[str, ...]]] = {
    ResponseMode.IDS_ONLY: ("vendor_id", "vendor_name", "entity_ids", "relationship_ids"),
    ResponseMode.METADATA: ("vendor_id", "vendor_name", "statistics", "top_entities", "last_updated"),
    ResponseMode.PREVIEW: ("vendor_id", "vendor_name", "statistics", "entities", "relationships"),
    ResponseMode.FULL: (
        *("vendor_id", "vendor_name", "vendor_type", "aliases", "attributes", "mentioned_in"),
        *("statistics", "entities", "relationships", "last_updated"),
    ),
}


# Of each name, and of their number: an error does not repeat thousands.
_LONGEST = 60
_MOST = 20
_NO_OTHER_MODES: Final[Mapping[ResponseMode, Sequence[str]]] = {}


def fitting_modes(
    fields: Iterable[str] | None, known: Mapping[ResponseMode, Sequence[str]]
) -> tuple[ResponseMode, ...]:
    """The modes that have all the fields, the richest first."""
    return tuple(mode for mode in RICHEST_FIRST if set(fields or ()) <= set(known[mode]))


def modes_with(
    fields: Sequence[str] | None, mode: ResponseMode, known: Mapping[ResponseMode, Sequence[str]]
) -> tuple[ResponseMode, ...]:
    """The modes that an answer with these fields may be given in, the richest first.

    Raises InvalidKnowledgeArgument when there is none, with the invalid and the allowed fields.
    """
    is_auto = mode is ResponseMode.AUTO
    allowed = {field for own in known.values() for field in own} if is_auto else known[mode]
    check_fields(fields, allowed, f"response_mode '{mode}'", known)
    modes = fitting_modes(fields, known) if is_auto else (mode,)
    if not modes:
        raise InvalidKnowledgeArgument(
            f"No response_mode has all of these fields: {sorted(set(fields or ()))}",
            hint=_modes_with_field(fields or (), known),
            hinted=True,
        )
    return modes


def check_fields(
    fields: Sequence[str] | None,
    allowed: Iterable[str],
    where: str,
    elsewhere: Mapping[ResponseMode, Sequence[str]] = _NO_OTHER_MODES,
) -> None:
    """Raise InvalidKnowledgeArgument for a field of another mode; `elsewhere` has the fields of each mode."""
    wrong = sorted(set(fields or ()) - set(allowed))
    if not wrong:
        return
    shortened = [field if len(field) <= _LONGEST else f"{field[: _LONGEST - 1]}…" for field in wrong[:_MOST]]
    homes = _modes_with_field(wrong, elsewhere)
    raise InvalidKnowledgeArgument(
        f"Invalid fields for {where}: {shortened}. Allowed fields: {sorted(allowed)}",
        hint=homes or "leave out fields to get all of them, or name only those that are allowed",
        hinted=bool(homes),
    )


def _modes_with_field(fields: Iterable[str], known: Mapping[ResponseMode, Sequence[str]]) -> str:
    """Which modes to take for each of the fields; nothing of those that none has."""
    modes = {field: [str(mode) for mode in known if field in known[mode]] for field in sorted(set(fields))}
    taken = [f"response_mode {' or '.join(names)} for {field}" for field, names in modes.items() if names]
    return f"take {', '.join(taken)}" if taken else ""


def select_fields(item: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The item with just these keys, in their order."""
    return {field: item[field] for field in fields if field in item}


# A list with one of these is for reading, and keeps its keys.
_TEXT_KEY: Final = "chunk_text"
# Useless to a model, and without it equal calls have byte-identical answers.
_OMITTED_KEY: Final = "execution_time_ms"
# How a table begins; inside of a text the quotes are escaped.
_COLUMNS_MARKER: Final = b'"columns":'


def encode_answer(answer: Mapping[str, Any]) -> bytes:
    """The answer as compact JSON, with its lists of objects as `{"columns":[...],"rows":[[...],...]}`.

    Lists of texts stay lists of objects, and how long it took is left out. In the desktop envelope, which
    programs take apart, all is as it is.
    """
    if "_metadata" in answer:
        return msgspec.json.encode(answer)
    content = {key: value for key, value in answer.items() if key != _OMITTED_KEY}
    tables = {
        key: {"columns": list(value[0]), "rows": [list(item.values()) for item in value]}
        for key, value in content.items()
        if _is_list_of_like(value)
    }
    text = msgspec.json.encode({**content, **tables})
    # Imported data may look like one of our tables.
    return text if text.count(_COLUMNS_MARKER) == len(tables) else msgspec.json.encode(content)


def _is_list_of_like(value: Any) -> bool:
    """Whether there are several objects with the same keys, and no texts among them."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    keys = [list(item) if isinstance(item, dict) else None for item in value]
    return keys[0] is not None and _TEXT_KEY not in keys[0] and all(own == keys[0] for own in keys)


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
