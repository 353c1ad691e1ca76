"""Whatever clients do and connections suffer: none gets another's connection, and none is lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.domain.errors import HeadgateError
from headgate.upstream.connection_pool import ClientConnection, PoolKey
from testkit.virtual_time import VirtualTimeLoop
from tests.upstream.fake_connections import FakeConnectionPool, background, pool_key, settle
from tests.upstream.scripted_server import EXTENDED, SAMPLING

MOST = 2
# Few enough that they often want the same.
CLAIMS = st.builds(
    pool_key,
    st.sampled_from([None, None, "ann", "bob"]),
    st.sampled_from([SAMPLING, SAMPLING, EXTENDED]),
    st.sampled_from(["key 1", "key 2"]),
    logs=st.booleans(),
)
ANY = st.integers(min_value=0, max_value=1000)


class LinesMachine(RuleBasedStateMachine):
    """Leases, gives back, gives up, fails, loses and ends at random."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.exchange = self.run(self._begin())
        self.leases: list[tuple[asyncio.Task[ClientConnection], PoolKey]] = []
        self.held: list[tuple[ClientConnection, PoolKey]] = []
        self.seen: set[ClientConnection] = set()

    async def _begin(self) -> FakeConnectionPool:
        return FakeConnectionPool(MOST, at_once=False)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def _settle(self) -> None:
        await settle()
        for task, wanted in list(self.leases):
            if task.done():
                self.leases.remove((task, wanted))
                self._ended(task, wanted)

    def _ended(self, task: "asyncio.Task[ClientConnection]", wanted: PoolKey) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            assert isinstance(error, HeadgateError)
            return
        line = task.result()
        self.seen.add(line)
        self.held.append((line, wanted))

    @rule(wanted=CLAIMS)
    def lease(self, wanted: PoolKey) -> None:
        async def begin() -> None:
            self.leases.append((asyncio.create_task(self.exchange.acquire(wanted)), wanted))
            await self._settle()

        self.run(begin())

    @precondition(lambda self: self.held)
    @rule(which=ANY)
    def give_back(self, which: int) -> None:
        line, _ = self.held.pop(which % len(self.held))
        self.exchange.pool.release(line)
        self.run(self._settle())

    @precondition(lambda self: self.held)
    @rule(which=ANY)
    def find_the_session_gone(self, which: int) -> None:
        line, _ = self.held.pop(which % len(self.held))
        self.exchange.pool.evict(line)
        self.exchange.pool.release(line)
        self.run(self._settle())

    @precondition(lambda self: self.leases)
    @rule(which=ANY)
    def give_up(self, which: int) -> None:
        self.leases[which % len(self.leases)][0].cancel()
        self.run(self._settle())

    @rule(which=ANY, stands=st.booleans())
    def open_or_fail(self, which: int, *, stands: bool) -> None:
        opening = [wire for wire in self.exchange.open if not wire.stands.done()]
        if opening:
            wire = opening[which % len(opening)]
            wire.stands.set_result(None) if stands else wire.fail()
            self.run(self._settle())

    @rule(which=ANY)
    def lose(self, which: int) -> None:
        standing = [wire for wire in self.exchange.open if wire.stands.done()]
        if standing:
            standing[which % len(standing)].lose()
            self.run(self._settle())

    @rule(owner=st.sampled_from(["ann", "bob"]))
    def end(self, owner: str) -> None:
        self.exchange.pool.close_client(owner)
        self.run(self._settle())

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        self.exchange.pool.close_idle()
        self.run(self._settle())

    @rule()
    def ask_somebody(self) -> None:
        self.exchange.pool.server_sends_requests = True

    @invariant()
    def lines_are_few(self) -> None:
        assert len(self.exchange.pool) <= MOST

    @invariant()
    def a_line_serves_one_kind_of_client(self) -> None:
        for line, wanted in self.held:
            assert (line.profile, line.principal) == (wanted.profile, wanted.principal)
            if line.owner is not None:
                assert wanted.owner is not None
                assert line.owner.id == wanted.owner.id
            else:
                assert wanted.owner is None or not wanted.alone

    @invariant()
    def every_use_is_counted(self) -> None:
        holders = [line for line, _ in self.held]
        for line in self.seen:
            assert line.leases >= holders.count(line)
            if not self.leases:
                assert line.leases == holders.count(line)

    def teardown(self) -> None:
        async def end() -> None:
            await self.exchange.pool.close()
            await self._settle()
            assert not self.leases, "nobody waits for a line any more"
            assert self.exchange.open == []
            assert not background()

        try:
            self.run(end())
        finally:
            self.loop.close()


class Asking(LinesMachine):
    """The same with a server that has asked something from the start, so that no clients share."""

    async def _begin(self) -> FakeConnectionPool:
        exchange = await super()._begin()
        exchange.pool.server_sends_requests = True
        return exchange

    @invariant()
    def who_is_alone_is_alone(self) -> None:
        for line, wanted in self.held:
            others = [other for where, other in self.held if where is line and other is not wanted]
            if wanted.alone and wanted.owner is None:
                assert others == []
            elif wanted.alone:
                assert all(other.owner and other.owner.id == line.owner.id for other in others if line.owner)


BOUNDS = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestSharing = LinesMachine.TestCase
TestSharing.settings = BOUNDS
TestAsking = Asking.TestCase
TestAsking.settings = BOUNDS
