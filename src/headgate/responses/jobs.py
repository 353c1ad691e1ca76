"""What is to be done with one stored result, and what came of it; both travel to a process of their own."""

from typing import Any, Literal

import msgspec

from headgate.responses.params import Exploration, Projection, Query, Reading, Search

# The member of `_meta` that says what was left out of a reply and where it is.
META_KEY = "io.headgate/result"


class Excerpt(msgspec.Struct, frozen=True, kw_only=True, tag="excerpt"):
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


class Look(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """Show what an agent asks for; at least one of the five is given."""

    tool: str
    cache_id: str
    # The most characters of the reply's text.
    room: int
    # Of which part; empty is the whole. Those that explore, read and query have theirs.
    path: str = ""
    projection: Projection | None = None
    search: Search | None = None
    exploration: Exploration | None = None
    reading: Reading | None = None
    query: Query | None = None
    # Of what a projection leaves, from which element on.
    offset: int = 0
    compact: bool = False
    # The agent has seen nothing of this result yet, images and links included.
    fresh: bool = False


Job = Excerpt | Look


class Done(msgspec.Struct, frozen=True, kw_only=True):
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
