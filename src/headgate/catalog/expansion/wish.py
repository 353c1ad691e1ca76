"""Reads the arguments of expandSchema, forgivingly, and says what is wrong with them."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from headgate.catalog.expansion.refusal import (
    bad_mode,
    bad_path,
    long_path,
    no_tool,
    unknown_members,
    unreadable,
)
from headgate.catalog.expansion.schema import LONGEST_PATH
from headgate.domain.arguments import unknown_names

_NOTHING: Final = Raw(b"null")
_MEMBERS: Final = ("toolName", "path", "mode")

_object = Decoder(dict[str, Raw])
_text = Decoder(str)
# An index may be a number.
_steps = Decoder(list[str | int])
_one_step = Decoder(str | int)
# Null and nothing are what some models write for an argument that they leave out.
_mode = Decoder(Literal["schema", "docs", ""] | None)


class Wish(msgspec.Struct, frozen=True):
    """Which tool, which part of its arguments, and whether its schema or its prose."""

    tool: str
    # Empty for the whole.
    path: tuple[str, ...] = ()
    docs: bool = False


def read_wish(params: Mapping[str, Raw]) -> Wish:
    """What is to be expanded; raises ExpansionRefused."""
    arguments = bytes(params.get("arguments", b""))
    try:
        given = _object.decode(arguments) if arguments[:1] == b"{" else {}
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable() from error
    # First, because clients know that sentence word for word.
    tool = _tool(given.get("toolName", _NOTHING))
    unknown = unknown_names(given, _MEMBERS)
    if unknown:
        raise unknown_members(unknown, _MEMBERS)
    return Wish(
        tool,
        _path(given.get("path", _NOTHING)),
        _docs(given.get("mode", _NOTHING)),
    )


def _tool(value: Raw) -> str:
    try:
        name = _text.decode(value)
    except (DecodeError, UnicodeDecodeError):
        name = ""
    if not name.strip():
        raise no_tool()
    return name


def _path(value: Raw) -> tuple[str, ...]:
    raw = bytes(value)
    if raw in (b"null", b'""'):
        return ()
    try:
        steps = _steps.decode(raw) if raw[:1] == b"[" else _unquoted(_one_step.decode(raw))
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_path() from error
    if len(steps) > LONGEST_PATH:
        raise long_path(len(steps))
    return tuple(map(str, steps))


def _unquoted(step: str | int) -> list[str | int]:
    """The one name that was sent, or the list that was sent as a text."""
    if isinstance(step, str) and step.lstrip()[:1] == "[":
        try:
            return _steps.decode(step)
        except (DecodeError, RecursionError):
            # A name may begin with a bracket.
            return [step]
    return [step]


def _docs(value: Raw) -> bool:
    try:
        mode: str | None = _mode.decode(value)
    except (DecodeError, UnicodeDecodeError) as error:
        raise bad_mode() from error
    return mode == "docs"
