"""Reads HTTP responses of a server: decoded within bounds, cut into messages and events; what a status and
Retry-After mean.
"""

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from headgate.protocol.framing import SseField, SseParser
from headgate.upstream.http.http1_client import HttpClientResponse
from headgate.upstream.message_assembly import (
    AcceptsInvalidUtf8,
    MessageAssembler,
    MessageLimits,
    UpstreamMessage,
)

# A body that expands more than this is an attack, not an answer.
_MOST_EXPANSION = 100
_FREE_BYTES = 1024 * 1024
_LONGEST_NAME = 64
# Real event ids are numbers and UUIDs; a longer one is ignored.
_LONGEST_ID = 1024
# A longer retry time is cut to this.
_MOST_RETRY_SECONDS = 300.0
# Bytes that cannot be sent in a header.
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class ContentDecodingFailed(Exception):
    """A body in an unsupported encoding, or one that expands too much."""


async def decoded_chunks(response: HttpClientResponse, limit: int) -> AsyncIterator[bytes]:
    """The decoded bytes of the body; raises ContentDecodingFailed or ConnectionDropped."""
    encoding = response.headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding == b"identity":
        async for chunk in response.chunks():
            yield chunk
        return
    if encoding not in (b"gzip", b"deflate"):
        named = encoding[:20].decode("latin-1")
        raise ContentDecodingFailed(f"content in the encoding {named!r}, which was not asked for")
    inflater = zlib.decompressobj(wbits=47 if encoding == b"gzip" else 15)
    packed = plain = 0
    async for chunk in response.chunks():
        packed += len(chunk)
        rest = chunk
        while rest:
            try:
                piece = inflater.decompress(rest, 64 * 1024)
            except zlib.error as error:
                raise ContentDecodingFailed("content that cannot be unpacked") from error
            rest = inflater.unconsumed_tail
            plain += len(piece)
            if plain > limit or plain > _FREE_BYTES + packed * _MOST_EXPANSION:
                raise ContentDecodingFailed(f"content that unpacks to more than {plain // 2**20} MiB")
            yield piece


async def read_json_body(
    response: HttpClientResponse,
    limits: MessageLimits,
    accepts_invalid_utf8: AcceptsInvalidUtf8 | None = None,
) -> UpstreamMessage:
    """A JSON body; raises MalformedMessage, MessageTooLarge, ContentDecodingFailed or ConnectionDropped."""
    assembly = MessageAssembler(limits)
    try:
        async for chunk in decoded_chunks(response, limits.largest):
            assembly.add(chunk)
        return assembly.finish(accepts_invalid_utf8) if accepts_invalid_utf8 else assembly.finish()
    finally:
        assembly.discard()


class StreamPosition:
    """How far a stream has been read, and the retry time that its server set."""

    __slots__ = ("_next", "_value", "id", "moved", "retry_seconds")

    def __init__(self) -> None:
        # The id of the last complete event; empty if the server gives none.
        self.id = b""
        self.retry_seconds: float | None = None
        # Set when an event has come.
        self.moved = False
        self.start()

    def start(self) -> None:
        """Start a stream: drop the incomplete event of the last one."""
        self._value = b""
        self._next: bytes | None = None

    def read_field(self, part: SseField) -> None:
        """Add a field other than the data and the name of the event."""
        if part.name not in (b"id", b"retry"):
            return
        if len(self._value) <= _LONGEST_ID:
            self._value += part.data[: _LONGEST_ID + 1]
        if not part.ends:
            return
        value, self._value = self._value, b""
        if part.name == b"retry":
            if value.isdigit():
                self.retry_seconds = min(int(value[:20]) / 1000, _MOST_RETRY_SECONDS)
        elif len(value) <= _LONGEST_ID and not _CONTROL.search(value):
            self._next = value

    def advance(self) -> None:
        if self._next is not None:
            self.moved = self.moved or self._next != self.id
            self.id, self._next = self._next, None


async def stream_events(
    response: HttpClientResponse, limits: MessageLimits, position: StreamPosition | None = None
) -> AsyncGenerator[tuple[bytes, MessageAssembler], None]:
    """The name and data of each event; the data is finished or read before the next one.

    `position` follows the stream. A caller that leaves early closes the generator.
    """
    reader, assembly, name = SseParser(), MessageAssembler(limits), bytearray()
    position = position or StreamPosition()
    position.start()
    try:
        async for chunk in decoded_chunks(response, limits.largest):
            for part in reader.feed(chunk):
                if part is None:
                    position.advance()
                    if assembly.size:
                        position.moved = True
                        yield bytes(name) or b"message", assembly
                    assembly.discard()
                    name.clear()
                elif part.name == b"data":
                    assembly.add(part.data)
                elif part.name == b"event":
                    if len(name) < _LONGEST_NAME:
                        name += part.data
                else:
                    position.read_field(part)
    finally:
        assembly.discard()


# A server sends these before it processes a request: they concern its credentials, path, size, type or rate.
# Any other status may follow after the work was done.
_NOT_EXECUTED_STATUSES = frozenset({400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})
# The status of a gateway that has reached itself (RFC 5842, section 7.2).
LOOP_DETECTED = 508
_DEFAULT_SECONDS = 1.0
# A longer pause is cut to this.
_MOST_SECONDS = 86_400.0


def is_certainly_not_executed(status: int) -> bool:
    """Whether a request with that response status was certainly not executed."""
    return 300 <= status < 400 or status in _NOT_EXECUTED_STATUSES


def retry_after_or_default(response: HttpClientResponse) -> float:
    """The seconds of Retry-After; one second without it."""
    said = retry_after(response)
    return _DEFAULT_SECONDS if said is None else said


def retry_after(response: HttpClientResponse) -> float | None:
    """Retry-After, from seconds or a date; None if it is missing or invalid."""
    value = response.headers.get(b"retry-after", b"").strip()
    if value.isdigit():
        return min(float(value), _MOST_SECONDS)
    try:
        when = parsedate_to_datetime(value.decode("latin-1"))
    except ValueError:
        return None
    # A date without a zone is in UTC, as in HTTP.
    left = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)
    return min(max(left.total_seconds(), 0.0), _MOST_SECONDS)
