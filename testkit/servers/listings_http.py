"""One process, many MCP servers of the stateless era: each lists the bytes of a file, whatever they are."""

import argparse
import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec

# Larger than any request of the campaign.
_READ_LIMIT = 16 << 20
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
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=_READ_LIMIT)
        print(f'{{"port": {server.sockets[0].getsockname()[1]}}}', flush=True)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request_line, *lines = head.split("\r\n")[:-2]
                fields = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                verb, path, _ = request_line.split(" ")
                if verb != "POST":
                    _send(writer, b"", 405)
                else:
                    await self._answer(path.strip("/"), msgspec.json.decode(body), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, name: str, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        method, request_id = message.get("method"), message.get("id")
        if request_id is None:
            _send(writer, b"", 202)
            return
        if method == "subscriptions/listen":
            await self._tell_changes(name, request_id, writer)
            return
        result = await self._result(name, method, message.get("params") or {})
        outcome = b'"error":{"code":-32601,"message":"Method not found"}'
        if result is not None:
            outcome = b'"result":{"resultType":"complete",%b}' % result
        _send(writer, b'{"jsonrpc":"2.0","id":%b,%b}' % (msgspec.json.encode(request_id), outcome))

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

    async def _tell_changes(self, name: str, request_id: Any, writer: asyncio.StreamWriter) -> None:
        """Say that the tools have changed whenever the file has, until the listener leaves."""
        tag = {"_meta": {_META + "subscriptionId": request_id}}
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        agreed = tag | {"notifications": {"toolsListChanged": True}}
        _event(writer, "notifications/subscriptions/acknowledged", agreed)
        known = self._file(name).stat().st_mtime_ns
        while not writer.is_closing():
            await writer.drain()
            await asyncio.sleep(_LOOK_SECONDS)
            # The file is put in the place of another, and so is never missing.
            now = self._file(name).stat().st_mtime_ns
            if now != known:
                known = now
                _event(writer, "notifications/tools/list_changed", tag)


def _send(writer: asyncio.StreamWriter, body: bytes, status: int = 200) -> None:
    head = (
        f"HTTP/1.1 {status} Listings\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)


def _event(writer: asyncio.StreamWriter, method: str, params: dict[str, Any]) -> None:
    message = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})
    writer.write(b"event: message\ndata: " + message + b"\n\n")


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", help="where the files are")
    parser.add_argument("--changing", action="append", default=[], metavar="NAME", help="tells of changes")
    parser.add_argument("--late", action="append", default=[], metavar="NAME=SECONDS", help="lists so late")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(ListingsServer(parser.parse_args()).serve())
