"""An MCP client of either era that sends and takes what a real one would refuse."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from testkit.clients import http1

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ACCEPT = "application/json, text/event-stream"
_KEY = "io.headgate/idempotencyKey"
_OPERATION = "io.headgate/operation"
_FRESH_SECONDS = 20.0
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Failure(msgspec.Struct, frozen=True):
    """What the gateway says about a call that failed."""

    code: str
    effect: str = ""
    retryable: bool = False
    retry_after_seconds: float | None = None
    hint: str = ""


class RpcError(msgspec.Struct, frozen=True):
    """A JSON-RPC error."""

    code: int
    message: str = ""


class _Meta(msgspec.Struct, frozen=True):
    failure: Failure | None = msgspec.field(name="io.headgate/error", default=None)


class _Content(msgspec.Struct, frozen=True):
    text: str = ""


class _Result(msgspec.Struct, frozen=True):
    content: list[_Content] = []
    is_error: bool = msgspec.field(name="isError", default=False)
    meta: _Meta = msgspec.field(name="_meta", default=_Meta())


class _Reply(msgspec.Struct, frozen=True):
    result: _Result | None = None
    error: RpcError | None = None


class Answer:
    """One answer: its HTTP side, the bytes of its message, and what they say."""

    def __init__(self, response: http1.Response) -> None:
        self.status = response.status
        self.seconds = response.seconds
        self.headers = response.headers
        self.events = _events(response) if _is_stream(response) else [response.body]
        self.raw = self.events[-1] if self.events else b""

    @property
    def failure(self) -> Failure | None:
        """The gateway's own error, if the call failed on the way."""
        reply = self._reply
        return reply.result.meta.failure if reply.result else None

    @property
    def rpc_error(self) -> RpcError | None:
        """The JSON-RPC error, if there is one."""
        return self._reply.error

    @property
    def ok(self) -> bool:
        """Whether the tool answered and did not call its answer an error."""
        result = self._reply.result
        return self.status == 200 and result is not None and not result.is_error

    @property
    def text(self) -> str:
        """The first text of the result."""
        result = self._reply.result
        return result.content[0].text if result and result.content else ""

    @property
    def message(self) -> dict[str, Any]:
        """The message as it was decoded; empty when it is none."""
        try:
            found = msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def result(self) -> dict[str, Any]:
        """The result as it was decoded; empty when there is none."""
        return self.message.get("result") or {}

    @property
    def operation(self) -> dict[str, Any]:
        """What the gateway says of the record of the call; empty where there is none."""
        return (self.result.get("_meta") or {}).get(_OPERATION) or {}

    @property
    def outcome(self) -> str:
        """The answer in a few words, for the table."""
        if self.failure:
            return f"{self.failure.code}/{self.failure.effect}"
        if self.rpc_error:
            return f"rpc {self.rpc_error.code}"
        return "ok" if self.ok else f"http {self.status}"

    @property
    def _reply(self) -> _Reply:
        try:
            return msgspec.json.decode(self.raw, type=_Reply)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _Reply()


