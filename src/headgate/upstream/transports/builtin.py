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

# Told how much of how much is done.
ReportProgress = Callable[[float, float], None]


class InvalidToolArgument(ValueError):
    """What is wrong with an argument, as one sentence for the model."""


class BuiltinCall(msgspec.Struct, frozen=True):
    """Who calls a tool, and how he is told of its progress."""

    caller: Identity
    progress: ReportProgress


class BuiltinToolResult(msgspec.Struct, frozen=True):
    """What a tool says to a program as well as to a model."""

    text: str
    # None where all are told by the text alone.
    structured: Mapping[str, Any] | None
    # Read after the text, as a block of its own.
    advice: str = ""
    meta: Mapping[str, Any] = {}
    failed: bool = False
    # Whether the caller chose how much it is told.
    sized: bool = False


class BuiltinTool(msgspec.Struct, frozen=True):
    """A tool written in Python."""

    definition: Mapping[str, Any]
    run: Callable[[dict[str, Any], BuiltinCall], Awaitable[str | BuiltinToolResult]]


# Told why a server cannot do its work, and None once it can.
ReportHealth = Callable[[str | None], None]
# What opens the tools of a server for as long as somebody is connected to it; raises HeadgateError.
OpenTools = Callable[[ReportHealth], AbstractAsyncContextManager[tuple[BuiltinTool, ...]]]


class BuiltinServer(msgspec.Struct, frozen=True):
    """A server that lives inside the gateway, and what it advises the model."""

    open: OpenTools
    instructions: str = ""


class BuiltinTransport:
    """The conversation with a server inside the gateway."""

    pid = None
    limits = None

    def __init__(self, spec: ServerSpec, tools: tuple[BuiltinTool, ...], instructions: str = "") -> None:
        self._spec = spec
        self._instructions = instructions
        self._tools = {tool.definition["name"]: tool for tool in tools}

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        """The server's answer; raises UpstreamTimeout."""
        if outgoing.method == "server/discover":
            return _result(self._discovered())
        if outgoing.method == "tools/list":
            return _result({"tools": [tool.definition for tool in self._tools.values()]})
        if outgoing.method == "tools/call":
            return await self._call(outgoing)
        return _error(METHOD_NOT_FOUND, f"Method not found: {outgoing.method}")

    def _discovered(self) -> dict[str, Any]:
        found: dict[str, Any] = {"supportedVersions": [LATEST_STATELESS], "capabilities": {"tools": {}}}
        return {**found, "instructions": self._instructions} if self._instructions else found

    async def _call(self, outgoing: OutgoingRequest) -> McpResponse:
        try:
            params = msgspec.json.decode(outgoing.params, type=CallParams)
            # Some clients send null for none.
            arguments = msgspec.json.decode(params.arguments or b"{}", type=dict[str, Any] | None) or {}
        except DecodeError as error:
            return _error(INVALID_PARAMS, f"Invalid params: {error}")
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(outgoing.timeout_seconds, outgoing.max_timeout_seconds)) as limit:
                said = await self._tools[outgoing.name].run(arguments, _builtin_call(outgoing, limit))
        except TimeoutError as error:
            seconds = asyncio.get_running_loop().time() - started
            raise UpstreamTimeout(self._spec.name, outgoing.what, seconds) from error
        except InvalidToolArgument as error:
            return _result({"content": [{"type": "text", "text": str(error)}], "isError": True})
        return _tool_result(said)

    async def send_notification(self, message: bytes) -> None:
        """Nothing to tell."""

    def set_protocol_version(self, version: str) -> None:
        """It speaks only this version."""

    async def wait_lost(self) -> str:
        """Never."""
        await asyncio.Event().wait()
        return ""


def _builtin_call(outgoing: OutgoingRequest, limit: asyncio.Timeout) -> BuiltinCall:
    caller = outgoing.request.caller if outgoing.request is not None else LOCAL_IDENTITY
    return BuiltinCall(caller, _progress(outgoing, limit))


def _progress(outgoing: OutgoingRequest, limit: asyncio.Timeout) -> ReportProgress:
    """Tells the client, and starts the time limit anew."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + outgoing.max_timeout_seconds

    def tell(done: float, total: float) -> None:
        if not limit.expired():
            limit.reschedule(min(loop.time() + outgoing.timeout_seconds, latest))
        listener = outgoing.request.on_progress if outgoing.request is not None else None
        if listener is not None:
            numbers = {"progress": done, "total": total}
            listener({key: Raw(msgspec.json.encode(value)) for key, value in numbers.items()})

    return tell


def _tool_result(said: str | BuiltinToolResult) -> McpResponse:
    if isinstance(said, str):
        return _result({"content": [{"type": "text", "text": said}]})
    texts = [said.text, said.advice] if said.advice else [said.text]
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text} for text in texts],
    }
    if said.structured is not None:
        result["structuredContent"] = said.structured
    if said.failed:
        result["isError"] = True
    if said.meta:
        result["_meta"] = said.meta
    return msgspec.structs.replace(_result(result), sized=said.sized)


def _result(result: dict[str, Any]) -> McpResponse:
    return McpResponse(msgspec.json.encode({"resultType": "complete", **result}))


def _error(code: int, message: str) -> McpResponse:
    return McpResponse(error=msgspec.json.encode({"code": code, "message": message}))


@asynccontextmanager
async def open_builtin(
    spec: ServerSpec, servers: Mapping[str, BuiltinServer], router: NotificationRouter
) -> AsyncIterator[BuiltinTransport]:
    """Speak with a built-in server; raises UpstreamUnreachable when there is none, or it cannot be opened."""
    server = servers.get(spec.builtin)
    if server is None:
        raise UpstreamUnreachable(spec.name, f"no built-in server is called {spec.builtin!r}")
    async with AsyncExitStack() as stack:
        try:
            tools = await stack.enter_async_context(server.open(router.report_health))
        except HeadgateError as error:
            raise UpstreamUnreachable(spec.name, f"{error.message}; {error.hint}") from error
        yield BuiltinTransport(spec, tools, server.instructions)
