"""Jobs on one stored result, their parameters and their results, as they are sent to a worker process."""

from enum import StrEnum
from typing import Any, Literal

import msgspec


class ProjectionMode(StrEnum):
    """Whether a projection keeps or drops the named fields."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


class SearchMode(StrEnum):
    """The search modes of proxy_search."""

    REGEX = "regex"
    BM25 = "bm25"
    FUZZY = "fuzzy"
    CONTEXT = "context"
    STRUCTURE = "structure"


class ContextType(StrEnum):
    """The context that a search shows around a hit."""

    PARAGRAPH = "paragraph"
    SECTION = "section"
    SENTENCE = "sentence"
    LINES = "lines"


class PageUnit(StrEnum):
    """The unit in which a content is paged."""

    LINES = "lines"
    ELEMENTS = "elements"
    CHARACTERS = "characters"


class ProjectionParams(msgspec.Struct, frozen=True, kw_only=True):
    """The fields to keep or to drop, each a path as agents write it."""

    fields: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mode: ProjectionMode = ProjectionMode.INCLUDE


class SearchParams(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, and how much of the matches to show."""

    pattern: str
    mode: SearchMode = SearchMode.REGEX
    # None is as many as fit, or the mode's own limit.
    max_results: int | None = None
    offset: int = 0
    before: int = 0
    after: int = 0
    case_insensitive: bool = False
    # Lets a dot match a line end.
    multiline: bool = False
    threshold: float = 0.7
    top_k: int = 5
    context_type: ContextType = ContextType.PARAGRAPH
    # The most characters of all hits together.
    room: int = 8000


class ExploreParams(msgspec.Struct, frozen=True, kw_only=True):
    """Which part to outline, and how deep."""

    path: str = ""
    max_depth: int = 3
    room: int = 8000


class ReadParams(msgspec.Struct, frozen=True, kw_only=True):
    """Which part to read, from which offset, and how much of it."""

    path: str = ""
    offset: int = 0
    limit: int | None = None
    # None is elements for JSON and lines for any other content.
    unit: PageUnit | None = None
    room: int = 8000


class QueryParams(msgspec.Struct, frozen=True, kw_only=True):
    """One SELECT over a part of the content."""

    sql: str
    path: str = ""
    room: int = 8000


# The member of `_meta` that says what a reply omits and where it is.
META_KEY = "io.headgate/result"


class ExcerptJob(msgspec.Struct, frozen=True, kw_only=True, tag="excerpt"):
    """Truncate the result if it is larger than a limit."""

    # The id under which the whole result will be stored.
    cache_id: str
    # In characters and, optionally, in tokens.
    limit: int
    limit_tokens: int | None = None
    # The most characters of the text in the excerpt.
    room: int
    style: Literal["cache", "head_tail"] = "cache"
    # The output schema of the tool as its server declares it; it admits the notice.
    output_schema: bytes | None = None
    # False for the result of a task whose tool, and so its output schema, is unknown.
    tool_known: bool = True
    # The notice, with placeholders for values that are known later.
    message: str
    # Whether arrays may be written as tables.
    compact: bool = False


class ReadJob(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """Read a stored result for an agent; at least one of the five parameters is given."""

    tool: str
    cache_id: str
    # The most characters of the reply's text.
    room: int
    # The part to work on; empty is the whole. Exploration, reading and query have paths of their own.
    path: str = ""
    projection: ProjectionParams | None = None
    search: SearchParams | None = None
    exploration: ExploreParams | None = None
    reading: ReadParams | None = None
    query: QueryParams | None = None
    # The first element of what a projection leaves.
    offset: int = 0
    compact: bool = False
    # The agent has not seen this result yet, including its images and links.
    fresh: bool = False


Job = ExcerptJob | ReadJob


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The tool result to show; empty where the whole can be shown as it is."""

    result: bytes = b""
    # In characters.
    original_size: int = 0
    processed_size: int = 0
    # Estimates.
    original_tokens: int = 0
    processed_tokens: int = 0
    metadata: dict[str, Any] = {}
    # Whether the result has a `resultType`, as those of stateless upstreams do.
    typed: bool = False
    # One sentence that says what is wrong with the job or the result.
    error: str | None = None