def _is_stream(response: http1.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _events(response: http1.Response) -> list[bytes]:
    blocks = response.body.replace(b"\r\n", b"\n").split(b"\n\n")
    lines = (line for block in blocks for line in block.split(b"\n"))
    return [line[5:].strip() for line in lines if line.startswith(b"data:") and line[5:].strip()]


class Client:
    """One client of the gateway; each call under way has a connection of its own."""

    def __init__(
        self,
        port: int,
        *,
        modern: bool,
        capabilities: dict[str, Any] | None = None,
        path: str = "/mcp",
        name: str = "campaign",
    ) -> None:
        self.port = port
        self.modern = modern
        self.path = path
        self.name = name
        self.capabilities = capabilities or {}
        self.session: str | None = None
        self._ids = itertools.count(1)
        self._idle: list[tuple[http1.Connection, float]] = []

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any] | bytes = b"{}",
        *,
        progress: bool = False,
        take: Callable[[bytes], object] | None = None,
        key: str = "",
        meta: dict[str, Any] | None = None,
    ) -> Answer:
        """Call a tool by its public name; `arguments` may be raw bytes, and `key` names a logical call."""
        request = self.call_request(tool, arguments, progress=progress, key=key, meta=meta)
        return await self.exchange(request, take)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> Answer:
        """Send any other request."""
        return await self.exchange(self.post(method, params or {}))

    async def exchange(self, request: bytes, take: Callable[[bytes], object] | None = None) -> Answer:
        """Send the bytes of one request on a free connection."""
        connection = await self._free_connection()
        try:
            response = await connection.exchange(request, take)
        except BaseException:
            connection.close()
            raise
        if response.headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))
        return Answer(response)

    async def _free_connection(self) -> http1.Connection:
        """One that was used lately, since the gateway may close one that was not, or a new one."""
        while self._idle:
            connection, used = self._idle.pop()
            if time.monotonic() - used < _FRESH_SECONDS:
                return connection
            connection.close()
        return await http1.connect(self.port)

    async def list_tools(self) -> list[str]:
        """The names of all tools, over all pages."""
        names: list[str] = []
        cursor: str | None = None
        while True:
            answer = await self.request("tools/list", {"cursor": cursor} if cursor else {})
            result = msgspec.json.decode(answer.raw).get("result", {})
            names += [tool["name"] for tool in result.get("tools", [])]
            cursor = result.get("nextCursor")
            if not cursor:
                return names

    def call_request(
        self,
        tool: str,
        arguments: dict[str, Any] | bytes = b"{}",
        *,
        progress: bool = False,
        key: str = "",
        meta: dict[str, Any] | None = None,
    ) -> bytes:
        """The bytes of one tools/call, for a case that sends them itself."""
        raw = arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)
        params: dict[str, Any] = {"name": tool, "arguments": msgspec.Raw(raw)}
        said = dict(meta or {})
        if progress:
            said["progressToken"] = next(self._ids)
        if key:
            said[_KEY] = key
        if said:
            params["_meta"] = said
        return self.post("tools/call", params)

    def post(self, method: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
        """The bytes of one request in the words of the client's era; `headers` are added or replaced."""
        fields = {"Content-Type": "application/json", "Accept": ACCEPT}
        if self.modern:
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
            }
            params = params | {"_meta": meta | params.get("_meta", {})}
            fields |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            named = params.get(_NAMED_BY.get(method, ""))
            if named:
                fields["Mcp-Name"] = named
        else:
            fields |= self.session_headers
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        body = msgspec.json.encode(message)
        return http1.request(self.port, "POST", self.path, fields | (headers or {}), body)

    @property
    def session_headers(self) -> dict[str, str]:
        """What a client of the handshake era sends with every request."""
        version = {"MCP-Protocol-Version": LEGACY}
        return version | {"Mcp-Session-Id": self.session} if self.session else version

    async def tell(self, message: dict[str, Any]) -> int:
        """Send a notification, or the answer to a question of a server; gives the status."""
        headers = {"Content-Type": "application/json", "Accept": ACCEPT, **self.session_headers}
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        return (await self.exchange(http1.request(self.port, "POST", self.path, headers, body))).status

    async def open(self) -> None:
        """Shake hands, if this client is of the era that does."""
        if self.modern:
            return
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": self.capabilities, "clientInfo": info}
        answer = await self.request("initialize", params)
        self.session = answer.headers["mcp-session-id"]
        await self.tell({"method": "notifications/initialized"})

    def close(self) -> None:
        """Drop the connections that are free."""
        for connection, _ in self._idle:
            connection.close()
        self._idle.clear()


@contextlib.asynccontextmanager
async def client(
    port: int,
    *,
    modern: bool = False,
    capabilities: dict[str, Any] | None = None,
    path: str = "/mcp",
    name: str = "campaign",
) -> AsyncIterator[Client]:
    """A client that has shaken hands; its session is ended with the block."""
    one = Client(port, modern=modern, capabilities=capabilities, path=path, name=name)
    try:
        await one.open()
        yield one
        if one.session:
            headers = {"Mcp-Session-Id": one.session}
            async with asyncio.timeout(5):
                await one.exchange(http1.request(port, "DELETE", path, headers))
    finally:
        one.close()
