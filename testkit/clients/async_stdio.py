"""A real gateway on standard input and output, as a desktop client starts it."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from testkit.gateway_process import serve_command

_LINE_LIMIT = 64 << 20


class AsyncStdioClient:
    """The gateway as its only client sees it: messages in, messages out."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self._child.stdin
        self._child.stdin.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    async def message(self, seconds: float = 10.0) -> dict[str, Any]:
        """The next message; raises TimeoutError."""
        assert self._child.stdout
        async with asyncio.timeout(seconds):
            line = await self._child.stdout.readline()
        return msgspec.json.decode(line, type=dict[str, Any])

    async def answer(self, request_id: Any, seconds: float = 10.0) -> dict[str, Any]:
        """The answer to one request; what comes before it is passed over."""
        while True:
            message = await self.message(seconds)
            if message.get("id") == request_id and "method" not in message:
                return message


@contextlib.asynccontextmanager
async def stdio_gateway(directory: Path, config: dict[str, Any]) -> AsyncIterator[AsyncStdioClient]:
    """Run a gateway on pipes until the block ends."""
    directory.mkdir()
    config_file = directory / "headgate.json"
    config_file.write_text(json.dumps(config))
    with (directory / "gateway.log").open("wb") as stderr:
        child = await asyncio.create_subprocess_exec(
            *serve_command(config_file, directory / "data", "--listing", "full", transport="stdio"),
            env=os.environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=_LINE_LIMIT,
        )
    try:
        yield AsyncStdioClient(child)
    finally:
        assert child.stdin
        child.stdin.close()
        try:
            async with asyncio.timeout(15):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
