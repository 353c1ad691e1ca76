"""Reads JSON pointers and resolves local `$ref`s; nothing is ever fetched."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from msgspec import DecodeError
from msgspec.json import Decoder

_LONGEST_POINTER: Final = 100
# More than any array has elements.
_MOST_DIGITS: Final = 9

_text = Decoder(str)


def resolve_reference(root: Any, reference: Any) -> Any:
    """The value that a reference into its own schema points to; raises LookupError for any other."""
    steps = pointer_steps(reference) if isinstance(reference, str) else None
    if steps is None:
        raise LookupError(reference)
    place: Any = root
    for step in steps:
        if isinstance(place, Mapping) and step in place:
            place = place[step]
            continue
        index = array_index(step) if isinstance(place, Sequence) and not isinstance(place, str) else None
        if index is None or index >= len(place):
            raise LookupError(reference)
        place = place[index]
    return place


def pointer_steps(reference: str | None) -> list[str] | None:
    """The steps of a reference into its own schema; None for an anchor or another document."""
    if reference is None or reference[:1] != "#":
        return None
    first, *steps = unquote(reference[1:]).split("/")
    if first or len(steps) > _LONGEST_POINTER:
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def array_index(step: str) -> int | None:
    """The position that a step of a path names."""
    return int(step) if step.isascii() and step.isdigit() and len(step) <= _MOST_DIGITS else None


def string_value(value: bytes) -> str | None:
    """The text that encoded JSON holds, if it is one."""
    if value[:1] != b'"':
        return None
    try:
        return _text.decode(value)
    except (DecodeError, UnicodeDecodeError):
        return None
