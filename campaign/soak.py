"""Mixed traffic with faults for a long time: memory and open files must not drift (L06)."""

import asyncio
import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from campaign import stored_results
from campaign.streams import listen_request, open_stream
from campaign.trial import MEBIBYTE, Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client
from testkit.misbehaving_upstreams import load, misbehaving_http

_WORKERS = 12
_FAULT_SHARE = 0.05
# Of each worker, so that the machine is busy and not full: it is growth that is looked for.
_PAUSE_SECONDS = 0.02
_SAMPLE_SECONDS = 0.25
_FAULTS = ("fail", "refuse", "silent", "exit", "abort")
_REPORT_BYTES = 40_000
# Pools and caches fill at the beginning; what is judged is what follows.
_WARM_SHARE = 0.4
# By a line through the samples of the full size; of a short run only the growth means anything.
_MOST_MIB_PER_HOUR, _MOST_FILES_PER_HOUR = 24.0, 60.0
_MOST_MIB, _MOST_FILES = 6.0, 12.0


@dataclass(slots=True)
class _Outcomes:
    """What came back, and what should not have."""

    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, holds: object, seen: str) -> None:
        """Count one call of the steady servers."""
        self.calls += 1
        if not holds and len(self.wrong) < 5:
            self.wrong.append(f"{what}: {seen}")


@dataclass(frozen=True, slots=True)
class _Sample:
    seconds: float
    resident_bytes: int
    files: int


class _Worker:
    """One client after the other, each for a while: calls, lists, reads, listens, and sometimes a fault."""

    def __init__(self, port: int, number: int, outcomes: _Outcomes) -> None:
        self._port = port
        self._dice = random.Random(number)
        self._number = itertools.count(number * 1_000_000)
        self._outcomes = outcomes

    async def run(self, end: float) -> None:
        """Until then."""
        while time.monotonic() < end:
            caller = Client(self._port, modern=self._dice.random() < 0.5)
            await caller.open()
            for _ in range(self._dice.randrange(20, 60)):
                await self._step(caller)
                await asyncio.sleep(_PAUSE_SECONDS)
                if time.monotonic() >= end:
                    break
            # Half of the sessions are left behind, for the gateway to forget.
            if caller.session and self._dice.random() < 0.5:
                await caller.tell({"method": "notifications/cancelled", "params": {"requestId": "none"}})
            caller.close()

    async def _step(self, caller: Client) -> None:
        dice = self._dice.random()
        if dice < _FAULT_SHARE:
            await self._fault(caller, self._dice.choice(_FAULTS))
        elif dice < 0.10:
            await self._report(caller)
        elif dice < 0.15:
            self._outcomes.expect("list", len(await caller.list_tools()) > 5, "too few")
        elif dice < 0.20:
            await self._keyed(caller)
        elif dice < 0.22 and not caller.modern:
            stream = await open_stream(self._port, listen_request(caller))
            self._outcomes.expect("stream", stream.status == 200, str(stream.status))
            stream.close()
        else:
            server = self._dice.choice(("steady", "steady", "web"))
            text = f"text {next(self._number)}"
            answer = await caller.call(f"{server}_echo", {"text": text})
            self._outcomes.expect(server, answer.text == text, answer.outcome)

    async def _report(self, caller: Client) -> None:
        name = f"report{next(self._number)}"
        answer = await caller.call("steady_report", {"text": name, "size": _REPORT_BYTES})
        found = await stored_results.search(caller, stored_results.id_of(answer), name)
        while found.failure and found.failure.code == "RESOURCE_EXHAUSTED":
            # All clients without a session are one agent, of which a few may search at once.
            await asyncio.sleep(found.failure.retry_after_seconds or 1.0)
            found = await stored_results.search(caller, stored_results.id_of(answer), name)
        self._outcomes.expect(
            "report", found.ok and name in found.text, f"{found.outcome} {found.text[:200]}"
        )

    async def _keyed(self, caller: Client) -> None:
        text = f"keyed {next(self._number)}"
        answers: list[Answer] = [await caller.call("steady_echo", {"text": text}, key=text) for _ in range(2)]
        right = all(answer.text == text for answer in answers) and answers[1].operation.get("duplicate")
        self._outcomes.expect("keyed", right, answers[1].outcome)

    async def _fault(self, caller: Client, fault: str) -> None:
        """On a server of its own; what it comes to is counted and not judged."""
        # One that has just died refuses what comes next, so that deaths are kept apart from other faults.
        server = "mortal" if fault == "exit" else "faulty"
        tool = f"{server}_work" if fault == "abort" else f"{server}_{fault}"
        try:
            async with asyncio.timeout(0.05 if fault == "abort" else 20):
                answer = await caller.call(tool, {"text": "x", "seconds": 0.5})
            self._outcomes.faults[answer.outcome] += 1
        except TimeoutError:
            self._outcomes.faults["left"] += 1
            if fault != "abort":
                self._outcomes.expect(fault, False, "no answer within 20 s")


