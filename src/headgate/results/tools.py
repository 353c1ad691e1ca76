"""Definitions and arguments of the tools that read stored results."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import ArgumentReader
from headgate.results import jobs
from headgate.results.jobs import ContextType, PageUnit, ProjectionMode, ReadJob, SearchMode

FILTER: Final = "proxy_filter"
SEARCH: Final = "proxy_search"
EXPLORE: Final = "proxy_explore"
READ: Final = "proxy_read"
QUERY: Final = "proxy_query"
# In the order in which they are listed.
NAMES: Final = (SEARCH, FILTER, EXPLORE, READ, QUERY)


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_SWITCH: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
# Either a stored result, or a call whose result is stored and read at once. The object of arguments declares
# that it is open, because pydantic-ai closes every object that does not.
_ARGUMENTS: Final = {"type": "object", "additionalProperties": True}
_SOURCE: Final = {"cache_id": _TEXT, "tool": _TEXT, "arguments": _ARGUMENTS}
_SOURCE_PHRASE: Final = "of a stored result (cache_id) or of a new call (tool, arguments)"
_COMPACT: Final = {"type": "string", "enum": ["json", "compact"]}


def _tool(name: str, description: str, needed: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": _SOURCE | properties}
    if needed:
        schema["required"] = list(needed)
    return {"name": name, "description": description, "inputSchema": schema}


_TOOLS: Final = {
    FILTER: _tool(
        FILTER,
        f"Some fields, or columns of CSV, {_SOURCE_PHRASE}, e.g. users.email, users[0], items.*.id.",
        (),
        fields=_TEXTS,
        exclude=_TEXTS,
        mode={"type": "string", "enum": ["include", "exclude"]},
        path=_TEXT,
        offset=_NUMBER,
        format=_COMPACT,
    ),
    SEARCH: _tool(
        SEARCH,
        f"Lines or elements {_SOURCE_PHRASE} that match a pattern: RE2 regex, or words for bm25 and fuzzy. "
        "fields and exclude filter first.",
        ("pattern",),
        pattern=_TEXT,
        mode={"type": "string", "enum": [*SearchMode]},
        path=_TEXT,
        fields=_TEXTS,
        exclude=_TEXTS,
        max_results=_NUMBER,
        offset=_NUMBER,
        context_lines=_NUMBER,
        before=_NUMBER,
        after=_NUMBER,
        case_insensitive=_SWITCH,
        multiline=_SWITCH,
        threshold={"type": "number"},
        top_k=_NUMBER,
        context_type={"type": "string", "enum": [*ContextType]},
    ),
    EXPLORE: _tool(
        EXPLORE,
        f"Types, fields, counts, sizes and samples {_SOURCE_PHRASE}.",
        (),
        path=_TEXT,
        max_depth=_NUMBER,
    ),
    READ: _tool(
        READ,
        f"Lines or elements {_SOURCE_PHRASE} from offset on; a negative one counts from the end.",
        (),
        path=_TEXT,
        offset=_NUMBER,
        limit=_NUMBER,
        unit={"type": "string", "enum": [*PageUnit]},
        format=_COMPACT,
    ),
    QUERY: _tool(
        QUERY,
        f"SQLite SELECT over the table `rows` {_SOURCE_PHRASE}: objects by their fields, text as n and line. "
        "To count, sum, group, sort.",
        ("sql",),
        sql=_TEXT,
        path=_TEXT,
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
    known = _TOOLS[name]["inputSchema"]["properties"]
    properties = {
        argument: {key: value for key, value in known[argument].items() if key != "description"}
        for argument in arguments
    }
    schema = {"type": "object", "properties": properties, "required": list(arguments[:1])}
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema})


DEFINITIONS: Final = {name: msgspec.json.encode(_TOOLS[name]) for name in NAMES}
STUBS: Final = {name: _stub(name) for name in NAMES}


_SOURCE_HINT: Final = (
    'give {"cache_id": "..."} to read a stored result, or {"tool": "...", "arguments": {...}} to call a tool '
    "and read its result"
)
_FIELDS: Final = 'name fields to keep in "fields" (e.g. ["users.email"]) or to leave out in "exclude"'
_MODES: Final = {
    "mode": "regex, bm25, fuzzy, context or structure",
    "context_type": "paragraph, section, sentence or lines",
    "unit": "lines, elements or characters",
    "format": "json or compact",
}
# For the arguments of a nested tool call.
_CONTAINER: Final = "arguments"
_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Around = Annotated[int, Meta(ge=0, le=1_000)]
_MAX_OFFSET: Final = 2**53
_Offset = Annotated[int, Meta(ge=0, le=_MAX_OFFSET)]
_Paths = Annotated[list[str], Meta(max_length=200)] | str
_Format = Literal["json", "compact"]


class _SourceArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which result to read. Some models write null for an argument that they omit."""

    cache_id: str | None = None
    tool: str | None = None
    format: _Format | None = None


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


