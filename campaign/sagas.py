"""Transactions whose gateway dies at each of its commits (S11)."""

import asyncio
import contextlib
import secrets
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from campaign.crash_restart import NOWHERE, Point, Stage, each
from campaign.trial import Trial, case
from testkit.clients.async_http import Answer
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import AuditRecord, read

_AT_ONCE = 3
_FINAL = ("completed", "rolled_back", "failed")
# A compensation that is refused is tried for eight seconds; a busy machine has more.
_END_SECONDS = 60.0


@dataclass(slots=True)
class _Saga:
    """A transaction of three steps on two servers, and what its client got."""

    ends: str
    refs: list[str] = field(default_factory=lambda: [secrets.token_hex(5) for _ in range(3)])
    id: str = ""
    state: str = ""
    seen: dict[str, Any] = field(default_factory=dict)

    def step(self, number: int) -> dict[str, Any]:
        """The arguments of transaction_step."""
        tool = ("bank_put", "web_charge", "bank_pay")[number - 1]
        ref = self.refs[number - 1]
        fails = {"fails": True} if number == 3 and self.ends != "commit" else {}
        stuck = {"fails": True} if self.ends == "stuck" else {}
        return {
            "transaction_id": self.id,
            "tool": tool,
            "args": {"ref": ref, **fails},
            "compensate": {"tool": "bank_undo", "args": {"ref": "undo-${arguments.ref}", **stuck}},
            "sequence": number,
        }

    async def tell(self, stage: Stage) -> None:
        """Go on after each death until the transaction has come to an end."""
        begun = await stage.call("transaction_begin", {"timeout_ms": 60_000})
        self.id = begun.result["structuredContent"]["transaction_id"]
        for number in (1, 2, 3):
            await self._make(stage, number)
        if self.ends == "commit":
            await self._again(stage, "transaction_commit", {"transaction_id": self.id})
        await self._wait(stage)

    async def _make(self, stage: Stage, number: int) -> None:
        await self._again(stage, "transaction_step", self.step(number))

    async def _again(self, stage: Stage, tool: str, arguments: dict[str, Any]) -> Answer:
        """Until there is an answer that waiting does not change; what is in doubt, a person looks up."""
        while True:
            answer = await stage.call(tool, arguments)
            failure = answer.failure
            if failure is None:
                return answer
            if failure.effect == "unknown":
                await self._settle(stage)
            elif not failure.retryable:
                return answer
            await asyncio.sleep(0.1)

    async def _look(self, stage: Stage) -> dict[str, Any]:
        answer = await stage.call("get_transaction", {"transaction_id": self.id})
        found: dict[str, Any] = answer.result.get("structuredContent") or {}
        return found

    async def _settle(self, stage: Stage) -> None:
        """Settle the step in doubt by what its server's own file says."""
        for step in (await self._look(stage)).get("steps", []):
            undo = step.get("compensation") or {}
            for state, op_id, ref in (
                (step["state"], step.get("op_id"), self.refs[step["step"] - 1]),
                (undo.get("state"), undo.get("op_id"), f"undo-{self.refs[step['step'] - 1]}"),
            ):
                if state == "in_doubt" and op_id:
                    lines = read(stage.directory.parent / "deeds")
                    happened = any(line.event == "executed" and line.ref == ref for line in lines)
                    await stage.call("resolve_operation", {"op_id": op_id, "happened": happened})

    async def _wait(self, stage: Stage) -> None:
        """Until its end; the checks report one without an end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                while self.state not in _FINAL:
                    self.seen = await self._look(stage)
                    self.state = self.seen.get("state", "")
                    if self.state == "in_progress" and self.ends != "commit":
                        # The step that failed was settled as one that happened, so that it goes on.
                        await stage.call("transaction_rollback", {"transaction_id": self.id})
                    if self.state not in _FINAL:
                        await self._settle(stage)
                        await asyncio.sleep(0.1)


def _half_done(saga: _Saga, done: dict[str, list[AuditRecord]]) -> list[str]:
    """What of the transaction does not agree with its state."""
    wrong, undone = [], [f"undo-{ref}" for ref in saga.refs]
    if any(len(done[ref]) > 1 for ref in (saga.refs[1], saga.refs[2])):
        wrong.append("a step was executed twice")
    if saga.state == "completed":
        wrong += [f"step {ref} is missing" for ref in saga.refs if not done[ref]]
        wrong += [f"{ref} was run" for ref in undone if done[ref]]
    elif saga.state == "rolled_back":
        # The last step is the one that failed, so that there is nothing to undo.
        wrong += [f"{undone[n]} was not run" for n in (0, 1) if done[saga.refs[n]] and not done[undone[n]]]
        times = [done[ref][0].at for ref in reversed(undone) if done[ref]]
        if times != sorted(times):
            wrong.append("not in reverse")
    elif saga.state == "failed":
        if saga.seen.get("waits_for") != "a person":
            wrong.append("stuck, and not reported")
    else:
        wrong.append(f"no end: {str(saga.seen.get('history'))[-300:]}")
    return [f"{saga.ends}, {saga.state}: {what}" for what in wrong]


@case(
    "S11",
    "a transaction that is committed, rolled back or stuck; kill -9 before and after each commit",
    "it ends as DONE, COMPENSATED or STUCK; half-done 0",
    quick_seconds=120,
    full_seconds=1200,
)
async def killed_sagas(trial: Trial) -> None:
    """A transaction whose gateway dies is never left half-way without a word."""
    deeds, sagas = trial.directory / "deeds", dict[str, list[_Saga]]()
    deaths, ends = Counter[str](), Counter[str]()
    async with audited_http(deeds) as web:
        config = {"mcpServers": {"bank": audited(deeds), "web": web.entry()}}
        for story in ("rollback",) if trial.quick else ("rollback", "commit", "stuck"):
            told = sagas[story] = []

            async def play(point: Point, story: str = story, told: list[_Saga] = told) -> Stage:
                saga = _Saga(story)
                told.append(saga)
                stage = Stage(trial.directory / f"{story}-{point.when}{point.commit}", config, point)
                await stage.play(saga.tell)
                return stage

            whole = await play(NOWHERE)
            numbers = range(1, len(whole.commits) + 1, trial.size(quick=4, full=1))
            points = [Point(when, n) for n in numbers for when in ("before", "after")]
            stages = await each(points, play, _AT_ONCE)
            deaths[story] = sum(stage.deaths for stage in stages.values())
            trial.check(f"{story}: killed at every point", deaths[story] >= 0.8 * len(points), deaths[story])
            trial.measure(f"{story} kills", f"{deaths[story]} at {len(whole.commits)} commits")
    done: defaultdict[str, list[AuditRecord]] = defaultdict(list)
    for line in read(deeds):
        if line.event == "executed":
            done[line.ref].append(line)
    wrong = [what for told in sagas.values() for saga in told for what in _half_done(saga, done)]
    for story, told in sagas.items():
        ends = Counter(saga.state for saga in told)
        trial.measure(f"{story} ended", ", ".join(f"{state} {count}" for state, count in ends.items()))
    trial.measure("half-done", len(wrong))
    trial.check("half-done = 0", not wrong, wrong[:4])
