"""The expandSchema tool: reads its arguments and returns the part of a tool's schema at a path."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, Protocol

import msgspec
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from headgate.catalog.catalog import Catalog
from headgate.catalog.definition_text import split_definition
from headgate.catalog.errors import InvalidExpansionRequest, SchemaNotFound
from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    EXPAND_DEFINITION,
    OwnToolDefinition,
    retrieve_definition,
)
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.domain.client_profile import ClientProfile
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.domain.tool_arguments import argument_members, list_in_text, refuse_unknown, text_member
from headgate.schema.keywords import pointer_steps, string_value
from headgate.schema.path_lookup import LONGEST_PATH, NavigableSchema, PathFound, PathNotFound, SchemaPart

_MOST_NAMED: Final = 20
_LONGEST_NAME: Final = 100
_LONGEST_PATH_TEXT: Final = 300
_MOST_DEAD_ENDS: Final = 3
_MOST_CHILDREN: Final = 200
_MOST_TYPES: Final = 8
# In one part; most are repetitions.
_MOST_REFERENCES: Final = 1_000
_OWN: Final = ("title", "description", "type", "default", "examples")
_ARGUMENT_NAMES: Final = ("toolName", "path", "mode")
_NOTHING: Final = Raw(b"null")
# A property of that name has an object as its value, not a text.
_REFERENCE: Final = re.compile(rb'"\$ref"\s*+:\s*+("(?:[^"\\]|\\.)*+")')
# An index may be a number.
_steps = Decoder(list[str | int])
_one_step = Decoder(str | int)
# Some models write null or an empty text for an omitted argument.
_mode = Decoder(Literal["schema", "docs", ""] | None)


class ToolDefinitionLookup(Protocol):
    """The tools that can be expanded."""

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        """The tool that a call of this name would reach; None if this client does not see it."""

    def nearest(self, name: str, caller: Identity) -> list[str]:
        """Similar names of the caller's tools."""


class ExpandableTools:
    """Every tool that expandSchema can return, including the gateway's own, which a small budget shortens."""

    def __init__(self, catalog: Catalog, readers: Sequence[OwnToolDefinition] = ()) -> None:
        """`readers` are the gateway's own tools that are listed after those of servers."""
        self._catalog = catalog
        self._readers = {reader.name: reader.whole for reader in readers}
        self.nearest = catalog.nearest

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        """The tool of that name, if the client sees it."""
        found = self._catalog.find(name, caller, profile)
        if found is not None:
            return found
        servers = self._catalog.visible_servers(self._catalog.visibility(caller))
        own = {
            RETRIEVE_TOOLS: retrieve_definition(servers),
            CALL_TOOL: CALL_DEFINITION,
            EXPAND_SCHEMA: EXPAND_DEFINITION,
            **self._readers,
        }
        return Item(ItemKind.TOOLS, "", name, name, own[name]) if name in own else None


class _ExpandSchemaArguments(msgspec.Struct, frozen=True):
    """The tool, the path of the part, and whether its schema or its documentation is requested."""

    tool: str
    # Empty for the whole schema.
    path: tuple[str, ...] = ()
    docs: bool = False


class ExpandSchema:
    """Returns the inputSchema or the other members of a tool, as its server wrote them."""

    def __init__(self, tools: ToolDefinitionLookup) -> None:
        self._tools = tools
        # For metrics: the number of requests, and of failed ones.
        self.expansions = 0
        self.refused = 0

    async def run(self, request: McpRequest) -> McpResponse:
        """The schema or the documentation as text; raises InvalidExpansionRequest or SchemaNotFound."""
        try:
            blocks = self._expand(request)
        except (InvalidExpansionRequest, SchemaNotFound):
            self.refused += 1
            raise
        self.expansions += 1
        content = [{"type": "text", "text": block} for block in blocks]
        return McpResponse(msgspec.json.encode({"content": content}))

    def _expand(self, request: McpRequest) -> list[str]:
        arguments = _read_arguments(request.params)
        tool = self._tools.find(arguments.tool, request.caller, request.profile)
        if tool is None:
            raise SchemaNotFound(arguments.tool, self._tools.nearest(arguments.tool, request.caller))
        definition = tool.definition.decode(errors="replace")
        parted = split_definition(definition)
        if parted is None:
            if arguments.path:
                raise InvalidExpansionRequest(
                    f"{tool.public_name} is nested too deep to be taken apart; leave path out to get it whole"
                )
            return [definition]
        if not arguments.path:
            return [parted.docs if arguments.docs else parted.schema]
        return _expand_part(NavigableSchema(parted.schema.encode()), arguments, tool.public_name)


