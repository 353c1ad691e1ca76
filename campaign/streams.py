"""Event streams of the gateway, read event by event, and clients that answer what they are asked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from testkit.clients import http1
from testkit.clients.async_http import Client

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its id, and its message decoded (empty for an event without one)."""

    id: str
    message: dict[str, Any]


class EventStream:
    """A response that is being read; plain JSON counts as one event."""

    def __init__(self, connection: http1.Connection, status: int, headers: dict[str, str]) -> None:
        self.connection = connection
        self.status = status
        self.headers = headers
        self.last_id = ""
        self._streaming = headers.get("content-type", "").startswith("text/event-stream")
        self._pieces = connection.body(headers)
        self._buffer = b""

    async def event(self, seconds: float = _PATIENCE_SECONDS) -> Event | None:
        """The next event; None at the end of the stream. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while True:
                block = await self._block()
                if block is None:
                    return None
                event = _read(block) if self._streaming else Event("", _decoded(block))
                if event is not None:
                    self.last_id = event.id or self.last_id
                    return event

    async def message(self, seconds: float = _PATIENCE_SECONDS) -> dict[str, Any] | None:
        """The next message; None at the end of the stream. Raises TimeoutError."""
        while (event := await self.event(seconds)) is not None:
            if event.message:
                return event.message
        return None

    async def _block(self) -> bytes | None:
        end = b"\n\n" if self._streaming else b"\0never"
        while end not in self._buffer:
            piece = await anext(self._pieces, None)
            if piece is None:
                block, self._buffer = self._buffer, b""
                return block or None
            self._buffer += piece.replace(b"\r\n", b"\n") if self._streaming else piece
        block, _, self._buffer = self._buffer.partition(end)
        return block

    def close(self) -> None:
        """Drop the connection."""
        self.connection.close()


def _read(block: bytes) -> Event | None:
    id, data = "", []
    for line in block.split(b"\n"):
        if line.startswith(b"id:"):
            id = line[3:].strip().decode()
        elif line.startswith(b"data:"):
            data.append(line[5:].strip())
    return Event(id, _decoded(b"\n".join(data))) if id or data else None


def _decoded(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any]) if data.strip() else {}


async def open_stream(port: int, request: bytes) -> EventStream:
    """Send a request on a connection of its own; gives the response once its head is there."""
    connection = await http1.connect(port)
    try:
        connection.writer.write(request)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            status, headers = await connection.head()
    except BaseException:
        connection.close()
        raise
    return EventStream(connection, status, headers)


@contextlib.asynccontextmanager
async def streaming(port: int, request: bytes) -> AsyncIterator[EventStream]:
    """The response to a request as a stream, dropped at the end of the block."""
    stream = await open_stream(port, request)
    try:
        yield stream
    finally:
        stream.close()


def listen_request(caller: Client, last_event_id: str = "") -> bytes:
    """The GET with which a client of the handshake era opens its stream."""
    headers = {"Accept": "text/event-stream", **caller.session_headers}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    return http1.request(caller.port, "GET", "/mcp", headers)


Respond = Callable[[dict[str, Any]], dict[str, Any] | None]


def accept(question: dict[str, Any]) -> dict[str, Any]:
    """The answer of a client that agrees to everything."""
    if question["method"] == "roots/list":
        return {"roots": [{"uri": "file:///tmp"}]}
    if question["method"] == "sampling/createMessage":
        return {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "none"}
    return {"action": "accept", "content": {"colour": "green"}}


async def converse(caller: Client, request: bytes, respond: Respond = accept, seconds: float = 20.0) -> Any:
    """Send a request of the handshake era and answer what is asked on its stream, until it is answered.

    `respond` gives the result to answer with, or None to keep silent.
    """
    async with asyncio.timeout(seconds), streaming(caller.port, request) as stream:
        while (message := await stream.message(seconds)) is not None:
            if "method" not in message:
                return message
            if "id" in message and (result := respond(message)) is not None:
                await caller.tell({"id": message["id"], "result": result})
    return None


async def rounds(caller: Client, tool: str, arguments: dict[str, Any], most: int = 10) -> dict[str, Any]:
    """Call a tool as a client of the stateless era that answers every question; gives the last result."""
    more: dict[str, Any] = {}
    for _ in range(most):
        answer = await caller.request("tools/call", {"name": tool, "arguments": arguments, **more})
        result = answer.result
        if result.get("resultType") != "input_required":
            return answer.message
        more = {
            "inputResponses": {key: accept(each) for key, each in result["inputRequests"].items()},
            "requestState": result["requestState"],
        }
    return answer.message
