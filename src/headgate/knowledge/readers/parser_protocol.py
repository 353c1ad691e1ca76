"""How the process that parses documents is talked to: a length, then a message."""

import socket
import struct
import time
from typing import Final

import msgspec

from headgate.knowledge.ingestion.document_source import ParsedDocument

_LENGTH: Final = struct.Struct("<Q")
_MOST_AT_ONCE: Final = 1024 * 1024


class ParseRequest(msgspec.Struct, frozen=True):
    """A file that is to be parsed; the process itself opens none."""

    extension: str
    content: bytes


class ParseReply(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, or why nothing was; `trouble` is for the log."""

    parsed: ParsedDocument | None = None
    reason: str = ""
    trouble: str = ""


def send(channel: socket.socket, message: bytes) -> None:
    """Raises OSError when the other side is gone, and TimeoutError when it does not read."""
    channel.sendall(_LENGTH.pack(len(message)))
    channel.sendall(message)


def receive(channel: socket.socket, seconds: float | None = None) -> bytes | None:
    """The next message, or None when the other side is gone; raises TimeoutError after `seconds`."""
    until = None if seconds is None else time.monotonic() + seconds
    head = _exactly(channel, _LENGTH.size, until)
    return None if head is None else _exactly(channel, _LENGTH.unpack(head)[0], until)


def _exactly(channel: socket.socket, size: int, until: float | None) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        if until is not None:
            # Nought would mean not to wait at all.
            channel.settimeout(max(0.001, until - time.monotonic()))
        try:
            some = channel.recv(min(size - len(received), _MOST_AT_ONCE))
        except ConnectionError:
            return None
        if not some:
            return None
        received += some
    return bytes(received)
