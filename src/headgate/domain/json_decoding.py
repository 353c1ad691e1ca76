"""Decodes JSON of others that may be anything."""

from typing import TypeVar

import msgspec
from msgspec import DecodeError, Raw

_Kind = TypeVar("_Kind")
_Otherwise = TypeVar("_Otherwise")
# Raised for text that is no JSON, of another type, not UTF-8, or nested too deeply.
UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)


def decode_or(document: bytes | str | Raw, kind: type[_Kind], otherwise: _Otherwise) -> _Kind | _Otherwise:
    """The value of the document, or `otherwise` where it is no JSON of that type."""
    try:
        return msgspec.json.decode(document, type=kind)
    except UNREADABLE:
        return otherwise
