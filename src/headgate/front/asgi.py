"""The few ASGI words that the HTTP fronts use."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
STREAM: list[Header] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Tells proxies not to gather events before they hand them on.
    (b"x-accel-buffering", b"no"),
]


async def respond(send: Send, status: int, body: bytes, *headers: Header) -> None:
    """A whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def start_stream(send: Send, *headers: Header) -> None:
    """The head of an event stream."""
    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})


async def write(send: Send, data: bytes) -> None:
    """Some more of a stream."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def end(send: Send) -> None:
    """The end of a stream."""
    await send({"type": "http.response.body", "body": b""})
