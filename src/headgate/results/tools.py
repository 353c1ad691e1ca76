"""Definitions and arguments of the tools that read stored results."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import ArgumentReader
from headgate.results.jobs import (
    ContextType,
    ExploreParams,
    PageUnit,
    ProjectionMode,
    ProjectionParams,
    QueryParams,
    ReadJob,
    ReadParams,
    SearchMode,
    SearchParams,
)

FILTER: Final = "proxy_filter"
SEARCH: Final = "proxy_search"
EXPLORE: Final = "proxy_explore"
READ: Final = "proxy_read"
QUERY: Final = "proxy_query"
# In the order in which they are listed.
NAMES: Final = (SEARCH, FILTER, EXPLORE, READ, QUERY)


def _choice(values: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


# The object of arguments declares that it is open, because pydantic-ai closes every object that does not.
_PROPERTIES: Final[Mapping[str, Any]] = {
    **{key: {"type": "string"} for key in ("cache_id", "tool", "path", "pattern", "sql")},
    **{key: {"type": "array", "items": {"type": "string"}} for key in ("fields", "exclude")},
    **{key: {"type": "integer"} for key in ("offset", "limit", "max_results", "top_k", "max_depth")},
    **{key: {"type": "integer"} for key in ("context_lines", "before", "after")},
    **{key: {"type": "boolean"} for key in ("case_insensitive", "multiline")},
    "arguments": {"type": "object", "additionalProperties": True},
    "threshold": {"type": "number"},
    "mode": _choice(SearchMode),
    "context_type": _choice(ContextType),
    "unit": _choice(PageUnit),
    "format": _choice(("json", "compact")),
}
_SOURCE_PHRASE: Final = "of a stored result (cache_id) or of a new call (tool, arguments)"


def _tool(name: str, description: str, needed: str, arguments: str, **others: Any) -> dict[str, Any]:
    # Either a stored result, or a call whose result is stored and read at once.
    named = ["cache_id", "tool", "arguments", *filter(None, [needed]), *arguments.split()]
    schema = {"type": "object", "properties": {each: _PROPERTIES[each] for each in named} | others}
    if needed:
        schema["required"] = [needed]
    return {"name": name, "description": description, "inputSchema": schema}


_TOOLS: Final = {
    FILTER: _tool(
        FILTER,
        f"Some fields, or columns of CSV, {_SOURCE_PHRASE}, e.g. users.email, users[0], items.*.id.",
        "",
        "fields exclude mode path offset format",
        mode=_choice(ProjectionMode),
    ),
    SEARCH: _tool(
        SEARCH,
        f"Lines or elements {_SOURCE_PHRASE} that match a pattern: RE2 regex, or words for bm25 and fuzzy. "
        "fields and exclude filter first.",
        "pattern",
        "mode path fields exclude max_results offset context_lines before after case_insensitive multiline "
        "threshold top_k context_type",
    ),
    EXPLORE: _tool(
        EXPLORE, f"Types, fields, counts, sizes and samples {_SOURCE_PHRASE}.", "", "path max_depth"
    ),
    READ: _tool(
        READ,
        f"Lines or elements {_SOURCE_PHRASE} from offset on; a negative one counts from the end.",
        "",
        "path offset limit unit format",
    ),
    QUERY: _tool(
        QUERY,
        f"SQLite SELECT over the table `rows` {_SOURCE_PHRASE}: objects by their fields, text as n and line. "
        "To count, sum, group, sort.",
        "sql",
        "path",
    ),
}
_STUBBED: Final = {
    SEARCH: ("Find lines or elements in a stored result.", ("cache_id", "pattern")),
    FILTER: ("Some fields of a stored result.", ("cache_id", "fields")),
    EXPLORE: ("What a stored result consists of.", ("cache_id",)),
    READ: ("Page through a stored result.", ("cache_id", "offset")),
    QUERY: ("SQL over the table `rows` of a stored result.", ("cache_id", "sql")),
}


def _stub(name: str) -> bytes:
    """The tool with the least description that a model needs to call it."""
    description, arguments = _STUBBED[name]
    properties = {argument: _PROPERTIES[argument] for argument in arguments}
    schema = {"type": "object", "properties": properties, "required": list(arguments[:1])}
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema})


DEFINITIONS: Final = {name: msgspec.json.encode(_TOOLS[name]) for name in NAMES}
STUBS: Final = {name: _stub(name) for name in NAMES}


_SOURCE_HINT: Final = (
    'give {"cache_id": "..."} to read a stored result, or {"tool": "...", "arguments": {...}} to call a tool '
    "and read its result"
)
_CHOICES: Final = {
    "mode": "regex, bm25, fuzzy, context or structure",
    "context_type": "paragraph, section, sentence or lines",
    "unit": "lines, elements or characters",
    "format": "json or compact",
}
_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Around = Annotated[int, Meta(ge=0, le=1_000)]
_MAX_OFFSET: Final = 2**53
_Offset = Annotated[int, Meta(ge=0, le=_MAX_OFFSET)]
_Paths = Annotated[list[str], Meta(max_length=200)] | str


class _SourceArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which result to read. Some models write null for an argument that they omit."""

    cache_id: str | None = None
    tool: str | None = None
    format: Literal["json", "compact"] | None = None


