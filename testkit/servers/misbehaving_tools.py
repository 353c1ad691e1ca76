"""The tools of the rogue stdio server: each is one way to break a promise of the transport."""

import itertools
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from testkit import payload
from testkit.servers import jsonrpc
from testkit.servers.jsonrpc import ToolTable


class Wire(Protocol):
    """What a tool may do to the connection that its call came from."""

    reading: bool
    held: list["Call"]
    held_at: float
    most_held: int
    awaiting_cancel: dict[bytes, "Call"]


class Call:
    """One request, with the ways to answer it."""

    def __init__(
        self, wire: Wire, request_id: bytes, name: str, raw_arguments: bytes, token: str | int | None
    ) -> None:
        self.wire = wire
        self.request_id = request_id
        self.name = name
        self.raw_arguments = raw_arguments
        self.token = token

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, decoded only by the tools that look at them."""
        return msgspec.json.decode(self.raw_arguments, type=dict[str, Any])

    def envelope(self, result: bytes) -> bytes:
        """The line that answers this call with the raw `result`, without its newline."""
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (self.request_id, result)

    def reply_raw(self, result: bytes) -> None:
        """Answer with these bytes as the result."""
        jsonrpc.write(self.envelope(result) + b"\n")

    def reply(self, result: object) -> None:
        """Answer with an encoded value."""
        self.reply_raw(msgspec.json.encode(result))

    def reply_text(self, text: str) -> None:
        """Answer as a tool that has one text to say."""
        self.reply_raw(text_result(text))

    def fail(self, code: int, message: str) -> None:
        """Answer with a JSON-RPC error."""
        error = msgspec.json.encode({"code": code, "message": message})
        jsonrpc.write(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (self.request_id, error))

    def progress(self, done: int) -> None:
        """Send one progress notification for this call, if the caller asked for it."""
        if self.token is not None:
            params = {"progressToken": self.token, "progress": done}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            jsonrpc.write(msgspec.json.encode(note) + b"\n")


def text_result(text: str) -> bytes:
    """The raw result of a tool that answers with one text."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})


def structured(value: bytes) -> bytes:
    """The raw result of a tool whose structuredContent holds the raw `value`."""
    return b'{"content":[],"structuredContent":{"value":%b}}' % value


TOOLS: ToolTable[Call] = ToolTable()


@TOOLS.add(quick=True)
def echo(call: Call) -> None:
    """Answer with the argument `text`."""
    call.reply_text(call.arguments.get("text", ""))


@TOOLS.add(quick=True)
def echo_arguments(call: Call) -> None:
    """Answer with the arguments exactly as their bytes arrived."""
    call.reply_raw(structured(call.raw_arguments))


@TOOLS.add(quick=True)
def pid(call: Call) -> None:
    """Answer with the process id of this server."""
    call.reply_text(str(os.getpid()))


@TOOLS.add(quick=True)
def canary(call: Call) -> None:
    """Answer with what the caller marked its call with."""
    call.reply_text(f"canary-{call.arguments['caller']}-{call.arguments['sequence']}")


@TOOLS.add(quick=True)
def never_answer(call: Call) -> None:
    """Take the call and say nothing."""


@TOOLS.add()
def progress_forever(call: Call) -> None:
    """Report progress five times a second and never finish."""
    for done in range(1_000_000):
        call.progress(done)
        time.sleep(0.2)


