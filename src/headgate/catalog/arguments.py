"""Reads the arguments of the gateway's own tools, forgivingly, and says what is wrong with them."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from headgate.catalog.names import CALL_TOOL, RETRIEVE_TOOLS
from headgate.catalog.own import MOST_FOUND, MOST_QUERIES
from headgate.domain.arguments import as_object, decoded
from headgate.domain.errors import InvalidArguments

_EXAMPLE = 'call it with {"query": "what the tool should do"}'
# Arguments that are not there, in either spelling.
_NONE = (b"", b"null")
_CALL_EXAMPLE = 'call it with {"name": "a tool", "args": {}}, as retrieve_tools names it'


class Retrieval(msgspec.Struct, frozen=True):
    """The arguments of retrieve_tools."""

    query: str | None = None
    queries: Annotated[list[str], Meta(min_length=1, max_length=MOST_QUERIES)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_FOUND)] | None = None
    servers: list[str] | None = None
    # Null is what some models write for an argument that they leave out.
    read_only: bool | None = False
    detail: Literal["brief", "full", "explain"] | None = "brief"


class _Wrapped(msgspec.Struct, frozen=True):
    """The arguments of call_tool; models also write `arguments`, and objects as text."""

    name: Annotated[str, Meta(min_length=1)]
    args: Raw = Raw(b"")
    arguments: Raw = Raw(b"")


def retrieval(params: Mapping[str, Raw]) -> Retrieval:
    """What is looked for; raises InvalidArguments."""
    given = decoded(params, Retrieval, RETRIEVE_TOOLS, _EXAMPLE, {"detail": "brief, full or explain"})
    if given.query is None and given.queries is None:
        raise InvalidArguments(RETRIEVE_TOOLS, "neither query nor queries is given", hint=_EXAMPLE)
    if given.query is not None and given.queries is not None:
        raise InvalidArguments(RETRIEVE_TOOLS, "query and queries are both given", hint="give one of them")
    return given


def wrapped_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The tool that is meant, and its arguments; raises InvalidArguments."""
    given = decoded(params, _Wrapped, CALL_TOOL, _CALL_EXAMPLE)
    arguments = next((bytes(one) for one in (given.args, given.arguments) if bytes(one) not in _NONE), b"{}")
    return given.name, as_object(arguments, CALL_TOOL, "args", _CALL_EXAMPLE)
