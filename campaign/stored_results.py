"""Large results that a case lets the gateway store: how they get there, and how they are read."""

import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from campaign.trial import MEBIBYTE, Trial, Usage
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client
from testkit.misbehaving_upstreams import misbehaving

META_KEY = "io.headgate/result"
READERS: dict[str, dict[str, Any]] = {
    "proxy_search": {"pattern": "x"},
    "proxy_filter": {"fields": ["x"]},
    "proxy_explore": {},
    "proxy_read": {},
    "proxy_query": {"sql": "SELECT count(*) FROM rows"},
}


def servers() -> dict[str, Any]:
    """One upstream whose results are large, and one for bystanders."""
    return {"rogue": misbehaving(timeout=120), "steady": misbehaving(shared=True)}


def text_file(trial: Trial, name: str, pieces: Iterable[str]) -> Path:
    """A file with a result whose one text is these pieces, for `rogue_from_file`."""
    path = trial.directory / f"{name}.result"
    with path.open("wb") as file:
        file.write(b'{"content":[{"type":"text","text":"')
        for piece in pieces:
            file.write(msgspec.json.encode(piece)[1:-1])
        file.write(b'"}]}')
    return path


async def kept(caller: Client, path: Path) -> str:
    """The id under which the gateway has stored the result in this file."""
    answer = await caller.call("rogue_from_file", {"path": str(path)})
    return id_of(answer)


def id_of(answer: Answer) -> str:
    """The id that an excerpt tells."""
    told = facts(answer).get("cache_id")
    if not told:
        raise RuntimeError(f"nothing was stored: {answer.outcome} {answer.raw[:300]!r}")
    return str(told)


def facts(answer: Answer) -> dict[str, Any]:
    """What the gateway says about a large result."""
    found: dict[str, Any] = answer.result.get("_meta", {}).get(META_KEY, {})
    return found


async def timed(gateway: AsyncGatewayProcess, asking: Awaitable[Answer]) -> tuple[float, Answer]:
    """An answer, and the seconds until it came, less those in which a process on the way had no CPU.

    Several may have waited at once, so it is never less than the gateway's processes have worked for.
    """
    workers = gateway.workers()
    everybody = [os.getpid(), gateway.pid, *workers]
    before, started = {pid: procfs.turns(pid) for pid in everybody}, time.monotonic()
    answer = await asking
    seconds = time.monotonic() - started
    # One that took too long has been stopped meanwhile.
    after = {pid: procfs.turns(pid) for pid in everybody if procfs.alive(pid)}
    waited = sum(after[pid][1] - before[pid][1] for pid in after)
    worked = sum(after[pid][0] - before[pid][0] for pid in workers if pid in after)
    return max(seconds - waited, worked), answer


async def pages(caller: Client, cache_id: str) -> AsyncIterator[str]:
    """A stored text from its beginning to its end, as much at a time as one reply shows."""
    offset: int | None = 0
    while offset is not None:
        arguments = {"cache_id": cache_id, "unit": "characters", "offset": offset}
        answer = await caller.call("proxy_read", arguments)
        yield answer.text
        offset = facts(answer).get("read", {}).get("next_offset")


async def search(caller: Client, cache_id: str, pattern: str, **options: Any) -> Answer:
    """Search a stored result."""
    return await caller.call("proxy_search", {"cache_id": cache_id, "pattern": pattern} | options)


def matches(answer: Answer) -> tuple[int, bool]:
    """How many matches a search tells of, and whether it says that these are not all."""
    told = facts(answer).get("search", {})
    return told.get("matches", -1), bool(told.get("at_least")) and "at least" in note(answer)


def note(answer: Answer) -> str:
    """The last block of a reply, which tells a model how to go on."""
    blocks = answer.result.get("content", [])
    return str(blocks[-1].get("text", "")) if blocks else ""


def refused(answer: Answer) -> bool:
    """Whether the gateway has said that the arguments are wrong."""
    return answer.failure is not None and answer.failure.code == "INVALID_PARAMS"


class WorkerMemory:
    """The memory of the gateway's processes for large results since the beginning."""

    def __init__(self, gateway: AsyncGatewayProcess) -> None:
        self._gateway = gateway
        self._peak = 0
        for pid in gateway.workers():
            procfs.reset_peak_rss(pid)

    def look(self) -> None:
        """Look at those that are alive now; one may be stopped by the next search."""
        self._peak = max([self._peak, *map(procfs.peak_resident_bytes, self._gateway.workers())])

    @property
    def peak_mib(self) -> float:
        """The most memory that one of them was seen to have, mapped files included."""
        self.look()
        return self._peak / MEBIBYTE


def check_memory(trial: Trial, usage: Usage, limit_mib: float = 64) -> None:
    """The gateway itself has not grown, whatever its processes do."""
    growth = usage.peak_growth_mib
    trial.measure("RSS", f"+{growth:.0f} MB")
    trial.check(f"RSS at most +{limit_mib:g} MB", growth <= limit_mib, f"{growth:.0f} MB")


async def metric(gateway: AsyncGatewayProcess, name: str) -> int:
    """A counter or gauge of the gateway."""
    body = (await gateway.get("/metrics")).body.decode()
    found = re.search(rf"^headgate_{name}(?:_total)? (\S+)$", body, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no metric {name}")
    return int(float(found[1]))
