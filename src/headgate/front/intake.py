"""Reads one request body into one message, without stalling on a large one."""

import asyncio
import re
from collections.abc import Mapping

from headgate.front.guard import Refused
from headgate.wire.depth import depths, shallow
from headgate.wire.envelope import LARGE_BYTES, Envelope, accounts_for, parse
from headgate.wire.skim import MOST_MEMBERS, NotAnObject, Skimmer
from headgate.wire.violations import INVALID_REQUEST, PARSE_ERROR, Violation

MAX_DEPTH = 64
# More than anybody has to say about a request; each costs more than its bytes, several times over.
_MOST_ABOUT = 1000
# Bytes looked at between two chances for other work: a few milliseconds.
_SLICE = 64 * 1024
_JSON = re.compile(rb"application/json\s*(;.*)?", re.IGNORECASE)
_BOTH = b"application/json, text/event-stream"


async def read_message(body: bytes) -> Envelope:
    """The message in a body; raises Violation."""
    envelope = parse(body)
    if len(body) > LARGE_BYTES:
        await _look_through(body, envelope)
    if not shallow(body, MAX_DEPTH):
        for depth in depths(body):
            if depth > MAX_DEPTH:
                raise Violation(PARSE_ERROR, f"Parse error: nested deeper than {MAX_DEPTH}")
            # A large body is looked at in slices, so that others are served between them.
            await asyncio.sleep(0)
    return envelope


async def _look_through(body: bytes, envelope: Envelope) -> None:
    """Refuse what is there twice, or too often, where anything is decided by it: a large body in slices."""
    id = bytes(envelope.id) or b"null"
    if not accounts_for(envelope, len(body)):
        await _skim(body, MOST_MEMBERS, id)
    params = bytes(envelope.params)
    if len(params) > LARGE_BYTES:
        start, end = (await _skim(params, MOST_MEMBERS, id)).get("_meta", (0, 0))
        if end - start > LARGE_BYTES:
            await _skim(params[start:end], _MOST_ABOUT, id)


async def _skim(text: bytes, most_members: int, id: bytes) -> dict[str, tuple[int, int]]:
    skimmer = Skimmer(most_members)
    try:
        for start in range(0, len(text), _SLICE):
            skimmer.feed(text[start : start + _SLICE])
            await asyncio.sleep(0)
        return skimmer.finish()
    except NotAnObject as error:
        raise Violation(INVALID_REQUEST, f"Not a JSON-RPC message: {error}", id=id) from error


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
