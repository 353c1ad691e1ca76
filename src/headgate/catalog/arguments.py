"""Reads the arguments of the gateway's own tools, forgivingly, and says what is wrong with them."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import DecodeError, Meta, Raw, ValidationError

from headgate.catalog.names import CALL_TOOL, RETRIEVE_TOOLS
from headgate.catalog.own import MOST_FOUND, MOST_QUERIES
from headgate.domain.errors import InvalidArguments

_Shape = TypeVar("_Shape", bound=msgspec.Struct)

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
    given = _decoded(params, Retrieval, RETRIEVE_TOOLS, _EXAMPLE)
    if given.query is None and given.queries is None:
        raise InvalidArguments(RETRIEVE_TOOLS, "neither query nor queries is given", hint=_EXAMPLE)
    if given.query is not None and given.queries is not None:
        raise InvalidArguments(RETRIEVE_TOOLS, "query and queries are both given", hint="give one of them")
    return given


def wrapped_call(params: Mapping[str, Raw]) -> tuple[str, Raw]:
    """The tool that is meant, and its arguments; raises InvalidArguments."""
    given = _decoded(params, _Wrapped, CALL_TOOL, _CALL_EXAMPLE)
    arguments = next((bytes(one) for one in (given.args, given.arguments) if bytes(one) not in _NONE), b"{}")
    if arguments[:1] == b'"':
        arguments = _unquoted(arguments)
    if arguments[:1] != b"{":
        raise InvalidArguments(CALL_TOOL, "args is not an object", hint=_CALL_EXAMPLE)
    return given.name, Raw(arguments)


def _unquoted(text: bytes) -> bytes:
    """An object that was sent as a text."""
    try:
        inner = msgspec.json.decode(text, type=str).strip()
        msgspec.json.decode(inner or "{}")
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"args is a text that is no JSON ({error})"
        raise InvalidArguments(CALL_TOOL, problem, hint=_CALL_EXAMPLE) from error
    return b"{}" if inner.encode() in _NONE else inner.encode()


def _decoded(params: Mapping[str, Raw], shape: type[_Shape], tool: str, example: str) -> _Shape:
    try:
        return msgspec.json.decode(params.get("arguments", Raw(b"{}")), type=shape)
    except ValidationError as error:
        raise InvalidArguments(tool, _problem(str(error)), hint=example) from error
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(tool, f"the arguments cannot be read ({error})", hint=example) from error


def _problem(said: str) -> str:
    """What msgspec says, in the order in which people say it: which argument, and what it must be."""
    what, at, where = said.partition(" - at ")
    argument = where.strip("`").removeprefix("$").removeprefix(".")
    what = what[:1].lower() + what[1:]
    if what.startswith("invalid enum value"):
        # Of which there is one; the value itself may be long.
        what = "expected brief, full or explain"
    return f"{argument or 'arguments'}: {what}" if at else what
