"""The HTTP side of the servers of the standard library, apart because of what its import costs."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testkit.servers.jsonrpc import Message


class HttpHandler(BaseHTTPRequestHandler):
    """One connection over HTTP; what a response looks like is up to the server."""

    protocol_version = "HTTP/1.1"
    # A response is two writes, and the second must not wait until the first was received.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer a request; a notification is accepted."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" in message and "method" in message:
            self.respond(message)
        else:
            self.send_body(202, b"")

    def do_GET(self) -> None:
        """Open the stream, if the server has one."""
        self.listen()

    def do_DELETE(self) -> None:
        """There are no sessions."""
        self.send_body(405, b"")

    def listen(self) -> None:
        """There is no stream."""
        self.send_body(405, b"")

    def respond(self, message: Message) -> None:
        """Send the response to one request."""
        raise NotImplementedError

    def send_body(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """Send a whole response."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


class HttpServer(ThreadingHTTPServer):
    """Takes many clients at once."""

    daemon_threads = True
    request_queue_size = 256


def serve_http(handler: type[HttpHandler]) -> None:
    """Serve on a free port of this machine until killed; the port is printed first."""
    with HttpServer(("127.0.0.1", 0), handler) as server:
        print(json.dumps({"port": server.server_port}), flush=True)
        server.serve_forever()