def _read_arguments(params: Mapping[str, Raw]) -> _ExpandSchemaArguments:
    try:
        is_object = bytes(params.get("arguments", b""))[:1] == b"{"
        given = argument_members(params, EXPAND_SCHEMA, "") if is_object else {}
        # First, because clients rely on the wording of that message.
        tool = text_member(given, "toolName")
        if not tool.strip():
            raise InvalidExpansionRequest("toolName is required")
        refuse_unknown(EXPAND_SCHEMA, given, _ARGUMENT_NAMES, hint="")
    except InvalidArguments as error:
        raise InvalidExpansionRequest(error.message.removeprefix(f"{EXPAND_SCHEMA}: ")) from error
    path = _path(bytes(given.get("path", _NOTHING)))
    try:
        mode: str | None = _mode.decode(given.get("mode", _NOTHING))
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidExpansionRequest('mode must be "schema" or "docs"') from error
    return _ExpandSchemaArguments(tool, path, mode == "docs")


def _path(raw: bytes) -> tuple[str, ...]:
    if raw in (b"null", b'""'):
        return ()
    try:
        one = [] if raw[:1] == b"[" else [_one_step.decode(raw)]
        steps = one or _steps.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = 'path must be a list of names, such as ["metadata","shipping"]'
        raise InvalidExpansionRequest(message) from error
    if one and isinstance(one[0], str) and one[0].lstrip()[:1] == "[":
        # The list was sent as a text, or a name begins with a bracket.
        inside = list_in_text(one[0], list[str | int])
        steps = one if inside is None else inside
    if len(steps) > LONGEST_PATH:
        raise InvalidExpansionRequest(f"path has {len(steps)} names, and at most {LONGEST_PATH} are followed")
    return tuple(map(str, steps))


def _expand_part(schema: NavigableSchema, arguments: _ExpandSchemaArguments, tool: str) -> list[str]:
    found = schema.find(arguments.path)
    if isinstance(found, PathNotFound):
        raise _part_not_found(schema, found, tool)
    if arguments.docs:
        return [_describe_part(schema, found.part).decode()]
    value, target = found.part.value, b""
    if not found.part.container:
        value, target = schema.subschemas.follow_plain_references(value)
    blocks = [value, target] if target else [value]
    notes = "\n".join(_notes(schema, found, blocks))
    return [block.decode() for block in blocks] + ([notes] if notes else [])


def _describe_part(schema: NavigableSchema, part: SchemaPart) -> bytes:
    """A JSON object with the documentation of the part, without its schema."""
    description: dict[str, object] = {} if part.container else dict(_keyword_values(schema, part.value, _OWN))
    children = schema.children(part, _MOST_CHILDREN)
    if children.first:
        description["children"] = {
            _replace_lone_surrogates(name): {
                **_keyword_values(schema, child.value, ("type",)),
                **({"required": True} if child.required else {}),
                **_keyword_values(schema, child.value, ("description",)),
            }
            for name, child in children.first.items()
        }
    if children.total > len(children.first):
        description["more"] = children.total - len(children.first)
    return msgspec.json.encode(description)


def _keyword_values(schema: NavigableSchema, value: bytes, keywords: tuple[str, ...]) -> dict[str, Raw]:
    """The values of these keywords in the schema, or in the schema that it refers to."""
    values: dict[str, Raw] = {}
    for subschema in schema.subschemas.with_references(value):
        for keyword in keywords:
            member = schema.json.member(subschema.value, keyword)
            if member and keyword not in values:
                values[keyword] = Raw(member)
    if "type" in keywords and "type" not in values:
        # The types of the alternatives.
        branches = schema.subschemas.with_branches(value)
        kinds = (schema.json.member(subschema.value, "type") for subschema in branches)
        types: dict[bytes, None] = {}
        for kind in kinds:
            if kind[:1] == b'"':
                types[kind] = None
            if len(types) == _MOST_TYPES:
                break
        if types:
            listed = b",".join(types)
            values["type"] = Raw(listed if len(types) == 1 else b"[" + listed + b"]")
    return {keyword: values[keyword] for keyword in keywords if keyword in values}


