"""Many MCP servers on one port: each path has the listing of a file, and calls are answered with names.

A call of a tool is answered with the server's name and the tool's, so that one sees who was reached. It is
run as a script and imports nothing of this project.
"""

import argparse
from pathlib import Path
from typing import Final

import msgspec
import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_INITIALIZED: Final = msgspec.json.encode(
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "replay", "version": "1"},
    }
)
_UNKNOWN: Final = b'"error":{"code":-32601,"message":"unknown"}'


class Envelope(msgspec.Struct):
    """A message; an empty id means a notification."""

    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"{}")


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--listings", type=Path, required=True, help="a directory of SERVER.json")
    options = parser.parse_args()
    uvicorn.run(
        Replay({f"/{file.stem}": file.read_bytes() for file in options.listings.glob("*.json")}),
        port=options.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
    )


class Replay:
    """The ASGI application; `listings` are results of tools/list by path."""

    def __init__(self, listings: dict[str, bytes]) -> None:
        self._listings = listings

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._listings:
            return await _send(send, 405, b"")
        message = msgspec.json.decode(await _body(receive), type=Envelope)
        if not message.id:
            return await _send(send, 202, b"")
        answer = self._answer(scope["path"], message)
        await _send(send, 200, b'{"jsonrpc":"2.0","id":' + bytes(message.id) + b"," + answer + b"}")

    def _answer(self, path: str, message: Envelope) -> bytes:
        match message.method:
            case "initialize":
                return b'"result":' + _INITIALIZED
            case "tools/list":
                return b'"result":' + self._listings[path]
            case "tools/call":
                texts = [path.removeprefix("/"), msgspec.json.decode(message.params, type=_Named).name]
                content = [{"type": "text", "text": text} for text in texts]
                return b'"result":' + msgspec.json.encode({"content": content})
            case "ping":
                return b'"result":{}'
        return _UNKNOWN


class _Named(msgspec.Struct):
    name: str


async def _body(receive: ASGIReceiveCallable) -> bytes:
    body = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return body
        body += event.get("body", b"")
        if not event.get("more_body"):
            return body


async def _send(send: ASGISendCallable, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})
