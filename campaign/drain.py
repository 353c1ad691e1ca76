"""SIGTERM while calls are under way (F40)."""

import asyncio
import contextlib
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from campaign.histories import CLASSES, Logical, insist, judge, repeat
from campaign.kills import check_tally
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import read
from testkit.waiting import eventually

_CALLERS = 16
# Of the call that is under way when the signal comes; well within the 10 s of the drain.
_LONG_SECONDS = 2.0
# That call, the children, and a loaded machine.
_MOST_SECONDS = 8.0
_BROKEN = (OSError, asyncio.IncompleteReadError, TimeoutError)
_SETTLE_SECONDS = 30.0


class _Round:
    """What was seen of one SIGTERM."""

    def __init__(self) -> None:
        # Answers to GET /ready on new connections after the signal.
        self.ready: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.executed_late = 0
        self.long: Answer | None = None
        self.seconds = 0.0
        self.exit_code: int | None = None
        self.tracebacks: list[str] = []


class _Drains:
    """A gateway that is drained again and again, and callers that retry their calls."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.deeds = directory / "deeds"
        self.calls: list[Logical] = []
        self.rounds: list[_Round] = []
        self._dice = random.Random(40)
        self._port = 0
        self._up = asyncio.Event()
        self._over = False

    async def run(self, rounds: int) -> None:
        """So many ends under load, then a gateway at which everything is asked for again."""
        self.directory.mkdir()
        async with audited_http(self.deeds) as web, asyncio.TaskGroup() as group:
            config = {"mcpServers": {"bank": audited(self.deeds), "web": web.entry()}}
            callers = [group.create_task(self._keep_calling(modern=n % 2 == 0)) for n in range(_CALLERS)]
            for number in range(rounds):
                async with running(self.directory, config, self._port) as gateway:
                    await self._begin(gateway)
                    self.rounds.append(await self._end(gateway, number))
            self._over = True
            async with running(self.directory, config, self._port) as gateway:
                await self._begin(gateway)
                await asyncio.wait(callers, timeout=_SETTLE_SECONDS)
                await self._ask_again()

    async def _begin(self, gateway: AsyncGatewayProcess) -> None:
        self._port = gateway.port
        await gateway.wait_ready(["bank", "web"])
        self._up.set()

    async def _end(self, gateway: AsyncGatewayProcess, number: int) -> _Round:
        """SIGTERM amid the load, watched from outside."""
        seen, long_ref = _Round(), f"long-{number}"
        patient = Client(gateway.port, modern=True)
        waits = {"ref": long_ref, "before": _LONG_SECONDS}
        long = asyncio.create_task(patient.call("bank_pay", waits))
        await eventually(lambda: _arrivals(self.deeds, long_ref), 10, "the long call to arrive")
        await asyncio.sleep(self._dice.uniform(0.3, 0.9))
        gateway.child.send_signal(signal.SIGTERM)
        started = time.monotonic()
        self._up.clear()
        late = f"late-{number}"
        watching = [
            asyncio.create_task(self._watch(gateway, seen)),
            asyncio.create_task(self._knock(gateway, late, seen)),
        ]
        with contextlib.suppress(*_BROKEN):
            async with asyncio.timeout(_LONG_SECONDS + 5):
                seen.long = await long
        async with asyncio.timeout(20):
            seen.exit_code = await gateway.child.wait()
        seen.seconds = time.monotonic() - started
        await asyncio.gather(*watching)
        seen.executed_late = _arrivals(self.deeds, late)
        seen.tracebacks = [
            line for line in gateway.log_lines() if "Traceback" in line or "never retrieved" in line
        ]
        patient.close()
        return seen

    async def _watch(self, gateway: AsyncGatewayProcess, seen: _Round) -> None:
        """Ask whether it is ready, on a new connection each time, until no gateway listens."""
        # The signal has to arrive first.
        await asyncio.sleep(0.05)
        while gateway.child.returncode is None:
            try:
                response = await gateway.get("/ready")
                told = json.loads(response.body).get("ready")
                seen.ready[f"{response.status} {told}"] += 1
            except _BROKEN:
                seen.ready["refused"] += 1
            await asyncio.sleep(0.02)

    async def _knock(self, gateway: AsyncGatewayProcess, ref: str, seen: _Round) -> None:
        """A new call on a new connection."""
        await asyncio.sleep(0.05)
        while gateway.child.returncode is None:
            caller = Client(gateway.port, modern=True)
            try:
                async with asyncio.timeout(5):
                    answer = await caller.call("bank_pay", {"ref": ref})
                retry = answer.headers.get("retry-after", "none")
                seen.refused[f"HTTP {answer.status}, Retry-After {retry}"] += 1
            except _BROKEN:
                seen.refused["no connection"] += 1
            caller.close()
            await asyncio.sleep(0.05)

    async def _keep_calling(self, *, modern: bool) -> None:
        await self._up.wait()
        caller = Client(self._port, modern=modern)
        while not self._over:
            await self._shake_hands(caller)
            waits = {"before": self._dice.uniform(0, 0.05), "after": self._dice.uniform(0, 0.3)}
            call = Logical(self._dice.choice(("bank", "web")), self._dice.choice(tuple(CLASSES)), waits)
            self.calls.append(call)
            await insist(call, caller, self._up)
        caller.close()

    async def _shake_hands(self, caller: Client) -> None:
        while not caller.modern and caller.session is None:
            await self._up.wait()
            try:
                await caller.open()
            except (*_BROKEN, KeyError):
                await asyncio.sleep(0.05)

    async def _ask_again(self) -> None:
        known = iter([call for call in self.calls if call.told])

        async def ask() -> None:
            caller = Client(self._port, modern=True)
            for call in known:
                await repeat(call, caller, self._up)
            caller.close()

        await asyncio.gather(*(ask() for _ in range(_CALLERS)))


def _arrivals(deeds: Path, ref: str) -> int:
    return sum(line.event == "arrived" and line.ref == ref for line in read(deeds))


@case(
    "F40",
    "SIGTERM under load of 16 callers with keys, five classes, stdio and HTTP",
    "/ready is 503 while calls under way are answered; new calls are refused; drained in time; "
    "lost 0, executed twice 0, in doubt 0",
    quick_seconds=60,
    full_seconds=240,
)
async def told_to_end(trial: Trial) -> None:
    """Whatever was begun before the signal is finished, and nothing is begun after it."""
    drains = _Drains(trial.directory / "gateway")
    await drains.run(trial.size(quick=3, full=20))
    for seen in drains.rounds:
        _check_round(trial, seen)
    trial.measure("ends", len(drains.rounds))
    trial.measure("drained in", max(seen.seconds for seen in drains.rounds), "s at most")
    trial.measure("/ready", _counted(seen.ready for seen in drains.rounds))
    trial.measure("new calls", _counted(seen.refused for seen in drains.rounds))
    tally = judge(drains.calls, read(drains.deeds))
    trial.measure("calls", tally.calls)
    check_tally(trial, tally)
    trial.check("in doubt 0: all had time to finish", tally.in_doubt == 0, tally.explained())


def _check_round(trial: Trial, seen: _Round) -> None:
    trial.check("exit code 0", seen.exit_code == 0, seen.exit_code)
    trial.check(f"drained within {_MOST_SECONDS:g} s", seen.seconds <= _MOST_SECONDS, f"{seen.seconds:.1f} s")
    answered = seen.long is not None and seen.long.ok
    trial.check("the call under way is answered", answered, seen.long and seen.long.outcome)
    statuses = set(seen.ready)
    trial.check("/ready is 503 while it drains", "503 False" in statuses, dict(seen.ready))
    trial.check(
        "/ready is never 200 after the signal", statuses <= {"503 False", "refused"}, dict(seen.ready)
    )
    begun = [what for what in seen.refused if not what.startswith(("HTTP 503", "no connection"))]
    trial.check("new calls are refused", not begun, dict(seen.refused))
    trial.check("no new call reaches a server", seen.executed_late == 0, seen.executed_late)
    trial.check("no traceback in the log", not seen.tracebacks, seen.tracebacks[:1])


def _counted(counters: Any) -> str:
    total: Counter[str] = sum(counters, Counter())
    return ", ".join(f"{count} x {what}" for what, count in total.most_common())
