"""A stdio MCP server of the handshake era whose tools are named after the way in which they misbehave."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from testkit.servers.misbehaving_tools import TOOLS, Call, Tool

PROTOCOL_VERSION = "2025-06-18"
_READ_BYTES = 1 << 20


class Message(msgspec.Struct):
    """What is read of a line on stdin."""

    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"null")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class CallParams(msgspec.Struct):
    """What is read of the parameters of tools/call."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    _meta: dict[str, Any] = {}


class CancelParams(msgspec.Struct):
    """What is read of the parameters of notifications/cancelled."""

    request_id: msgspec.Raw = msgspec.field(name="requestId", default=msgspec.Raw(b"null"))


class MisbehavingStdioServer:
    """One connection: reads stdin, answers on stdout, keeps what the tools share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.reading = True
        self.held: list[Call] = []
        self.held_at = 0.0
        self.most_held = 0
        self.cancelled: set[bytes] = set()
        self.awaiting_cancel: dict[bytes, Call] = {}
        self.lock = threading.Lock()

    def serve(self) -> None:
        """Answer until stdin ends; with --ignore-eof, stay even then."""
        buffer = b""
        while self.reading:
            data = os.read(0, _READ_BYTES)
            if not data:
                break
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.strip():
                    self._receive(line)
        if self.options.ignore_eof or not self.reading:
            while True:
                time.sleep(3600)

    def write(self, data: bytes) -> None:
        """Write all of `data` to stdout as one unit."""
        self.write_all((data,))

    def write_all(self, blocks: Iterable[bytes]) -> None:
        """Write blocks to stdout with nothing of another call between them."""
        with self.lock:
            for block in blocks:
                view = memoryview(block)
                while view:
                    view = view[os.write(1, view) :]

    def note(self, line: str) -> None:
        """Append a line to the record, the ground truth of what was executed here."""
        if self.options.record:
            with Path(self.options.record).open("a") as record:
                record.write(line + "\n")

    def _receive(self, line: bytes) -> None:
        message = msgspec.json.decode(line, type=Message)
        if message.method == "tools/call":
            self._start(bytes(message.id), message.params)
        elif message.method == "notifications/cancelled":
            self._cancel(message.params)
        elif bytes(message.id) != b"null" and message.method and not self.options.hang:
            self._answer_lifecycle(message)

    def _start(self, request_id: bytes, params: msgspec.Raw) -> None:
        try:
            asked = msgspec.json.decode(params, type=CallParams)
        except msgspec.ValidationError as error:
            Call(self, request_id, "", b"{}", None).fail(-32602, str(error))
            return
        call = Call(self, request_id, asked.name, bytes(asked.arguments), asked._meta.get("progressToken"))
        self.note(f"call {asked.name} {time.monotonic():.6f} {call.raw_arguments.decode(errors='replace')}")
        tool = TOOLS.get(asked.name)
        if tool is None:
            call.fail(-32602, f"Unknown tool: {asked.name}")
        elif tool.quick:
            self._run(tool, call)
        else:
            threading.Thread(target=self._run, args=(tool, call), daemon=True).start()

    def _run(self, tool: Tool, call: Call) -> None:
        try:
            tool.run(call)
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            call.fail(-32602, f"Invalid arguments: {error!r}")

    def _cancel(self, params: msgspec.Raw) -> None:
        request_id = bytes(msgspec.json.decode(params, type=CancelParams).request_id)
        self.note(f"cancelled {request_id.decode()} {time.monotonic():.6f}")
        self.cancelled.add(request_id)
        call = self.awaiting_cancel.pop(request_id, None)
        if call is not None:
            call.reply_text("a reply after the cancellation")

    def _answer_lifecycle(self, message: Message) -> None:
        call = Call(self, bytes(message.id), message.method, b"{}", None)
        if message.method == "initialize":
            version = msgspec.json.decode(message.params).get("protocolVersion", PROTOCOL_VERSION)
            call.reply(
                {
                    "protocolVersion": version if version < "2026" else PROTOCOL_VERSION,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": self.options.name, "version": "1"},
                }
            )
            self._after_ready()
        elif message.method == "tools/list":
            call.reply({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        elif message.method == "ping":
            call.reply({})
        else:
            call.fail(-32601, f"Method not found: {message.method}")

    def _after_ready(self) -> None:
        if self.options.crash_after is not None:
            threading.Timer(self.options.crash_after, os._exit, args=(9,)).start()


def main() -> None:
    """Read the options, misbehave while starting if asked to, then serve."""
    options = _options()
    if options.spawn_log:
        with Path(options.spawn_log).open("a") as log:
            log.write(f"{os.getpid()} {time.monotonic():.6f}\n")
    if options.ignore_eof:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(options.start_delay)
    if options.exit_before_ready:
        sys.stderr.write(options.exit_before_ready + "\n")
        sys.exit(3)
    MisbehavingStdioServer(options).serve()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="rogue")
    parser.add_argument("--record", help="append every execution to this file")
    parser.add_argument("--spawn-log", help="append pid and time of each start to this file")
    parser.add_argument("--start-delay", type=float, default=0.0, help="seconds before the first read")
    parser.add_argument("--exit-before-ready", metavar="TEXT", help="print TEXT on stderr and exit")
    parser.add_argument("--crash-after", type=float, help="exit this many seconds after the handshake")
    parser.add_argument("--hang", action="store_true", help="never answer the handshake")
    parser.add_argument("--ignore-eof", action="store_true", help="outlive stdin and SIGTERM")
    return parser.parse_args()
