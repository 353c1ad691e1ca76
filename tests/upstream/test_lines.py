"""Clients that may be asked something never share a connection, and connections are few."""

import asyncio

import pytest

from headgate.domain.call import Caller, Request
from headgate.domain.errors import Exhausted, HeadgateError, UpstreamUnreachable
from headgate.domain.profile import PLAIN, Profile
from headgate.upstream.lines import Claim, claim_of
from tests.upstream.clock import in_no_time
from tests.upstream.exchange import PATIENCE_SECONDS, Exchange, background, claim, settle
from tests.upstream.stage import EXTENDED, ROOTS, SAMPLING, owner

# Which line a request needs.


@pytest.mark.parametrize(
    ("profile", "level", "alone"),
    [(PLAIN, "", False), (EXTENDED, "", False), (SAMPLING, "", True), (PLAIN, "info", True)],
)
def test_who_can_be_asked_or_told_something_needs_a_line_alone(
    profile: Profile, level: str, *, alone: bool
) -> None:
    ann = owner("ann")
    request = Request(caller=Caller("key 1"), profile=profile, log_level=level, owner=ann)
    assert claim_of(request) == Claim(profile, ann, "key 1", alone)


# Whose line it is.


@in_no_time
async def test_a_handshake_client_has_one_line_for_all_that_it_does_at_once() -> None:
    exchange = Exchange()
    lines = [await exchange.lease(claim("ann")) for _ in range(3)]
    assert len(set(lines)) == len(exchange.wires) == 1
    assert exchange.wires[0].owner is not None
    assert exchange.wires[0].owner.id == "ann"
    await exchange.lines.close()


@in_no_time
async def test_requests_of_a_client_at_the_same_time_open_one_connection() -> None:
    exchange = Exchange(at_once=False)
    tasks = [asyncio.create_task(exchange.lease(claim("ann"))) for _ in range(5)]
    await settle()
    (wire,) = exchange.wires
    wire.stands.set_result(None)
    assert len(set(await asyncio.gather(*tasks))) == 1
    await exchange.lines.close()


@in_no_time
async def test_two_handshake_clients_do_not_share_a_line() -> None:
    exchange = Exchange()
    ann, bob = await exchange.lease(claim("ann")), await exchange.lease(claim("bob"))
    assert ann is not bob
    exchange.lines.give_back(ann)
    assert await exchange.lease(claim("bob")) is bob
    await exchange.lines.close()


@pytest.mark.parametrize(
    "other", [claim(profile=ROOTS), claim(principal="key 2"), claim("ann"), claim(profile=EXTENDED)]
)
@in_no_time
async def test_an_idle_line_is_not_for_somebody_of_another_kind(other: Claim) -> None:
    exchange = Exchange()
    line = await exchange.lease(claim())
    exchange.lines.give_back(line)
    assert await exchange.lease(other) is not line
    await exchange.lines.close()


@in_no_time
async def test_stateless_clients_that_can_be_asked_lease_a_line_alone_and_one_after_the_other() -> None:
    exchange = Exchange()
    first, second = await exchange.lease(claim()), await exchange.lease(claim())
    assert first is not second
    exchange.lines.give_back(first)
    assert await exchange.lease(claim()) is first
    assert len(exchange.wires) == 2
    await exchange.lines.close()


@pytest.mark.parametrize("id", [None, "ann"])
@in_no_time
async def test_a_line_on_which_nobody_can_be_asked_is_everybodys_of_that_profile(id: str | None) -> None:
    exchange = Exchange()
    lines = {await exchange.lease(claim(who, EXTENDED)) for who in (id, None, "bob")}
    assert len(lines) == 1
    assert exchange.wires[0].owner is None
    exchange.lines.end("ann")
    assert len(exchange.lines) == 1, "it is not ann's alone"
    await exchange.lines.close()


@in_no_time
async def test_who_wants_log_messages_does_not_share_that_line() -> None:
    exchange = Exchange()
    shared = await exchange.lease(claim("ann", EXTENDED))
    assert await exchange.lease(claim("ann", EXTENDED, logs=True)) is not shared
    await exchange.lines.close()


# How many there are.


@in_no_time
async def test_the_line_that_was_idle_for_longest_makes_room() -> None:
    exchange = Exchange(most=2)
    for name in ("ann", "bob"):
        exchange.lines.give_back(await exchange.lease(claim(name)))
        await asyncio.sleep(1)
    exchange.lines.give_back(await exchange.lease(claim("ann")))
    await exchange.lease(claim("cy"))
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["ann", "cy"]
    await exchange.lines.close()


