"""A server on the official SDK that speaks one protocol era only and keeps a journal of what reached it."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from testkit.sdk_servers.transports import refuse_initialize, serve, server_options

Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]
# Every wait in a tool ends: a test that lost its partner must fail, not hang the server.
LONGEST_WAIT_SECONDS = 60


class ToolSet:
    """The tools, and the state that they share."""

    def __init__(self, journal: Path) -> None:
        self.bus = InMemorySubscriptionBus()
        self.sessions: list[ServerSession] = []
        self._journal = journal
        self._grown: list[str] = []
        self._arrived: Counter[str] = Counter()
        self._together = asyncio.Condition()
        self._tools: dict[str, Callable[[Context, Arguments], Awaitable[CallToolResult]]] = {
            "echo": self._echo,
            "fail": self._fail,
            "refuse": self._refuse,
            "march": self._march,
            "hold": self._hold,
            "show_meta": self._show_meta,
            "grow": self._grow,
        }

    async def list_tools(self, _: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[describe(name) for name in (*self._tools, *self._grown)])

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name in self._grown:
            return says(f"{params.name} is here")
        return await self._tools[params.name](context, params.arguments or {})

    async def _echo(self, _: Context, arguments: Arguments) -> CallToolResult:
        words = arguments["text"]
        return CallToolResult(content=[text(words)], structured_content={"echoed": words})

    async def _fail(self, _: Context, arguments: Arguments) -> CallToolResult:
        return CallToolResult(content=[text(f"no luck with {arguments['text']}")], is_error=True)

    async def _refuse(self, _: Context, arguments: Arguments) -> CallToolResult:
        asked = arguments["text"]
        raise MCPError(code=4711, message=f"refused {asked}", data={"asked": asked, "odd": [1, None]})

    async def _march(self, context: Context, arguments: Arguments) -> CallToolResult:
        """Report each step, all `parties` calls of the same `drum` taking each step together."""
        name, steps = arguments["text"], arguments["steps"]
        for step in range(1, steps + 1):
            await self._meet(f"{arguments['drum']}/{step}", arguments["parties"])
            await context.session.report_progress(step + arguments["offset"], steps, f"{name} {step}")
        return says(name)

    async def _meet(self, place: str, parties: int) -> None:
        async with asyncio.timeout(LONGEST_WAIT_SECONDS), self._together:
            self._arrived[place] += 1
            self._together.notify_all()
            await self._together.wait_for(lambda: self._arrived[place] >= parties)

    async def _hold(self, _: Context, arguments: Arguments) -> CallToolResult:
        """Answer once the file `until` exists, and write down when the call starts and if it is cancelled."""
        self._write(f"started {arguments['text']}")
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                while not Path(arguments["until"]).exists():
                    await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self._write(f"cancelled {arguments['text']}")
            raise
        self._write(f"finished {arguments['text']}")
        return says(f"held {arguments['text']}")

    async def _show_meta(self, context: Context, _: Arguments) -> CallToolResult:
        meta = dict((context.params or {}).get("_meta") or {})
        return CallToolResult(
            content=[text(json.dumps(meta))],
            _meta={"vendor.example/answer": {"to": "everything", "is": 42}},
        )

    async def _grow(self, _: Context, arguments: Arguments) -> CallToolResult:
        self._grown.append(arguments["text"])
        await self.bus.publish(ToolsListChanged())
        for session in self.sessions:
            await session.send_tool_list_changed()
        return says(f"grew {arguments['text']}")

    def _write(self, line: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(line + "\n")


def describe(name: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": [],
        "x-order": ["b", "a"],
    }
    echoed = {"type": "object", "properties": {"echoed": {"type": "string"}}, "required": ["echoed"]}
    return Tool(
        name=name,
        title=f"The tool {name}",
        description=f"Does {name} — what else?",
        input_schema=schema,
        output_schema=echoed if name == "echo" else None,
        annotations=ToolAnnotations(read_only_hint=name == "echo", open_world_hint=False),
        _meta={"vendor.example/kind": name},
    )


def text(words: str) -> TextContent:
    return TextContent(type="text", text=words)


def says(words: str) -> CallToolResult:
    return CallToolResult(content=[text(words)])


class PromisingServer(Server[Any]):
    """Promises list_changed in the handshake: without it a gateway would be right to expect none."""

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


def build(era: str, journal: Path) -> Server[Any]:
    workshop = ToolSet(journal)
    listen = ListenHandler(workshop.bus) if era == "modern" else None
    server = PromisingServer(
        f"{era}-server",
        version="1.2.3",
        on_list_tools=workshop.list_tools,
        on_call_tool=workshop.call_tool,
        on_subscriptions_listen=listen,
    )

    async def watch(ctx: Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized":
            workshop.sessions.append(ctx.session)
        return result

    refuse_initialize(server, era)
    server.middleware.append(watch)
    return server


def main() -> None:
    options = server_options().parse_args()
    asyncio.run(serve(build(options.era, options.journal), options))
