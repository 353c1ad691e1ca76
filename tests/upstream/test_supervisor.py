"""The life of one upstream: it changes, is replaced, hangs and fails, and its calls go on where they can."""

import asyncio
from itertools import pairwise

import pytest

from headgate.domain.server_spec import ServerState
from testkit.virtual_time import virtual_time
from tests.upstream.scripted_server import START_SECONDS, ScriptedFleet, ScriptedServer, call, spec


@virtual_time
async def test_a_server_that_was_replaced_says_nothing_about_its_successor() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(seconds=60.0) as fleet:
        harness.server.may_answer.clear()
        under_way = asyncio.create_task(fleet.send_to_server(call()))
        await asyncio.sleep(1)
        fleet.apply([spec(seconds=61.0)])
        await fleet.await_ready("bank")
        old, _ = harness.transports
        old.say_changed()
        await asyncio.sleep(1)
        old.end()
        await asyncio.sleep(1)
        assert len(harness.transports) == 3, "the old one was connected again for the call under way"
        assert harness.facts.offers() == [[b'{"name":"of 60"}'], [b'{"name":"of 61"}']]
        assert (len(harness.facts.greetings), len(harness.facts.versions)) == (2, 2)
        harness.server.may_answer.set()
        await under_way


@virtual_time
async def test_a_server_too_busy_to_list_its_tools_keeps_its_calls() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(seconds=5.0) as fleet:
        (transport,) = harness.transports
        harness.server.may_answer.clear()
        under_way = asyncio.create_task(fleet.send_to_server(call()))
        transport.list_hangs = True
        await asyncio.sleep(1)
        transport.say_changed()
        await asyncio.sleep(60)
        assert len(harness.transports) == 1
        assert len(transport.listings) < 12
        transport.list_hangs = False
        await asyncio.sleep(60)
        assert len(harness.facts.offers()) == 2
        harness.server.may_answer.set()
        await under_way
        (status,) = fleet.statuses()
        assert status.state is ServerState.READY


@virtual_time
async def test_an_idle_server_that_does_not_list_its_tools_is_connected_again() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(seconds=5.0):
        harness.transports[0].list_hangs = True
        harness.transports[0].say_changed()
        await asyncio.sleep(6)
        assert len(harness.transports) == 2


@virtual_time
async def test_a_server_that_changes_all_the_time_is_asked_now_and_then() -> None:
    harness = ScriptedFleet()
    async with harness.fleet():
        (transport,) = harness.transports
        transport.listings.clear()
        for _ in range(2400):
            transport.say_changed()
            await asyncio.sleep(0.05)
        gaps = [later - before for before, later in pairwise(transport.listings)]
        assert gaps[:5] == pytest.approx([1, 2, 4, 8, 16], abs=0.2)
        assert gaps[5:] == pytest.approx([30] * len(gaps[5:]), abs=0.2)
        asked = len(transport.listings)
        await asyncio.sleep(31)
        assert len(transport.listings) == asked + 1, "the last change is not missed"


@virtual_time
async def test_after_a_quiet_minute_a_change_is_looked_at_soon_again() -> None:
    harness = ScriptedFleet()
    async with harness.fleet():
        (transport,) = harness.transports
        for _ in range(1200):
            transport.say_changed()
            await asyncio.sleep(0.05)
        await asyncio.sleep(100)
        transport.listings.clear()
        started = asyncio.get_running_loop().time()
        for _ in range(15):
            transport.say_changed()
            await asyncio.sleep(0.1)
        assert [when - started for when in transport.listings] == pytest.approx([0, 1], abs=0.2)


@virtual_time
async def test_a_bug_in_a_subscription_is_logged_and_does_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = ScriptedServer(capabilities={"tools": {"listChanged": True}})
    server.answers["subscriptions/listen"] = ValueError("a bug")
    async with ScriptedFleet(server).fleet():
        await asyncio.sleep(10)
        assert len(server.asked("subscriptions/listen")) >= 3
    assert any(record.message == "subscription failed" and record.exc_info for record in caplog.records)


@virtual_time
async def test_a_start_that_hangs_is_no_good_connection_and_the_rests_get_longer() -> None:
    harness = ScriptedFleet()
    harness.server.later_ones_are_mute = True
    async with harness.fleet():
        harness.transports[0].end()
        await asyncio.sleep(8 * START_SECONDS)
        hung = harness.opened[1:]
        rests = [later - before - START_SECONDS for before, later in pairwise(hung)]
        assert rests[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2], abs=0.05)


@virtual_time
async def test_the_loss_of_a_connection_that_stood_counts_as_the_first() -> None:
    harness = ScriptedFleet()
    async with harness.fleet():
        for _ in range(5):
            await asyncio.sleep(15)
            before = asyncio.get_running_loop().time()
            harness.transports[-1].end()
            await asyncio.sleep(5)
            assert harness.opened[-1] - before == pytest.approx(0.1, abs=0.05)
