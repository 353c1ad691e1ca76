"""Definitions of the gateway's own tools for finding and calling tools, and readers of their arguments."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw

from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import (
    ARGUMENT_CONTAINERS,
    ArgumentReader,
    argument_members,
    nested_arguments,
    refuse_unknown,
    text_member,
)


class OwnToolDefinition(NamedTuple):
    """A tool that is listed after those of servers: in full and as a stub."""

    name: str
    whole: bytes
    stub: bytes


MOST_MATCHES: Final = 50
# Each is a search of its own.
MOST_QUERIES: Final = 10
# Of server names in a description, for which every conversation pays.
_LONGEST_NAMES: Final = 300
_LONGEST_NAME: Final = 60

_RETRIEVE: Final[dict[str, Any]] = {
    "name": RETRIEVE_TOOLS,
    "title": "Find tools",
    "description": (
        "Find tools of the connected servers. Write a verb and an object as the tool's author would "
        "('create issue', 'list calendar events'), not the user's sentence. "
        "If results are weak, try a second wording. `also` names further candidates. "
        "Use queries for several things at once."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Verb and object."},
            "queries": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_QUERIES},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_MATCHES},
            "servers": {"type": "array", "items": {"type": "string"}, "description": "Only of these."},
            "read_only": {"type": "boolean", "description": "Only tools that change nothing."},
            "detail": {
                "type": "string",
                "enum": ["brief", "full", "explain"],
                "description": "full: whole schemas; explain: why each tool was found.",
            },
        },
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
_CALL: Final[dict[str, Any]] = {
    "name": CALL_TOOL,
    "title": "Call a tool",
    "description": f"Call a tool that {RETRIEVE_TOOLS} has found.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"As {RETRIEVE_TOOLS} names it."},
            # pydantic-ai closes every object that is not declared open.
            "args": {
                "type": "object",
                "additionalProperties": True,
                "description": "As its input_schema says.",
            },
        },
        "required": ["name"],
    },
}
_EXPAND: Final[dict[str, Any]] = {
    "name": EXPAND_SCHEMA,
    "description": "The full schema or docs of a tool, or of one of its arguments.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "toolName": {"type": "string"},
            "path": {"type": "array", "items": {"type": "string"}, "description": "Omit for all."},
            "mode": {"type": "string", "enum": ["schema", "docs"]},
        },
        "required": ["toolName"],
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}

CALL_DEFINITION: Final = msgspec.json.encode(_CALL)
EXPAND_DEFINITION: Final = msgspec.json.encode(_EXPAND)


def retrieve_definition(servers: Sequence[str]) -> bytes:
    """The search tool, with the servers in its description, so that a model knows what it can find."""
    if not servers:
        return msgspec.json.encode(_RETRIEVE)
    named: list[str] = []
    for server in servers:
        if named and len(", ".join([*named, server])) > _LONGEST_NAMES:
            break
        named.append(server[:_LONGEST_NAME])
    more = len(servers) - len(named)
    behind = f"Servers: {', '.join(named)}{f' and {more} more' if more else ''}."
    return msgspec.json.encode({**_RETRIEVE, "description": f"{_RETRIEVE['description']} {behind}"})


def _stub(definition: dict[str, Any], description: str, *arguments: str) -> bytes:
    """The tool with the least that a model needs to use it."""
    known = definition["inputSchema"]["properties"]
    properties = {
        name: {key: value for key, value in known[name].items() if key != "description"} for name in arguments
    }
    schema = {"type": "object", "properties": properties, "required": [arguments[0]]}
    return msgspec.json.encode(
        {"name": definition["name"], "description": description, "inputSchema": schema}
    )


RETRIEVE_STUB: Final = _stub(_RETRIEVE, "Find tools by what they do.", "query")
CALL_STUB: Final = _stub(_CALL, "Call a tool that was found.", "name", "args")
EXPAND_STUB: Final = _stub(_EXPAND, "The whole schema of a tool.", "toolName")


_EXAMPLE = 'call it with {"query": "what the tool should do"}'
_CALL_EXAMPLE = 'call it with {"name": "a tool", "args": {}}, as retrieve_tools names it'


class RetrieveToolsArguments(msgspec.Struct, frozen=True):
    """The arguments of retrieve_tools."""

    query: str | None = None
    queries: Annotated[list[str], Meta(min_length=1, max_length=MOST_QUERIES)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_MATCHES)] | None = None
    servers: list[str] | None = None
    # Some models write null for an omitted argument.
    read_only: bool | None = False
    detail: Literal["brief", "full", "explain"] | None = "brief"


class _WrappedCallName(msgspec.Struct, frozen=True):
    """The arguments of call_tool without the container of the tool's own arguments."""

    name: Annotated[str, Meta(min_length=1)]


class _WrappedCall(_WrappedCallName, frozen=True, forbid_unknown_fields=True):
    """The usual form of a call_tool call, decoded in one step."""

    args: Raw = Raw(b"{}")


_retrieve_arguments = ArgumentReader(
    RETRIEVE_TOOLS, RetrieveToolsArguments, example=_EXAMPLE, choices={"detail": "brief, full or explain"}
)
_wrapped_call_name = ArgumentReader(CALL_TOOL, _WrappedCallName, example=_CALL_EXAMPLE, container="args")
_wrapped_call_decoder = msgspec.json.Decoder(_WrappedCall)
_LONGEST_TOOL_NAME = 64
_WRAPPED = ("name", "args")


def read_retrieve_arguments(params: Mapping[str, Raw]) -> RetrieveToolsArguments:
    """The arguments of a search; raises InvalidArguments."""
    given = _retrieve_arguments.read(params)
    if given.query is None and given.queries is None:
        raise InvalidArguments(RETRIEVE_TOOLS, "neither query nor queries is given", hint=_EXAMPLE)
    if given.query is not None and given.queries is not None:
        raise InvalidArguments(RETRIEVE_TOOLS, "query and queries are both given", hint="give one of them")
    return given


def read_wrapped_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The tool and its arguments; raises InvalidArguments, also for an unknown member: none is dropped."""
    try:
        given = params["arguments"]
        usual = _wrapped_call_decoder.decode(given)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_lenient_call(params)
    # The exact size, so that no member is there twice.
    is_usual = len(given) == len('{"name":"","args":}') + len(usual.name) + len(usual.args)
    if is_usual and bytes(usual.args)[:1] == b"{":
        return usual.name, usual.args
    return _read_lenient_call(params)


def _read_lenient_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The same for a call with another container, arguments as a text, or a mistake."""
    given = argument_members(params, CALL_TOOL, _CALL_EXAMPLE)
    name = text_member(given, "name")
    target = name or CALL_TOOL
    here = f"give the arguments of {target[:_LONGEST_TOOL_NAME]} in args"
    hint = here if "name" in given else _CALL_EXAMPLE
    refuse_unknown(CALL_TOOL, given, _WRAPPED, hint=hint, accepted=ARGUMENT_CONTAINERS, target=target)
    # The reader explains an invalid name.
    return name or _wrapped_call_name.read(params).name, nested_arguments(given, CALL_TOOL, _CALL_EXAMPLE)
