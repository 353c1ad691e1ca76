"""The body of an upstream's HTTP response, unpacked within bounds and cut into messages."""

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator

from headgate.upstream.assembly import AcceptsInvalidUtf8, Assembly, Limits, Message
from headgate.upstream.http_client import Response
from headgate.wire.sse import Field, SseReader

# A body that grows more than this when unpacked is an attack, not an answer.
_MOST_EXPANSION = 100
_FREE_BYTES = 1024 * 1024
_LONGEST_NAME = 64
# Real ones are numbers and UUIDs; a longer one is not worth carrying back.
_LONGEST_ID = 1024
# No server means a longer pause.
_MOST_RETRY_SECONDS = 300.0
# They cannot be sent in a header.
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Packed(Exception):
    """A body in an encoding that we did not ask for and do not unpack, or that unpacks without end."""


async def unpacked(response: Response, limit: int) -> AsyncIterator[bytes]:
    """The bytes of the body; raises Packed or Dropped."""
    encoding = response.headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding == b"identity":
        async for chunk in response.chunks():
            yield chunk
        return
    if encoding not in (b"gzip", b"deflate"):
        raise Packed(f"content in the encoding {encoding[:20].decode('latin-1')!r}, which was not asked for")
    inflater = zlib.decompressobj(wbits=47 if encoding == b"gzip" else 15)
    packed = plain = 0
    async for chunk in response.chunks():
        packed += len(chunk)
        rest = chunk
        while rest:
            try:
                piece = inflater.decompress(rest, 64 * 1024)
            except zlib.error as error:
                raise Packed("content that cannot be unpacked") from error
            rest = inflater.unconsumed_tail
            plain += len(piece)
            if plain > limit or plain > _FREE_BYTES + packed * _MOST_EXPANSION:
                raise Packed(f"content that unpacks to more than {plain // 2**20} MiB")
            yield piece


async def whole(
    response: Response, limits: Limits, accepts_invalid_utf8: AcceptsInvalidUtf8 | None = None
) -> Message:
    """The one message that a JSON body is; raises Garbled, TooLarge, Packed or Dropped."""
    assembly = Assembly(limits)
    try:
        async for chunk in unpacked(response, limits.largest):
            assembly.add(chunk)
        return assembly.finish(accepts_invalid_utf8) if accepts_invalid_utf8 else assembly.finish()
    finally:
        assembly.discard()


class Place:
    """How far a stream has been read, and how long its server wants us to wait before we come back."""

    __slots__ = ("_next", "_value", "id", "moved", "retry_seconds")

    def __init__(self) -> None:
        # Of the last event that was complete; empty when the server does not number them.
        self.id = b""
        self.retry_seconds: float | None = None
        # Set when something new has come.
        self.moved = False
        self.start()

    def start(self) -> None:
        """A stream begins; what the last one left half said does not count."""
        self._value = b""
        self._next: bytes | None = None

    def note(self, part: Field) -> None:
        """A line that is neither the data nor the name of the event."""
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
        """The event is complete, with data or without."""
        if self._next is not None:
            self.moved = self.moved or self._next != self.id
            self.id, self._next = self._next, None


async def events(
    response: Response, limits: Limits, place: Place | None = None
) -> AsyncGenerator[tuple[bytes, Assembly], None]:
    """The events of a stream: the name of each, and its data, to be finished or taken before the next.

    `place` follows them. Whoever leaves early closes it.
    """
    reader, assembly, name = SseReader(), Assembly(limits), bytearray()
    place = place or Place()
    place.start()
    try:
        async for chunk in unpacked(response, limits.largest):
            for part in reader.feed(chunk):
                if not isinstance(part, Field):
                    place.advance()
                    if assembly:
                        place.moved = True
                        yield bytes(name) or b"message", assembly
                    assembly.discard()
                    name.clear()
                elif part.name == b"data":
                    assembly.add(part.data)
                elif part.name == b"event":
                    if len(name) < _LONGEST_NAME:
                        name += part.data
                else:
                    place.note(part)
    finally:
        assembly.discard()
