"""The gateway is killed at each commit of its ledger, before and after it (S02)."""

import asyncio
import time
from collections import Counter, defaultdict
from typing import Any

from campaign.crash_restart import NOWHERE, Point, Stage, each
from campaign.histories import Logical, insist, judged, repeat, states, together
from campaign.kills import check_tally
from campaign.trial import Trial, case
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import read

_AT_ONCE = 3
_TIMEOUT = 0.6
# The answer comes after twice the timeout; a busy machine has more.
_LATE_SECONDS = 10.0


class _Story:
    """Calls of every class, one that is refused, one that is answered late, one that a person settles."""

    def __init__(self, *, long: bool) -> None:
        faults: list[tuple[str, dict[str, Any]]] = [
            ("pay", {}),
            ("book", {}),
            ("pay", {"fault": "refuse"}),
        ]
        if long:
            faults += [
                ("put", {}),
                ("get", {}),
                ("charge", {}),
                # Gone after it was done: made again, and found by the probe.
                ("put", {"fault": "drop_done"}),
                ("book", {"fault": "drop_done"}),
                ("book", {"fault": "drop"}),
            ]
        self.calls = [Logical("bank", tool, said) for tool, said in faults]
        self.late = Logical("web", "pay", {"after": 2 * _TIMEOUT}) if long else None
        self.settled = Logical("bank", "pay", {"fault": "silent"}) if long else None

    async def tell(self, stage: Stage) -> None:
        """Make every call until its end is known, and once more."""
        for call in self.calls:
            await insist(call, stage.caller, stage.up)
        if self.late is not None and self.settled is not None:
            await self._answered_late(stage, self.late)
            await self._settled(stage, self.settled)
        for call in self.calls:
            if call.told:
                await repeat(call, stage.caller, stage.up)

    async def _answered_late(self, stage: Stage, call: Logical) -> None:
        """In doubt, until the late answer; it stays so only when the gateway died meanwhile."""
        self.calls.append(call)
        await insist(call, stage.caller, stage.up)
        deaths, end = stage.deaths, time.monotonic() + _LATE_SECONDS
        while call.doubt and stage.deaths == deaths and time.monotonic() < end:
            await asyncio.sleep(_TIMEOUT)
            await insist(call, stage.caller, stage.up)

    async def _settled(self, stage: Stage, call: Logical) -> None:
        """In doubt, until a person has looked at what the server has done."""
        self.calls.append(call)
        await insist(call, stage.caller, stage.up)
        answer = await stage.call("bank_pay", {"ref": call.ref, **call.arguments}, key=call.key)
        lines = read(stage.directory.parent / "deeds")
        happened = any(line.event == "executed" and line.ref == call.ref for line in lines)
        await stage.call("resolve_operation", {"op_id": answer.operation["op_id"], "happened": happened})
        await insist(call, stage.caller, stage.up)


@case(
    "S02",
    "kill -9 of the gateway before and after each commit of its ledger",
    "at every point: lost 0, executed twice 0, wrong answer 0",
    quick_seconds=90,
    full_seconds=900,
)
async def each_transition(trial: Trial) -> None:
    """There is no moment between two records at which a promise is lost."""
    stories: dict[Point, _Story] = {}
    async with audited_http(trial.directory / "deeds") as web:
        deeds = trial.directory / "deeds"
        config = {
            "mcpServers": {
                "bank": audited(deeds, timeout=_TIMEOUT, breaker={"failures": 100}),
                "web": web.entry(timeout=_TIMEOUT, breaker={"failures": 100}),
            }
        }

        async def play(point: Point) -> Stage:
            stories[point] = story = _Story(long=not trial.quick)
            stage = Stage(trial.directory / f"{point.when}{point.commit}", config, point)
            await stage.play(story.tell)
            return stage

        whole = await play(NOWHERE)
        numbers = range(1, len(whole.commits) + 1, trial.size(quick=2, full=1))
        points = [Point(when, number) for number in numbers for when in ("before", "after")]
        stages = {NOWHERE: whole} | await each(points, play, _AT_ONCE)
    _report(trial, stages, {point: judged(story.calls, deeds) for point, story in stories.items()})
    _check_filed(trial, stages, stories)


def _report(trial: Trial, stages: dict[Point, Stage], tallies: dict[Point, Any]) -> None:
    deaths = sum(stage.deaths for stage in stages.values())
    trial.measure("commits", len(stages[NOWHERE].commits))
    trial.measure("kills", deaths)
    trial.check("killed at every point", deaths >= 0.8 * (len(stages) - 1), f"{deaths} of {len(stages) - 1}")
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for point, stage in stages.items():
        if stage.deaths:
            tally = tallies[point]
            what = stage.commits[point.commit - 1].split(" + ")[0]
            rows[f"{point.when} {what}"] += Counter(
                {"kills": 1, "lost": tally.lost, "twice": tally.twice, "in doubt": tally.in_doubt,
                 "wrong": tally.wrong}
            )  # fmt: skip
    for what, row in sorted(rows.items()):
        trial.measure(what, "/".join(str(row[k]) for k in ("kills", "lost", "twice", "in doubt", "wrong")))
    check_tally(trial, together(tallies.values()))


def _check_filed(trial: Trial, stages: dict[Point, Stage], stories: dict[Point, _Story]) -> None:
    wrong: list[str] = []
    for point, stage in stages.items():
        found = states(stage.directory / "data")
        misfiled = [call for call in stories[point].calls if not call.agrees(found.get(call.key))]
        wrong += [f"{point}: {call.tool} {found.get(call.key)}, told {call.told}" for call in misfiled]
    trial.check("the ledger says what callers were told", not wrong, wrong[:3])
