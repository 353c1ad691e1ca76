"""The store of large results at its limits: quotas of 50 agents, and little memory (L09, L10)."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from campaign import stored_results
from campaign.child_bytes import TextDigest
from campaign.trial import MEBIBYTE, WHOLE, Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import load, misbehaving

_AGENTS, _OWN_QUOTA = 50, 4
_ADDRESS_SPACE = 512 * MEBIBYTE


class _Agent:
    """A session that stores results and reads them again; a result names its agent and its number."""

    def __init__(self, port: int, name: str, size: int) -> None:
        self.client = Client(port, modern=False)
        self.name = name
        self._size = size
        self.ids: list[str] = []

    async def store(self, count: int) -> None:
        """Have so many more results stored."""
        for _ in range(count):
            text = f"{self.name}-{len(self.ids)}"
            self.ids.append(
                stored_results.id_of(
                    await self.client.call("load_report", {"text": text, "size": self._size})
                )
            )

    async def reads(self, number: int) -> bool:
        """Whether that result can still be read; raises when it is another's."""
        arguments = {"cache_id": self.ids[number], "unit": "characters", "offset": 0, "limit": 40}
        answer = await self.client.call("proxy_read", arguments)
        if not answer.ok:
            return False
        if not answer.text.startswith(f"{self.name}-{number} "):
            raise RuntimeError(f"{self.name} {number} read {answer.text[:80]!r}")
        return True


@contextlib.asynccontextmanager
async def _agents(gateway: AsyncGatewayProcess, size: int) -> AsyncIterator[list[_Agent]]:
    agents = [_Agent(gateway.port, f"agent{number}", size) for number in range(_AGENTS)]
    await asyncio.gather(*(agent.client.open() for agent in agents))
    try:
        yield agents
    finally:
        for agent in agents:
            agent.client.close()


@contextlib.asynccontextmanager
async def _disk_watched(gateway: AsyncGatewayProcess) -> AsyncIterator[Callable[[], int]]:
    """The most bytes on disk that the gateway held in files without a name, as the kernel counts them."""
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, _unnamed_bytes(gateway.pid))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(watch())
    try:
        yield lambda: most
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _unnamed_bytes(pid: int) -> int:
    found: dict[tuple[int, int], int] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            about = Path(f"/proc/{pid}/fd/{name}").stat()
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                found[about.st_dev, about.st_ino] = about.st_size
    return sum(found.values())


@case(
    "L09",
    "50 agents fill the store of results, each beyond its quota, then one beyond the quota of all",
    "evicted are only an agent's own, then those of the agent with most; bytes on disk within the cap",
    quick_seconds=60,
    full_seconds=240,
)
async def quota(trial: Trial) -> None:
    """An agent that stores much loses its own results, and never those of an agent with fewer."""
    size, rounds = trial.size(quick=64, full=512) * 1024, trial.size(quick=3, full=10)
    await _own_quota(trial, size, rounds)
    await _quota_of_all(trial, size)


async def _own_quota(trial: Trial, size: int, rounds: int) -> None:
    # Room for the quotas of all, and for the results that are coming.
    cap = (_AGENTS * _OWN_QUOTA + _AGENTS) * (size + 4096)
    settings = {"maxEntriesPerAgent": _OWN_QUOTA, "maxMemoryPerAgent": 0, "cacheMaxBytes": cap}
    async with (
        trial.gateway({"load": load()}, settings=settings, spare_files=256) as gateway,
        _agents(gateway, size) as agents,
        _disk_watched(gateway) as most,
    ):
        # The first agent stores two and is idle while the others store many times their quota.
        await agents[0].store(2)
        await asyncio.gather(*(agent.store(rounds * _OWN_QUOTA) for agent in agents[1:]))
        hits = sum([await agent.reads(number) for agent in agents for number in _newest(agent)])
        expected = sum(len(_newest(agent)) for agent in agents)
        stale = sum([await agent.reads(number) for agent in agents for number in _older(agent)])
        trial.measure("hit rate", f"{hits} of {expected} within the quotas, {stale} beyond")
        trial.measure("disk", f"{most() / MEBIBYTE:.1f} of {cap / MEBIBYTE:.1f} MB")
        trial.check("each has its newest", hits == expected, f"{hits} of {expected}")
        trial.check("each lost what was beyond its quota", stale == 0, stale)
        trial.check("bytes on disk within the cap", 0 < most() <= cap, most())


