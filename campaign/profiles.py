"""Clients that declare ever new capabilities: each set could cost a connection and a listing (M06, M07)."""

import asyncio
import random
from pathlib import Path
from typing import Any

from campaign.bystander import bystander
from campaign.trial import Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import chatty, misbehaving, recorded
from testkit.waiting import eventually

_MOST_LINES = 4
# What ends while others begin.
_ENDING = 8


def _distinct(number: int) -> dict[str, Any]:
    """Capabilities that no other client declares; every second set lets servers ask."""
    more: dict[str, Any] = {"elicitation": {}} if number % 2 else {}
    return {"experimental": {f"com.example/feature{number}": {"level": number}}, **more}


def _servers(trial: Trial) -> dict[str, Any]:
    spawns = str(trial.directory / "spawns")
    return {
        "old": chatty(trial.directory, "old", "--spawn-log", spawns, maxConnections=_MOST_LINES),
        "new": chatty(trial.directory, "new", "--era", "stateless"),
        "steady": misbehaving(shared=True),
    }


async def _count_children(gateway: AsyncGatewayProcess, seen: list[int]) -> None:
    while True:
        seen.append(len(procfs.descendants(gateway.pid)))
        await asyncio.sleep(0.05)


def _spawned(directory: Path) -> int:
    path = directory / "spawns"
    return len(path.read_text().splitlines()) if path.exists() else 0


async def _check_bounds(
    trial: Trial, gateway: AsyncGatewayProcess, usage: Usage, seen: list[int], before: int
) -> None:
    growth = usage.peak_growth_mib
    most = max(seen) - before
    trial.measure("processes", f"+{most} at most, {_spawned(trial.directory)} started in all")
    trial.measure("RSS", f"+{growth:.0f} MB")
    trial.check("processes bounded", most <= _MOST_LINES + _ENDING, most)
    trial.check("RSS at most +64 MB", growth <= 64, f"{growth:.0f} MB")
    await _check_relisting(trial, gateway)


async def _check_relisting(trial: Trial, gateway: AsyncGatewayProcess) -> None:
    """One change of a server must not have it asked once for every profile that ever was."""
    before = len(recorded(trial.directory, "new", "list tools/list"))
    async with client(gateway.port, modern=True) as caller:
        flood = {"method": "notifications/tools/list_changed", "count": 1}
        await caller.call("new_tell_flood", flood)

    def listed() -> int:
        return len(recorded(trial.directory, "new", "list tools/list")) - before

    await eventually(lambda: listed() > 0, 10, "the server to be listed again")
    await asyncio.sleep(1.0)
    trial.measure("listed again after one change", f"{listed()} times")
    trial.check("listed again for a bounded number of profiles", listed() <= 32, listed())


@case(
    "M06",
    "1,000 sessions, each with capabilities that no other declares",
    "processes bounded by maxConnections, memory bounded, others unaffected",
    quick_seconds=60,
    full_seconds=400,
)
async def distinct_sessions(trial: Trial) -> None:
    """Each session lists and calls; what is kept for it is bounded."""
    count, at_once = trial.size(quick=24, full=1000), 8
    async with trial.gateway(_servers(trial), spare_lines=_MOST_LINES) as gateway:
        usage, seen, before = Usage(gateway), [0], gateway.census().children
        counting = asyncio.create_task(_count_children(gateway, seen))
        turns, wrong = asyncio.Semaphore(at_once), list[str]()

        async def one(number: int) -> Client:
            caller = Client(gateway.port, modern=False, capabilities=_distinct(number))
            async with turns:
                await caller.open()
                names = await caller.list_tools()
                answer = await caller.call("new_echo", {"text": str(number)})
                if "new_echo" not in names or answer.text != str(number):
                    wrong.append(f"{number}: {len(names)} tools, {answer.outcome}")
            return caller

        async with bystander(trial, gateway, "steady_echo"):
            callers = await asyncio.gather(*(one(number) for number in range(count)))
        counting.cancel()
        for caller in callers:
            caller.close()
        trial.measure("sessions", f"{count}, {len(wrong)} wrong")
        trial.check("each was served", not wrong, wrong[:3])
        await _check_bounds(trial, gateway, usage, seen, before)


@case(
    "M07",
    "1,000 stateless requests with random capabilities",
    "processes bounded by maxConnections, memory bounded, others unaffected",
    quick_seconds=60,
    full_seconds=400,
)
async def random_capabilities(trial: Trial) -> None:
    """Each request declares something else; most go to a server that wants to know at the handshake."""
    count, at_once, dice = trial.size(quick=24, full=1000), 8, random.Random(7)
    async with trial.gateway(_servers(trial), spare_lines=_MOST_LINES) as gateway:
        usage, seen, before = Usage(gateway), [0], gateway.census().children
        counting = asyncio.create_task(_count_children(gateway, seen))
        turns, wrong = asyncio.Semaphore(at_once), list[str]()

        async def one(number: int) -> None:
            padding = {"com.example/padding": {"x": "y" * dice.randrange(12_000)}}
            capabilities = _distinct(number)
            capabilities["experimental"] |= padding
            caller = Client(gateway.port, modern=True, capabilities=capabilities)
            async with turns:
                if number % 3 == 0:
                    names = await caller.list_tools()
                    if "old_echo" not in names:
                        wrong.append(f"{number}: {len(names)} tools")
                answer = await caller.call(f"{dice.choice(('old', 'new'))}_echo", {"text": str(number)})
                if answer.text != str(number):
                    wrong.append(f"{number}: {answer.outcome} {answer.text[:100]}")
            caller.close()

        async with bystander(trial, gateway, "steady_echo"):
            await asyncio.gather(*(one(number) for number in range(count)))
        counting.cancel()
        trial.measure("requests", f"{count}, {len(wrong)} wrong")
        trial.check("each was served", not wrong, wrong[:3])
        await _check_bounds(trial, gateway, usage, seen, before)
