"""Reads the arguments of retrieve_tools and call_tool."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from headgate.catalog.own_tools import MOST_MATCHES, MOST_QUERIES
from headgate.catalog.public_names import CALL_TOOL, RETRIEVE_TOOLS
from headgate.domain.errors import InvalidArguments
from headgate.domain.tool_arguments import (
    ARGUMENT_CONTAINERS,
    ArgumentReader,
    argument_members,
    nested_arguments,
    refuse_unknown,
    text_member,
)

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


_retrieve_arguments = ArgumentReader(
    RETRIEVE_TOOLS, RetrieveToolsArguments, example=_EXAMPLE, choices={"detail": "brief, full or explain"}
)
_wrapped_call_name = ArgumentReader(CALL_TOOL, _WrappedCallName, example=_CALL_EXAMPLE, container="args")
_wrapped_call_decoder = msgspec.json.Decoder(_WrappedCall)
_LONGEST_NAME = 64
_WRAPPED = ("name", "args")


def read_retrieve_arguments(params: Mapping[str, Raw]) -> RetrieveToolsArguments:
    """What is looked for; raises InvalidArguments."""
    given = _retrieve_arguments.read(params)
    if given.query is None and given.queries is None:
        raise InvalidArguments(RETRIEVE_TOOLS, "neither query nor queries is given", hint=_EXAMPLE)
    if given.query is not None and given.queries is not None:
        raise InvalidArguments(RETRIEVE_TOOLS, "query and queries are both given", hint="give one of them")
    return given


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
    name = text_member(given, "name")
    target = name or CALL_TOOL
    hint = f"give the arguments of {target[:_LONGEST_NAME]} in args" if "name" in given else _CALL_EXAMPLE
    refuse_unknown(CALL_TOOL, given, _WRAPPED, hint=hint, accepted=ARGUMENT_CONTAINERS, target=target)
    # The reader explains what is wrong with a name.
    return name or _wrapped_call_name.read(params).name, nested_arguments(given, CALL_TOOL, _CALL_EXAMPLE)
