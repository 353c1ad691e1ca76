"""HTTP/1.1 on raw sockets, so that a case sends exact bytes and sees what a library would hide."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

# Larger than any head that the gateway sends, smaller than what would hide a runaway.
_HEAD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Response:
    """One response; `body` is empty when it was handed on piece by piece."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


class Connection:
    """One keep-alive connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def exchange(self, request: bytes, take: Callable[[bytes], object] | None = None) -> Response:
        """Send one request and read its response; `take` gets the body as it arrives."""
        started = time.monotonic()
        self.writer.write(request)
        await self.writer.drain()
        status, headers = await self.head()
        kept = bytearray()
        async for piece in self.body(headers):
            if take is None:
                kept += piece
            else:
                take(piece)
        return Response(status, headers, bytes(kept), time.monotonic() - started)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and the headers (names in lower case) of the next response."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
        pairs = (line.partition(":") for line in lines)
        return int(status_line.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def body(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """Yield the body of a response, with any framing."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            async for piece in self._chunks():
                yield piece
        elif "content-length" in headers:
            async for piece in self._exactly(int(headers["content-length"])):
                yield piece
        elif headers.get("connection", "").lower() == "close":
            while piece := await self.reader.read(1 << 18):
                yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            async for piece in self._exactly(size):
                yield piece
            await self.reader.readexactly(2)
        await self.reader.readuntil(b"\r\n")

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self.reader.read(min(size, 1 << 18))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(piece)
            yield piece

    def close(self) -> None:
        """Drop the connection, whatever is under way on it."""
        self.writer.transport.abort()


async def connect(port: int) -> Connection:
    """Open a connection to the gateway on `port`."""
    return Connection(*await asyncio.open_connection("127.0.0.1", port, limit=_HEAD_LIMIT))


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection that is dropped at the end of the block."""
    connection = await connect(port)
    try:
        yield connection
    finally:
        connection.close()


def request(
    port: int, verb: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> bytes:
    """The bytes of one request; `Host` is right unless `headers` names another."""
    fields = {"Host": f"127.0.0.1:{port}"} | (headers or {})
    if body is not None:
        fields = {"Content-Length": str(len(body))} | fields
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


@dataclass(frozen=True, slots=True)
class Heard:
    """All that came back on one connection after raw bytes were sent."""

    data: bytes
    closed: bool
    # Until the last of it had been heard.
    seconds: float
    sent: int

    @property
    def statuses(self) -> list[int]:
        """The status of every response in the data; more than one means a request was smuggled."""
        starts = self.data.split(b"HTTP/1.1 ")[1:]
        return [int(start[:3]) for start in starts if start[:3].isdigit()]


async def converse(
    port: int, data: bytes, *, quiet_seconds: float = 0.5, limit_seconds: float = 5.0
) -> Heard:
    """Send raw bytes and listen until the gateway closes, is quiet after an answer, or the limit passes.

    On a bare socket, so that an answer is heard even if the gateway has closed its side for what follows.
    """
    started = time.monotonic()
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setblocking(False)
        await loop.sock_connect(raw, ("127.0.0.1", port))
        sender = asyncio.create_task(_send_all(raw, data))
        heard, closed, seconds = bytearray(), False, 0.0
        while not closed and (left := limit_seconds - (time.monotonic() - started)) > 0:
            try:
                async with asyncio.timeout(min(left, quiet_seconds) if heard else left):
                    piece = await loop.sock_recv(raw, 1 << 18)
            except TimeoutError:
                break
            except ConnectionError:
                piece = b""
            heard += piece
            closed = not piece
            seconds = time.monotonic() - started
        sender.cancel()
        (sent,) = await asyncio.gather(sender)
    return Heard(bytes(heard), closed, seconds, sent)


async def _send_all(raw: socket.socket, data: bytes) -> int:
    loop, sent = asyncio.get_running_loop(), 0
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        for start in range(0, len(data), 1 << 16):
            piece = data[start : start + (1 << 16)]
            await loop.sock_sendall(raw, piece)
            sent += len(piece)
    return sent
