"""Checks content type and Accept, and parses a request body into one JSON-RPC message in time slices."""

import asyncio
import re
from collections.abc import Mapping

from headgate.protocol.json_scan import (
    MOST_MEMBERS,
    JsonObjectScanner,
    NotJsonObject,
    mask_escapes,
    outside_strings,
    slice_depths,
)
from headgate.protocol.jsonrpc import LARGE_BYTES, Envelope, has_only_known_members, parse_message
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ProtocolViolation
from headgate.server.guard import HttpRefusal

MAX_DEPTH = 64
# Each value costs much more than its bytes wherever a request is parsed further.
MAX_VALUES = 250_000
# More members than any request has.
_MAX_META_MEMBERS = 1000
# Of any other member of params, such as `arguments`: its own members, not those further in.
_MAX_MEMBERS = 20_000
# Bytes looked at between two chances for other work: a few milliseconds.
_SLICE_BYTES = 64 * 1024
_BRACE = ord("{")
_JSON = re.compile(rb"application/json\s*(;.*)?", re.IGNORECASE)
_BOTH_CONTENT_TYPES = b"application/json, text/event-stream"


async def read_message(body: bytes) -> Envelope:
    """The message in a body; raises ProtocolViolation."""
    envelope = parse_message(body)
    if len(body) > LARGE_BYTES:
        await _check_values(body, bytes(envelope.id) or b"null")
        await _check_members(body, envelope)
    if not is_shallow(body, MAX_DEPTH):
        for depth in slice_depths(body):
            if depth > MAX_DEPTH:
                raise ProtocolViolation(PARSE_ERROR, f"Parse error: nested deeper than {MAX_DEPTH}")
            # A large body is looked at in slices, so that others are served between them.
            await asyncio.sleep(0)
    return envelope


def is_shallow(text: bytes, limit: int) -> bool:
    """Whether `text` cannot be deeper than `limit`, because it has no more opening brackets than that."""
    return text.count(b"{") + text.count(b"[") <= limit


async def _check_values(body: bytes, id: bytes) -> None:
    """Refuse a message of too many values, in slices; texts may hold as many commas as they like."""
    if _separators(body) < MAX_VALUES:
        return
    values, in_string = 1, False
    masked = mask_escapes(body)
    for start in range(0, len(masked), _SLICE_BYTES):
        part = masked[start : start + _SLICE_BYTES]
        bare, in_string = outside_strings(b'"' + part if in_string else part)
        values += _separators(bare)
        if values > MAX_VALUES:
            reason = f"The message has more than {MAX_VALUES} values; send less at once, or send it as text"
            raise ProtocolViolation(INVALID_REQUEST, reason, id=id)
        await asyncio.sleep(0)


def _separators(text: bytes) -> int:
    """At least as many as there are values, but for the outermost one."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


async def _check_members(body: bytes, envelope: Envelope) -> None:
    """Refuse repeated or too many members of a message; a large body is checked in slices."""
    id = bytes(envelope.id) or b"null"
    if not has_only_known_members(envelope, len(body)):
        await _skim(body, MOST_MEMBERS, id)
    params = bytes(envelope.params)
    if len(params) > LARGE_BYTES:
        for key, (start, end) in (await _skim(params, MOST_MEMBERS, id)).items():
            most = _MAX_META_MEMBERS if key == "_meta" else _MAX_MEMBERS
            if end - start > LARGE_BYTES and params[start] == _BRACE:
                await _count_members(params[start:end], most, key, id)


async def _count_members(text: bytes, most: int, key: str, id: bytes) -> None:
    """Refuse an object of too many members, or `_meta` in which one is there twice."""
    if key == "_meta":
        await _skim(text, most, id)
    elif _separators(text) > most:
        try:
            await _skim(text, most, id, unique=False)
        except ProtocolViolation as violation:
            reason = f"Invalid params: {key[:100]} has more than {most} members; send less at once"
            raise ProtocolViolation(INVALID_PARAMS, reason, id=id) from violation


async def _skim(
    text: bytes, most_members: int, id: bytes, *, unique: bool = True
) -> dict[str, tuple[int, int]]:
    scanner = JsonObjectScanner(most_members, unique=unique)
    try:
        for start in range(0, len(text), _SLICE_BYTES):
            scanner.feed(text[start : start + _SLICE_BYTES])
            await asyncio.sleep(0)
        return scanner.finish()
    except NotJsonObject as error:
        raise ProtocolViolation(INVALID_REQUEST, f"Not a JSON-RPC message: {error}", id=id) from error


def check_post_headers(headers: Mapping[bytes, bytes]) -> None:
    """Check the content type and Accept of a message; raises HttpRefusal."""
    if headers.get(b"content-type") == b"application/json" and headers.get(b"accept") == _BOTH_CONTENT_TYPES:
        # Nearly always.
        return
    check_content_type(headers)
    accept = headers.get(b"accept", b"*/*")
    if accept == _BOTH_CONTENT_TYPES or b"*/*" in accept:
        return
    accept = accept.lower()
    takes_json = b"application/json" in accept or b"application/*" in accept
    if not takes_json or (b"text/event-stream" not in accept and b"text/*" not in accept):
        raise HttpRefusal(406, "Accept must list application/json and text/event-stream")


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse content types that a browser may send across origins without a preflight."""
    kind = headers.get(b"content-type", b"")
    if kind != b"application/json" and _JSON.fullmatch(kind) is None:
        raise HttpRefusal(415, "the body must be application/json")