@TOOLS.add()
def kill_self(call: Call) -> None:
    """Die by SIGKILL in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)


@TOOLS.add()
def exit_mid_line(call: Call) -> None:
    """Write half of the answer and exit."""
    line = call.envelope(text_result("never complete"))
    jsonrpc.write(line[: len(line) // 2])
    os._exit(3)


@TOOLS.add()
def close_stdout(call: Call) -> None:
    """Close stdout and stay alive."""
    os.close(1)


@TOOLS.add()
def stop_reading(call: Call) -> None:
    """Never read stdin again and stay alive."""
    call.wire.reading = False
    call.reply_text("no longer reading")


NOISE_LINES = (
    b"\x1b[31mWARN\x1b[0m ready",
    b"",
    b"   ",
    b"plain log line",
    b'{"level":"info"}',
    b"[1,2]",
    b"42",
)


@TOOLS.add()
def noise(call: Call) -> None:
    """Print log lines, colours, blank lines and JSON that is no message around the answer."""
    for line in NOISE_LINES:
        jsonrpc.write(line + b"\n")
    call.reply_text("through the noise")
    for line in NOISE_LINES:
        jsonrpc.write(line + b"\n")


@TOOLS.add()
def invalid_utf8(call: Call) -> None:
    """Answer with a byte that is no UTF-8 inside the text."""
    call.reply_raw(text_result("broken @ here").replace(b"@", b"\xff"))


@TOOLS.add()
def big_line(call: Call) -> None:
    """Answer with one text of `size` bytes, all on one line."""
    start, end = call.envelope(b'{"content":[{"type":"text","text":"@"}]}').split(b"@")
    jsonrpc.write_all(itertools.chain([start], payload.filler(call.arguments["size"]), [end + b"\n"]))


@TOOLS.add()
def from_file(call: Call) -> None:
    """Answer with the bytes of the file `path` as the result."""
    start, end = call.envelope(b"@").split(b"@")
    with Path(call.arguments["path"]).open("rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        jsonrpc.write_all(itertools.chain([start], blocks, [end + b"\n"]))


@TOOLS.add(quick=True)
def private(call: Call) -> None:
    """Answer with `lines` lines, all with a mark that no other answer has."""
    mark = f"private-{secrets.token_hex(8)}"
    call.reply_text("\n".join(f"{mark} line {number}" for number in range(call.arguments["lines"])))


@TOOLS.add()
def no_newline(call: Call) -> None:
    """Write `size` bytes without a newline, noting in `progress_file` how many were taken."""
    arguments = call.arguments
    block = b"x" * (1 << 20)
    noted = os.open(arguments["progress_file"], os.O_CREAT | os.O_WRONLY, 0o600)

    def blocks() -> Iterator[bytes]:
        for sent in range(0, arguments["size"], len(block)):
            os.pwrite(noted, b"%020d" % sent, 0)
            yield block

    jsonrpc.write_all(blocks())


@TOOLS.add()
def drip(call: Call) -> None:
    """Answer one byte every 10 ms."""

    def drops() -> Iterator[bytes]:
        for byte in call.envelope(text_result("drop by drop, for about two seconds " * 4)) + b"\n":
            yield bytes([byte])
            time.sleep(0.01)

    jsonrpc.write_all(drops())


@TOOLS.add()
def unknown_id(call: Call) -> None:
    """Answer an unknown request, then the one that was made."""
    jsonrpc.write(b'{"jsonrpc":"2.0","id":987654321,"result":{"content":[]}}\n')
    jsonrpc.write(b'{"jsonrpc":"2.0","id":"nobody","result":{"content":[]}}\n')
    call.reply_text("the one that was asked for")


@TOOLS.add()
def duplicate_reply(call: Call) -> None:
    """Answer twice, differently."""
    call.reply_text("first")
    call.reply_text("second")


@TOOLS.add(quick=True)
def reply_after_cancel(call: Call) -> None:
    """Answer only once the call has been cancelled."""
    call.wire.awaiting_cancel[call.request_id] = call


@TOOLS.add(quick=True)
def out_of_order(call: Call) -> None:
    """Keep calls until `together` are in flight or none came for 0.3 s, then answer them shuffled."""
    wire = call.wire
    with _HOLDING:
        wire.held.append(call)
        wire.held_at = time.monotonic()
        held = len(wire.held)
    if held >= call.arguments["together"]:
        _release(wire)
    elif held == 1:
        threading.Thread(target=_release_when_idle, args=(wire,), daemon=True).start()


_HOLDING = threading.Lock()


def _release_when_idle(wire: Wire) -> None:
    while wire.held and time.monotonic() - wire.held_at < 0.3:
        time.sleep(0.05)
    _release(wire)


def _release(wire: Wire) -> None:
    with _HOLDING:
        calls, wire.held = wire.held, []
        wire.most_held = max(wire.most_held, len(calls))
    random.shuffle(calls)
    for call in calls:
        call.reply_text(f"number {call.arguments['number']} of {wire.most_held}")


@TOOLS.add()
def batch_reply(call: Call) -> None:
    """Answer with a batch array, which this protocol version does not have."""
    jsonrpc.write(b"[" + call.envelope(text_result("in a batch")) + b"]\n")


@TOOLS.add()
def null_id_error(call: Call) -> None:
    """Answer with an error whose id is null."""
    jsonrpc.write(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n')


@TOOLS.add()
def deep(call: Call) -> None:
    """Answer with `levels` nested arrays."""
    call.reply_raw(structured(payload.deep(call.arguments["levels"])))


@TOOLS.add()
def big_int(call: Call) -> None:
    """Answer with an integer of 5,000 digits."""
    call.reply_raw(structured(payload.big_integer()))


@TOOLS.add()
def lone_surrogate(call: Call) -> None:
    """Answer with half of a surrogate pair."""
    call.reply_raw(structured(b'"\\ud800"'))


@TOOLS.add()
def not_a_number(call: Call) -> None:
    """Answer with the literal given, `NaN` or `Infinity`, which JSON does not have."""
    call.reply_raw(structured(call.arguments["literal"].encode()))


@TOOLS.add()
def big_numbers(call: Call) -> None:
    """Answer with numbers and duplicate keys that a parser would change."""
    call.reply_raw(structured(payload.NUMBERS))


@TOOLS.add()
def stderr_flood(call: Call) -> None:
    """Write `size` bytes to stderr, then answer."""
    block = (b"flood " * 20 + b"\n") * 512
    left = call.arguments["size"]
    while left > 0:
        left -= os.write(2, block)
    call.reply_text("flooded")


@TOOLS.add()
def fork_children(call: Call) -> None:
    """Start `count` grandchildren that outlive everything but SIGKILL, and answer with their ids.

    `detached` ones are in sessions of their own, every second one without a parent.
    """
    sleeper = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    command, detached = [sys.executable, "-c", sleeper], call.arguments.get("detached", False)
    children = [
        _orphan(command) if detached and number % 2 else _child(command, detached=detached)
        for number in range(call.arguments["count"])
    ]
    call.reply_text(" ".join(map(str, children)))


def _child(command: list[str], *, detached: bool) -> int:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=detached).pid


def _orphan(command: list[str]) -> int:
    """A process whose parent has ended, in a session of its own."""
    script = f"import subprocess; print(subprocess.Popen({command!r}, stdout=subprocess.DEVNULL).pid)"
    between = [sys.executable, "-c", script]
    done = subprocess.run(between, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
                          check=True)  # fmt: skip
    return int(done.stdout)
