"""A server that notes each payment in a file and answers with as many bytes as it is asked for.

It speaks over stdio, or over HTTP: each answer as JSON, as an event stream, or on the stream of legacy SSE.
"""

import json
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Message = dict[str, Any]
TOOL: Message = {
    "name": "pay",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer"},
            "door": {"type": "string", "description": "a file: the answer waits until it is there"},
        },
    },
}
# A test that has ended must not leave a thread waiting for ever.
LONGEST_WAIT_SECONDS = 60.0


def paid(journal: Path, arguments: Message) -> Message:
    """Note the payment, wait if that is asked for, and answer."""
    with journal.open("a") as file:
        file.write(f"{arguments['name']}\n")
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while arguments.get("door") and not Path(arguments["door"]).exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return {"content": [{"type": "text", "text": "x" * arguments.get("size", 1)}]}


def answered(journal: Path, message: Message) -> bytes:
    """The whole answer to one request."""
    reply: Message = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            reply["result"] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "payments", "version": "1"},
            }
        case "tools/list":
            reply["result"] = {"tools": [TOOL]}
        case "tools/call":
            reply["result"] = paid(journal, message["params"]["arguments"])
        case "ping":
            reply["result"] = {}
        case _:
            reply["error"] = {"code": -32601, "message": "Method not found"}
    return json.dumps(reply).encode()


def serve_stdio(journal: Path) -> None:
    """Answer each line, several at once."""
    lock = threading.Lock()

    def answer(message: Message) -> None:
        line = answered(journal, message) + b"\n"
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """One request over HTTP."""

    protocol_version = "HTTP/1.1"
    journal: Path
    kind: str
    events: "queue.Queue[bytes]" = queue.Queue()

    def do_GET(self) -> None:
        """The stream of legacy SSE; other servers of these have none."""
        if self.kind != "sse":
            self.send_error(405)
            return
        self._head("text/event-stream")
        self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
        while True:
            self.wfile.write(b"event: message\ndata: " + self.events.get() + b"\n\n")

    def do_POST(self) -> None:
        """One message."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message or self.kind == "sse":
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
        if "id" not in message:
            return
        if self.kind == "sse":
            # The connection is used for the next message meanwhile.
            threading.Thread(
                target=lambda: self.events.put(answered(self.journal, message)), daemon=True
            ).start()
            return
        body = answered(self.journal, message)
        if self.kind == "stream":
            self._head("text/event-stream")
            self.wfile.write(b"event: message\ndata: " + body + b"\n\n")
        else:
            self._head("application/json", len(body))
            self.wfile.write(body)

    def _head(self, kind: str, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


def main() -> None:
    """Run as `payments.py JOURNAL TRANSPORT`; over HTTP the port is printed first."""
    journal, kind = Path(sys.argv[1]), sys.argv[2]
    if kind == "stdio":
        serve_stdio(journal)
        return
    Handler.journal, Handler.kind = journal, kind
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
