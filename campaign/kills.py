"""The gateway is killed at random points while callers insist on their calls (S01)."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from campaign.histories import CLASSES, Logical, Tally, insist, judge, repeat, states, together
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess, running
from testkit.clients.async_http import Client
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import read

_CALLERS = 12
# Two gateways keep two cores busy.
_GATEWAYS = 2
# From the moment that it listens; some die before their upstreams are ready, some amid recovery.
_LONGEST_LIFE_SECONDS = 0.6
_REPEATED_AT_ONCE = 32
# What is under way at the end has this long.
_END_SECONDS = 30.0


class Arena:
    """A gateway that is killed again and again, its callers and what they got."""

    def __init__(self, directory: Path, seed: int, on_kill: Callable[[], object] = int) -> None:
        """`on_kill` is called after each kill, while no gateway runs."""
        self._on_kill = on_kill
        self.directory = directory
        self.deeds = directory / "deeds"
        self.calls: list[Logical] = []
        self.kills = 0
        self._dice = random.Random(seed)
        self._port = 0
        self._up = asyncio.Event()
        self._over = False

    async def run(self, kills: int) -> None:
        """Kill it so often, then ask for everything once more."""
        self.directory.mkdir()
        async with audited_http(self.deeds) as web, asyncio.TaskGroup() as group:
            config = {"mcpServers": {"bank": audited(self.deeds), "web": web.entry()}}
            callers = [group.create_task(self._keep_calling(modern=n % 2 == 0)) for n in range(_CALLERS)]
            for _ in range(kills):
                async with self._gateway(config) as gateway:
                    await asyncio.sleep(self._dice.uniform(0, _LONGEST_LIFE_SECONDS))
                    self._up.clear()
                    gateway.child.kill()
                    await gateway.child.wait()
                    self.kills += 1
                self._on_kill()
            self._over = True
            async with self._gateway(config):
                await asyncio.wait(callers, timeout=_END_SECONDS)
                await self._ask_again()

    @contextlib.asynccontextmanager
    async def _gateway(self, config: dict[str, Any]) -> AsyncIterator[AsyncGatewayProcess]:
        async with running(self.directory, config, self._port) as gateway:
            self._port = gateway.port
            self._up.set()
            try:
                yield gateway
            finally:
                self._up.clear()

    async def _keep_calling(self, *, modern: bool) -> None:
        await self._up.wait()
        caller = Client(self._port, modern=modern)
        while not self._over:
            call = self._another()
            self.calls.append(call)
            await self._shake_hands(caller)
            await insist(call, caller, self._up)
        caller.close()

    async def _shake_hands(self, caller: Client) -> None:
        while not caller.modern and caller.session is None:
            await self._up.wait()
            try:
                await caller.open()
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)

    def _another(self) -> Logical:
        dice = self._dice
        waits = {"before": dice.choice((0, 0, 0.02)), "after": dice.choice((0, 0, 0.03))}
        return Logical(dice.choice(("bank", "web")), dice.choice(tuple(CLASSES)), waits)

    async def _ask_again(self) -> None:
        """Every acknowledged call is made once more."""
        known = iter([call for call in self.calls if call.told])

        async def ask() -> None:
            caller = Client(self._port, modern=True)
            for call in known:
                await repeat(call, caller, self._up)
            caller.close()

        await asyncio.gather(*(ask() for _ in range(_REPEATED_AT_ONCE)))

    def misfiled(self) -> list[str]:
        """Calls whose record differs from what their callers got."""
        found = states(self.directory / "data")
        wrong = [call for call in self.calls if not call.agrees(found.get(call.key))]
        return [f"{call.key}: {found.get(call.key)}, told {call.told or 'in doubt'}" for call in wrong]


@case(
    "S01",
    "kill -9 of the gateway at random points, twelve callers each, five classes, stdio and HTTP",
    "lost 0, executed twice 0, wrong answer 0; in doubt only what may have happened",
    quick_seconds=90,
    full_seconds=3600,
)
async def random_kills(trial: Trial) -> None:
    """Whatever moment the gateway dies at, nothing that it said is lost and nothing happens twice."""
    kills, started = trial.size(quick=30, full=1_000), time.monotonic()
    arenas = [Arena(trial.directory / f"gateway{number}", number) for number in range(_GATEWAYS)]
    await asyncio.gather(*(arena.run(kills // _GATEWAYS) for arena in arenas))
    seconds, killed = time.monotonic() - started, sum(arena.kills for arena in arenas)
    lines = [read(arena.deeds) for arena in arenas]
    trial.measure("kills", f"{killed} in {seconds:.0f} s")
    for tool, kind in CLASSES.items():
        chosen = [[call for call in arena.calls if call.tool == tool] for arena in arenas]
        tally = together(map(judge, chosen, lines))
        trial.measure(kind, f"{tally.calls} calls: {tally.row()}")
    total = together(judge(arena.calls, of_it) for arena, of_it in zip(arenas, lines, strict=True))
    trial.measure("calls", total.calls)
    trial.measure("broken connections", sum(call.broken for arena in arenas for call in arena.calls))
    check_tally(trial, total)
    misfiled = [line for arena in arenas for line in arena.misfiled()]
    trial.check("the ledger says what callers were told", not misfiled, misfiled[:3])


def check_tally(trial: Trial, tally: Tally) -> None:
    """The first two columns and the last are 0."""
    trial.measure("outcome", tally.row())
    trial.measure("of those in doubt", tally.explained())
    trial.check("there were calls", tally.acknowledged > 0, tally.calls)
    trial.check("lost = 0", tally.lost == 0, tally.faults[:3])
    trial.check("executed twice = 0", tally.twice == 0, tally.faults[:3])
    trial.check("wrong answer = 0", tally.wrong == 0, tally.faults[:3])
    trial.check("in doubt only what may have happened", tally.unfounded == 0, tally.faults[:3])
    trial.check("every caller got a definite answer", tally.open == 0, tally.faults[:3])
