"""Many at once on a server that refuses, or that is not there yet (L08, L11)."""

import asyncio
import time

from campaign.keys import SPARE_FILES
from campaign.trial import Trial, case
from testkit.async_gateway_process import running
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import read


@case("L08", "500 (200) clients call a cold server at once", "one start of it; every call answered")
async def stampede(trial: Trial) -> None:
    """A call while a server starts waits for that start, and does not cause another."""
    clients, spawns = trial.size(quick=200, full=500), trial.directory / "spawns"
    deeds, directory = trial.directory / "deeds", trial.directory / "gateway"
    directory.mkdir()
    options = ("--spawn-log", str(spawns), "--start-delay", "0.5")
    config = {"mcpServers": {"cold": audited(deeds, *options, cold=True)}}
    async with running(directory, config) as gateway:
        # Nothing is known of it yet, so that it has to be asked once.
        await gateway.wait_ready(["cold"])
        await gateway.stop()
    spawns.write_text("")
    async with running(directory, config) as gateway:
        callers = [Client(gateway.port, modern=True) for _ in range(clients)]
        started = time.monotonic()
        trial.check("not started before it is needed", not spawns.read_text())
        answers = await asyncio.gather(
            *(caller.call("cold_get", {"ref": str(number)}) for number, caller in enumerate(callers))
        )
        seconds = time.monotonic() - started
        for caller in callers:
            caller.close()
        starts = len(spawns.read_text().splitlines())
        failed = [answer.outcome for answer in answers if not answer.ok]
        trial.measure("clients", clients)
        trial.measure("starts", starts)
        trial.measure("all answered after", seconds, "s")
        trial.check("one start", starts == 1, starts)
        trial.check("every call is answered", not failed, failed[:3])


@case(
    "L11",
    "every call is answered 503, or 429 of which no breaker takes notice, for 60 s (3 s) each",
    "extra load at most 10 %",
    full_seconds=240,
)
async def retry_storm(trial: Trial) -> None:
    """A server that is overloaded gets hardly more than what it is asked."""
    seconds, deeds = trial.size(quick=3, full=60), trial.directory / "deeds"
    async with audited_http(deeds, "--busy", "503") as down, audited_http(deeds, "--busy", "429") as busy:
        servers = {"answers503": down.entry(), "answers429": busy.entry()}
        async with trial.gateway(servers, spare_files=SPARE_FILES + 16) as gateway:
            for server in servers:
                before = len(read(deeds))
                asked = await _storm(gateway.port, server, seconds)
                sent = len(read(deeds)) - before
                trial.measure(server, f"{asked} calls, {sent} sent, {sent / asked:.3f} each")
                trial.check(f"{server}: called", asked >= 100, asked)
                # Ten retries are to spare at first.
                trial.check(f"{server}: at most 10 % more", sent <= 1.1 * asked + 10, f"{sent} of {asked}")


async def _storm(port: int, server: str, seconds: float) -> int:
    """Call a tool that may be sent again, from eight clients without a pause; how often."""
    asked, end = 0, time.monotonic() + seconds

    async def call() -> None:
        nonlocal asked
        caller = Client(port, modern=True)
        while time.monotonic() < end:
            asked += 1
            await caller.call(f"{server}_get", {"ref": "storm"})
        caller.close()

    await asyncio.gather(*(call() for _ in range(8)))
    return asked
