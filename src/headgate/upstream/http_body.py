"""The body of an upstream's HTTP response, unpacked within bounds and cut into messages."""

import zlib
from collections.abc import AsyncGenerator, AsyncIterator

from headgate.upstream.assembly import Assembly, Limits, Message
from headgate.upstream.http_client import Response
from headgate.wire.sse import Field, SseReader

# A body that grows more than this when unpacked is an attack, not an answer.
_MOST_EXPANSION = 100
_FREE_BYTES = 1024 * 1024
_LONGEST_NAME = 64


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


async def whole(response: Response, limits: Limits) -> Message:
    """The one message that a JSON body is; raises Garbled, TooLarge, Packed or Dropped."""
    assembly = Assembly(limits)
    try:
        async for chunk in unpacked(response, limits.largest):
            assembly.add(chunk)
        return assembly.finish()
    finally:
        assembly.discard()


async def events(response: Response, limits: Limits) -> AsyncGenerator[tuple[bytes, Assembly], None]:
    """The events of a stream: the name of each, and its data, to be finished or taken before the next.

    Whoever leaves early closes it.
    """
    reader, assembly, name = SseReader(), Assembly(limits), bytearray()
    try:
        async for chunk in unpacked(response, limits.largest):
            for part in reader.feed(chunk):
                if not isinstance(part, Field):
                    if assembly:
                        yield bytes(name) or b"message", assembly
                    assembly.discard()
                    name.clear()
                elif part.name == b"data":
                    assembly.add(part.data)
                elif part.name == b"event" and len(name) < _LONGEST_NAME:
                    name += part.data
    finally:
        assembly.discard()
