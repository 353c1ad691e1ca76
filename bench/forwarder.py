"""A bare raw-envelope forwarder: what the design costs with nothing in it. Frozen, see forwarder.sha256.

One stdio child, no session, no checks: a POST body is decoded into its envelope, the id is replaced,
the line goes to the child, and the raw result comes back under the caller's id.
"""

import argparse
import asyncio
import ctypes
import itertools
from typing import Any, Final

import msgspec
import uvicorn
import uvloop
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope


class Request(msgspec.Struct):
    """The envelope of what a client posts; an empty id means a notification."""

    jsonrpc: str
    method: msgspec.Raw
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Reply(msgspec.Struct):
    """The envelope of what the child answers."""

    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


decode_request: Final = msgspec.json.Decoder(Request).decode
decode_reply: Final = msgspec.json.Decoder(Reply).decode
JSON: Final = (b"content-type", b"application/json")
LARGE: Final = 1 << 16
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3


class Child(asyncio.SubprocessProtocol):
    """The stdio child: lines go in, answers are matched by id."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Reply]] = {}
        self._parts: list[bytes] = []

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Collect bytes until a line is whole, then wake its caller."""
        parts = self._parts
        end = data.find(b"\n")
        if end < 0:
            parts.append(data)
            return
        if not parts and end == len(data) - 1:
            # The usual case, one whole line in one read; the decoder does not mind the line's end.
            self._wake(data)
            return
        start = 0
        if parts:
            parts.append(data[: end + 1])
            self._wake(b"".join(parts))
            parts.clear()
            start = end + 1
            end = data.find(b"\n", start)
        # Slices of a view: the lines are decoded where they lie.
        view = memoryview(data)
        while end >= 0:
            self._wake(view[start:end])
            start = end + 1
            end = data.find(b"\n", start)
        if start < len(data):
            parts.append(data[start:])

    def _wake(self, line: bytes | memoryview) -> None:
        reply = decode_reply(line)
        if reply.id is not None and (future := self.waiting.pop(reply.id, None)) is not None:
            future.set_result(reply)


def application(child: Child, write: Any) -> ASGI3Application:
    """The ASGI callable in front of the child."""
    loop = asyncio.get_running_loop()
    waiting = child.waiting
    numbers = itertools.count(1)

    async def serve(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        event: Any = await receive()
        body = event["body"]
        while event["more_body"]:
            event = await receive()
            body += event["body"]
        request = decode_request(body)
        if not request.id:
            write(b'{"jsonrpc":"2.0","method":%b,"params":%b}\n' % (request.method, request.params))
            await send({"type": "http.response.start", "status": 202, "headers": [], "trailers": False})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        number = next(numbers)
        future = waiting[number] = loop.create_future()
        line = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}\n'
        write(line % (number, request.method, request.params))
        reply = await future
        if reply.result:
            head = b'{"jsonrpc":"2.0","id":%b,"result":' % request.id
            rest: Any = reply.result
        else:
            head = b'{"jsonrpc":"2.0","id":%b,"error":' % request.id
            rest = reply.error
        length = len(rest)
        headers = [JSON, (b"content-length", b"%d" % (len(head) + length + 1))]
        await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": False})
        if length < LARGE:
            await send({"type": "http.response.body", "body": b"%b%b}" % (head, rest), "more_body": False})
            return
        # A large result is written where it lies, without being copied once more.
        view: Any = memoryview(rest)
        await send({"type": "http.response.body", "body": head, "more_body": True})
        await send({"type": "http.response.body", "body": view, "more_body": True})
        await send({"type": "http.response.body", "body": b"}", "more_body": False})

    return serve


async def main() -> None:
    """Start the child and serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    loop = asyncio.get_running_loop()
    transport, child = await loop.subprocess_exec(Child, *options.command, stderr=None)
    stdin: Any = transport.get_pipe_transport(0)
    config = uvicorn.Config(
        application(child, stdin.write),
        port=options.port,
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        date_header=False,
        server_header=False,
    )
    try:
        await uvicorn.Server(config).serve()
    finally:
        transport.close()


def keep_freed_memory() -> None:
    """Stop glibc from giving each freed 10 MB back to the kernel only to fault it in again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, 1 << 28)
        mallopt(M_MMAP_THRESHOLD, 1 << 25)


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(main())
