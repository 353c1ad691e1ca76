"""Reads the arguments of the tools that read stored results, and says what is wrong with them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw

from headgate.domain.arguments import decoded, members_of, nested_arguments
from headgate.domain.errors import InvalidArguments
from headgate.responses import params as told
from headgate.responses.jobs import Look
from headgate.responses.params import ContextType, Keep, SearchMode, Unit
from headgate.responses.tools.names import EXPLORE, FILTER, NAMES, QUERY, READ, SEARCH

_BOTH_WAYS: Final = (
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
# Of the arguments of a tool that is called for its result.
_CONTAINER: Final = "arguments"
_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Around = Annotated[int, Meta(ge=0, le=1_000)]
_FARTHEST: Final = 2**53
_Offset = Annotated[int, Meta(ge=0, le=_FARTHEST)]
_Paths = Annotated[list[str], Meta(max_length=200)] | str
_Format = Literal["json", "compact"]


class _Source(msgspec.Struct, frozen=True, kw_only=True):
    """Which result is meant. Null is what some models write for an argument that they leave out."""

    cache_id: str | None = None
    tool: str | None = None
    format: _Format | None = None


class _Filter(_Source, frozen=True, kw_only=True):
    fields: _Paths | None = None
    exclude: _Paths | None = None
    mode: str | None = None
    path: str | None = None
    offset: _Offset | None = None


class _Search(_Source, frozen=True, kw_only=True):
    pattern: str | None = None
    fields: _Paths | None = None
    exclude: _Paths | None = None
    mode: SearchMode | None = None
    path: str | None = None
    max_results: _Count | None = None
    # What models call it that have not seen the schema.
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


class _Explore(_Source, frozen=True, kw_only=True):
    path: str | None = None
    max_depth: Annotated[int, Meta(ge=1, le=20)] | None = None


class _Read(_Source, frozen=True, kw_only=True):
    path: str | None = None
    offset: Annotated[int, Meta(ge=-_FARTHEST, le=_FARTHEST)] | None = None
    limit: _Count | None = None
    unit: Unit | None = None


class _Query(_Source, frozen=True, kw_only=True):
    sql: Annotated[str, Meta(max_length=10_000)] | None = None
    path: str | None = None


class Wanted(msgspec.Struct, frozen=True):
    """What an agent wants to see, of a stored result or of one that is called for now."""

    look: Look
    # Empty for a fresh call.
    cache_id: str
    tool: str
    arguments: Raw
    # Whether it can be done at once of a result that is small.
    cheap: bool = False


def wanted(name: str, params: Mapping[str, Raw], room: int) -> Wanted:
    """What the call of one of the tools asks for; raises InvalidArguments."""
    source, look = _READERS[name](params, room)
    if not source.cache_id and not source.tool:
        raise InvalidArguments(name, "neither cache_id nor tool is given", hint=_BOTH_WAYS)
    if not source.cache_id and source.tool in NAMES:
        problem = f"tool is {source.tool}, which reads results and has none of its own"
        raise InvalidArguments(name, problem, hint=_BOTH_WAYS)
    given = members_of(params, name, _BOTH_WAYS)
    arguments = nested_arguments(given, name, _BOTH_WAYS, name=_CONTAINER)
    look = msgspec.structs.replace(look, compact=look.compact or source.format == "compact")
    return Wanted(look, source.cache_id or "", source.tool or "", arguments)


def _filter(params: Mapping[str, Raw], room: int) -> tuple[_Source, Look]:
    given = decoded(params, _Filter, FILTER, _FIELDS, _MODES, strict=False, container=_CONTAINER)
    if given.mode is not None and given.mode not in [*Keep]:
        problem = f"mode is {given.mode[:50]!r}"
        raise InvalidArguments(FILTER, problem, hint="mode is include or exclude")
    projection = _projection(FILTER, given.fields, given.exclude, given.mode)
    look = Look(tool=FILTER, cache_id="", room=room, path=given.path or "", projection=projection)
    return given, msgspec.structs.replace(look, offset=given.offset or 0)


def _projection(
    tool: str, fields: list[str] | str | None, exclude: list[str] | str | None, mode: str | None
) -> told.Projection:
    if fields is None and exclude is None:
        raise InvalidArguments(tool, "neither fields nor exclude is given", hint=_FIELDS)
    for name, paths in (("fields", fields), ("exclude", exclude)):
        if paths is not None and not _listed(paths):
            raise InvalidArguments(tool, f"{name} is empty", hint=_FIELDS)
        if not all(_listed(paths)):
            raise InvalidArguments(tool, f"{name} has an empty name", hint=_FIELDS)
    keep = Keep(mode) if mode is not None else Keep.INCLUDE if fields is not None else Keep.EXCLUDE
    return told.Projection(fields=_listed(fields), exclude=_listed(exclude), mode=keep)


def _listed(paths: list[str] | str | None) -> tuple[str, ...]:
    """One name may be given without a list around it, and several as the text of one."""
    if not isinstance(paths, str):
        return tuple(paths or ())
    try:
        return tuple(msgspec.json.decode(paths, type=list[str]))
    except msgspec.DecodeError:
        return tuple(part.strip() for part in paths.split(","))


def _search(params: Mapping[str, Raw], room: int) -> tuple[_Source, Look]:
    example = 'call it with {"cache_id": "...", "pattern": "ERROR|WARN"}'
    given = decoded(params, _Search, SEARCH, example, _MODES, strict=False, container=_CONTAINER)
    if not given.pattern:
        problem = "pattern is not given" if given.pattern is None else "pattern is empty"
        raise InvalidArguments(SEARCH, problem, hint=example)
    around = given.context_lines or 0
    search = told.Search(
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
    # The projection runs first: the pattern meets only the fields that are left, and so does the reply.
    filters = given.fields is not None or given.exclude is not None
    projection = _projection(SEARCH, given.fields, given.exclude, None) if filters else None
    look = Look(tool=SEARCH, cache_id="", room=room, path=given.path or "", search=search)
    return given, msgspec.structs.replace(look, projection=projection)


def _explore(params: Mapping[str, Raw], room: int) -> tuple[_Source, Look]:
    example = 'call it with {"cache_id": "...", "path": "users[0]", "max_depth": 3}'
    given = decoded(params, _Explore, EXPLORE, example, _MODES, strict=False, container=_CONTAINER)
    exploration = told.Exploration(path=given.path or "", max_depth=given.max_depth or 3, room=room)
    return given, Look(tool=EXPLORE, cache_id="", room=room, exploration=exploration)


def _read(params: Mapping[str, Raw], room: int) -> tuple[_Source, Look]:
    example = 'call it with {"cache_id": "...", "path": "users", "offset": 100, "limit": 20}'
    given = decoded(params, _Read, READ, example, _MODES, strict=False, container=_CONTAINER)
    reading = told.Reading(
        path=given.path or "", offset=given.offset or 0, limit=given.limit, unit=given.unit, room=room
    )
    return given, Look(tool=READ, cache_id="", room=room, reading=reading)


def _query(params: Mapping[str, Raw], room: int) -> tuple[_Source, Look]:
    example = 'call it with {"cache_id": "...", "sql": "SELECT count(*) FROM rows"}'
    given = decoded(params, _Query, QUERY, example, _MODES, strict=False, container=_CONTAINER)
    if not given.sql or not given.sql.strip():
        raise InvalidArguments(QUERY, "sql is not given", hint=example)
    query = told.Query(sql=given.sql, path=given.path or "", room=room)
    return given, Look(tool=QUERY, cache_id="", room=room, query=query)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Raw], int], tuple[_Source, Look]]]] = {
    FILTER: _filter,
    SEARCH: _search,
    EXPLORE: _explore,
    READ: _read,
    QUERY: _query,
}
