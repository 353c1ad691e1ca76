"""The knowledge tools as clients see them; every conversation pays for each word."""

from collections.abc import Iterable
from typing import Any, Final

from headgate.knowledge.search.query import LONGEST_QUERY, SearchStrategy
from headgate.knowledge.tools.response_modes import ResponseMode

MOST_PER_PAGE: Final = 50
MOST_CHUNKS: Final = 50
LONGEST_NAME: Final = 200

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_ANY_OF: Final = {"type": ["string", "array"], "items": _TEXT}
_SHARE: Final = {"type": "number", "minimum": 0, "maximum": 1}
_SIZE: Final = {"type": "integer", "minimum": 1, "maximum": MOST_PER_PAGE}
_ID: Final = {"type": "integer", "minimum": 1}
_FLAG: Final = {"type": "boolean"}
_NAME: Final = {**_TEXT, "minLength": 1, "maxLength": LONGEST_NAME, "description": "name, alias or id"}
_PAGED: Final[dict[str, Any]] = {
    "page_size": {**_SIZE, "default": 10},
    "cursor": {**_TEXT, "description": "of the page before"},
    "fields": {**_TEXTS, "minItems": 1, "description": "only these keys"},
}
_FILTERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "source_category": _ANY_OF,
        "source_file": {**_ANY_OF, "description": "* stands for anything"},
        "doc_type": _ANY_OF,
        "date_from": {**_TEXT, "format": "date"},
        "date_to": {**_TEXT, "format": "date"},
    },
    "additionalProperties": False,
}


def _word(words: Iterable[str], default: str) -> dict[str, Any]:
    # Redundant, but some clients drop a tool with an untyped schema.
    return {**_TEXT, "enum": [*words], "default": default}


def _tool(
    name: str, title: str, description: str, needed: tuple[str, ...], properties: dict[str, Any]
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if needed:
        schema["required"] = list(needed)
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
    }


_CHUNK_TEXT: Final[dict[str, Any]] = {
    "response_mode": _word(ResponseMode, ResponseMode.FULL),
    "fields": _PAGED["fields"],
}
# Agents search for them like for tools of any server: each says in their words what it answers, and the
# others keep away from words that are meant for semantic_search.
DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    _tool(
        "semantic_search",
        "Search the knowledge base",
        "Answers questions from the company's own documents: what contracts, policies, the handbook and "
        "other files say. Finds passages with the information by meaning and words. To save tokens, name few "
        "fields or take ids_only, then get_chunks for the texts you need.",
        ("query",),
        {
            "query": {**_TEXT, "minLength": 1, "maxLength": LONGEST_QUERY},
            **_PAGED,
            "response_mode": {
                **_word(ResponseMode, ResponseMode.METADATA),
                # Measured: docs/figures/knowledge-tokens.md. The budget reserves more, to be safe.
                "description": "tokens per result, about: ids_only 10, metadata 25, preview 85, full 510",
            },
            "filters": _FILTERS,
            "min_score": {**_SHARE, "default": 0},
            "strategy": _word(SearchStrategy, SearchStrategy.HYBRID),
            "boosts": {**_FLAG, "description": "also rank by vendor, recency, topic"},
            "explain": {**_FLAG, "default": False, "description": "where each score comes from"},
            "response_format": _word(["standard", "desktop"], "standard"),
            "top_k": {**_SIZE, "deprecated": True},
        },
    ),
    _tool(
        "find_vendor_info",
        "Look up a vendor",
        "What is known of a company, supplier or customer: entities and relationships around it.",
        ("vendor_name",),
        {
            "vendor_name": _NAME,
            "response_mode": _word(ResponseMode, ResponseMode.METADATA),
            "include_relationships": {**_FLAG, "default": True},
            **_PAGED,
            "page_size": _SIZE,
        },
    ),
    _tool(
        "list_sources",
        "List sources",
        "Which files there are, with title and date, not what is in them.",
        (),
        {"filters": _FILTERS, **_PAGED},
    ),
    _tool(
        "get_chunk",
        "Get a chunk",
        "The text of one chunk that a search found, by its chunk_id.",
        ("chunk_id",),
        {
            "chunk_id": _ID,
            "response_mode": _word(ResponseMode, ResponseMode.FULL),
            "fields": _PAGED["fields"],
        },
    ),
    _tool(
        "get_chunks",
        "Get chunks",
        "The texts of chunks that a search found, by their chunk_ids.",
        ("chunk_ids",),
        {
            "chunk_ids": {"type": "array", "items": _ID, "minItems": 1, "maxItems": MOST_CHUNKS},
            **_CHUNK_TEXT,
        },
    ),
    _tool(
        "neighbours",
        "Walk the graph",
        "The entities within one or two hops of one, and how they are related.",
        ("entity",),
        {
            "entity": _NAME,
            "hops": {"type": "integer", "enum": [1, 2], "default": 1},
            "entity_types": _ANY_OF,
            "relationship_types": _ANY_OF,
            "min_confidence": {**_SHARE, "default": 0.7},
            **_PAGED,
        },
    ),
)


INPUT_SCHEMAS: Final[dict[str, dict[str, Any]]] = {one["name"]: one["inputSchema"] for one in DEFINITIONS}
