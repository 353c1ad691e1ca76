"""Many connections that do nothing: idle event streams, and more clients than there are files (L04, L05)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import TypeVar

from campaign.load_client import quantile, raise_file_limit
from campaign.streams import EventStream, listen_request, open_stream
from campaign.trial import Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import load
from testkit.waiting import eventually

_KIB_PER_STREAM, _KIB_PER_CONNECTION = 64.0, 32.0
# At once, so that the driver is not what is measured.
_AT_A_TIME = 50
_FILES = 256
_ANSWER_SECONDS = 5.0

T = TypeVar("T")


def _groups(all_of_them: list[T]) -> list[list[T]]:
    return [all_of_them[start : start + _AT_A_TIME] for start in range(0, len(all_of_them), _AT_A_TIME)]


@case(
    "L04",
    "1,000 (200) idle streams: GET of sessions, `subscriptions/listen`, legacy SSE",
    "at most 64 KB and one file each; others are served; nothing is left of them",
    quick_seconds=60,
    full_seconds=120,
)
async def idle_streams(trial: Trial) -> None:
    """A stream on which nothing happens costs little, and nothing once it is closed."""
    raise_file_limit()
    count = trial.size(quick=200, full=1000)
    async with trial.gateway({"load": load()}) as gateway:
        usage, files = Usage(gateway), procfs.open_files(gateway.pid)
        callers = [Client(gateway.port, modern=number % 3 == 1) for number in range(count)]
        streams: list[EventStream] = []
        try:
            for group in _groups(list(enumerate(callers))):
                streams += await asyncio.gather(*(_listen(number, caller) for number, caller in group))
            opened = sum(stream.status == 200 for stream in streams)
            held = procfs.open_files(gateway.pid) - files
            each = usage.peak_growth_mib * 1024 / count
            trial.measure("open", f"{opened} of {count}")
            trial.measure("memory", each, "KB per stream")
            trial.measure("files", held)
            trial.check("all are open", opened == count, opened)
            trial.check(f"at most {_KIB_PER_STREAM:g} KB each", each <= _KIB_PER_STREAM, each)
            trial.check("one file each", count <= held <= count + 2 * _AT_A_TIME, held)
            trial.check("others are served", (await Client(gateway.port, modern=True).call("load_echo")).ok)
        finally:
            for stream in streams:
                stream.close()
        await _end_sessions(gateway, callers)
        seconds = await eventually(
            lambda: procfs.open_files(gateway.pid) <= files + 4, 10, "files to be closed"
        )
        trial.measure("closed after", seconds, "s")


async def _listen(number: int, caller: Client) -> EventStream:
    await caller.open()
    if caller.modern:
        request = caller.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    elif number % 3 == 0:
        request = listen_request(caller)
    else:
        request = http1.request(caller.port, "GET", "/sse", {"Accept": "text/event-stream"})
    caller.close()
    return await open_stream(caller.port, request)


async def _end_sessions(gateway: AsyncGatewayProcess, callers: list[Client]) -> None:
    for caller in callers:
        if caller.session:
            headers = {"Mcp-Session-Id": caller.session}
            await caller.exchange(http1.request(gateway.port, "DELETE", "/mcp", headers))
        caller.close()


class _Crowd:
    """Connections that ask for /health once, and then stay."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections: list[http1.Connection] = []
        self.microseconds: list[int] = []
        self.served = 0
        self.shed = 0
        self.silent: list[str] = []

    async def come(self, count: int) -> None:
        """So many more."""
        for group in _groups(list(range(count))):
            await asyncio.gather(*(self._one() for _ in group))

    async def _one(self) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                connection = await http1.connect(self._port)
                self.connections.append(connection)
                status = (await connection.exchange(http1.request(self._port, "GET", "/health"))).status
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            self.silent.append(repr(error))
            return
        self.microseconds.append(int((time.monotonic() - started) * 1e6))
        self.served += status == 200
        self.shed += status == 503

    def leave(self) -> None:
        """All of them."""
        for connection in self.connections:
            connection.close()


@contextlib.asynccontextmanager
async def _crowd(port: int) -> AsyncIterator[_Crowd]:
    crowd = _Crowd(port)
    try:
        yield crowd
    finally:
        crowd.leave()


@case(
    "L05",
    "10,000 (1,500) connections that stay, and twice as many clients as there are files",
    "all that fit are answered; those that do not get 503 within 5 s; existing ones are served",
    quick_seconds=80,
    full_seconds=180,
)
async def many_connections(trial: Trial) -> None:
    """Connections cost little; the limit of the system refuses new ones and hurts no other."""
    room = raise_file_limit() - 500
    count = min(room, trial.size(quick=1500, full=10_000))
    async with trial.gateway({"load": load()}) as gateway, _crowd(gateway.port) as crowd:
        usage = Usage(gateway)
        await crowd.come(count)
        each = usage.peak_growth_mib * 1024 / count
        trial.measure("open", f"{crowd.served} of {count}")
        trial.measure("accept", _latency(crowd))
        trial.measure("memory", each, "KB per connection")
        trial.check("all are answered", crowd.served == count, f"{crowd.served}, {crowd.silent[:1]}")
        trial.check(f"at most {_KIB_PER_CONNECTION:g} KB each", each <= _KIB_PER_CONNECTION, each)
    await _beyond_the_limit(trial)


async def _beyond_the_limit(trial: Trial) -> None:
    async with trial.gateway({"load": load()}, ulimit=f"-n {_FILES}") as gateway:
        callers = [Client(gateway.port, modern=True) for _ in range(20)]
        before = [await caller.call("load_echo", {"text": "here"}) for caller in callers]
        async with _crowd(gateway.port) as crowd:
            coming = asyncio.create_task(crowd.come(2 * _FILES))
            worst, rounds = 0.0, 0
            while not coming.done() or not rounds:
                answers = [await caller.call("load_echo", {"text": "here"}) for caller in callers]
                worst, rounds = max(worst, *(answer.seconds for answer in answers)), rounds + 1
                trial.check("existing ones are served", all(answer.ok for answer in answers))
                await asyncio.sleep(0.05)
            await coming
            trial.measure(
                "at the limit", f"{crowd.served} served, {crowd.shed} refused, {len(crowd.silent)} silent"
            )
            trial.measure("existing ones", worst * 1000, "ms at most")
            trial.check("existing before", all(answer.ok for answer in before))
            trial.check("no more than there are files", 0 < crowd.served < _FILES, crowd.served)
            trial.check("the others are answered", not crowd.silent, crowd.silent[:1])
            trial.check("existing ones within 1 s", worst <= 1.0, worst)
        seconds = await eventually(lambda: _accepts(gateway.port), 10, "new clients to be served")
        trial.measure("again after", seconds, "s")
        for caller in callers:
            caller.close()


async def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(1), http1.connected(port) as connection:
            return (await connection.exchange(http1.request(port, "GET", "/health"))).status == 200
    return False


def _latency(crowd: _Crowd) -> str:
    return f"p50 {quantile(crowd.microseconds, 0.5):.1f} p99 {quantile(crowd.microseconds, 0.99):.1f} ms"
