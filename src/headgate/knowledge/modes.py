"""How much an answer says: ids, what they are of, a glimpse of the text, or all of it."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """From the cheapest to the richest."""

    IDS_ONLY = "ids_only"
    METADATA = "metadata"
    PREVIEW = "preview"
    FULL = "full"
    # The richest that the caller's budget affords.
    AUTO = "auto"


RICHEST_FIRST: Final = (Mode.FULL, Mode.PREVIEW, Mode.METADATA, Mode.IDS_ONLY)
# About what a result takes in an answer, which is reserved before anything is looked for.
TOKENS_PER_RESULT: Final[Mapping[Mode, int]] = {
    Mode.IDS_ONLY: 10,
    Mode.METADATA: 250,
    Mode.PREVIEW: 500,
    Mode.FULL: 1500,
}

_IDS: Final = ("chunk_id", "hybrid_score", "rank")
_METADATA: Final = (*_IDS, "source_file", "source_category", "chunk_index", "total_chunks")
_FULL: Final = (
    "chunk_id",
    "chunk_text",
    "similarity_score",
    "bm25_score",
    "hybrid_score",
    "rank",
    "score_type",
    "source_file",
    "source_category",
    "context_header",
    "chunk_index",
    "total_chunks",
    "chunk_token_count",
)
# What a search shows of each chunk.
RESULT_FIELDS: Final[Mapping[Mode, tuple[str, ...]]] = {
    Mode.IDS_ONLY: _IDS,
    Mode.METADATA: _METADATA,
    Mode.PREVIEW: (*_METADATA, "chunk_snippet", "context_header"),
    Mode.FULL: _FULL,
}
_SCORES: Final = frozenset({"hybrid_score", "rank", "similarity_score", "bm25_score", "score_type"})
# What is shown of a chunk that was not searched for, and so has no scores.
CHUNK_FIELDS: Final[Mapping[Mode, tuple[str, ...]]] = {
    mode: tuple(field for field in fields if field not in _SCORES) for mode, fields in RESULT_FIELDS.items()
}
VENDOR_FIELDS: Final[Mapping[Mode, tuple[str, ...]]] = {
    Mode.IDS_ONLY: ("vendor_id", "vendor_name", "entity_ids", "relationship_ids"),
    Mode.METADATA: ("vendor_id", "vendor_name", "statistics", "top_entities", "last_updated"),
    Mode.PREVIEW: ("vendor_id", "vendor_name", "statistics", "entities", "relationships"),
    Mode.FULL: (
        "vendor_id",
        "vendor_name",
        "vendor_type",
        "aliases",
        "attributes",
        "mentioned_in",
        "statistics",
        "entities",
        "relationships",
        "last_updated",
    ),
}


def fitting_modes(
    mode: Mode, fields: Iterable[str] | None, known: Mapping[Mode, Sequence[str]]
) -> tuple[Mode, ...]:
    """The modes that an answer may be given in, the richest first: one, or those that have all the fields."""
    if mode is not Mode.AUTO:
        return (mode,)
    wanted = set(fields or ())
    return tuple(mode for mode in RICHEST_FIRST if wanted <= set(known[mode]))
