"""Reads the arguments of the gateway's own tools, forgivingly, and says what is wrong with them."""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.domain.errors import InvalidArguments

_Shape = TypeVar("_Shape", bound=msgspec.Struct)
# Arguments that are not there, in either spelling.
_NONE = (b"", b"null")
# What people call what msgspec calls otherwise.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "array | str": "a list of texts",
}
_ENUM = re.compile(r"^[Ii]nvalid enum value")


def decoded(
    params: Mapping[str, Raw],
    shape: type[_Shape],
    tool: str,
    example: str,
    allowed: Mapping[str, str] | None = None,
    *,
    strict: bool = True,
) -> _Shape:
    """The arguments of a call; raises InvalidArguments. `allowed` tells the words that an argument may be."""
    try:
        return msgspec.json.decode(params.get("arguments", Raw(b"{}")), type=shape, strict=strict)
    except ValidationError as error:
        raise InvalidArguments(tool, _problem(str(error), allowed or {}), hint=example) from error
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(tool, f"the arguments cannot be read ({error})", hint=example) from error


def as_object(value: bytes, tool: str, argument: str, example: str) -> Raw:
    """An object that may have been sent as a text; raises InvalidArguments."""
    if value[:1] == b'"':
        value = _unquoted(value, tool, argument, example)
    if value in _NONE:
        return Raw(b"{}")
    if value[:1] != b"{":
        raise InvalidArguments(tool, f"{argument} is not an object", hint=example)
    return Raw(value)


def _unquoted(text: bytes, tool: str, argument: str, example: str) -> bytes:
    try:
        inner = msgspec.json.decode(text, type=str).strip()
        msgspec.json.decode(inner or "{}")
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"{argument} is a text that is no JSON ({error})"
        raise InvalidArguments(tool, problem, hint=example) from error
    return b"{}" if inner.encode() in _NONE else inner.encode()


def _problem(said: str, allowed: Mapping[str, str]) -> str:
    """What msgspec says, in the order in which people say it: which argument, and what it must be."""
    what, at, where = said.partition(" - at ")
    argument = where.strip("`").removeprefix("$").removeprefix(".")
    if _ENUM.match(what) and argument in allowed:
        # The value itself may be long.
        what = f"expected {allowed[argument]}"
    for kind, words in _WORDS.items():
        what = what.replace(f"`{kind} | null`", words).replace(f"`{kind}`", words)
    what = what[:1].lower() + what[1:]
    return f"{argument or 'arguments'}: {what}" if at else what
