"""Opaque payloads: bytes in memory, or bytes kept on disk."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable


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
    """How many bytes the payload has."""
    return len(payload) if isinstance(payload, bytes) else payload.size
