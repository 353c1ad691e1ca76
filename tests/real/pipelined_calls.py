"""Many calls at once: requests go out on one connection without waiting for the answers to others."""

import json
import socket
from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import urlsplit

from testkit.clients.plain_http import MODERN
from testkit.clients.streaming_http import ANSWER_SECONDS, ENVELOPE

# Enough to keep both sides busy, and far less than what would fill the buffers between them.
AT_ONCE = 50


def call_all(url: str, calls: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The answer to each call of a tool, given by its name and arguments, in order."""
    place = urlsplit(url)
    assert place.hostname is not None
    address = (place.hostname, place.port or 80)
    with socket.create_connection(address, ANSWER_SECONDS) as line, line.makefile("rb") as answers:
        for start in range(0, len(calls), AT_ONCE):
            some = calls[start : start + AT_ONCE]
            line.sendall(b"".join(_request(place.netloc, place.path, *call) for call in some))
            for _ in some:
                yield json.loads(_body(answers))


def _request(host: str, path: str, name: str, arguments: dict[str, Any]) -> bytes:
    params = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = {
        "Host": host,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{key}: {value}\r\n" for key, value in head.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def _body(answers: IO[bytes]) -> bytes:
    status = answers.readline()
    assert status.startswith(b"HTTP/1.1 200"), status
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    assert length, "the answer has no length"
    return answers.read(length)