_ArgumentsT = TypeVar("_ArgumentsT", bound=_SourceArguments)


def _reader(tool: str, shape: type[_ArgumentsT], example: str) -> ArgumentReader[_ArgumentsT]:
    return ArgumentReader(tool, shape, example=example, choices=_MODES, container=_CONTAINER)


_SEARCH_EXAMPLE: Final = 'call it with {"cache_id": "...", "pattern": "ERROR|WARN"}'
_QUERY_EXAMPLE: Final = 'call it with {"cache_id": "...", "sql": "SELECT count(*) FROM rows"}'
_FILTER_ARGUMENTS: Final = _reader(FILTER, _FilterArguments, _FIELDS)
_SEARCH_ARGUMENTS: Final = _reader(SEARCH, _SearchArguments, _SEARCH_EXAMPLE)
_EXPLORE_ARGUMENTS: Final = _reader(
    EXPLORE,
    _ExploreArguments,
    'call it with {"cache_id": "...", "path": "users[0]", "max_depth": 3}',
)
_READ_ARGUMENTS: Final = _reader(
    READ,
    _ReadArguments,
    'call it with {"cache_id": "...", "path": "users", "offset": 100, "limit": 20}',
)
_QUERY_ARGUMENTS: Final = _reader(QUERY, _QueryArguments, _QUERY_EXAMPLE)
_SOURCE_ARGUMENTS: Final = {name: _reader(name, _SourceArguments, _SOURCE_HINT) for name in NAMES}


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
    source, job = _PARSERS[name](params, room)
    if not source.cache_id and not source.tool:
        raise InvalidArguments(name, "neither cache_id nor tool is given", hint=_SOURCE_HINT)
    if not source.cache_id and source.tool in NAMES:
        problem = f"tool is {source.tool}, which reads results and has none of its own"
        raise InvalidArguments(name, problem, hint=_SOURCE_HINT)
    arguments = _SOURCE_ARGUMENTS[name].read_nested(params)
    job = msgspec.structs.replace(job, compact=job.compact or source.format == "compact")
    return ReadRequest(job, source.cache_id or "", source.tool or "", arguments)


def _filter(params: Mapping[str, Raw], room: int) -> tuple[_SourceArguments, ReadJob]:
    given = _FILTER_ARGUMENTS.read(params)
    if given.mode is not None and given.mode not in [*ProjectionMode]:
        problem = f"mode is {given.mode[:50]!r}"
        raise InvalidArguments(FILTER, problem, hint="mode is include or exclude")
    projection = _projection(FILTER, given.fields, given.exclude, given.mode)
    job = ReadJob(tool=FILTER, cache_id="", room=room, path=given.path or "", projection=projection)
    return given, msgspec.structs.replace(job, offset=given.offset or 0)


