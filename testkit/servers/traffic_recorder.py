"""An MCP server over stdio or legacy SSE that records what it reads, its arguments and its variables."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

PROTOCOL_VERSION = "2025-06-18"


class TrafficRecorder:
    """Appends what arrives to a file, and answers as the smallest server does."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self.note({"argv": sys.argv, "environ": dict(os.environ)})

    def note(self, row: object) -> None:
        """One more line."""
        with self._record.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request; None to a notification."""
        if "id" not in message:
            return None
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "recorder", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "recorded"}]},
            "resources/list": {"resources": [{"uri": "file:///one", "name": "one"}]},
            "resources/read": {"contents": [{"uri": "file:///one", "text": "recorded"}]},
            "prompts/list": {"prompts": [{"name": "ask"}]},
            "prompts/get": {"messages": []},
            "ping": {},
        }
        head = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] not in results:
            return head | {"error": {"code": -32601, "message": "Method not found"}}
        return head | {"result": results[message["method"]]}


def serve_stdio(recorder: TrafficRecorder) -> None:
    """Answer until stdin ends."""
    for line in sys.stdin.buffer:
        recorder.note({"stdin": line.decode()})
        answer = recorder.answer(json.loads(line))
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


async def serve_sse(recorder: TrafficRecorder) -> None:
    """Serve one stream at a time; the port is printed first."""
    streams: list[asyncio.StreamWriter] = []

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(length[0].partition(":")[2])) if length else b""
                recorder.note({"head": head, "body": body.decode()})
                if head.startswith("GET"):
                    streams.append(writer)
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    writer.write(b"event: endpoint\ndata: /messages\n\n")
                    continue
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                answer = recorder.answer(json.loads(body)) if body else None
                if answer is not None:
                    streams[-1].write(b"event: message\ndata: " + json.dumps(answer).encode() + b"\n\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(f'{{"port": {server.sockets[0].getsockname()[1]}}}', flush=True)
    await server.serve_forever()


def main() -> None:
    """Record into the file that the first argument names; other arguments are only recorded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--sse", action="store_true")
    options, _ = parser.parse_known_args()
    recorder = TrafficRecorder(options.record)
    if options.sse:
        asyncio.run(serve_sse(recorder))
    else:
        serve_stdio(recorder)
