"""Many MCP servers on one port: each path has the listing of a file, and calls are answered with names.

A call of a tool is answered with the server's name and the tool's, so that one sees who was reached.
"""

import argparse
from pathlib import Path
from typing import Final

import msgspec
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

from testkit.servers.prepared_answers import Envelope
from testkit.servers.prepared_http import read_body, run, send_response

_INITIALIZED: Final = msgspec.json.encode(
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "replay", "version": "1"},
    }
)
_UNKNOWN: Final = b'"error":{"code":-32601,"message":"unknown"}'


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--listings", type=Path, required=True, help="a directory of SERVER.json")
    options = parser.parse_args()
    listings = {f"/{file.stem}": file.read_bytes() for file in options.listings.glob("*.json")}
    run(Replay(listings), options.port)


class Replay:
    """The ASGI application; `listings` are results of tools/list by path."""

    def __init__(self, listings: dict[str, bytes]) -> None:
        self._listings = listings

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._listings:
            return await send_response(send, 405, ())
        message = msgspec.json.decode(await read_body(receive), type=Envelope)
        if not message.id:
            return await send_response(send, 202, ())
        answer = self._answer(scope["path"], message)
        pieces = (b'{"jsonrpc":"2.0","id":', bytes(message.id), b",", answer, b"}")
        await send_response(send, 200, pieces)

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
