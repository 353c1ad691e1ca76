"""A load generator in a process of its own: closed loop or open loop, on raw keep-alive connections."""

import asyncio
import contextlib
import math
import os
import resource
import sys
import time
from collections import deque
from pathlib import Path

import msgspec

from testkit import procfs
from testkit.clients.async_http import Client

_ROOT = Path(__file__).resolve().parent.parent
# A request without a response for so long has failed.
_RESPONSE_SECONDS = 30.0
# How old the waits for a CPU may be that a latency is corrected by.
_SAMPLE_SECONDS = 0.0005


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to send.

    Without a `rate` each connection sends the next request when the last is answered, after `pause_seconds`.
    With one, requests begin at that rate, whatever comes back, on as many connections as it takes.
    """

    port: int
    tool: str
    arguments: dict[str, str | float | int]
    connections: int
    seconds: float
    rate: float = 0.0
    pause_seconds: float = 0.0
    # Processes whose waits for a CPU are no part of a latency, nor are those of the generator.
    pids: list[int] = []
    # A session for each connection, so that each is an agent of its own; or one session for all of them.
    sessions: str = "none"


class Tally(msgspec.Struct):
    """What came back: latencies in microseconds of what was served and of what was shed, and the rest."""

    served: list[int] = []
    shed: list[int] = []
    # Those that were shed without a time to come back.
    without_retry_after: int = 0
    errors: list[str] = []
    # How many failed, of which `errors` has the first.
    failed: int = 0
    # Requests of an open loop that had no connection when their time came.
    unsent: int = 0
    # How many each connection got served.
    per_connection: list[int] = []
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Served requests per second."""
        return len(self.served) / self.seconds

    def milliseconds(self, share: float) -> float:
        """The latency within which this share of the requests was served."""
        return quantile(self.served, share)

    def shed_milliseconds(self, share: float) -> float:
        """The latency within which this share of the shed requests was refused."""
        return quantile(self.shed, share)


def quantile(microseconds: list[int], share: float) -> float:
    """In milliseconds; 0 of nothing."""
    if not microseconds:
        return 0.0
    ordered = sorted(microseconds)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] / 1000


def merged(tallies: list[Tally]) -> Tally:
    """What several processes saw in the same time."""
    return Tally(
        served=[one for tally in tallies for one in tally.served],
        shed=[one for tally in tallies for one in tally.shed],
        without_retry_after=sum(tally.without_retry_after for tally in tallies),
        errors=[one for tally in tallies for one in tally.errors],
        failed=sum(tally.failed for tally in tallies),
        unsent=sum(tally.unsent for tally in tallies),
        per_connection=[one for tally in tallies for one in tally.per_connection],
        seconds=max(tally.seconds for tally in tallies),
        cpu_seconds=sum(tally.cpu_seconds for tally in tallies),
    )


async def generate(job: Job) -> Tally:
    """Run one job in a process of its own, which ends with this task."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "campaign.load_client", msgspec.json.encode(job).decode()),
        cwd=_ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        told, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return msgspec.json.decode(told, type=Tally)


def raise_file_limit() -> int:
    """As many open files as this process may have; returns how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, generator: "_Generator", request: bytes) -> None:
        self._generator = generator
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._expected = 0
        self.started = 0.0
        self.served = 0
        self._waited: tuple[float, ...] = ()

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.started:
            self._generator.fail(self, f"connection lost: {exc!r}")

    def send(self) -> None:
        """Send the next request."""
        assert self._transport
        self.started = time.monotonic()
        self._waited = self._generator.waited(self.started)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._expected:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            start = head.find(b"content-length:")
            self._expected = end + 4 + (int(head[start + 15 :].split(b"\r\n", 1)[0]) if start > 0 else 0)
        if len(self._buffer) >= self._expected:
            answer, self._buffer, self._expected = self._buffer, b"", 0
            started, self.started = self.started, 0.0
            now = time.monotonic()
            # Several may have waited at the same time, so that their sum would be too much.
            waited = max(map(float.__sub__, self._generator.waited(now), self._waited))
            self._generator.judge(self, answer, max(0.0, now - started - waited))

    def close(self) -> None:
        """Drop the connection."""
        self.started = 0.0
        if self._transport is not None:
            self._transport.abort()


