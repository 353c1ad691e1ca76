"""HTTP/1.1 on raw sockets, for servers that answer with any bytes, late or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# Larger than the head of any request in tests and campaign.
_HEAD_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request, with the connection that it came on."""

    head: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def line(self) -> str:
        """The request line."""
        return self.head.partition("\r\n")[0]

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.line.split(" ")[0]

    @property
    def path(self) -> str:
        """The request target."""
        return self.line.split(" ")[1]

    def send_head(self, status: int, content_type: str, headers: dict[str, str] | None = None) -> None:
        """Send the head of a response."""
        fields = {"Content-Type": content_type, **(headers or {})}
        lines = [f"HTTP/1.1 {status} Fixture", *(f"{name}: {value}" for name, value in fields.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    async def send(
        self,
        body: bytes,
        status: int = 200,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a whole response."""
        self.send_head(status, content_type, {"Content-Length": str(len(body)), **(headers or {})})
        self.writer.write(body)
        await self.writer.drain()

    def open_stream(self) -> None:
        """Send the head of an event stream that ends with the connection."""
        self.send_head(200, "text/event-stream", {"Connection": "close"})

    async def send_event(self, data: bytes, name: str = "message") -> None:
        """Send one event."""
        self.writer.write(b"event: %b\ndata: %b\n\n" % (name.encode(), data))
        await self.writer.drain()


async def serve(
    handler: Callable[[RawRequest], Awaitable[None]], host: str = "127.0.0.1", port: int = 0
) -> None:
    """Hand each request to the handler until killed; the port is printed first."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                await handler(await _read(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, host, port, limit=_HEAD_LIMIT)
    print(f'{{"port": {server.sockets[0].getsockname()[1]}}}', flush=True)
    await server.serve_forever()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RawRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = (line.partition(":") for line in head.split("\r\n")[1:-2])
    headers = {name.lower(): value.strip() for name, _, value in fields}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RawRequest(head, headers, body, reader, writer)
