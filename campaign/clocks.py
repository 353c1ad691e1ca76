"""The time of day is set while the gateway runs (F38)."""

import asyncio
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from campaign.histories import said
from campaign.host_faults import fake_clock
from campaign.stored_results import id_of, search
from campaign.trial import STALL_SECONDS, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, audited, misbehaving, misbehaving_http
from testkit.servers.audit_log import read
from testkit.waiting import eventually

_HOUR = 3600
_CHANGES: dict[str, dict[str, int]] = {
    "+1 h": {"offset_seconds": _HOUR},
    "-1 h": {"offset_seconds": -_HOUR},
    "x10": {"rate": 10},
}
_RATE = {"perSecond": 5, "burst": 5}
# Of a call that is never answered, and of one that takes its time.
_TIMEOUT, _LONG_SECONDS = 2.0, 1.5
# A text that is kept, since it is too large to be shown.
_KEPT_BYTES = 400_000


class _Story:
    """What is begun before the clock is set, and what has become of it afterwards."""

    def __init__(
        self, trial: Trial, gateway: AsyncGatewayProcess, deeds: Path, web: MisbehavingHttpProcess, label: str
    ) -> None:
        self.trial, self.gateway, self.deeds, self.web, self.label = trial, gateway, deeds, web, label
        self.violations = 0
        self._paid: dict[str, str] = {}
        self._session = Client(gateway.port, modern=False)
        self._transaction = self._short = ""
        self._kept = ""
        self._long: asyncio.Task[Answer]

    def expect(self, claim: str, holds: object, seen: object = "") -> None:
        """A check that counts as a violation where it fails."""
        self.violations += not holds
        self.trial.check(f"{self.label}: {claim}", holds, seen)

    async def begin(self) -> None:
        """A session, payments, a stored result, a transaction, an open breaker, a call under way."""
        await self._session.open()
        for number in range(self.trial.size(quick=10, full=100)):
            await self.pay(f"{self.label} {number}")
        large = await self._session.call("rogue_big_line", {"size": _KEPT_BYTES})
        self._kept = id_of(large)
        self._transaction = await self._begin_transaction("long", 2 * _HOUR)
        self._short = await self._begin_transaction("short", 60)
        for _ in range(6):
            await self._session.call("web_status", {"code": 503})
        ref = f"long {self.label}"
        long = {"ref": ref, "before": _LONG_SECONDS}
        self._long = asyncio.create_task(self._session.call("bank_pay", long, key=ref))
        await eventually(lambda: any(line.ref == ref for line in read(self.deeds)), 5, "the call to arrive")

    async def _begin_transaction(self, name: str, seconds: int) -> str:
        """With one step that can be undone."""
        begun = await self._session.call("transaction_begin", {"timeout_ms": seconds * 1000})
        found = str(begun.result["structuredContent"]["transaction_id"])
        step: dict[str, Any] = {"transaction_id": found, "tool": "bank_put", "sequence": 1}
        undo = {"compensate": {"tool": "bank_undo", "args": {"ref": f"undo {name} {self.label}"}}}
        made = {"args": {"ref": f"step {name} {self.label}"}}
        await self._session.call("transaction_step", step | undo | made)
        return found

    async def pay(self, ref: str) -> Answer:
        """With a key; the first answer is remembered."""
        answer = await self._session.call("bank_pay", {"ref": ref}, key=ref)
        if answer.ok:
            self._paid.setdefault(ref, said(answer))
        return answer

    async def look(self) -> None:
        """Everything is as it was."""
        await self._calls()
        await self._state()
        await self._timers()
        await self._limits()
        await self._deadline()
        await self._idle()
        self._session.close()

    async def _calls(self) -> None:
        long = await self._long
        self.expect("a call under way is answered", long.ok, f"{long.outcome} {long.seconds:.1f} s")
        await self.replayed()
        fresh = await self.pay(f"fresh {self.label}")
        self.expect("new calls are recorded", fresh.ok, fresh.outcome)

    async def replayed(self) -> None:
        """Payments that were made are known by their keys."""
        known = dict(self._paid)
        answers = {ref: await self.pay(ref) for ref in known}
        forgotten = [
            ref
            for ref, answer in answers.items()
            if not answer.operation.get("duplicate") or said(answer) != known[ref]
        ]
        self.expect("payments are known by their keys", not forgotten, forgotten[:3])
        done = Counter(line.ref for line in read(self.deeds) if line.event == "executed")
        twice = [ref for ref in known if done[ref] != 1]
        self.expect("payments are executed once", not twice, twice[:3])

    async def _state(self) -> None:
        found = await search(self._session, self._kept, "x", limit=1)
        self.expect("a stored result is kept", found.ok, found.outcome)
        state = await self._state_of(self._transaction)
        self.expect("a transaction of two hours goes on", state == "in_progress", state)
        ended = await self._session.call("transaction_commit", {"transaction_id": self._transaction})
        self.expect("and is committed", ended.ok, ended.outcome)
        metrics = (await self.gateway.get("/metrics")).body.decode()
        revived = [
            line for line in metrics.splitlines()
            if line.startswith("headgate_sessions_revived") and not line.endswith(" 0")
        ]  # fmt: skip
        self.expect("the session was not forgotten", not revived, revived)

    async def _deadline(self) -> None:
        """A deadline outlives the gateway, so it is a time of day: it may be over, but never half-way."""

        async def settled() -> bool:
            return await self._state_of(self._short) in ("in_progress", "rolled_back")

        await eventually(settled, 20, "the transaction of a minute to settle")
        state = await self._state_of(self._short)
        undone = any(line.ref == f"undo short {self.label}" for line in read(self.deeds))
        self.trial.measure(f"{self.label}: a transaction of a minute", state)
        self.expect("a transaction is undone or goes on", undone == (state == "rolled_back"), state)

    async def _state_of(self, transaction: str) -> str:
        told = await self._session.call("get_transaction", {"transaction_id": transaction})
        return str((told.result.get("structuredContent") or {}).get("state"))

    async def _timers(self) -> None:
        before = self.web.calls()
        refused = await self._session.call("web_status", {"code": 503})
        self.expect("the breaker stays open", self.web.calls() == before and not refused.ok, refused.outcome)
        silent = await self._session.call("rogue_never_answer")
        self.trial.measure(f"{self.label}: timeout of {_TIMEOUT:g} s", silent.seconds, "s")
        right = silent.outcome == "TIMEOUT/unknown" and abs(silent.seconds - _TIMEOUT) < 0.7
        self.expect("a timeout takes its time", right, f"{silent.outcome} {silent.seconds:.2f} s")

    async def _limits(self) -> None:
        """As fast as possible for two seconds: no more than the rate allows by a clock that is right."""
        mark, seconds = f"rate {self.label}", 2.0
        callers = [Client(self.gateway.port, modern=True) for _ in range(8)]

        async def press(caller: Client) -> None:
            while True:
                await caller.call("limited_get", {"ref": mark})

        with_limit = asyncio.gather(*(press(caller) for caller in callers))
        try:
            async with asyncio.timeout(seconds):
                await with_limit
        except TimeoutError:
            pass
        for caller in callers:
            caller.close()
        times = [line.at for line in read(self.deeds) if line.ref == mark and line.event == "arrived"]
        most = _RATE["burst"] + _RATE["perSecond"] * seconds + 1
        self.trial.measure(f"{self.label}: calls in {seconds:g} s", f"{len(times)} of {most:g} at most")
        self.expect("the rate is kept", len(times) <= most, len(times))
        self.expect("and used", len(times) >= _RATE["perSecond"] * seconds * 0.8, len(times))

    async def _idle(self) -> None:
        usage = Usage(self.gateway)
        await asyncio.sleep(0.5)
        self.expect("no busy loop", usage.cpu_share < 0.3, f"{usage.cpu_share:.0%} of a core")


