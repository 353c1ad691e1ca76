"""An MCP server over stdio or legacy SSE that records what it reads, its arguments and its variables."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from testkit.servers import jsonrpc, raw_http
from testkit.servers.jsonrpc import Message
from testkit.servers.raw_http import RawRequest


class TrafficRecorder:
    """Appends what arrives to a file, and answers as the smallest server does."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self.note({"argv": sys.argv, "environ": dict(os.environ)})

    def note(self, row: object) -> None:
        """One more line."""
        jsonrpc.append_line(self._record, json.dumps(row))

    def answer(self, message: Message) -> jsonrpc.Answer:
        """The answer to a request."""
        results: Message = {
            "initialize": jsonrpc.greeting("recorder", "2025-06-18", tools={}, resources={}, prompts={}),
            "tools/list": jsonrpc.tools("echo"),
            "tools/call": jsonrpc.text("recorded"),
            "resources/list": {"result": {"resources": [{"uri": "file:///one", "name": "one"}]}},
            "resources/read": {"result": {"contents": [{"uri": "file:///one", "text": "recorded"}]}},
            "prompts/list": {"result": {"prompts": [{"name": "ask"}]}},
            "prompts/get": {"result": {"messages": []}},
            "ping": {"result": {}},
        }
        found: Message = results.get(message["method"]) or jsonrpc.unknown_method(message)
        return found


async def serve_sse(recorder: TrafficRecorder) -> None:
    """Serve one stream at a time; the port is printed first."""
    streams: list[RawRequest] = []

    async def handle(request: RawRequest) -> None:
        recorder.note({"head": request.head, "body": request.body.decode()})
        if request.method == "GET":
            streams.append(request)
            request.open_stream()
            await request.send_event(b"/messages", "endpoint")
            return
        await request.send(b"", 202)
        message = json.loads(request.body) if request.body else {}
        if "id" in message:
            answer = recorder.answer(message)
            assert answer is not None
            await streams[-1].send_event(jsonrpc.encode(message["id"], answer))

    await raw_http.serve(handle)


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
        jsonrpc.serve_stdio(recorder.answer, each=lambda line: recorder.note({"stdin": line.decode()}))