def _notes(schema: NavigableSchema, found: PathFound, blocks: list[bytes]) -> list[str]:
    """How to continue from a part with references or alternatives."""
    there: dict[str, bytes] = {}
    gone: list[str] = []
    written = (match[1] for block in blocks for match in _REFERENCE.finditer(block))
    for reference in dict.fromkeys(islice(written, _MOST_REFERENCES)):
        pointer = string_value(reference) or ""
        target = schema.subschemas.reference_target(reference)
        if target:
            there[pointer] = target
        else:
            gone.append(f"{_shorten_name(pointer)!r} {_unresolved_reason(pointer)}")
    notes = []
    if there:
        ways = (_path_to(schema, pointer, target) for pointer, target in islice(there.items(), _MOST_NAMED))
        notes.append(f"Expand $ref with path: {_join_names(ways, len(there))}")
    if gone:
        notes.append(f"$ref {_join_names(gone)}")
    if found.others:
        notes.append(f"Also at path: {_join_names(map(_path_text, found.others))}")
    return notes


def _path_to(schema: NavigableSchema, reference: str, target: bytes) -> str:
    """A path to the target of the reference; the reference itself if names would lead elsewhere."""
    steps = pointer_steps(reference)
    if not steps:
        return "[]"
    found = schema.find(steps)
    straight = isinstance(found, PathFound) and found.part.value == target
    return _path_text(steps if straight else [reference])


def _part_not_found(schema: NavigableSchema, not_found: PathNotFound, tool: str) -> InvalidExpansionRequest:
    """A path that does not lead to its end: how far it leads, and the possible next steps."""
    where = _path_text(map(_shorten_name, not_found.steps)) if not_found.steps else "the arguments"
    missing = _shorten_name(not_found.missing)
    # Before anything is parsed only for the message.
    unsure = schema.json.exhausted
    problems = [f"No {missing!r} in {where} of {tool}"]
    if unsure:
        problems = [f"{tool} is too large to be searched for {missing!r} in {where}"]
    children = schema.children(not_found.part, _MOST_NAMED)
    if children.first:
        problems.append(f"there are: {_join_names(map(_shorten_name, children.first), children.total)}")
    elif not schema.json.exhausted:
        problems.append("nothing is inside")
    problems += _dead_ends(schema, not_found.part)
    if unsure:
        problems.append("leave path out to get it whole")
    return InvalidExpansionRequest("; ".join(problems))


def _dead_ends(schema: NavigableSchema, part: SchemaPart) -> list[str]:
    """Unresolved references behind which the missing name may be."""
    if part.container:
        return []
    references = (
        schema.json.member(subschema.value, "$ref")
        for subschema in schema.subschemas.with_branches(part.value)
    )
    dead = (
        f"its $ref {_shorten_name(target)!r} {_unresolved_reason(target)}"
        for reference in references
        if (target := string_value(reference)) is not None
        and not schema.subschemas.reference_target(reference)
    )
    return list(islice(dead, _MOST_DEAD_ENDS))


def _unresolved_reason(reference: str) -> str:
    return "leads nowhere" if reference.startswith("#") else "is outside of the schema and never fetched"


def _join_names(names: Iterable[str], total: int = 0) -> str:
    """The first names, and the number of others; `total` counts more than the given names."""
    every = list(names)
    first = ", ".join(name or "''" for name in every[:_MOST_NAMED])
    more = max(total, len(every)) - _MOST_NAMED
    return f"{first} and {more} more" if more > 0 else first


def _path_text(path: Iterable[str]) -> str:
    """A path as a client can send it; the beginning of a long one."""
    text = msgspec.json.encode([_replace_lone_surrogates(step) for step in path]).decode()
    return text if len(text) <= _LONGEST_PATH_TEXT else text[:_LONGEST_PATH_TEXT] + "…"


def _shorten_name(name: str) -> str:
    return _replace_lone_surrogates(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…")


def _replace_lone_surrogates(name: str) -> str:
    """A name without halves of surrogate pairs, which no client could read."""
    return name.encode(errors="replace").decode()