@case(
    "F38",
    "the time of day of the gateway is set by +1 h, by -1 h, and runs ten times as fast",
    "retention, timeouts, limits, sessions and the breaker as before; executed once; violations = 0",
    quick_seconds=60,
    full_seconds=180,
)
async def wrong_clock(trial: Trial) -> None:
    """Durations use the monotonic clock; a day of retention is not an hour off."""
    # At the same time, because most of it is waiting.
    found = await asyncio.gather(*(_changed(trial, label) for label in _CHANGES), _restarted(trial))
    trial.measure("violations", sum(found))
    trial.check("violations = 0", sum(found) == 0, found)


async def _changed(trial: Trial, label: str) -> int:
    # LD_PRELOAD takes a blank for the end of a path.
    directory, change = trial.directory / f"clock{label.replace(' ', '')}", _CHANGES[label]
    directory.mkdir()
    deeds = directory / "deeds"
    async with fake_clock(directory) as clock, misbehaving_http(directory) as web:
        trial.measure("by", clock.way)
        # Asking for the time takes a lock and sometimes a file in faketime, a thousand times in a row.
        stall = STALL_SECONDS if clock.light else 5 * STALL_SECONDS
        async with trial.gateway(
            _servers(deeds, web), environment=clock.environment, spare_files=8, stall_seconds=stall
        ) as gateway:
            story = _Story(trial, gateway, deeds, web, label)
            await story.begin()
            clock.set(**change)
            await _is_set(trial, gateway, label, change.get("offset_seconds", 0))
            await story.look()
    return story.violations


