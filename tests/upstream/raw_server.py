"""An HTTP server that says exactly the bytes that a test wants, to clients that read no manners into them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"


@dataclass
class Received:
    """One request, and the way back."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    # Which connection it came on, counted from 1.
    connection: int
    writer: asyncio.StreamWriter
    # The request line and the headers as they came.
    head: str

    def json(self) -> Any:
        return json.loads(self.body)

    async def say(self, *pieces: bytes) -> None:
        """Send bytes, each piece on its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self, body: bytes, status: str = "200 OK", kind: str = "application/json") -> None:
        """Send a whole, ordinary response."""
        await self.say(response(body, status, kind))

    async def result(self, result: Any) -> None:
        """Answer a JSON-RPC request."""
        await self.answer(json.dumps({"jsonrpc": "2.0", "id": self.json()["id"], "result": result}).encode())

    async def hang_up(self) -> None:
        """End the connection."""
        self.writer.close()


def response(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "") -> bytes:
    """A response with a length; `more` are header lines with their ends."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


Behaviour = Callable[[Received], Awaitable[None]]


@dataclass
class RawServer:
    """Where it listens, what it was asked, and the connections that are open."""

    behaviour: Behaviour
    received: list[Received] = field(default_factory=list)
    port: int = 0
    _streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    @property
    def connections(self) -> int:
        """How many connections were made."""
        return len(self._streams)

    @property
    def open(self) -> int:
        """How many connections neither side has closed, whatever a behaviour still waits for."""
        return sum(not (reader.at_eof() or writer.is_closing()) for reader, writer in self._streams)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/mcp"

    def methods(self) -> list[str]:
        """The JSON-RPC methods that it was asked, in order."""
        return [request.json()["method"] for request in self.received if request.body]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.append((reader, writer))
        number = self.connections
        try:
            while (request := await _read(reader, writer, number)) is not None:
                self.received.append(request)
                await self.behaviour(request)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body, connection, writer, head)


@asynccontextmanager
async def raw_server(behaviour: Behaviour) -> AsyncIterator[RawServer]:
    """Serve for as long as the block lasts."""
    server = RawServer(behaviour)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, HOST, 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
