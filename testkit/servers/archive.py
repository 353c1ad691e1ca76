"""An HTTP server that replays many listings, each at a path of its own, and answers calls with its name."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Shelves(ThreadingHTTPServer):
    """Every `NAME.json` of a directory, served at `/NAME`."""

    daemon_threads = True
    # As many clients connect at once as there are listings.
    request_queue_size = 256

    def __init__(self, place: Path) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.place = place


class Clerk(BaseHTTPRequestHandler):
    """Answers one client at a time."""

    server: Shelves
    protocol_version = "HTTP/1.1"
    # An answer is two writes, and the second must not wait until the first was received.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer a request; a notification is accepted."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(200, self._reply(message)) if "id" in message else self._send(202, b"")

    def do_GET(self) -> None:
        """There is nothing to listen to."""
        self._send(405, b"")

    def do_DELETE(self) -> None:
        """There are no sessions."""
        self._send(405, b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _reply(self, message: dict[str, Any]) -> bytes:
        label = self.path.removeprefix("/")
        if message["method"] == "tools/list":
            listing = (self.server.place / f"{label}.json").read_bytes()
            return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(message["id"]).encode(), listing)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            reply["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": label, "version": "1"},
            }
        elif message["method"] == "tools/call":
            # Two texts, because either name may hold any character that could join them.
            texts = [label, message["params"]["name"]]
            reply["result"] = {"content": [{"type": "text", "text": text} for text in texts]}
        else:
            reply["error"] = {"code": -32601, "message": f"Method not found: {message['method']}"}
        return json.dumps(reply).encode()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with Shelves(Path(sys.argv[1])) as shelves:
        print(shelves.server_address[1], flush=True)
        shelves.serve_forever()
