"""Reads what schemas and paths point with: references, and positions in arrays."""

from typing import Final
from urllib.parse import unquote

from msgspec import DecodeError
from msgspec.json import Decoder

_LONGEST_POINTER: Final = 100
# More than any array has elements.
_MOST_DIGITS: Final = 9

_text = Decoder(str)


def text_of(value: bytes) -> str | None:
    """The text that a value is, if it is one."""
    if value[:1] != b'"':
        return None
    try:
        return _text.decode(value)
    except (DecodeError, UnicodeDecodeError):
        return None


def steps_of(reference: str | None) -> list[str] | None:
    """The steps of a reference into its own schema; None of any other, which nobody fetches."""
    if reference is None or reference[:1] != "#":
        return None
    first, *steps = unquote(reference[1:]).split("/")
    if first or len(steps) > _LONGEST_POINTER:
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def index(step: str) -> int | None:
    """The position that a step of a path names."""
    return int(step) if step.isascii() and step.isdigit() and len(step) <= _MOST_DIGITS else None
