"""A server that answers each method, and each tool, with the bytes of a file.

`DIRECTORY/tools_list` is the result of tools/list, `DIRECTORY/call_NAME` that of a tool. What stands in
`DIRECTORY/before_NAME` is written before it, one message a line. Without a file the method is unknown.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Message = dict[str, Any]


def answer(directory: Path, message: Message) -> bytes:
    """The whole answer, without the end of the line."""
    name, id = message["method"].replace("/", "_"), json.dumps(message["id"]).encode()
    if name == "tools_call":
        name = f"call_{message['params']['name']}"
    file = directory / name
    if not file.exists():
        return b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}' % id
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (id, file.read_bytes())


def before(directory: Path, message: Message) -> bytes:
    """What comes before the answer to a call of a tool."""
    if message["method"] != "tools/call":
        return b""
    params = message["params"]
    file = directory / f"before_{params['name']}"
    token = json.dumps(params.get("_meta", {}).get("progressToken")).encode()
    return file.read_bytes().replace(b"TOKEN", token) if file.exists() else b""


def serve_stdio(directory: Path) -> None:
    """Answer each line."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            sys.stdout.buffer.write(before(directory, message) + answer(directory, message) + b"\n")
            sys.stdout.buffer.flush()


class Handler(BaseHTTPRequestHandler):
    """One request over HTTP."""

    protocol_version = "HTTP/1.1"
    directory: Path

    def do_GET(self) -> None:
        """There is no stream."""
        self.send_error(405)

    def do_POST(self) -> None:
        """One message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body, kind = b"", "application/json"
        if "id" in message and "method" in message:
            body = answer(self.directory, message)
            if early := before(self.directory, message):
                body = b"".join(b"data: " + line + b"\n\n" for line in [*early.splitlines(), body])
                kind = "text/event-stream"
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


def main() -> None:
    """Run as `canned.py DIRECTORY TRANSPORT`; over HTTP the port is printed first."""
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    if kind == "stdio":
        serve_stdio(directory)
        return
    Handler.directory = directory
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
