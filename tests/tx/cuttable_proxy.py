"""A connection between a client and a gateway that a test can cut, before or after the answer."""

import asyncio
from contextlib import suppress


class Proxy:
    """Forwards bytes to a port of this machine; enter it to listen."""

    def __init__(self, target: int, port: int = 0) -> None:
        # Where it leads.
        self.target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = port
        # While set, what the gateway answers is kept here instead of being forwarded.
        self.swallows = False
        self.swallowed = b""

    @property
    def url(self) -> str:
        """Where a client finds the gateway."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> "Proxy":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()

    async def open(self) -> None:
        """Listen, at the same address as before."""
        self.swallows, self.swallowed = False, b""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self.target)
                self._writers.add(back)
                await asyncio.gather(
                    self._forward(reader, back, is_answer=False), self._forward(there, writer, is_answer=True)
                )
        finally:
            writer.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65536):
                    if is_answer and self.swallows:
                        self.swallowed += data
                        continue
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()