class _Generator:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._end = math.inf
        self._idle: deque[_Connection] = deque()
        self._connections: list[_Connection] = []
        self._sampled_at = 0.0
        self._sample: tuple[float, ...] = ()
        self._pids = (os.getpid(), *job.pids)
        self.tally = Tally()

    async def run(self) -> Tally:
        await self._connect()
        began, cpu = time.monotonic(), time.process_time()
        self._end = began + self._job.seconds
        if self._job.rate:
            await self._open_loop(began)
        else:
            for one in self._connections:
                one.send()
            await asyncio.sleep(self._job.seconds)
        await self._drain()
        self.tally.seconds = self._job.seconds
        self.tally.cpu_seconds = time.process_time() - cpu
        self.tally.per_connection = [one.served for one in self._connections]
        return self.tally

    def waited(self, now: float) -> tuple[float, ...]:
        """For how long each process on the way had no CPU, since it began."""
        if now - self._sampled_at > _SAMPLE_SECONDS:
            self._sampled_at = now
            self._sample = tuple(procfs.turns(pid)[1] for pid in self._pids)
        return self._sample

    async def _connect(self) -> None:
        job, client = self._job, Client(self._job.port, modern=self._job.sessions == "none")
        for number in range(job.connections):
            if job.sessions == "each" or (job.sessions == "one" and number == 0):
                client = Client(job.port, modern=False)
                await client.open()
                client.close()
            request = client.call_request(job.tool, msgspec.json.encode(job.arguments))
            one = _Connection(self, request)
            await self._loop.create_connection(lambda one=one: one, "127.0.0.1", job.port)  # type: ignore[misc]
            self._connections.append(one)
        self._idle.extend(self._connections)

    async def _open_loop(self, began: float) -> None:
        """Begin as many requests as are due, and never wait for an answer."""
        begun = 0
        while (now := time.monotonic()) < self._end:
            due = int((now - began) * self._job.rate)
            while begun < due:
                begun += 1
                if self._idle:
                    self._idle.popleft().send()
                else:
                    self.tally.unsent += 1
            await asyncio.sleep(0.001)

    async def _drain(self) -> None:
        """Wait for what is under way, which counts; what does not come has failed."""
        latest = time.monotonic() + _RESPONSE_SECONDS
        while any(one.started for one in self._connections) and time.monotonic() < latest:
            await asyncio.sleep(0.01)
        for one in self._connections:
            if one.started:
                self.fail(one, f"no response within {_RESPONSE_SECONDS:g} s")
            one.close()

    def judge(self, one: _Connection, answer: bytes, seconds: float) -> None:
        """Count one response, and go on."""
        took = int(seconds * 1e6)
        if answer.startswith(b"HTTP/1.1 200") and b'"isError":true' not in answer and b'"result"' in answer:
            one.served += 1
            self.tally.served.append(took)
        elif _is_shed(answer):
            self.tally.shed.append(took)
            told = b"retry-after:" in answer.lower() or b'"retry_after_seconds":' in answer
            self.tally.without_retry_after += not told
        else:
            self.fail(one, repr(answer[:400]))
        self._next(one)

    def _next(self, one: _Connection) -> None:
        if self._job.rate:
            self._idle.append(one)
        elif not self._job.pause_seconds:
            self._again(one)
        else:
            self._loop.call_later(self._job.pause_seconds, self._again, one)

    def _again(self, one: _Connection) -> None:
        if time.monotonic() < self._end and one.open:
            one.send()

    def fail(self, one: _Connection, what: str) -> None:
        """Count a request that failed."""
        one.started = 0.0
        self.tally.failed += 1
        if len(self.tally.errors) < 5:
            self.tally.errors.append(what)


def _is_shed(answer: bytes) -> bool:
    return (
        answer.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503"))
        or b'"RESOURCE_EXHAUSTED"' in answer
        or b'"RATE_LIMIT"' in answer
    )


async def _main() -> None:
    raise_file_limit()
    job = msgspec.json.decode(sys.argv[1], type=Job)
    tally = await _Generator(job).run()
    sys.stdout.buffer.write(msgspec.json.encode(tally))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
