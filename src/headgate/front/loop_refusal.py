"""Refuses requests that have come in a loop of gateways, so that the gateway which sent them knows why."""

import os
from typing import BinaryIO

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import GatewayLoop
from headgate.domain.federation import META_LOOP
from headgate.wire.violations import encode_error

_READ_BYTES = 64 * 1024
# More than a first message has; whoever sends more is no gateway.
_MOST_BYTES = 1024 * 1024


class _Asked(msgspec.Struct):
    id: Raw = Raw(b"")
    method: str = ""


def encode_loop(id: bytes, message: str) -> bytes:
    """The JSON-RPC error by which a gateway knows that it has reached itself."""
    data = {"code": GatewayLoop.code, "effect": "none", "retryable": False, META_LOOP: True}
    return encode_error(id, GatewayLoop.number, message, data)


def refuse_each_request(source: BinaryIO, sink: BinaryIO, message: str) -> None:
    """Answer every request that comes in with that error, until the input ends; it blocks."""
    rest = b""
    while data := os.read(source.fileno(), _READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if id := _id_of(line):
                sink.write(encode_loop(id, message) + b"\n")
                sink.flush()
        if len(rest) > _MOST_BYTES:
            return


def _id_of(line: bytes) -> bytes:
    """The id of a request; empty of what needs no answer."""
    try:
        asked = msgspec.json.decode(line, type=_Asked)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return bytes(asked.id) if asked.method else b""