class _FilterArguments(_SourceArguments, frozen=True, kw_only=True):
    fields: _Paths | None = None
    exclude: _Paths | None = None
    mode: str | None = None
    path: str | None = None
    offset: _Offset | None = None


class _SearchArguments(_SourceArguments, frozen=True, kw_only=True):
    pattern: str | None = None
    fields: _Paths | None = None
    exclude: _Paths | None = None
    mode: SearchMode | None = None
    path: str | None = None
    max_results: _Count | None = None
    # Names that models use without having seen the schema.
    limit: _Count | None = None
    offset: _Offset | None = None
    context_lines: _Around | None = None
    before: _Around | None = None
    after: _Around | None = None
    case_insensitive: bool | None = None
    multiline: bool | None = None
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: _Count | None = None
    context_type: ContextType | None = None


class _ExploreArguments(_SourceArguments, frozen=True, kw_only=True):
    path: str | None = None
    max_depth: Annotated[int, Meta(ge=1, le=20)] | None = None


class _ReadArguments(_SourceArguments, frozen=True, kw_only=True):
    path: str | None = None
    offset: Annotated[int, Meta(ge=-_MAX_OFFSET, le=_MAX_OFFSET)] | None = None
    limit: _Count | None = None
    unit: PageUnit | None = None


class _QueryArguments(_SourceArguments, frozen=True, kw_only=True):
    sql: Annotated[str, Meta(max_length=10_000)] | None = None
    path: str | None = None


_SHAPES: Final[Mapping[str, type[_SourceArguments]]] = {
    FILTER: _FilterArguments,
    SEARCH: _SearchArguments,
    EXPLORE: _ExploreArguments,
    READ: _ReadArguments,
    QUERY: _QueryArguments,
}
_EXAMPLES: Final = {
    FILTER: 'name fields to keep in "fields" (e.g. ["users.email"]) or to leave out in "exclude"',
    SEARCH: 'call it with {"cache_id": "...", "pattern": "ERROR|WARN"}',
    EXPLORE: 'call it with {"cache_id": "...", "path": "users[0]", "max_depth": 3}',
    READ: 'call it with {"cache_id": "...", "path": "users", "offset": 100, "limit": 20}',
    QUERY: 'call it with {"cache_id": "...", "sql": "SELECT count(*) FROM rows"}',
}
# The container holds the arguments of a nested tool call.
_READERS: Final = {
    name: ArgumentReader(name, shape, example=_EXAMPLES[name], choices=_CHOICES, container="arguments")
    for name, shape in _SHAPES.items()
}
_NESTED_READERS: Final = {
    name: ArgumentReader(name, _SourceArguments, example=_SOURCE_HINT, container="arguments")
    for name in NAMES
}


class ReadRequest(msgspec.Struct, frozen=True):
    """What to read, of a stored result or of the result of a nested call."""

    job: ReadJob
    # Empty for a nested call.
    cache_id: str
    tool: str
    arguments: Raw
    # Whether the job is cheap on a small result.
    cheap: bool = False