def _newest(agent: _Agent) -> range:
    return range(max(0, len(agent.ids) - _OWN_QUOTA), len(agent.ids))


def _older(agent: _Agent) -> range:
    return range(max(0, len(agent.ids) - _OWN_QUOTA))


async def _quota_of_all(trial: Trial, size: int) -> None:
    most_of_one, cap = 200, 100 * (size + 4096)
    settings = {"maxEntriesPerAgent": most_of_one, "maxMemoryPerAgent": 0, "cacheMaxBytes": cap}
    async with (
        trial.gateway({"load": load()}, settings=settings, spare_files=256) as gateway,
        _agents(gateway, size) as agents,
        _disk_watched(gateway) as most,
    ):
        await asyncio.gather(*(agent.store(1) for agent in agents))
        await agents[0].store(most_of_one - 1)
        kept = sum([await agent.reads(0) for agent in agents[1:]])
        own = sum([await agents[0].reads(number) for number in range(most_of_one)])
        stored = await stored_results.metric(gateway, "result_bytes")
        trial.measure(
            "one beyond the cap", f"keeps {own} of {most_of_one}; the others {kept} of {_AGENTS - 1}"
        )
        trial.measure("disk then", f"{most() / MEBIBYTE:.1f} of {cap / MEBIBYTE:.1f} MB")
        trial.check("the others lost nothing", kept == _AGENTS - 1, kept)
        trial.check("the one lost what was beyond", 1 <= own <= cap // size - kept, own)
        trial.check("bytes within the cap", stored <= cap, stored)
        # One that is coming is on disk before another goes.
        trial.check("bytes on disk within the cap", most() <= cap + size + 4096, most())


@case(
    "L10",
    "results of 100 MB, four at a time, with 512 MB of address space for each process of the gateway",
    "delivered whole or stored and read back; no process killed, no allocation fails",
    quick_seconds=90,
    full_seconds=240,
)
async def little_memory(trial: Trial) -> None:
    """Large results go to disk, whatever there is of memory."""
    size, rounds = 100 * MEBIBYTE, trial.size(quick=1, full=5)
    servers, ulimit = {"rogue": misbehaving(timeout=120)}, f"-v {_ADDRESS_SPACE // 1024}"
    for label, settings in (("whole", WHOLE), ("stored", {})):
        async with trial.gateway(servers, settings=settings, ulimit=ulimit, spare_files=8) as gateway:
            usage = Usage(gateway)
            for _ in range(rounds):
                right = await asyncio.gather(*(_one(gateway, label, size) for _ in range(4)))
                trial.check(f"{label}: all are right", all(right), right)
            peak = procfs.peak_resident_bytes(gateway.pid) / MEBIBYTE
            trial.measure(label, f"peak RSS {peak:.0f} MB, +{usage.peak_growth_mib:.0f} MB")
            trial.check(f"{label}: RSS at most +64 MB", usage.peak_growth_mib <= 64, usage.peak_growth_mib)
            short = [
                line for line in gateway.log_lines() if "MemoryError" in line or "Cannot allocate" in line
            ]
            trial.check(f"{label}: no allocation failed", not short, short[:1])


async def _one(gateway: AsyncGatewayProcess, label: str, size: int) -> bool:
    async with client(gateway.port) as caller:
        text = TextDigest(size) if label == "whole" else None
        answer = await caller.call("rogue_big_line", {"size": size}, take=text.take if text else None)
        if text is not None:
            return text.whole
        arguments = {"cache_id": stored_results.id_of(answer), "unit": "characters", "offset": size - 100}
        last = await caller.call("proxy_read", arguments)
        found = await stored_results.search(caller, stored_results.id_of(answer), "no such words")
        return len(last.text) == 100 and found.ok