@in_no_time
async def test_a_line_in_use_is_never_closed_for_another() -> None:
    exchange = Exchange(most=2)
    mine = [await exchange.lease(claim(name)) for name in ("ann", "bob")]
    late = await exchange.waiting(claim("cy"))
    assert len(exchange.open) == 2
    exchange.lines.give_back(mine[0])
    assert (await late).owner is not None
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["bob", "cy"]
    await exchange.lines.close()


@in_no_time
async def test_who_came_first_is_served_first() -> None:
    exchange = Exchange(most=1)
    line = await exchange.lease(claim("ann"))
    served: list[str] = []

    async def use(name: str) -> None:
        mine = await exchange.lease(claim(name))
        served.append(name)
        exchange.lines.give_back(mine)

    names = [f"client {number}" for number in range(20)]
    waiting = [asyncio.create_task(use(name)) for name in names]
    await settle()
    exchange.lines.give_back(line)
    await asyncio.gather(*waiting)
    assert served == names
    await exchange.lines.close()


@in_no_time
async def test_who_waits_in_vain_hears_that_all_are_in_use() -> None:
    exchange = Exchange(most=1)
    await exchange.lease(claim("ann"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(Exhausted, match="1 connections"):
        await exchange.lease(claim("bob"))
    assert loop.time() - started == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    await exchange.lines.close()


@in_no_time
async def test_a_line_that_ends_by_itself_makes_room() -> None:
    exchange = Exchange(most=1)
    await exchange.lease(claim("ann"))
    late = await exchange.waiting(claim("bob"))
    exchange.wires[0].lose()
    await late
    await exchange.lines.close()


@in_no_time
async def test_stateless_clients_share_when_there_is_no_room_and_nobody_was_ever_asked() -> None:
    exchange = Exchange(most=2)
    lines = [await exchange.lease(claim()) for _ in range(6)]
    assert len(exchange.wires) == 2
    assert sorted(lines.count(line) for line in set(lines)) == [3, 3], "the least busy one first"
    await exchange.lines.close()


@in_no_time
async def test_nobody_shares_once_the_server_has_asked_anybody_anything() -> None:
    exchange = Exchange(most=1)
    line = await exchange.lease(claim())
    exchange.lines.asks = True
    late = await exchange.waiting(claim())
    exchange.lines.give_back(line)
    assert await late is line
    assert line.busy == 1
    await exchange.lines.close()


@pytest.mark.parametrize("other", [claim("ann"), claim(profile=ROOTS), claim(principal="key 2")])
@in_no_time
async def test_even_then_nobody_of_another_kind_is_let_in(other: Claim) -> None:
    exchange = Exchange(most=1)
    await exchange.lease(claim())
    with pytest.raises(Exhausted):
        await exchange.lease(other)
    await exchange.lines.close()


@in_no_time
async def test_nobody_is_let_into_the_line_of_a_handshake_client() -> None:
    exchange = Exchange(most=1)
    await exchange.lease(claim("ann"))
    for other in (claim(), claim("bob")):
        with pytest.raises(Exhausted):
            await exchange.lease(other)
    await exchange.lines.close()


# When opening fails.


@pytest.mark.parametrize("error", [UpstreamUnreachable("bank", "nobody listens"), ValueError("a bug")])
@in_no_time
async def test_a_connection_that_cannot_be_opened_fails_for_everybody_who_waits_for_it(
    error: Exception,
) -> None:
    exchange = Exchange(at_once=False)
    tasks = [await exchange.waiting(claim("ann")) for _ in range(3)]
    exchange.wires[0].fail(error)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, UpstreamUnreachable) for outcome in outcomes)
    assert len(exchange.lines) == 0
    exchange.at_once = True
    assert (await exchange.lease(claim("ann"))).busy == 1, "the next one tries anew"
    await exchange.lines.close()


@in_no_time
async def test_who_gives_up_waiting_does_not_take_the_connection_from_the_others() -> None:
    exchange = Exchange(at_once=False)
    impatient, patient = await exchange.waiting(claim("ann")), await exchange.waiting(claim("ann"))
    impatient.cancel()
    await settle()
    exchange.wires[0].stands.set_result(None)
    assert (await patient).busy == 1
    await exchange.lines.close()


@in_no_time
async def test_a_connection_that_everybody_gave_up_waiting_for_is_there_for_the_next() -> None:
    exchange = Exchange(at_once=False)
    impatient = await exchange.waiting(claim("ann"))
    impatient.cancel()
    await settle()
    exchange.wires[0].stands.set_result(None)
    assert (await exchange.lease(claim("ann"))).busy == 1
    assert len(exchange.wires) == 1
    await exchange.lines.close()


# How lines end.


