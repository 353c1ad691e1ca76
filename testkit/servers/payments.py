"""A server that notes each payment in a file and answers with as many bytes as it is asked for.

    payments JOURNAL stdio|json|stream|sse

Over HTTP each answer is JSON, an event stream, or an event on the stream of legacy SSE.
"""

import queue
import sys
import threading
from pathlib import Path

from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import Message

PAY: Message = {
    "name": "pay",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer"},
            "wait_for": {"type": "string", "description": "a file: the answer waits until it is there"},
        },
    },
}


def main() -> None:
    """Serve; over HTTP the port is printed first."""
    journal, transport = Path(sys.argv[1]), sys.argv[2]
    if transport == "stdio":
        jsonrpc.serve_stdio(lambda message: answer(journal, message), threads=True)
    else:
        serve_http(journal, transport)


def answer(journal: Path, message: Message) -> Message:
    """The answer to one request."""
    if message["method"] == "tools/call":
        return pay(journal, message["params"]["arguments"])
    return jsonrpc.answer_lifecycle(message, "payments", {"result": {"tools": [PAY]}})


def pay(journal: Path, arguments: Message) -> Message:
    """Note the payment, wait if that is asked for, and answer."""
    with journal.open("a") as file:
        file.write(f"{arguments['name']}\n")
    if file_name := arguments.get("wait_for"):
        jsonrpc.wait_while(lambda: not Path(file_name).exists())
    return jsonrpc.text("x" * arguments.get("size", 1))


def serve_http(journal: Path, transport: str) -> None:
    """Serve one of the HTTP transports."""
    from testkit.servers import jsonrpc_http  # noqa: PLC0415 - a start on stdio does not pay for it

    events: queue.Queue[bytes] = queue.Queue()

    class PaymentHandler(jsonrpc_http.HttpHandler):
        def listen(self) -> None:
            if transport != "sse":
                super().listen()
                return
            self.open_stream()
            self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
            while True:
                self.wfile.write(b"event: message\ndata: " + events.get() + b"\n\n")

        def respond(self, message: Message) -> None:
            if transport == "sse":
                self.send_body(202, b"")
                # The connection is used for the next message meanwhile.
                threading.Thread(target=lambda: events.put(response(message)), daemon=True).start()
            elif transport == "stream":
                body = response(message)
                self.open_stream()
                self.wfile.write(b"event: message\ndata: " + body + b"\n\n")
            else:
                self.send_body(200, response(message))

        def open_stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()

    def response(message: Message) -> bytes:
        return jsonrpc.encode(message["id"], answer(journal, message))

    jsonrpc_http.serve_http(PaymentHandler)
