"""A stdio MCP server of either era that lists what a file tells it to, and talks more than it should."""

import argparse
import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from testkit import payload
from testkit.servers import jsonrpc
from testkit.servers.chatty_tools import TOOLS, Call

_META = "io.modelcontextprotocol/"
_LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
_CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


class ChattyServer:
    """One connection: reads stdin, answers on stdout, and asks whatever its tools want to know."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name = options.name
        self.stateless = options.era == "stateless"
        self.script: dict[str, Any] = (
            msgspec.json.decode(Path(options.script).read_bytes()) if options.script else {}
        )
        self.listening: list[Any] = []
        self._numbers = itertools.count(1)
        self._asked: dict[str, tuple[threading.Event, list[dict[str, Any]]]] = {}

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in jsonrpc.lines():
            self._receive(msgspec.json.decode(line))
        self.note(f"eof {time.monotonic():.6f}")
        if self.options.ignore_eof:
            while True:
                time.sleep(3600)

    # What is written.

    def write(self, data: bytes) -> None:
        """Write all of `data` to stdout as one unit."""
        jsonrpc.write(data)

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        self.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def note(self, line: str) -> None:
        """Append a line to the record, the ground truth of what happened here."""
        jsonrpc.append_line(self.options.record, line)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Put one question and wait for the message that answers it."""
        (ended, answers) = self.put(method, params, 1)
        ended.wait()
        return answers[0]

    def put(
        self, method: str, params: dict[str, Any], count: int
    ) -> tuple[threading.Event, list[dict[str, Any]]]:
        """Put so many questions at once; the event is set when all are answered."""
        ended, answers = threading.Event(), list[dict[str, Any]]()
        batch = f"{next(self._numbers)}-{count}"
        self._asked[batch] = (ended, answers)
        block = bytearray()
        for number in range(count):
            question = {"jsonrpc": "2.0", "id": f"{batch}/{number}", "method": method, "params": params}
            block += msgspec.json.encode(question) + b"\n"
            if len(block) > 1 << 16:
                self.write(bytes(block))
                block.clear()
        self.write(bytes(block))
        return ended, answers

    # What is read.

    def _receive(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            self._answered(str(request_id), message)
        elif request_id is None:
            self._told(method, message.get("params") or {})
        else:
            self._requested(method, request_id, message.get("params") or {})

    def _answered(self, request_id: str, message: dict[str, Any]) -> None:
        batch = request_id.partition("/")[0]
        if batch in self._asked:
            ended, answers = self._asked[batch]
            answers.append(message)
            if len(answers) >= int(batch.partition("-")[2]):
                ended.set()

    def _told(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            self.note(f"cancelled {params.get('requestId')} {time.monotonic():.6f}")
        elif method != "notifications/initialized":
            self.note(f"told {method} {time.monotonic():.6f}")

    def _requested(self, method: str, request_id: Any, params: dict[str, Any]) -> None:
        call = Call(self, request_id, method, params)
        if method == "tools/call":
            self._call(call)
        elif method in _LISTS:
            self._list(call, _LISTS[method])
        elif method in ("initialize", "server/discover"):
            self._greet(call)
        elif method == "resources/read":
            self._read(call)
        elif method == "prompts/get":
            text = {"type": "text", "text": f"{self.name}:{params['name']}"}
            call.reply({"messages": [{"role": "user", "content": text}]})
        elif method == "subscriptions/listen" and self.stateless:
            self._listen(call)
        elif method == "completion/complete":
            call.reply({"completion": {"values": [self.name]}})
        elif method.startswith("tasks/"):
            call.reply({"taskId": params.get("taskId"), "server": self.name})
        elif method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            call.reply({})
        else:
            call.fail(-32601, f"Method not found: {method}")

    def _call(self, call: Call) -> None:
        name = call.params["name"]
        self.note(f"call {name} {time.monotonic():.6f} {msgspec.json.encode(call.params).decode()[:500]}")
        if name in TOOLS:
            TOOLS.start(name, call)
        else:
            call.reply_text(f"{self.name}:{name}")

    def _greet(self, call: Call) -> None:
        era = self.options.era
        self.note(f"{call.method} {msgspec.json.encode(call.params.get('capabilities')).decode()[:2000]}")
        if call.method == "server/discover" and self.options.discover_error:
            data = {"supported": self.script.get("supported", [])}
            call.fail(self.options.discover_error, "Not like this", data)
        elif call.method == "server/discover" and era != "handshake":
            self.stateless = True
            call.reply(
                {
                    "supportedVersions": [jsonrpc.STATELESS_VERSION],
                    "ttlMs": 0,
                    "cacheScope": "private",
                    **self._self(),
                }
            )
        elif call.method == "initialize" and era != "stateless":
            self.stateless = False
            info = {"name": self.script.get("serverInfo", self.name), "version": "1"}
            call.reply({"protocolVersion": jsonrpc.HANDSHAKE_VERSION, "serverInfo": info, **self._self()})
        else:
            call.fail(-32601, f"Method not found: {call.method}")

    def _self(self) -> dict[str, Any]:
        told = {"capabilities": self.script.get("capabilities", _CAPABILITIES)}
        if "instructions" in self.script:
            told["instructions"] = self.script["instructions"]
        return told

    def _list(self, call: Call, member: str) -> None:
        self.note(f"list {call.method} {msgspec.json.encode(call.capabilities).decode()[:2000]}")
        items = [*self.script.get(member, [])]
        if member == "tools" and self.script.get("own_tools", True):
            items += TOOLS.definitions()
        result: dict[str, Any] = {member: items}
        cursor = call.params.get("cursor")
        match self.script.get("pages", {}).get(call.method):
            case "circle":
                # First a, then b, then a again, and so on.
                result["nextCursor"] = "b" if cursor == "a" else "a"
            case "same":
                result["nextCursor"] = "again"
            case "endless":
                result[member] = []
                result["nextCursor"] = str(int(cursor or 0) + 1)
        hints = self.script.get("hints", {"ttlMs": 0, "cacheScope": "private"})
        call.reply(result, hints)

    def _read(self, call: Call) -> None:
        uri = call.params["uri"]
        if uri.startswith("big://"):
            size = int(uri.partition("://")[2])
            start, end = call.encoded({"contents": [{"uri": uri, "text": "@"}]}).split(b"@")
            jsonrpc.write_all(itertools.chain([start], payload.filler(size), [end + b"\n"]))
        elif uri.startswith("gone://"):
            call.fail(-32002, "Resource not found", {"uri": uri})
        else:
            hints = self.script.get("read_hints", {"ttlMs": 0, "cacheScope": "private"})
            call.reply({"contents": [{"uri": uri, "text": f"{self.name}:{uri}"}]}, hints)

    def _listen(self, call: Call) -> None:
        self.listening.append(call.request_id)
        tag = {_META + "subscriptionId": call.request_id}
        params = {"_meta": tag, "notifications": call.params.get("notifications", {})}
        self.send({"method": "notifications/subscriptions/acknowledged", "params": params})


def main() -> None:
    """Read the options and serve."""
    options = _options()
    jsonrpc.log_start(options.spawn_log)
    talker = ChattyServer(options)
    if options.ignore_eof:
        signal.signal(signal.SIGTERM, lambda *_: talker.note(f"term {time.monotonic():.6f}"))
    if options.stderr:
        os.write(2, (options.stderr + "\n").encode())
    talker.serve()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=("handshake", "stateless", "both"), default="handshake")
    parser.add_argument("--name", default="talker")
    parser.add_argument("--script", help="a JSON file: what is listed, how, and what is said in the greeting")
    parser.add_argument("--record", help="append what happens to this file")
    parser.add_argument("--spawn-log", help="append pid and time of each start to this file")
    parser.add_argument("--discover-error", type=int, default=0, help="how server/discover is refused")
    parser.add_argument("--ignore-eof", action="store_true", help="outlive stdin and SIGTERM")
    parser.add_argument("--stderr", help="say this on stderr at the start")
    return parser.parse_args()
