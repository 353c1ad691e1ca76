"""Interleaved calls of many callers with canaries and aborts: no caller may see another's data (A34)."""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable

from campaign.trial import Trial, Usage, case
from campaign.upstream_http import SPARE_FILES
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import canary, misbehaving_http

_CALLERS = 64
_ABORT_SHARE = 0.01
# Every sequence number has eight digits, so that prepared requests keep their length.
_FIRST_SEQUENCE = 10_000_000
_MARK = b"canary-"
_TOOLS = (
    "one_canary",
    "two_canary",
    "one_canary",
    "two_canary_progress",
    "web_canary",
    "two_canary",
    "one_canary",
)


class Tally:
    """What all callers saw together."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.started = 0
        self.answered = 0
        self.aborted = 0
        self.crossed = 0
        self.wrong: list[str] = []
        self.done = asyncio.Event()

    def take(self) -> bool:
        """Claim the next call; false when all are made."""
        if self.started >= self.total:
            return False
        self.started += 1
        return True

    def settle(self) -> None:
        """Tell the case when the last call has ended."""
        if self.answered + self.aborted >= self.total:
            self.done.set()


class Caller(asyncio.Protocol):
    """One caller: prepared requests, one at a time; each answer is searched for the canaries of others."""

    def __init__(self, tally: Tally, client: Client, dice: random.Random) -> None:
        self.tally = tally
        self.dice = dice
        self.port = client.port
        self.name = secrets.token_hex(6).encode()
        self.requests = [self._prepare(client, tool) for tool in _TOOLS]
        self.sequence = _FIRST_SEQUENCE
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.leaving = False

    def _prepare(self, client: Client, tool: str) -> tuple[list[bytes], int]:
        """A request cut at its two numbers (id and sequence), and how many canaries its answer holds."""
        progress = tool.endswith("progress")
        arguments = b'{"caller":"%b","sequence":%d}' % (self.name, _FIRST_SEQUENCE)
        request = client.call_request(tool, arguments, progress=progress)
        head, body = request.split(b"\r\n\r\n")
        start, end = body.index(b'"id":') + 5, body.index(b',"method"')
        grown = len(body) - (end - start) + 8
        head = head.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % grown)
        whole = head + b"\r\n\r\n" + body[:start] + b"%d" % _FIRST_SEQUENCE + body[end:]
        return whole.split(b"%d" % _FIRST_SEQUENCE), 2 if progress else 1

    async def connect(self) -> None:
        """Open a connection; the first call goes out as soon as it stands."""
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self.port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin on a fresh connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.leaving = transport, False
        self.buffer.clear()
        self._call()

    def connection_lost(self, exc: Exception | None) -> None:
        """An abort of our own opens the next connection; any other end is a failure."""
        if self.leaving:
            return
        self.tally.wrong.append(f"connection lost: {exc!r}, {bytes(self.buffer[:200])!r}")
        self.tally.done.set()

    def data_received(self, data: bytes) -> None:
        """Collect the answer, judge it, go on."""
        self.buffer += data
        if not self.leaving and self._complete():
            self._judge(bytes(self.buffer))
            self.buffer.clear()
            self._call()

    def _call(self) -> None:
        assert self.transport
        if not self.tally.take():
            self.leaving = True
            self.transport.close()
            self.tally.settle()
            return
        self.sequence += 1
        parts, self.expected = self.requests[self.sequence % len(self.requests)]
        self.transport.write((b"%d" % self.sequence).join(parts))
        if self.dice.random() < _ABORT_SHARE:
            self.leaving = True
            delay = self.dice.choice((0.0, 0.0005, 0.002, 0.005))
            asyncio.get_running_loop().call_later(delay, self._abort)

    def _abort(self) -> None:
        assert self.transport
        self.transport.abort()
        # What arrived before the abort is looked at too.
        self._count_foreign(bytes(self.buffer))
        self.tally.aborted += 1
        self.tally.settle()
        self.connecting = asyncio.get_running_loop().create_task(self.connect())

    def _complete(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self.buffer[:end]).lower()
        at = head.find(b"content-length:")
        if at < 0:
            return self.buffer.endswith(b"0\r\n\r\n")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        return len(self.buffer) >= end + 4 + length

    def _judge(self, answer: bytes) -> None:
        own = b"canary-%b-%d" % (self.name, self.sequence)
        self.tally.answered += 1
        right = answer.startswith(b"HTTP/1.1 200") and b'"id":%d' % self.sequence in answer
        if answer.count(own) != self.expected or not right:
            self.tally.wrong.append(f"wanted {self.expected} x {own!r}: {answer[:600]!r}")
        self._count_foreign(answer)
        self.tally.settle()

    def _count_foreign(self, answer: bytes) -> None:
        if answer.count(_MARK) != answer.count(_MARK + self.name + b"-%d" % self.sequence):
            self.tally.crossed += 1
            self.tally.wrong.append(f"{self.name!r} {self.sequence} saw {answer[:600]!r}")


@case("A34", "10^6 interleaved calls, canaries, random aborts, one node", "crossings = 0, no answer lost",
      quick_seconds=60, full_seconds=1500)  # fmt: skip
async def canaries(trial: Trial) -> None:
    """Callers of both eras on three upstreams, ids that all use, one call in a hundred abandoned."""
    tally = Tally(trial.size(quick=20_000, full=1_000_000))
    async with misbehaving_http(trial.directory) as web:
        servers = {"one": canary(), "two": canary(), "web": web.entry()}
        # Each caller may leave a connection to the HTTP upstream behind.
        async with trial.gateway(servers, spare_files=SPARE_FILES + _CALLERS) as gateway:
            usage, started = Usage(gateway), time.monotonic()
            clients = [Client(gateway.port, modern=number % 2 == 0) for number in range(_CALLERS)]
            await asyncio.gather(*(one.open() for one in clients))
            callers = [Caller(tally, one, random.Random(number)) for number, one in enumerate(clients)]
            await asyncio.gather(*(caller.connect() for caller in callers))
            await _until(tally.done.is_set, tally)
            seconds = time.monotonic() - started
            for one in clients:
                one.close()
            trial.measure("calls", tally.answered + tally.aborted)
            trial.measure("aborted", tally.aborted)
            trial.measure("crossings", tally.crossed)
            trial.measure("rate", tally.answered / seconds, "calls/s")
            trial.measure("CPU", usage.cpu_seconds / tally.total * 1e6, "us per call")
            trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
            trial.check("no crossing", tally.crossed == 0, tally.wrong[:1])
            trial.check("every answer is right", not tally.wrong, tally.wrong[:2])
            trial.check("all calls ended", tally.answered + tally.aborted == tally.total)
            trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")


async def _until(done: Callable[[], bool], tally: Tally) -> None:
    """Wait for the end, but not for a call that hangs."""
    ended = -1
    while not done() and ended != tally.answered + tally.aborted:
        ended = tally.answered + tally.aborted
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await tally.done.wait()
