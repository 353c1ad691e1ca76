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


def string_value(value: bytes) -> str | None:
    """The text that a value is, if it is one."""
    if value[:1] != b'"':
        return None
    try:
        return _text.decode(value)
    except (DecodeError, UnicodeDecodeError):
        return None


def pointer_steps(reference: str | None) -> list[str] | None:
    """The steps of a reference into its own schema; None of any other, which nobody fetches."""
    if reference is None or reference[:1] != "#":
        return None
    first, *steps = unquote(reference[1:]).split("/")
    if first or len(steps) > _LONGEST_POINTER:
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def array_index(step: str) -> int | None:
    """The position that a step of a path names."""
    return int(step) if step.isascii() and step.isdigit() and len(step) <= _MOST_DIGITS else None


# More than any array has elements.
_MOST_INDEX_DIGITS: Final = 9


def resolve_reference(root: Any, reference: Any) -> Any:
    """What a reference into its own schema points to; raises LookupError for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise LookupError(reference)
    place: Any = root
    for step in reference[2:].split("/") if len(reference) > 1 else ():
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and key in place:
            place = place[key]
        elif isinstance(place, Sequence) and _is_index(key, place):
            place = place[int(key)]
        else:
            raise LookupError(reference)
    return place


def _is_index(key: str, place: Sequence[Any]) -> bool:
    return key.isascii() and key.isdecimal() and len(key) <= _MOST_INDEX_DIGITS and int(key) < len(place)
