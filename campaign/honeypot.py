"""Forbidden targets of references in schemas: an HTTP server and a file that detect access."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path


class Well:
    """A server on this machine that must get no request, and a pipe that must not be opened."""

    def __init__(self, pipe: Path) -> None:
        self.port = 0
        self.pipe = pipe
        self.hits = 0

    @property
    def web(self) -> str:
        """The address of a schema on the server."""
        return f"http://127.0.0.1:{self.port}/schema.json"

    @property
    def file(self) -> str:
        """The address of the pipe."""
        return f"file://{self.pipe}"

    def opened(self) -> bool:
        """Whether a process reads from the pipe now."""
        try:
            os.close(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            return error.errno != errno.ENXIO
        return True


@contextlib.asynccontextmanager
async def digging(directory: Path) -> AsyncIterator[Well]:
    """A well until the block ends."""
    pipe = directory / "schema.json"
    os.mkfifo(pipe)
    well = Well(pipe)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        well.hits += 1
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    well.port = server.sockets[0].getsockname()[1]
    try:
        yield well
    finally:
        server.close()
