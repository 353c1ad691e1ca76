"""One process, many MCP servers of the stateless era: each lists the bytes of a file, whatever they are."""

import argparse
import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec

from testkit.servers import jsonrpc, raw_http
from testkit.servers.raw_http import RawRequest

_LOOK_SECONDS = 0.01
_META = "io.modelcontextprotocol/"
_HINTS = b'"ttlMs":0,"cacheScope":"private"'


class ListingsServer:
    """Serves `/NAME` with the tools of the file `NAME.json`, which is read anew for every listing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._directory = Path(options.directory)
        self._changing = set(options.changing)
        self._late = {name: float(seconds) for name, _, seconds in (s.partition("=") for s in options.late)}

    async def serve(self) -> None:
        """Listen until killed; the port is printed first."""
        await raw_http.serve(self._handle)

    async def _handle(self, request: RawRequest) -> None:
        if request.method == "POST":
            await self._answer(request.path.strip("/"), msgspec.json.decode(request.body), request)
        else:
            await request.send(b"", 405)

    async def _answer(self, name: str, message: dict[str, Any], request: RawRequest) -> None:
        method, request_id = message.get("method"), message.get("id")
        if request_id is None:
            await request.send(b"", 202)
            return
        if method == "subscriptions/listen":
            await self._send_changes(name, request_id, request)
            return
        result = await self._result(name, method, message.get("params") or {})
        outcome: jsonrpc.Message | bytes = jsonrpc.error(jsonrpc.METHOD_NOT_FOUND, "Method not found")
        if result is not None:
            outcome = b'"result":{"resultType":"complete",%b}' % result
        await request.send(jsonrpc.encode(request_id, outcome))

    async def _result(self, name: str, method: str | None, params: dict[str, Any]) -> bytes | None:
        """The members of the result."""
        match method:
            case "server/discover":
                tools = {"listChanged": True} if name in self._changing else {}
                about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": tools}}
                return msgspec.json.encode(about)[1:-1] + b"," + _HINTS
            case "tools/list":
                await asyncio.sleep(self._late.get(name, 0.0))
                return b'"tools":' + self._file(name).read_bytes() + b"," + _HINTS
            case "tools/call":
                content = [{"type": "text", "text": f"{name}:{params['name']}"}]
                return b'"content":' + msgspec.json.encode(content)
        return None

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    async def _send_changes(self, name: str, request_id: Any, request: RawRequest) -> None:
        """Notify that the tools have changed whenever the file has, until the listener leaves."""
        tag = {"_meta": {_META + "subscriptionId": request_id}}
        request.open_stream()
        agreed = tag | {"notifications": {"toolsListChanged": True}}
        await _notify(request, "notifications/subscriptions/acknowledged", agreed)
        known = self._file(name).stat().st_mtime_ns
        while not request.writer.is_closing():
            await request.writer.drain()
            await asyncio.sleep(_LOOK_SECONDS)
            # The file is put in the place of another, and so is never missing.
            now = self._file(name).stat().st_mtime_ns
            if now != known:
                known = now
                await _notify(request, "notifications/tools/list_changed", tag)


async def _notify(request: RawRequest, method: str, params: dict[str, Any]) -> None:
    await request.send_event(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", help="where the files are")
    parser.add_argument("--changing", action="append", default=[], metavar="NAME", help="tells of changes")
    parser.add_argument("--late", action="append", default=[], metavar="NAME=SECONDS", help="lists so late")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(ListingsServer(parser.parse_args()).serve())
