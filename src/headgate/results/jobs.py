"""Jobs on one stored result, their parameters and their results, as they are sent to a worker process."""

from enum import StrEnum
from typing import Any, Literal

import msgspec


class ProjectionMode(StrEnum):
    """What a projection does with the fields that are named."""

    INCLUDE = "include"
    EXCLUDE = "exclude"


class SearchMode(StrEnum):
    """How something is looked for."""

    REGEX = "regex"
    BM25 = "bm25"
    FUZZY = "fuzzy"
    CONTEXT = "context"
    STRUCTURE = "structure"


class ContextType(StrEnum):
    """What is shown around a hit."""

    PARAGRAPH = "paragraph"
    SECTION = "section"
    SENTENCE = "sentence"
    LINES = "lines"


class PageUnit(StrEnum):
    """What a content is counted in."""

    LINES = "lines"
    ELEMENTS = "elements"
    CHARACTERS = "characters"


class ProjectionParams(msgspec.Struct, frozen=True, kw_only=True):
    """Which fields are kept or left out; each is a path as people write it."""

    fields: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mode: ProjectionMode = ProjectionMode.INCLUDE


class SearchParams(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, and how much of what is found is shown."""

    pattern: str
    mode: SearchMode = SearchMode.REGEX
    # None is as many as there is room for, or what is safe for the mode.
    max_results: int | None = None
    offset: int = 0
    before: int = 0
    after: int = 0
    case_insensitive: bool = False
    # A dot matches the end of a line too.
    multiline: bool = False
    threshold: float = 0.7
    top_k: int = 5
    context_type: ContextType = ContextType.PARAGRAPH
    # The most characters that the hits may have together.
    room: int = 8000


class ExploreParams(msgspec.Struct, frozen=True, kw_only=True):
    """Which part is looked at, and how deep."""

    path: str = ""
    max_depth: int = 3
    room: int = 8000


class ReadParams(msgspec.Struct, frozen=True, kw_only=True):
    """Which part is read, from where on, and how much of it."""

    path: str = ""
    offset: int = 0
    limit: int | None = None
    # None is elements of JSON and lines of anything else.
    unit: PageUnit | None = None
    room: int = 8000


class QueryParams(msgspec.Struct, frozen=True, kw_only=True):
    """One SELECT over a part of the content."""

    sql: str
    path: str = ""
    room: int = 8000


# The member of `_meta` that says what was left out of a reply and where it is.
META_KEY = "io.headgate/result"


class ExcerptJob(msgspec.Struct, frozen=True, kw_only=True, tag="excerpt"):
    """Show a part of the result, if it is larger than a limit."""

    # Under which the whole is going to be stored.
    cache_id: str
    # In characters and, where that is limited too, in tokens.
    limit: int
    limit_tokens: int | None = None
    # The most characters that are shown of the text.
    room: int
    style: Literal["cache", "head_tail"] = "cache"
    # What the tool promises of `structuredContent`, as its server wrote it; it admits the notice.
    output_schema: bytes | None = None
    # Of the result of a task it may not be known, and so neither what the tool promises.
    tool_known: bool = True
    # The words of the notice, with places for what is not known yet.
    message: str
    # Whether tables may be written with their columns named once.
    compact: bool = False


class ReadJob(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """Show what an agent asks for; at least one of the five is given."""

    tool: str
    cache_id: str
    # The most characters of the reply's text.
    room: int
    # Of which part; empty is the whole. Those that explore, read and query have theirs.
    path: str = ""
    projection: ProjectionParams | None = None
    search: SearchParams | None = None
    exploration: ExploreParams | None = None
    reading: ReadParams | None = None
    query: QueryParams | None = None
    # Of what a projection leaves, from which element on.
    offset: int = 0
    compact: bool = False
    # The agent has seen nothing of this result yet, images and links included.
    fresh: bool = False


Job = ExcerptJob | ReadJob


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result to be shown; empty where the whole can be shown as it is."""

    result: bytes = b""
    # In characters.
    original_size: int = 0
    processed_size: int = 0
    # About so many.
    original_tokens: int = 0
    processed_tokens: int = 0
    metadata: dict[str, Any] = {}
    # Whether the result names its `resultType`, as stateless upstreams do.
    typed: bool = False
    # One sentence that says what is wrong with the job, or with the result.
    error: str | None = None
