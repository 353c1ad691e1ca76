"""A client that sends prepared bytes and reads answers without looking at them, so that it costs little."""

import json
import socket
from types import TracebackType
from typing import Any, Final

from testkit.servers.prepared_answers import LEGACY

# A view of ten thousand tools takes seconds when it is made; nothing takes longer than this.
_SECONDS: Final = 120.0
_CHUNK: Final = 1 << 18
_END: Final = b"\r\n\r\n"


class Unreadable(Exception):
    """The other side said something that is no plain answer."""


class McpClient:
    """One connection to one path; `introduce` begins a session."""

    def __init__(self, port: int, path: str) -> None:
        self._path = path
        self._port = port
        self._session = ""
        self._socket = socket.create_connection(("127.0.0.1", port), _SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "McpClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def introduce(self) -> str:
        """Shake hands; the instructions. Raises Unreadable or OSError."""
        info = {"name": "headgate-bench", "version": "1.0"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        head, body = self.exchange(self.request("initialize", params))
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"mcp-session-id":
                self._session = value.strip().decode()
        self.exchange(self._http(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'))
        instructions: str = json.loads(body)["result"].get("instructions", "")
        return instructions

    def request(self, method: str, params: dict[str, Any], path: str | None = None) -> bytes:
        """The bytes of a request, to another path of the same server if one is named."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._http(json.dumps(message, separators=(",", ":")).encode(), path)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a tool. Raises Unreadable or OSError."""
        body = self.exchange(self.request("tools/call", {"name": tool, "arguments": arguments}))[1]
        answer = json.loads(body)
        if "result" not in answer:
            raise Unreadable(f"{tool}: {body[:300]!r}")
        result: dict[str, Any] = answer["result"]
        return result

    def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Send it; head and body of the answer. Raises Unreadable or OSError."""
        self._socket.sendall(request)
        pieces = [self._receive()]
        while _END not in pieces[0]:
            pieces[0] += self._receive()
        head, _, rest = pieces[0].partition(_END)
        missing = _length(head) - len(rest)
        pieces = [rest]
        while missing > 0:
            pieces.append(self._receive())
            missing -= len(pieces[-1])
        return head, b"".join(pieces)

    def _receive(self) -> bytes:
        data = self._socket.recv(_CHUNK)
        if not data:
            raise Unreadable("the connection was closed")
        return data

    def _http(self, body: bytes, path: str | None = None) -> bytes:
        headers = {
            "Host": f"127.0.0.1:{self._port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
        }
        if self._session:
            headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": LEGACY}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {path or self._path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    if head.split(b" ", 2)[1] in (b"202", b"204"):
        return 0
    raise Unreadable(f"an answer of unknown length: {head[:300]!r}")
