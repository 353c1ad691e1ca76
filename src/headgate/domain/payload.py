"""Opaque payloads, in memory or on disk, and JSON of others that may be anything."""

from collections.abc import Iterator
from typing import Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec import DecodeError, Raw


@runtime_checkable
class SpooledPayload(Protocol):
    """A JSON value that is too large for memory; its receiver closes it."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def first(self) -> bytes:
        """Its first byte."""

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, in pieces of bounded size."""

    def close(self) -> None:
        """Give its disk space back."""


@runtime_checkable
class HasHeadAndTail(Protocol):
    """A value on disk whose beginning and end can be read without the rest."""

    def head_and_tail(self, length: int) -> bytes:
        """Its first and its last bytes, so many of each."""


Payload = bytes | SpooledPayload


def payload_size(payload: Payload) -> int:
    return len(payload) if isinstance(payload, bytes) else payload.size


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
