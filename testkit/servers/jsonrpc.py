"""What the servers of the standard library share: the loop on stdio, the handshake, how answers are written.

A server is a function from a request to its answer. An answer is the members `result` or `error` of the
response, as a dictionary or as the bytes that stand between `"id":1,` and the closing brace; None is silence.
"""

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

Message = dict[str, Any]
Answer = Message | bytes | None
Handler = Callable[[Message], Answer]
CallT = TypeVar("CallT")

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


def write(*blocks: bytes) -> None:
    """Write bytes to stdout with nothing of another answer between them."""
    write_all(blocks)


def write_all(blocks: Iterable[bytes]) -> None:
    """Write blocks to stdout as they are made, with nothing of another answer between them."""
    with _output:
        for block in blocks:
            view = memoryview(block)
            while view:
                view = view[os.write(1, view) :]


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

    for line in lines():
        if each is not None:
            each(line)
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if threads:
            threading.Thread(target=reply, args=(message,), daemon=True).start()
        else:
            reply(message)


def lines() -> Iterator[bytes]:
    """The lines of stdin until it ends, without blank ones."""
    return (line for line in sys.stdin.buffer if line.strip())


class ToolTable(Generic[CallT]):
    """Tools by name: functions that answer a call by themselves, or do not."""

    def __init__(self) -> None:
        self._tools: dict[str, Callable[[CallT], None]] = {}
        self._quick: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def add(self, *, quick: bool = False) -> Callable[[Callable[[CallT], None]], Callable[[CallT], None]]:
        """Add a function by its name; a quick one runs in the reader's thread, so it answers in order."""

        def register(run: Callable[[CallT], None]) -> Callable[[CallT], None]:
            self._tools[run.__name__] = run
            if quick:
                self._quick.add(run.__name__)
            return run

        return register

    def start(self, name: str, call: CallT, guard: Callable[..., None] | None = None) -> None:
        """Run a tool, or let `guard` run it with the call."""
        run = self._tools[name]
        target = run if guard is None else partial(guard, run)
        if name in self._quick:
            target(call)
        else:
            threading.Thread(target=target, args=(call,), daemon=True).start()

    def definitions(self) -> list[Message]:
        """What tools/list says of them."""
        return [{"name": name, "inputSchema": {"type": "object"}} for name in self]


def append_line(path: Path | str | None, line: str) -> None:
    """Append a line to the record of a server that keeps one."""
    if path:
        with Path(path).open("a", encoding="utf-8") as record:
            record.write(line + "\n")


def log_start(path: Path | str | None) -> None:
    """Append pid and time of this start to the log of starts, if there is one."""
    append_line(path, f"{os.getpid()} {time.monotonic():.6f}")


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
