"""Reads one request body, within the limits and without stalling, into one message."""

import asyncio
import re

from headgate.front.asgi import Receive
from headgate.front.guard import Refused
from headgate.wire.depth import depths, shallow
from headgate.wire.envelope import Envelope, parse
from headgate.wire.violations import PARSE_ERROR, Violation

MAX_DEPTH = 64
_JSON = re.compile(rb"application/json\s*(;.*)?", re.IGNORECASE)
_BOTH = b"application/json, text/event-stream"


class ClientLeft(Exception):
    """The client went away before it had sent everything."""


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """The whole body; raises Refused when it is too large, ClientLeft when it ends too early."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise Refused(413, f"the body is larger than {limit} bytes")
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        return _within(body, limit)
    parts, size = [], 0
    while True:
        if message["type"] != "http.request":
            raise ClientLeft
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise Refused(413, f"the body is larger than {limit} bytes")
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise Refused(413, f"the body is larger than {limit} bytes")
    return body


async def read_message(body: bytes) -> Envelope:
    """The message in a body; raises Violation."""
    envelope = parse(body)
    if not shallow(body, MAX_DEPTH):
        for depth in depths(body):
            if depth > MAX_DEPTH:
                raise Violation(PARSE_ERROR, f"Parse error: nested deeper than {MAX_DEPTH}")
            # A large body is looked at in slices, so that others are served between them.
            await asyncio.sleep(0)
    return envelope


def check_content_type(headers: dict[bytes, bytes]) -> None:
    """Refuse everything that a browser could send across origins without asking."""
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and _JSON.fullmatch(kind) is None:
        raise Refused(415, "the body must be application/json")


def check_accept(headers: dict[bytes, bytes]) -> None:
    """A client must take both kinds of answer."""
    accept = headers.get(b"accept", b"*/*")
    if accept == _BOTH or b"*/*" in accept:
        return
    accept = accept.lower()
    if b"application/json" not in accept and b"application/*" not in accept:
        raise Refused(406, "Accept must list application/json and text/event-stream")
    if b"text/event-stream" not in accept and b"text/*" not in accept:
        raise Refused(406, "Accept must list application/json and text/event-stream")
