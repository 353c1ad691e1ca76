"""SDK clients that are connected to a gateway, and stay connected while a module's tests run."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import BrokenResourceError
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, TextContent, Tool

from testkit.gateway_process import GatewayProcess, clean_environment
from testkit.waiting import eventually

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
# Far above what any answer here takes; a lost answer fails the test instead of hanging it.
ANSWER_SECONDS = 20.0


class McpClient:
    """A connected client, and the notifications that it has received."""

    def __init__(self, server: Any, era: str) -> None:
        self.era = era
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.client = Client(
            server,
            mode=MODES[era],
            read_timeout_seconds=ANSWER_SECONDS,
            message_handler=self._note,
        )

    async def tools(self) -> dict[str, Tool]:
        """Every tool by its public name, as the gateway lists it now."""
        found: dict[str, Tool] = {}
        cursor = None
        while True:
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            found |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                return found

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["McpClient"]:
        """Receive list_changed: in the modern era only while a listen stream is open."""
        if self.era == "legacy":
            yield self
            return
        async with self.client.listen(tools_list_changed=True):
            yield self

    async def wait_for_tool(self, name: str, *, gone: bool = False) -> None:
        """List again after each list_changed, as a client would, until the tool is there (or gone)."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                await self.news.get()
                if (name in await self.tools()) is not gone:
                    return

    async def _note(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self.news.put_nowait(message.method)


def client_transport(gateway: GatewayProcess, front: str) -> Any:
    """What the SDK client needs to come in by that front; the stdio front is a gateway of its own."""
    if front == "stdio":
        return stdio_gateway(gateway.config_path, gateway.data_dir.parent / "stdio-data")
    return sse_client(gateway.sse_url) if front == "sse" else gateway.url


def stdio_gateway(config: Path, data: Path) -> StdioServerParameters:
    command, *arguments = stdio_gateway_command(config, data)
    return StdioServerParameters(command=command, args=arguments, env=clean_environment())


def stdio_gateway_command(config: Path, data: Path) -> list[str]:
    serve = [sys.executable, "-m", "headgate", "serve", "--transport", "stdio"]
    return [*serve, "--config", str(config), "--data-dir", str(data)]


class ClientTasks:
    """Clients that stay: each lives in a task of its own, because its scopes must end where they began."""

    def __init__(self) -> None:
        self._leave = asyncio.Event()
        self._stays: list[asyncio.Task[None]] = []

    async def admit(self, client: Client) -> None:
        """Connect the client, until everybody leaves."""
        arrived = asyncio.Event()

        async def stay() -> None:
            async with client:
                arrived.set()
                await self._leave.wait()

        staying = asyncio.create_task(stay())
        await eventually(
            lambda: arrived.is_set() or staying.done(), ANSWER_SECONDS, "the client is connected"
        )
        if staying.done():
            await staying
        self._stays.append(staying)

    async def leave(self) -> None:
        self._leave.set()
        async with asyncio.timeout(ANSWER_SECONDS):
            ended = await asyncio.gather(*self._stays, return_exceptions=True)
        for error in ended:
            if error is not None and not _came_too_late(error):
                raise error


def _came_too_late(error: BaseException) -> bool:
    """Whether something arrived while the client was closing, which the SDK's SSE client does not expect."""
    return isinstance(error, BaseExceptionGroup) and error.split(BrokenResourceError)[1] is None


class McpClients:
    """Visitors that stay."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._lodge = ClientTasks()
        self._visitors: dict[tuple[str, str, int], McpClient] = {}

    async def mcp_client(self, front: str, era: str, number: int = 0) -> McpClient:
        key = (front, era, number)
        if key not in self._visitors:
            mcp_client = self._visitors[key] = McpClient(client_transport(self._gateway, front), era)
            await self._lodge.admit(mcp_client.client)
        return self._visitors[key]

    async def leave(self) -> None:
        await self._lodge.leave()


def words(result: CallToolResult) -> str:
    """The text of a result that has exactly one."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