@case(
    "L06",
    "mixed traffic of 12 clients with 5 % faults for 30 min (20 s)",
    "no drift: at most 24 MB and 60 files an hour (20 s: 6 MB and 12 files); all other calls right",
    quick_seconds=60,
    full_seconds=2000,
)
async def soak(trial: Trial) -> None:
    """Whatever begins and ends, begins and ends without a trace."""
    seconds = trial.size(quick=20, full=1800)
    settings = {"cacheTTLSeconds": 5, "sessionIdleSeconds": 5}
    # One that fails all the time would be left alone, and then there would be no more faults.
    faulty = load(timeout=1, breaker={"failures": 1000}, maxRestarts=1000)
    async with misbehaving_http(trial.directory) as web:
        servers = {"steady": load(), "web": web.entry(), "faulty": faulty, "mortal": faulty}
        async with trial.gateway(servers, settings=settings, spare_files=SPARE_FILES + 16) as gateway:
            outcomes, end = _Outcomes(), time.monotonic() + seconds
            workers = [_Worker(gateway.port, number, outcomes) for number in range(1, _WORKERS + 1)]
            samples = asyncio.create_task(_sampled(gateway, end))
            await asyncio.gather(*(worker.run(end) for worker in workers))
            _judge(trial, await samples, outcomes)


async def _sampled(gateway: AsyncGatewayProcess, end: float) -> list[_Sample]:
    found, started = [], time.monotonic()
    while (now := time.monotonic()) < end:
        found.append(
            _Sample(now - started, procfs.resident_bytes(gateway.pid), procfs.open_files(gateway.pid))
        )
        await asyncio.sleep(_SAMPLE_SECONDS)
    return found


def _judge(trial: Trial, samples: list[_Sample], outcomes: _Outcomes) -> None:
    judged = samples[int(len(samples) * _WARM_SHARE) :]
    hours = [sample.seconds / 3600 for sample in judged]
    memory = slope(hours, [sample.resident_bytes / MEBIBYTE for sample in judged])
    files = slope(hours, [float(sample.files) for sample in judged])
    span = hours[-1] - hours[0]
    faults = sum(outcomes.faults.values())
    trial.measure("calls", f"{outcomes.calls} and {faults} faults")
    trial.measure("faults", ", ".join(f"{name} {count}" for name, count in sorted(outcomes.faults.items())))
    trial.measure(
        "RSS", f"{judged[0].resident_bytes / MEBIBYTE:.1f} to {judged[-1].resident_bytes / MEBIBYTE:.1f} MB"
    )
    trial.measure("RSS slope", memory, "MB/h")
    trial.measure("files", f"{judged[0].files} to {judged[-1].files}, slope {files:.1f} /h")
    trial.check("all other calls are right", outcomes.calls and not outcomes.wrong, outcomes.wrong)
    trial.check("there were faults", faults >= 0.02 * outcomes.calls, faults)
    most_memory = _MOST_MIB if trial.quick else _MOST_MIB_PER_HOUR * span
    most_files = _MOST_FILES if trial.quick else _MOST_FILES_PER_HOUR * span
    trial.check(f"RSS grew by at most {most_memory:.1f} MB", memory * span <= most_memory, memory * span)
    trial.check(f"open files by at most {most_files:.0f}", files * span <= most_files, files * span)


def slope(places: list[float], values: list[float]) -> float:
    """Of the line with the least squares through the values."""
    middle, mean = sum(places) / len(places), sum(values) / len(values)
    spread = sum((place - middle) ** 2 for place in places)
    pairs = zip(places, values, strict=True)
    return sum((place - middle) * (value - mean) for place, value in pairs) / spread