def _projection(
    tool: str, fields: list[str] | str | None, exclude: list[str] | str | None, mode: str | None
) -> jobs.ProjectionParams:
    if fields is None and exclude is None:
        raise InvalidArguments(tool, "neither fields nor exclude is given", hint=_FIELDS)
    for name, paths in (("fields", fields), ("exclude", exclude)):
        if paths is not None and not _as_path_list(paths):
            raise InvalidArguments(tool, f"{name} is empty", hint=_FIELDS)
        if not all(_as_path_list(paths)):
            raise InvalidArguments(tool, f"{name} has an empty name", hint=_FIELDS)
    keep = (
        ProjectionMode(mode)
        if mode is not None
        else ProjectionMode.INCLUDE
        if fields is not None
        else ProjectionMode.EXCLUDE
    )
    return jobs.ProjectionParams(fields=_as_path_list(fields), exclude=_as_path_list(exclude), mode=keep)


def _as_path_list(paths: list[str] | str | None) -> tuple[str, ...]:
    """A single name may come without a list, and a list may come as JSON text."""
    if not isinstance(paths, str):
        return tuple(paths or ())
    try:
        return tuple(msgspec.json.decode(paths, type=list[str]))
    except msgspec.DecodeError:
        return tuple(part.strip() for part in paths.split(","))


def _search(params: Mapping[str, Raw], room: int) -> tuple[_SourceArguments, ReadJob]:
    given = _SEARCH_ARGUMENTS.read(params)
    if not given.pattern:
        problem = "pattern is not given" if given.pattern is None else "pattern is empty"
        raise InvalidArguments(SEARCH, problem, hint=_SEARCH_EXAMPLE)
    around = given.context_lines or 0
    search = jobs.SearchParams(
        pattern=given.pattern,
        mode=given.mode or SearchMode.REGEX,
        max_results=given.max_results or given.limit,
        offset=given.offset or 0,
        before=around if given.before is None else given.before,
        after=around if given.after is None else given.after,
        case_insensitive=bool(given.case_insensitive),
        multiline=bool(given.multiline),
        threshold=0.7 if given.threshold is None else given.threshold,
        top_k=given.top_k or 5,
        context_type=given.context_type or ContextType.PARAGRAPH,
        room=room,
    )
    # The projection runs first: the pattern matches only the fields that remain.
    filters = given.fields is not None or given.exclude is not None
    projection = _projection(SEARCH, given.fields, given.exclude, None) if filters else None
    job = ReadJob(tool=SEARCH, cache_id="", room=room, path=given.path or "", search=search)
    return given, msgspec.structs.replace(job, projection=projection)


def _explore(params: Mapping[str, Raw], room: int) -> tuple[_SourceArguments, ReadJob]:
    given = _EXPLORE_ARGUMENTS.read(params)
    exploration = jobs.ExploreParams(path=given.path or "", max_depth=given.max_depth or 3, room=room)
    return given, ReadJob(tool=EXPLORE, cache_id="", room=room, exploration=exploration)


def _read(params: Mapping[str, Raw], room: int) -> tuple[_SourceArguments, ReadJob]:
    given = _READ_ARGUMENTS.read(params)
    reading = jobs.ReadParams(
        path=given.path or "", offset=given.offset or 0, limit=given.limit, unit=given.unit, room=room
    )
    return given, ReadJob(tool=READ, cache_id="", room=room, reading=reading)


def _query(params: Mapping[str, Raw], room: int) -> tuple[_SourceArguments, ReadJob]:
    given = _QUERY_ARGUMENTS.read(params)
    if not given.sql or not given.sql.strip():
        raise InvalidArguments(QUERY, "sql is not given", hint=_QUERY_EXAMPLE)
    query = jobs.QueryParams(sql=given.sql, path=given.path or "", room=room)
    return given, ReadJob(tool=QUERY, cache_id="", room=room, query=query)


_PARSERS: Final[Mapping[str, Callable[[Mapping[str, Raw], int], tuple[_SourceArguments, ReadJob]]]] = {
    FILTER: _filter,
    SEARCH: _search,
    EXPLORE: _explore,
    READ: _read,
    QUERY: _query,
}
