"""Reads the arguments of the gateway's own tools, forgivingly, and says what is wrong with them."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from headgate.catalog.own_tools import MOST_MATCHES, MOST_QUERIES
from headgate.catalog.public_names import CALL_TOOL, RETRIEVE_TOOLS
from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import (
    ARGUMENT_CONTAINERS,
    argument_members,
    decode_arguments,
    nested_arguments,
    refuse_unknown,
)

# Arguments for which models also write a JSON text or a single value.
_NUMBERS = ("limit",)
_FLAGS = ("read_only",)
_LISTS = ("queries", "servers")
_EXAMPLE = 'call it with {"query": "what the tool should do"}'
_CALL_EXAMPLE = 'call it with {"name": "a tool", "args": {}}, as retrieve_tools names it'


class RetrieveToolsArguments(msgspec.Struct, frozen=True):
    """The arguments of retrieve_tools."""

    query: str | None = None
    queries: Annotated[list[str], Meta(min_length=1, max_length=MOST_QUERIES)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_MATCHES)] | None = None
    servers: list[str] | None = None
    # Null is what some models write for an argument that they leave out.
    read_only: bool | None = False
    detail: Literal["brief", "full", "explain"] | None = "brief"


class _WrappedCallName(msgspec.Struct, frozen=True):
    """The arguments of call_tool but for the container of the tool's own."""

    name: Annotated[str, Meta(min_length=1)]


class _WrappedCall(_WrappedCallName, frozen=True, forbid_unknown_fields=True):
    """A call of call_tool as nearly every one is, so that it is read in one step."""

    args: Raw = Raw(b"{}")


_wrapped_call_decoder = msgspec.json.Decoder(_WrappedCall)
_LONGEST_NAME = 64
_WRAPPED = ("name", "args")


def read_retrieve_arguments(params: Mapping[str, Raw]) -> RetrieveToolsArguments:
    """What is looked for; raises InvalidArguments."""
    given = decode_arguments(
        _typed(params), RetrieveToolsArguments, RETRIEVE_TOOLS, _EXAMPLE, {"detail": "brief, full or explain"}
    )
    if given.query is None and given.queries is None:
        raise InvalidArguments(RETRIEVE_TOOLS, "neither query nor queries is given", hint=_EXAMPLE)
    if given.query is not None and given.queries is not None:
        raise InvalidArguments(RETRIEVE_TOOLS, "query and queries are both given", hint="give one of them")
    return given


def _typed(params: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """The same with a number or flag that came as a text, and with a list of one that came bare.

    `"3"` and `3.0` are 3, `"true"` is true, and `"github"` is `["github"]`; everything else stays for the
    decoder.
    """
    members = argument_members(params, RETRIEVE_TOOLS, _EXAMPLE)
    typed = members | {name: _whole(members[name]) for name in _NUMBERS if name in members}
    typed |= {name: _unquoted(members[name], bool) for name in _FLAGS if name in members}
    typed |= {name: _listed(members[name]) for name in _LISTS if name in members}
    return {"arguments": Raw(msgspec.json.encode(typed))}


def _whole(value: Raw) -> Raw:
    """A whole number without a fraction: JSON Schema calls `3.0` an integer too."""
    value = _unquoted(value, float)
    try:
        number = msgspec.json.decode(value, type=int | float)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
    return Raw(b"%d" % number) if number == int(number) else value


def _unquoted(value: Raw, kind: type[float] | type[bool]) -> Raw:
    """The number or flag that a text holds as JSON; the value itself where it holds neither."""
    if bytes(value)[:1] != b'"':
        return value
    try:
        text = msgspec.json.decode(value, type=str).strip()
        return Raw(msgspec.json.encode(msgspec.json.decode(text.lower(), type=kind)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value


def _listed(value: Raw) -> Raw:
    """A list that holds the text, or the list of texts that the text holds as JSON; no text stays."""
    if bytes(value)[:1] != b'"':
        return value
    try:
        text = msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return value
    try:
        return Raw(msgspec.json.encode(msgspec.json.decode(text, type=list[str])))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Raw(msgspec.json.encode([text]))


def read_wrapped_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The tool that is meant, and its arguments; raises InvalidArguments.

    A member that call_tool does not have is never dropped: the tool would run without it.
    """
    try:
        given = params["arguments"]
        usual = _wrapped_call_decoder.decode(given)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_lenient_call(params)
    # To the byte, so that neither of them is there twice.
    is_usual = len(given) == len('{"name":"","args":}') + len(usual.name) + len(usual.args)
    if is_usual and bytes(usual.args)[:1] == b"{":
        return usual.name, usual.args
    return _read_lenient_call(params)


def _read_lenient_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The same of a call with another container, an object as a text, or a mistake."""
    given = argument_members(params, CALL_TOOL, _CALL_EXAMPLE)
    target = _named(given) or CALL_TOOL
    hint = f"give the arguments of {target[:_LONGEST_NAME]} in args" if "name" in given else _CALL_EXAMPLE
    refuse_unknown(CALL_TOOL, given, _WRAPPED, hint=hint, accepted=ARGUMENT_CONTAINERS, target=target)
    # What is wrong with a name is told by the decoder of the whole.
    name = (
        _named(given)
        or decode_arguments(params, _WrappedCallName, CALL_TOOL, _CALL_EXAMPLE, container="args").name
    )
    return name, nested_arguments(given, CALL_TOOL, _CALL_EXAMPLE)


def _named(given: Mapping[str, Raw]) -> str:
    """The tool that a call of call_tool names; empty where it names none."""
    try:
        return msgspec.json.decode(given.get("name", b'""'), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
