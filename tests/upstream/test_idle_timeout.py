"""A cold server runs while it is used; one that does not start is left alone until it is needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.errors import UpstreamTimeout, UpstreamUnavailable, UpstreamUnreachable
from headgate.domain.server_spec import ServerState
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.fleet import UpstreamFleet
from testkit.virtual_time import VirtualTimeLoop, virtual_time
from tests.upstream.scripted_server import (
    LEGACY,
    MODERN,
    SAMPLING,
    ScriptedFleet,
    ScriptedServer,
    call,
    owner,
    soon,
    spec,
)

IDLE_SECONDS = 300.0


def state(fleet: UpstreamFleet) -> ServerState:
    (status,) = fleet.statuses()
    return status.state


@asynccontextmanager
async def cold(harness: ScriptedFleet, *, known: bool = True, **more: Any) -> AsyncIterator[UpstreamFleet]:
    """A fleet of one cold server, whose tools are known or not."""
    if known:
        harness.facts.kept.add(PLAIN_PROFILE)
    async with UpstreamFleet(harness.server.open, harness.facts, harness.facts) as fleet:
        fleet.apply([spec(cold=True, **more)])
        yield fleet


# Started by its first use.


@virtual_time
async def test_a_cold_server_whose_tools_are_known_is_not_started() -> None:
    harness = ScriptedFleet()
    async with cold(harness) as fleet:
        await asyncio.sleep(3600)
        assert (harness.opened, state(fleet), fleet.settled) == ([], ServerState.IDLE, True)
        async with asyncio.timeout(1):
            await fleet.wait_for_listing(PoolKey(SAMPLING, None, "local", alone=True))
        assert harness.opened == [], "a listing does not start it"


@pytest.mark.parametrize("use", ["call", "subscription", "await"])
@pytest.mark.parametrize("version", [LEGACY, MODERN])
@virtual_time
async def test_the_first_use_starts_a_cold_server(version: str, use: str) -> None:
    harness = ScriptedFleet(ScriptedServer(version, {"tools": {}, "resources": {"subscribe": True}}))
    async with cold(harness) as fleet:
        await soon(lambda: state(fleet) is ServerState.IDLE)
        if use == "call":
            await fleet.send_to_server(call())
        elif use == "subscription":
            await fleet.subscribe("bank", "a:b")
        else:
            await fleet.await_ready("bank")
        assert (len(harness.opened), state(fleet)) == (1, ServerState.READY)
        (status,) = fleet.statuses()
        assert status.restarts == 0


@virtual_time
async def test_five_hundred_clients_at_once_start_a_cold_server_once() -> None:
    harness = ScriptedFleet()
    async with cold(harness) as fleet:
        await asyncio.gather(*(fleet.send_to_server(call()) for _ in range(500)))
        assert len(harness.opened) == 1
        assert len(harness.server.asked("tools/call")) == 500


@virtual_time
async def test_a_cold_server_of_which_nothing_is_known_is_started_once_to_learn_its_tools() -> None:
    harness = ScriptedFleet()
    async with cold(harness, known=False) as fleet:
        await soon(lambda: state(fleet) is ServerState.READY)
        await asyncio.sleep(IDLE_SECONDS + 1)
        assert (len(harness.opened), state(fleet), len(harness.facts.offers())) == (1, ServerState.IDLE, 1)


@virtual_time
async def test_a_first_call_learns_why_a_cold_server_does_not_start() -> None:
    harness = ScriptedFleet()
    harness.server.answers["server/discover"] = UpstreamUnreachable("bank", "nobody listens")
    harness.server.answers["initialize"] = UpstreamUnreachable("bank", "nobody listens")
    async with cold(harness) as fleet:
        with pytest.raises(UpstreamUnavailable, match="nobody listens"):
            await fleet.send_to_server(call())


# Stopped when idle.


@virtual_time
async def test_a_server_that_is_not_used_is_stopped_and_comes_back() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(idle_timeout_seconds=10.0) as fleet:
        for starts in (1, 2, 3):
            await fleet.send_to_server(call())
            await asyncio.sleep(9)
            assert state(fleet) is ServerState.READY
            await asyncio.sleep(2)
            assert (state(fleet), len(harness.opened), harness.transports[-1].closed) == (
                ServerState.IDLE,
                starts,
                True,
            )
        (status,) = fleet.statuses()
        assert (status.restarts, status.last_error) == (0, None), "it was stopped on purpose"


@virtual_time
async def test_a_server_without_a_limit_is_never_stopped() -> None:
    harness = ScriptedFleet()
    async with harness.fleet() as fleet:
        await asyncio.sleep(7200)
        assert (state(fleet), len(harness.opened)) == (ServerState.READY, 1)


@virtual_time
async def test_a_server_at_work_is_not_stopped() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(idle_timeout_seconds=10.0) as fleet:
        harness.server.may_answer.clear()
        under_way = asyncio.create_task(fleet.send_to_server(call()))
        await asyncio.sleep(500)
        assert state(fleet) is ServerState.READY
        harness.server.may_answer.set()
        await under_way
        await asyncio.sleep(21)
        assert state(fleet) is ServerState.IDLE


@virtual_time
async def test_a_server_that_somebody_listens_to_is_not_stopped() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY, {"tools": {}, "resources": {"subscribe": True}}))
    async with harness.fleet(idle_timeout_seconds=10.0) as fleet:
        await fleet.subscribe("bank", "a:b")
        await asyncio.sleep(100)
        assert state(fleet) is ServerState.READY
        await fleet.unsubscribe("bank", "a:b")
        await asyncio.sleep(21)
        assert state(fleet) is ServerState.IDLE


@virtual_time
async def test_a_server_with_a_line_of_a_client_is_not_stopped() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY))
    async with harness.fleet(idle_timeout_seconds=10.0) as fleet:
        await fleet.send_to_server(call(SAMPLING, owner("ann")))
        await asyncio.sleep(100)
        assert state(fleet) is ServerState.READY
        fleet.close_client("ann")
        await asyncio.sleep(21)
        assert state(fleet) is ServerState.IDLE


@pytest.mark.parametrize("how", ["cancelled", "too late"])
@virtual_time
async def test_a_server_that_may_still_work_on_a_call_that_was_given_up_is_not_stopped(how: str) -> None:
    harness = ScriptedFleet()
    async with harness.fleet(idle_timeout_seconds=10.0, max_timeout_seconds=200.0) as fleet:
        harness.server.may_answer.clear()
        if how == "cancelled":
            task = asyncio.create_task(fleet.send_to_server(call()))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})
        else:
            harness.server.answers["tools/call"] = UpstreamTimeout("bank", "pay", 5.0)
            with pytest.raises(UpstreamTimeout):
                await fleet.send_to_server(call())
        await asyncio.sleep(199)
        assert state(fleet) is ServerState.READY
        await asyncio.sleep(32)
        assert state(fleet) is ServerState.IDLE


@virtual_time
async def test_a_stopped_server_is_not_asked_whether_it_is_there() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(idle_timeout_seconds=1000.0) as fleet:
        await asyncio.sleep(999)
        pings = len(harness.server.asked("server/discover"))
        assert 30 <= pings <= 35, "the limit does not make them more"
        await asyncio.sleep(3600)
        assert state(fleet) is ServerState.IDLE
        assert len(harness.server.asked("server/discover")) == pings


@given(st.lists(st.tuples(st.floats(0, 40), st.floats(0, 40)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_no_call_is_lost_to_a_server_that_is_about_to_stop(calls: list[tuple[float, float]]) -> None:
    """However pauses and calls follow each other: each is answered once, and one start serves one period."""

    async def use(fleet: UpstreamFleet, harness: ScriptedFleet) -> None:
        for pause, work in calls:
            await asyncio.sleep(pause)
            harness.server.may_answer.clear()
            task = asyncio.create_task(fleet.send_to_server(call()))
            await asyncio.sleep(work)
            harness.server.may_answer.set()
            await task

    async def check() -> None:
        harness = ScriptedFleet()
        async with cold(harness, idle_timeout_seconds=10.0) as fleet:
            await use(fleet, harness)
            assert len(harness.server.asked("tools/call")) == len(calls)
            assert len(harness.opened) <= max(1, len(calls))
            await asyncio.sleep(60)
            assert state(fleet) is ServerState.IDLE
            assert all(transport.closed for transport in harness.transports)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check())


# One that does not start.


def broken(harness: ScriptedFleet) -> None:
    harness.server.answers["server/discover"] = UpstreamUnreachable("bank", "nobody listens")
    harness.server.answers["initialize"] = UpstreamUnreachable("bank", "nobody listens")


@virtual_time
async def test_a_server_that_fails_too_often_is_left_alone_until_it_is_used() -> None:
    harness = ScriptedFleet()
    broken(harness)
    async with UpstreamFleet(harness.server.open, harness.facts, harness.facts) as fleet:
        fleet.apply([spec(max_restarts=5)])
        await asyncio.sleep(3600)
        assert (len(harness.opened), state(fleet)) == (5, ServerState.FAILED)
        (status,) = fleet.statuses()
        assert status.last_error == "nobody listens"
        with pytest.raises(UpstreamUnavailable, match="nobody listens"):
            await fleet.send_to_server(call())
        assert len(harness.opened) == 6, "a use is one more attempt"


@virtual_time
async def test_uses_start_a_failed_server_twice_a_minute_at_most() -> None:
    harness = ScriptedFleet()
    broken(harness)
    async with UpstreamFleet(harness.server.open, harness.facts, harness.facts) as fleet:
        fleet.apply([spec(max_restarts=3)])
        await asyncio.sleep(60)
        before, loop = len(harness.opened), asyncio.get_running_loop()
        until = loop.time() + 600
        while loop.time() < until:
            with pytest.raises(UpstreamUnavailable) as told:
                await fleet.send_to_server(call())
            assert told.value.retry_after_seconds is not None
            assert 0 < told.value.retry_after_seconds <= 30
            await asyncio.sleep(0.5)
        assert 15 <= len(harness.opened) - before <= 21


@virtual_time
async def test_a_failed_server_that_works_again_serves_the_call_that_started_it() -> None:
    harness = ScriptedFleet()
    broken(harness)
    async with UpstreamFleet(harness.server.open, harness.facts, harness.facts) as fleet:
        fleet.apply([spec(max_restarts=3)])
        await soon(lambda: state(fleet) is ServerState.FAILED)
        harness.server.answers.clear()
        await asyncio.sleep(31)
        await fleet.send_to_server(call())
        assert state(fleet) is ServerState.READY
        await asyncio.sleep(11)
        harness.transports[-1].end()
        await asyncio.sleep(1)
        assert state(fleet) is ServerState.READY, "what went before is forgiven"


@virtual_time
async def test_a_crash_loop_is_bounded_and_hurts_no_other_server() -> None:
    harness, other = ScriptedFleet(), ScriptedServer()
    broken(harness)

    def open_transport(which: Any, router: Any, stderr: Any) -> Any:
        return (harness.server if which.name == "bank" else other).open(which, router, stderr)

    async with UpstreamFleet(open_transport, harness.facts, harness.facts) as fleet:
        fleet.apply([spec(), spec("other")])
        await asyncio.sleep(60)
        in_the_first_minute = len(harness.opened)
        await asyncio.sleep(60)
        assert in_the_first_minute <= 12
        assert len(harness.opened) - in_the_first_minute <= 3
        assert [status.state for status in fleet.statuses()] == [ServerState.BACKOFF, ServerState.READY]
        assert len(other.opened) == 1