@in_no_time
async def test_a_client_that_is_gone_has_no_lines() -> None:
    exchange = Exchange()
    await exchange.lease(claim("ann"))
    await exchange.lease(claim("bob"))
    exchange.lines.end("ann")
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["bob"]
    assert len(exchange.lines.peers_of("bob")) == 1
    assert exchange.lines.peers_of("ann") == []
    await exchange.lines.close()


@in_no_time
async def test_a_client_that_leaves_while_its_line_is_opened_is_not_waited_for() -> None:
    exchange = Exchange(at_once=False)
    under_way = await exchange.waiting(claim("ann"))
    exchange.lines.end("ann")
    with pytest.raises(HeadgateError):
        await under_way
    await settle()
    assert exchange.open == []
    assert not background()


@in_no_time
async def test_a_client_that_leaves_in_the_same_breath_does_not_wait_for_ever() -> None:
    exchange = Exchange(at_once=False)
    under_way = asyncio.create_task(exchange.lease(claim("ann")))
    await asyncio.sleep(0)
    exchange.lines.end("ann")
    with pytest.raises(HeadgateError):
        await under_way
    assert exchange.open == []


@in_no_time
async def test_a_line_that_nobody_owns_is_closed_after_a_minute_without_use() -> None:
    exchange = Exchange()
    idle, busy = await exchange.lease(claim()), await exchange.lease(claim())
    exchange.lines.give_back(idle)
    of_ann = await exchange.lease(claim("ann"))
    of_ann.peer.result().called = True
    exchange.lines.give_back(of_ann)
    await asyncio.sleep(59)
    exchange.lines.expire()
    assert len(exchange.lines) == 3
    await asyncio.sleep(2)
    exchange.lines.expire()
    await settle()
    assert len(exchange.lines) == len(exchange.open) == 2
    assert await exchange.lease(claim()) is not busy
    await exchange.lines.close()


@in_no_time
async def test_a_line_on_which_a_client_only_listed_is_closed_after_a_minute_too() -> None:
    exchange = Exchange()
    exchange.lines.give_back(await exchange.lease(claim("ann")))
    await asyncio.sleep(61)
    exchange.lines.expire()
    await settle()
    assert len(exchange.lines) == len(exchange.open) == 0


@in_no_time
async def test_a_line_that_was_dropped_is_closed_and_not_given_to_anybody() -> None:
    exchange = Exchange()
    line = await exchange.lease(claim("ann"))
    exchange.lines.drop(line)
    exchange.lines.give_back(line)
    exchange.lines.drop(line)
    assert await exchange.lease(claim("ann")) is not line
    assert [wire.closed for wire in exchange.wires] == [True, False]
    await exchange.lines.close()


@in_no_time
async def test_the_end_leaves_nothing_behind() -> None:
    exchange = Exchange(most=4)
    await exchange.lease(claim("ann"))
    exchange.lines.drop(await exchange.lease(claim("bob")))
    exchange.at_once = False
    opening = await exchange.waiting(claim("cy"))
    await exchange.lines.close()
    with pytest.raises(HeadgateError):
        await opening
    assert exchange.open == []
    assert not background()


@in_no_time
async def test_who_waits_for_room_at_the_end_opens_nothing_any_more() -> None:
    exchange = Exchange(most=1)
    await exchange.lease(claim("ann"))
    late = await exchange.waiting(claim("bob"))
    await exchange.lines.close()
    with pytest.raises(HeadgateError):
        await late
    with pytest.raises(HeadgateError):
        await exchange.lease(claim("cy"))
    await settle()
    assert len(exchange.wires) == 1
    assert not background()


# What is found on them.


@in_no_time
async def test_some_connection_of_a_profile_is_found_when_it_stands() -> None:
    exchange = Exchange(at_once=False)
    opening = await exchange.waiting(claim("ann"))
    assert exchange.lines.any_of(SAMPLING) is None
    assert exchange.lines.peers_of("ann") == []
    exchange.wires[0].stands.set_result(None)
    line = await opening
    assert exchange.lines.any_of(SAMPLING) is line.peer.result()
    assert exchange.lines.any_of(ROOTS) is None
    assert exchange.lines.peers_of("ann") == [line.peer.result()]
    await exchange.lines.close()


@in_no_time
async def test_the_end_waits_for_a_line_that_was_lost_and_is_being_closed() -> None:
    exchange = Exchange(slow_to_close=True)
    exchange.lines.give_back(await exchange.lease(claim("ann")))
    (wire,) = exchange.wires
    wire.lose()
    await settle()
    assert not wire.closed
    await exchange.lines.close()
    assert wire.closed