def _servers(deeds: Path, web: MisbehavingHttpProcess) -> dict[str, Any]:
    return {
        "clock": {"builtin": "example"},
        "bank": audited(deeds, timeout=20),
        "limited": audited(deeds, rate=_RATE),
        "rogue": misbehaving(timeout=_TIMEOUT),
        "web": web.entry(timeout=5, retry={"attempts": 1}),
    }


async def _is_set(trial: Trial, gateway: AsyncGatewayProcess, label: str, seconds: float) -> None:
    """Until the gateway has that time of day; its built-in server tells it."""
    async with client(gateway.port, modern=True) as caller:

        async def is_off() -> bool:
            off = await _time_of_day(caller) - time.time()
            # At ten times the speed it is off by more and more.
            return off > 5 if label == "x10" else abs(off - seconds) < 60

        await eventually(is_off, 10, "the clock to be set")
        off = await _time_of_day(caller) - time.time()
    trial.measure(f"{label}: the clock is off by", f"{off:.0f} s")


async def _time_of_day(caller: Client) -> float:
    answer = await caller.call("clock_time", {})
    return datetime.fromisoformat(answer.text).timestamp()


async def _restarted(trial: Trial) -> int:
    """Recorded at a time that is ahead, asked for by gateways whose clock is right, and behind."""
    directory = trial.directory / "restarted"
    directory.mkdir()
    deeds, paid, violations = directory / "deeds", dict[str, str](), 0
    async with fake_clock(directory) as clock:
        for label, offset in (("ahead", _HOUR), ("right", 0), ("behind", -_HOUR)):
            clock.set(offset_seconds=offset)
            config = {"mcpServers": {"bank": audited(deeds)}}
            async with running(directory, config, environment=clock.environment) as gateway:
                await gateway.wait_ready(["bank"])
                answers = await _pay(gateway, trial.size(quick=20, full=200))
            for ref, answer in answers.items():
                right = answer.ok and said(answer) == paid.setdefault(ref, said(answer))
                violations += not right
                trial.check(f"a gateway whose clock is {label} knows the payment", right, answer.outcome)
    return violations


async def _pay(gateway: AsyncGatewayProcess, count: int) -> dict[str, Answer]:
    async with client(gateway.port, modern=True) as caller:
        refs = [f"restarted {number}" for number in range(count)]
        return {ref: await caller.call("bank_pay", {"ref": ref}, key=ref) for ref in refs}
