"""A stdio MCP server of the handshake era whose tools are named after the way in which they misbehave."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from testkit.servers import jsonrpc
from testkit.servers.misbehaving_tools import TOOLS, Call

PROTOCOL_VERSION = "2025-06-18"


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

    def serve(self) -> None:
        """Answer until stdin ends; with --ignore-eof, stay even then."""
        for line in jsonrpc.lines():
            self._receive(line)
            if not self.reading:
                break
        if self.options.ignore_eof or not self.reading:
            while True:
                time.sleep(3600)

    def note(self, line: str) -> None:
        """Append a line to the record, the ground truth of what was executed here."""
        jsonrpc.append_line(self.options.record, line)

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
        if asked.name in TOOLS:
            TOOLS.start(asked.name, call, self._run)
        else:
            call.fail(-32602, f"Unknown tool: {asked.name}")

    def _run(self, run: Callable[[Call], None], call: Call) -> None:
        try:
            run(call)
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
            agreed = version if version < "2026" else PROTOCOL_VERSION
            call.reply(jsonrpc.greeting(self.options.name, agreed)["result"])
            self._after_ready()
        elif message.method == "tools/list":
            call.reply({"tools": TOOLS.definitions()})
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
    jsonrpc.log_start(options.spawn_log)
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
