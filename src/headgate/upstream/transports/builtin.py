"""The built-in transport: servers inside the gateway process, without a child process or a socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.errors import HeadgateError, UpstreamTimeout, UpstreamUnreachable
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerSpec
from headgate.protocol.jsonrpc import CallParams
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, METHOD_NOT_FOUND
from headgate.protocol.protocol_version import LATEST_STATELESS
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import OutgoingRequest

# Called with the work done and the total.
ReportProgress = Callable[[float, float], None]


class InvalidToolArgument(ValueError):
    """What is wrong with an argument, as one sentence for the model."""


class BuiltinCall(msgspec.Struct, frozen=True):
    """The caller of a tool, and how to report progress to it."""

    caller: Identity
    progress: ReportProgress


class BuiltinToolResult(msgspec.Struct, frozen=True):
    """A tool result for programs as well as for models."""

    text: str
    # None where the text is the whole result.
    structured: Mapping[str, Any] | None
    # A block of its own after the text.
    advice: str = ""
    meta: Mapping[str, Any] = {}
    failed: bool = False
    # Whether the caller chose the size of the result.
    sized: bool = False


class BuiltinTool(msgspec.Struct, frozen=True):
    """A tool written in Python."""

    definition: Mapping[str, Any]
    run: Callable[[dict[str, Any], BuiltinCall], Awaitable[str | BuiltinToolResult]]


# Called with the reason why a server cannot do its work, and with None once it can.
ReportHealth = Callable[[str | None], None]
# Opens the tools of a server for the time of one connection; raises HeadgateError.
OpenTools = Callable[[ReportHealth], AbstractAsyncContextManager[tuple[BuiltinTool, ...]]]


class BuiltinServer(msgspec.Struct, frozen=True):
    """A server inside the gateway, and its instructions."""

    open: OpenTools
    instructions: str = ""


class BuiltinTransport:
    """The connection to a server inside the gateway."""

    pid = None
    limits = None

    def __init__(self, spec: ServerSpec, tools: tuple[BuiltinTool, ...], instructions: str = "") -> None:
        self._spec = spec
        self._instructions = instructions
        self._tools = {tool.definition["name"]: tool for tool in tools}

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        if outgoing.method == "server/discover":
            found: dict[str, Any] = {"supportedVersions": [LATEST_STATELESS], "capabilities": {"tools": {}}}
            return _result(found | ({"instructions": self._instructions} if self._instructions else {}))
        if outgoing.method == "tools/list":
            return _result({"tools": [tool.definition for tool in self._tools.values()]})
        if outgoing.method == "tools/call":
            return await self._call(outgoing)
        return _error(METHOD_NOT_FOUND, f"Method not found: {outgoing.method}")

    async def _call(self, outgoing: OutgoingRequest) -> McpResponse:
        try:
            params = msgspec.json.decode(outgoing.params, type=CallParams)
            # Some clients send null for no arguments.
            arguments = msgspec.json.decode(params.arguments or b"{}", type=dict[str, Any] | None) or {}
        except DecodeError as error:
            return _error(INVALID_PARAMS, f"Invalid params: {error}")
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)) as limit:
                caller = outgoing.request.caller if outgoing.request is not None else LOCAL_IDENTITY
                call = BuiltinCall(caller, _progress(outgoing, limit))
                output = await self._tools[outgoing.name].run(arguments, call)
        except TimeoutError as error:
            seconds = asyncio.get_running_loop().time() - started
            raise UpstreamTimeout(self._spec.name, outgoing.what, seconds) from error
        except InvalidToolArgument as error:
            return _result({"content": [{"type": "text", "text": str(error)}], "isError": True})
        if isinstance(output, str):
            return _result({"content": [{"type": "text", "text": output}]})
        texts = [output.text, output.advice] if output.advice else [output.text]
        result: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts]}
        if output.structured is not None:
            result["structuredContent"] = output.structured
        if output.failed:
            result["isError"] = True
        if output.meta:
            result["_meta"] = output.meta
        return msgspec.structs.replace(_result(result), sized=output.sized)

    async def send_notification(self, message: bytes) -> None:
        """Notifications are ignored."""

    def set_protocol_version(self, version: str) -> None:
        """There is only one version."""

    async def wait_lost(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never


def _progress(outgoing: OutgoingRequest, limit: asyncio.Timeout) -> ReportProgress:
    loop = asyncio.get_running_loop()
    latest = loop.time() + outgoing.max_timeout_seconds

    def report(done: float, total: float) -> None:
        if not limit.expired():
            limit.reschedule(min(loop.time() + outgoing.timeout_seconds, latest))
        listener = outgoing.request.on_progress if outgoing.request is not None else None
        if listener is not None:
            numbers = {"progress": done, "total": total}
            listener({key: Raw(msgspec.json.encode(value)) for key, value in numbers.items()})

    return report


def _result(result: dict[str, Any]) -> McpResponse:
    return McpResponse(msgspec.json.encode({"resultType": "complete", **result}))


def _error(code: int, message: str) -> McpResponse:
    return McpResponse(error=msgspec.json.encode({"code": code, "message": message}))


@asynccontextmanager
async def open_builtin(
    spec: ServerSpec, servers: Mapping[str, BuiltinServer], router: NotificationRouter
) -> AsyncIterator[BuiltinTransport]:
    """A connection to a built-in server; raises UpstreamUnreachable if it is unknown or cannot be opened."""
    server = servers.get(spec.builtin)
    if server is None:
        raise UpstreamUnreachable(spec.name, f"no built-in server is called {spec.builtin!r}")
    async with AsyncExitStack() as stack:
        try:
            tools = await stack.enter_async_context(server.open(router.listener.on_health_changed))
        except HeadgateError as error:
            raise UpstreamUnreachable(spec.name, f"{error.message}; {error.hint}") from error
        yield BuiltinTransport(spec, tools, server.instructions)
