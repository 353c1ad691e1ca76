"""A package registry for tests: a PyPI index and an npm registry, each with one MCP server built here."""

import asyncio
import base64
import hashlib
import io
import json
import ssl
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from testkit.network import NAME, serving

# No public registry has it.
PACKAGE = "headgate-test-server"
_MODULE = PACKAGE.replace("-", "_")
_WHEEL = f"{_MODULE}-1.0-py3-none-any.whl"
_TARBALL = f"{PACKAGE}-1.0.0.tgz"

# Each answers a call with the name of the program that runs it.
_PYTHON = """
import json, sys

def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"]} | answer(request)), flush=True)

def answer(request):
    match request["method"]:
        case "initialize":
            said = {"capabilities": {"tools": {}}, "serverInfo": {"name": "python", "version": "1"}}
            return {"result": {"protocolVersion": "2025-11-25"} | said}
        case "tools/list":
            return {"result": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": "python"}]}}
        case _:
            return {"error": {"code": -32601, "message": "unknown"}}
"""
_NODE = """#!/usr/bin/env node
const info = {name: "node", version: "1"};
const results = {
  initialize: {protocolVersion: "2025-11-25", capabilities: {tools: {}}, serverInfo: info},
  "tools/list": {tools: [{name: "who", inputSchema: {type: "object"}}]},
  "tools/call": {content: [{type: "text", text: "node"}]},
};
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method} = JSON.parse(line);
  if (id === undefined) return;
  const outcome = results[method] ? {result: results[method]} : {error: {code: -32601, message: "unknown"}};
  console.log(JSON.stringify({jsonrpc: "2.0", id, ...outcome}));
});
"""


@contextmanager
def registry(context: ssl.SSLContext) -> Iterator[str]:
    """Serve both kinds of packages behind TLS; give the address by which the proxy alone finds them."""
    files = {f"/{_WHEEL}": _wheel(), f"/{_TARBALL}": _tarball()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        host = head.lower().partition("\r\nhost: ")[2].partition("\r\n")[0]
        kind, body = _page(head.split(" ")[1], f"https://{host}", files)
        status = "200 OK" if body else "404 Not Found"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close"
        )
        writer.write(f"{head}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    with serving(serve, context) as port:
        yield f"https://{NAME}:{port}"


def _page(path: str, origin: str, files: dict[str, bytes]) -> tuple[str, bytes]:
    if path == f"/simple/{PACKAGE}/":
        digest = hashlib.sha256(files[f"/{_WHEEL}"]).hexdigest()
        return "text/html", f'<a href="/{_WHEEL}#sha256={digest}">{_WHEEL}</a>'.encode()
    if path == f"/{PACKAGE}":
        return "application/json", json.dumps(_packument(origin, files[f"/{_TARBALL}"])).encode()
    return "application/octet-stream", files.get(path, b"")


def _packument(origin: str, tarball: bytes) -> dict[str, object]:
    integrity = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    version = _manifest() | {
        "dist": {"tarball": f"{origin}/{_TARBALL}", "integrity": f"sha512-{integrity}"},
    }
    return {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}


def _manifest() -> dict[str, object]:
    return {"name": PACKAGE, "version": "1.0.0", "bin": {PACKAGE: "index.js"}}


def _wheel() -> bytes:
    info = f"{_MODULE}-1.0.dist-info"
    files = {
        f"{_MODULE}.py": _PYTHON,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{PACKAGE} = {_MODULE}:main\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(name, text)
    return packed.getvalue()


def _tarball() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in {"package.json": json.dumps(_manifest()), "index.js": _NODE}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()
