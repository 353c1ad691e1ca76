"""A streamable-HTTP MCP server of either era, on raw sockets, that misbehaves by tool name."""

import argparse
import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from testkit import payload
from testkit.faults import compression_bombs
from testkit.servers import jsonrpc, raw_http
from testkit.servers.raw_http import RawRequest

PROTOCOL_VERSION = "2025-06-18"
# More than one message of the campaign needs.
_READ_LIMIT = 64 << 20


class HttpExchange:
    """One HTTP request, with the ways to answer it."""

    def __init__(self, server: "MisbehavingHttpServer", request: RawRequest) -> None:
        self.server = server
        self.request = request
        self.headers = request.headers
        self.reader = request.reader
        self.writer = request.writer
        message: dict[str, Any] = msgspec.json.decode(request.body) if request.body else {}
        self.method: str = message.get("method", "")
        self.request_id = message.get("id")
        self.params: dict[str, Any] = message.get("params") or {}
        self.arguments: dict[str, Any] = self.params.get("arguments") or {}

    def result(self, value: object) -> bytes:
        """The message that answers this request."""
        if self.server.options.stateless and isinstance(value, dict):
            value = {"resultType": "complete", **value}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": self.request_id, "result": value})

    def refusal(self, code: int, message: str) -> bytes:
        """The message that answers this request with an error."""
        error = {"code": code, "message": message}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": self.request_id, "error": error})

    def text(self, text: str) -> bytes:
        """The message of a tool that has one text to say."""
        return self.result({"content": [{"type": "text", "text": text}]})

    async def send(
        self, body: bytes, status: int = 200, content_type: str = "application/json", **headers: str
    ) -> None:
        """Send a whole response; underscores in a keyword stand for dashes."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.request.send(body, status, content_type, fields)

    def head(self, status: int, content_type: str, headers: dict[str, str] | None = None) -> None:
        """Send the head of a response."""
        self.request.send_head(status, content_type, headers)

    def stream(self) -> None:
        """Open an event stream whose end is the end of the connection."""
        self.request.open_stream()

    async def event(self, data: bytes) -> None:
        """Send one event."""
        await self.request.send_event(data)

    def reset(self) -> None:
        """Close the connection with a reset instead of an end."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class MisbehavingHttpServer:
    """The server: sessions, the record of what arrived, and the table of tools."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.sessions: set[str] = set()
        self.numbers = itertools.count(1)

    async def serve(self) -> None:
        """Listen until killed; the port is printed first."""
        await raw_http.serve(self._handle, self.options.host, self.options.port)

    async def _handle(self, request: RawRequest) -> None:
        body = request.body[:2_000].decode("latin-1")
        self.note({"line": request.line, "headers": request.headers, "body": body})
        await self._answer(request.method, request.headers, HttpExchange(self, request))

    def note(self, row: dict[str, Any]) -> None:
        """Append a row to the record."""
        jsonrpc.append_line(self.options.record, msgspec.json.encode(row).decode())

    async def _answer(self, verb: str, headers: dict[str, str], exchange: HttpExchange) -> None:
        session = headers.get("mcp-session-id")
        if verb == "DELETE":
            self.sessions.discard(session or "")
            await exchange.send(b"", 200)
        elif verb != "POST":
            await exchange.send(b"", 405, Allow="POST, DELETE")
        elif self.options.stateless:
            await self._answer_stateless(exchange)
        elif exchange.method == "initialize":
            await self._initialize(exchange)
        elif session is None:
            await exchange.send(
                b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"No session"}}', 400
            )
        elif session not in self.sessions:
            await exchange.send(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Gone"}}', 404)
        else:
            await self._dispatch(exchange)

    async def _answer_stateless(self, exchange: HttpExchange) -> None:
        hints = {"ttlMs": 0, "cacheScope": "private"}
        if exchange.method == "server/discover":
            about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            await exchange.send(exchange.result(about | hints))
        elif exchange.method == "tools/list":
            await exchange.send(exchange.result({"tools": self.listed()} | hints))
        else:
            await self._dispatch(exchange)

    def listed(self) -> list[dict[str, Any]]:
        """The definitions of all tools."""
        scripted = msgspec.json.decode(Path(self.options.tools).read_bytes()) if self.options.tools else []
        return [*scripted, *({"name": name, "inputSchema": {"type": "object"}} for name in TOOLS)]

    async def _initialize(self, exchange: HttpExchange) -> None:
        if self.options.hang:
            await asyncio.Event().wait()
        session = f"session-{next(self.numbers)}-{id(exchange):x}"
        self.sessions.add(session)
        info = {"name": "misbehaving-http", "version": "1"}
        result = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
        await exchange.send(exchange.result(result), Mcp_Session_Id=session)

    async def _dispatch(self, exchange: HttpExchange) -> None:
        if exchange.method == "tools/list":
            await exchange.send(exchange.result({"tools": self.listed()}))
        elif exchange.method == "tools/call":
            await self.call(exchange)
        elif exchange.method == "ping":
            await exchange.send(exchange.result({}))
        elif exchange.request_id is None:
            await exchange.send(b"", 202)
        else:
            await exchange.send(exchange.refusal(-32601, "Method not found"))

    async def call(self, exchange: HttpExchange) -> None:
        """Answer a tools/call."""
        await TOOLS.get(exchange.params["name"], named)(exchange)


TOOLS: dict[str, Callable[[HttpExchange], Awaitable[None]]] = {}


def _tool(run: Callable[[HttpExchange], Awaitable[None]]) -> Callable[[HttpExchange], Awaitable[None]]:
    TOOLS[getattr(run, "__name__", "")] = run
    return run


@_tool
async def echo(exchange: HttpExchange) -> None:
    """Answer with the argument `text`."""
    await exchange.send(exchange.text(exchange.arguments.get("text", "")))


async def named(exchange: HttpExchange) -> None:
    """Answer for a tool that is listed and nothing more: with its name."""
    await exchange.send(exchange.text(exchange.params["name"]))


@_tool
async def hold(exchange: HttpExchange) -> None:
    """Report progress five times a second until the caller leaves, and note when that was."""
    exchange.stream()
    token = exchange.params.get("_meta", {}).get("progressToken")
    done = 0
    with contextlib.suppress(ConnectionError):
        while not exchange.reader.at_eof():
            params = {"progressToken": token, "progress": (done := done + 1)}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await exchange.event(msgspec.json.encode(note))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await exchange.reader.read(1)
    exchange.server.note({"line": "closed", "headers": {}, "body": "", "at": time.monotonic()})


@_tool
async def canary(exchange: HttpExchange) -> None:
    """Answer with what the caller marked its call with."""
    arguments = exchange.arguments
    await exchange.send(exchange.text(f"canary-{arguments['caller']}-{arguments['sequence']}"))


@_tool
async def latency(exchange: HttpExchange) -> None:
    """Answer after `seconds`."""
    await asyncio.sleep(exchange.arguments["seconds"])
    await exchange.send(exchange.text("late"))


@_tool
async def drip(exchange: HttpExchange) -> None:
    """Answer one byte every 10 ms."""
    body = exchange.text("drop by drop")
    exchange.head(200, "application/json", {"Content-Length": str(len(body))})
    for byte in body:
        exchange.writer.write(bytes([byte]))
        await exchange.writer.drain()
        await asyncio.sleep(0.01)


@_tool
async def half_body(exchange: HttpExchange) -> None:
    """Promise a body, send half of it and end the connection."""
    body = exchange.text("never complete")
    exchange.head(200, "application/json", {"Content-Length": str(len(body))})
    exchange.writer.write(body[: len(body) // 2])
    exchange.writer.close()


@_tool
async def reset(exchange: HttpExchange) -> None:
    """Reset the connection instead of answering."""
    exchange.reset()


@_tool
async def sse_comments(exchange: HttpExchange) -> None:
    """Open a stream and send comments for ever."""
    exchange.stream()
    while not exchange.writer.is_closing():
        exchange.writer.write(b": still here\n\n")
        await exchange.writer.drain()
        await asyncio.sleep(0.2)


@_tool
async def sse_big(exchange: HttpExchange) -> None:
    """Answer with one event that holds a text of `size` bytes."""
    exchange.stream()
    start, end = exchange.text("@").split(b"@")
    exchange.writer.write(b"event: message\ndata: " + start)
    for block in payload.filler(exchange.arguments["size"]):
        exchange.writer.write(block)
        await exchange.writer.drain()
    exchange.writer.write(end + b"\n\n")
    await exchange.writer.drain()
    exchange.writer.close()


@_tool
async def bomb(exchange: HttpExchange) -> None:
    """Answer with a body in `encoding` that grows to `size` bytes."""
    encoding = exchange.arguments["encoding"]
    body = compression_bombs.BOMBS[encoding](exchange.text("after the bomb"), exchange.arguments["size"])
    await exchange.send(body, Content_Encoding=encoding)


@_tool
async def redirect(exchange: HttpExchange) -> None:
    """Send the client to `location` with `status`."""
    await exchange.send(b"", exchange.arguments["status"], Location=exchange.arguments["location"])


@_tool
async def status(exchange: HttpExchange) -> None:
    """Answer with the HTTP status `code` and, if given, `retry_after`."""
    after = exchange.arguments.get("retry_after")
    headers = {} if after is None else {"Retry_After": str(after)}
    await exchange.send(b"the upstream says no", exchange.arguments["code"], "text/plain", **headers)


@_tool
async def html(exchange: HttpExchange) -> None:
    """Answer 200 with a page."""
    await exchange.send(b"<html><body>Sign in</body></html>", 200, "text/html")


@_tool
async def no_content(exchange: HttpExchange) -> None:
    """Answer 204 to a request."""
    exchange.head(204, "application/json")
    await exchange.writer.drain()


@_tool
async def forget_sessions(exchange: HttpExchange) -> None:
    """Answer, then know no session any more, as after a restart."""
    await exchange.send(exchange.text("forgotten"))
    exchange.server.sessions.clear()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", help="append every request to this file, one JSON object per line")
    parser.add_argument("--stateless", action="store_true", help="speak the stateless era")
    parser.add_argument("--tools", help="a JSON file with definitions that are listed before the others")
    parser.add_argument("--hang", action="store_true", help="never answer the handshake")
    asyncio.run(MisbehavingHttpServer(parser.parse_args()).serve())