def parse_read_request(name: str, params: Mapping[str, Raw], room: int) -> ReadRequest:
    """The request in a call of one of the tools; raises InvalidArguments."""
    given = _READERS[name].read(params)
    job = _read_job(name, given, room)
    if not given.cache_id and not given.tool:
        raise InvalidArguments(name, "neither cache_id nor tool is given", hint=_SOURCE_HINT)
    if not given.cache_id and given.tool in NAMES:
        problem = f"tool is {given.tool}, which reads results and has none of its own"
        raise InvalidArguments(name, problem, hint=_SOURCE_HINT)
    arguments = _NESTED_READERS[name].read_nested(params)
    return ReadRequest(job, given.cache_id or "", given.tool or "", arguments)


def _read_job(tool: str, given: _SourceArguments, room: int) -> ReadJob:
    job = partial(ReadJob, tool=tool, cache_id="", room=room, compact=given.format == "compact")
    match given:
        case _FilterArguments():
            if given.mode is not None and given.mode not in [*ProjectionMode]:
                problem = f"mode is {given.mode[:50]!r}"
                raise InvalidArguments(FILTER, problem, hint="mode is include or exclude")
            projection = _projection(FILTER, given.fields, given.exclude, given.mode)
            return job(path=given.path or "", projection=projection, offset=given.offset or 0)
        case _SearchArguments():
            search = _search_params(given, room)
            # The projection runs first: the pattern matches only the fields that remain.
            filters = given.fields is not None or given.exclude is not None
            keep = _projection(SEARCH, given.fields, given.exclude, None) if filters else None
            return job(path=given.path or "", search=search, projection=keep)
        case _ExploreArguments():
            return job(exploration=_params(ExploreParams, given, room=room))
        case _ReadArguments():
            return job(reading=_params(ReadParams, given, room=room))
        case _QueryArguments() if given.sql and given.sql.strip():
            return job(query=_params(QueryParams, given, room=room))
    raise InvalidArguments(QUERY, "sql is not given", hint=_EXAMPLES[QUERY])


_ParamsT = TypeVar("_ParamsT", SearchParams, ExploreParams, ReadParams, QueryParams)


def _params(kind: type[_ParamsT], given: _SourceArguments, **others: Any) -> _ParamsT:
    """The parameters of a job: the arguments that are given, and the defaults of all others."""
    fields = {name: getattr(given, name, None) for name in kind.__struct_fields__} | others
    return kind(**{name: value for name, value in fields.items() if value is not None})


def _search_params(given: _SearchArguments, room: int) -> SearchParams:
    if not given.pattern:
        problem = "pattern is not given" if given.pattern is None else "pattern is empty"
        raise InvalidArguments(SEARCH, problem, hint=_EXAMPLES[SEARCH])
    return _params(
        SearchParams,
        given,
        room=room,
        max_results=given.max_results or given.limit,
        before=given.context_lines if given.before is None else given.before,
        after=given.context_lines if given.after is None else given.after,
    )


def _projection(
    tool: str, fields: list[str] | str | None, exclude: list[str] | str | None, mode: str | None
) -> ProjectionParams:
    if fields is None and exclude is None:
        raise InvalidArguments(tool, "neither fields nor exclude is given", hint=_EXAMPLES[FILTER])
    named = {"fields": _as_path_list(fields), "exclude": _as_path_list(exclude)}
    for name, given in (("fields", fields), ("exclude", exclude)):
        if given is not None and not named[name]:
            raise InvalidArguments(tool, f"{name} is empty", hint=_EXAMPLES[FILTER])
        if not all(named[name]):
            raise InvalidArguments(tool, f"{name} has an empty name", hint=_EXAMPLES[FILTER])
    keep = mode or (ProjectionMode.EXCLUDE if fields is None else ProjectionMode.INCLUDE)
    return ProjectionParams(fields=named["fields"], exclude=named["exclude"], mode=ProjectionMode(keep))


def _as_path_list(paths: list[str] | str | None) -> tuple[str, ...]:
    """A single name may come without a list, and a list may come as JSON text."""
    if not isinstance(paths, str):
        return tuple(paths or ())
    try:
        return tuple(msgspec.json.decode(paths, type=list[str]))
    except msgspec.DecodeError:
        return tuple(part.strip() for part in paths.split(","))
