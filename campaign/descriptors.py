"""A gateway that runs out of file descriptors (F37)."""

import asyncio
import re
import resource
import time

from campaign.bystander import bystander
from campaign.trial import WHOLE, Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import client
from testkit.misbehaving_upstreams import misbehaving
from testkit.waiting import eventually

_LIMIT = 64
# The listening socket stays readable all the time; a loop that asks it without a pause uses a whole core.
_WATCH_SECONDS = 2.0
_MOST_CPU_SHARE = 0.25
_RECOVERY_SECONDS = 5.0


class _Held:
    """Connections that are opened and not closed again, and what the gateway said on each at once."""

    def __init__(self) -> None:
        self.connections: list[http1.Connection] = []
        self.outcomes: dict[str, int] = {"held": 0, "answered": 0, "without an answer": 0}

    async def open(self, port: int, count: int) -> None:
        for _ in range(count):
            connection = await http1.connect(port)
            self.connections.append(connection)
            self.outcomes[await _heard(connection)] += 1

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


async def _heard(connection: http1.Connection) -> str:
    """What the gateway sends to a client that has only connected: nothing on a connection that it serves."""
    try:
        async with asyncio.timeout(0.03):
            status, headers = await connection.head()
    except TimeoutError:
        return "held"
    except (OSError, asyncio.IncompleteReadError):
        return "without an answer"
    return "answered" if status == 503 and "retry-after" in headers else "without an answer"


@case(
    "F37",
    "descriptors run out: `ulimit -n 64` and 200 connections, then not one left",
    "new clients get 503 with Retry-After, others are served, no busy loop, back within 5 s",
    quick_seconds=60,
)
async def no_descriptors(trial: Trial) -> None:
    """Connections are refused with an answer, first by the reserve, then by the one spare descriptor."""
    count = trial.size(quick=100, full=200)
    async with trial.gateway({"steady": misbehaving()}, settings=WHOLE, ulimit=f"-n {_LIMIT}") as gateway:
        async with bystander(trial, gateway, "steady_echo"), client(gateway.port) as caller:
            await _exhaust(trial, gateway, "reserve", count)
            # A message of 2 MiB goes by way of the disk, so that it needs a descriptor of its own.
            held = _Held()
            await held.open(gateway.port, count)
            answer = await caller.call("steady_big_line", {"size": 2 << 20})
            trial.check("a call that needs a file is answered", answer.ok, answer.outcome)
            held.close()
            await _recovered(trial, gateway, "reserve")
            # From here on the gateway may open three more files, and then not one.
            before = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
            most = procfs.open_files(gateway.pid) + 3
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (most, before[1]))
            await _exhaust(trial, gateway, "spare", count)
            await _recovered(trial, gateway, "spare")
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
        refused = re.search(
            r"^headgate_connections_refused_total (\d+)", await _metrics(gateway), re.MULTILINE
        )
        trial.check("refusals are counted", refused is not None and int(refused[1]) > 0)


async def _exhaust(trial: Trial, gateway: AsyncGatewayProcess, label: str, count: int) -> None:
    """Hold `count` connections; gives them back at the end."""
    held = _Held()
    try:
        await held.open(gateway.port, count)
        seen = ", ".join(f"{number} {outcome}" for outcome, number in held.outcomes.items())
        trial.measure(label, seen)
        trial.check(f"{label}: some are refused", held.outcomes["answered"] > 0, seen)
        trial.check(f"{label}: each refusal is an answer", not held.outcomes["without an answer"], seen)
        usage = Usage(gateway)
        await asyncio.sleep(_WATCH_SECONDS)
        share = usage.cpu_share
        trial.measure(f"{label}, CPU meanwhile", 100 * share, "%")
        trial.check(f"{label}: no busy loop", share <= _MOST_CPU_SHARE, share)
    finally:
        held.close()


async def _recovered(trial: Trial, gateway: AsyncGatewayProcess, label: str) -> None:
    started = time.monotonic()

    async def served() -> bool:
        try:
            return (await gateway.get("/health")).status == 200
        except (OSError, asyncio.IncompleteReadError):
            return False

    await eventually(served, _RECOVERY_SECONDS, "new clients to be served again")
    trial.measure(f"{label}, served again after", time.monotonic() - started, "s")


async def _metrics(gateway: AsyncGatewayProcess) -> str:
    return (await gateway.get("/metrics")).body.decode()
