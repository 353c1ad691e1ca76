"""What the servers of the standard library share: the loop on stdio, the handshake, how answers are written.

A server is a function from a request to its answer. An answer is the members `result` or `error` of the
response, as a dictionary or as the bytes that stand between `"id":1,` and the closing brace; None is silence.
"""

import json
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Answer = Message | bytes | None
Handler = Callable[[Message], Answer]

HANDSHAKE_VERSION = "2025-11-25"
STATELESS_VERSION = "2026-07-28"
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
# A gateway that lost its test must not leave a child waiting for ever.
LONGEST_WAIT_SECONDS = 120.0
_LOOK_SECONDS = 0.02
_output = threading.Lock()


def greeting(name: str, version: str = HANDSHAKE_VERSION, **capabilities: Any) -> Message:
    """The answer to `initialize`."""
    result = {"protocolVersion": version, "capabilities": capabilities or {"tools": {}}}
    return {"result": result | {"serverInfo": {"name": name, "version": "1"}}}


def tools(*names: str) -> Message:
    """The answer to `tools/list` of tools that take any arguments."""
    return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}}


def text(*texts: str, **members: Any) -> Message:
    """The answer of a tool that has these texts to say."""
    content = [{"type": "text", "text": one} for one in texts]
    return {"result": {"content": content, **members}}


def error(code: int, message: str, **members: Any) -> Message:
    """An answer with an error."""
    return {"error": {"code": code, "message": message, **members}}


def unknown_method(message: Message) -> Message:
    """The answer to a request that the server does not know."""
    return error(METHOD_NOT_FOUND, f"Method not found: {message['method']}")


def answer_lifecycle(message: Message, name: str, listed: Message, **capabilities: Any) -> Message:
    """The answer to all but a call: the handshake, the list of tools, a ping."""
    match message["method"]:
        case "initialize":
            return greeting(name, **capabilities)
        case "tools/list":
            return listed
        case "ping":
            return {"result": {}}
    return unknown_method(message)


def encode(id: Any, answer: Message | bytes) -> bytes:
    """The whole response."""
    if isinstance(answer, dict):
        return json.dumps({"jsonrpc": "2.0", "id": id, **answer}).encode()
    return b'{"jsonrpc":"2.0","id":%b,%b}' % (json.dumps(id).encode(), answer)


def write(data: bytes) -> None:
    """Write bytes to stdout with nothing of another answer between them."""
    with _output:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def send(message: Message) -> None:
    """Write one message of the server's own."""
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def serve_stdio(
    handler: Handler, *, each: Callable[[bytes], object] | None = None, threads: bool = False
) -> None:
    """Answer each request until stdin ends; `each` sees every line first; with threads, several at once."""

    def reply(message: Message) -> None:
        answer = handler(message)
        if answer is not None:
            write(encode(message["id"], answer) + b"\n")

    for line in sys.stdin.buffer:
        if each is not None:
            each(line)
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if threads:
            threading.Thread(target=reply, args=(message,), daemon=True).start()
        else:
            reply(message)


def wait_for_file(path: Path) -> None:
    """Return once the file exists; end the process if its client leaves before."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    client = select.poll()
    client.register(sys.stdin, select.POLLHUP | select.POLLRDHUP)
    while not path.exists() and time.monotonic() < give_up_at:
        if client.poll(int(_LOOK_SECONDS * 1000)):
            sys.exit("the client has left")


def wait_while(condition: Callable[[], bool]) -> None:
    """Return once the condition does not hold any more, or after a while."""
    give_up_at = time.monotonic() + LONGEST_WAIT_SECONDS
    while condition() and time.monotonic() < give_up_at:
        time.sleep(_LOOK_SECONDS)
