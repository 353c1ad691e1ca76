"""Reads one request body into one message, without stalling on a large one."""

import asyncio
import re
from collections.abc import Mapping

from headgate.front.guard import Refused
from headgate.wire.depth import depths, shallow
from headgate.wire.envelope import Envelope, parse
from headgate.wire.violations import PARSE_ERROR, Violation

MAX_DEPTH = 64
_JSON = re.compile(rb"application/json\s*(;.*)?", re.IGNORECASE)
_BOTH = b"application/json, text/event-stream"


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


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse everything that a browser could send across origins without asking."""
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and _JSON.fullmatch(kind) is None:
        raise Refused(415, "the body must be application/json")


def check_accept(headers: Mapping[bytes, bytes]) -> None:
    """A client must take both kinds of answer."""
    accept = headers.get(b"accept", b"*/*")
    if accept == _BOTH or b"*/*" in accept:
        return
    accept = accept.lower()
    if b"application/json" not in accept and b"application/*" not in accept:
        raise Refused(406, "Accept must list application/json and text/event-stream")
    if b"text/event-stream" not in accept and b"text/*" not in accept:
        raise Refused(406, "Accept must list application/json and text/event-stream")
