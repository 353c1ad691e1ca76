"""Clients that may be asked something never share a connection, and connections are few."""

import asyncio

import pytest

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import HeadgateError, ResourceExhausted, UpstreamUnreachable
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import McpRequest
from headgate.upstream.connection_pool import PoolKey, pool_key_of
from testkit.virtual_time import virtual_time
from tests.upstream.fake_connections import PATIENCE_SECONDS, FakeConnectionPool, background, pool_key, settle
from tests.upstream.scripted_server import EXTENDED, ROOTS, SAMPLING, owner

# Which line a request needs.


@pytest.mark.parametrize(
    ("profile", "level", "alone"),
    [(PLAIN_PROFILE, "", False), (EXTENDED, "", False), (SAMPLING, "", True), (PLAIN_PROFILE, "info", True)],
)
def test_who_can_be_asked_or_told_something_needs_a_line_alone(
    profile: ClientProfile, level: str, *, alone: bool
) -> None:
    ann = owner("ann")
    request = McpRequest(caller=Identity(principal="key 1"), profile=profile, log_level=level, session=ann)
    assert pool_key_of(request) == PoolKey(profile, ann, "key 1", alone)


# Whose line it is.


@virtual_time
async def test_a_handshake_client_has_one_line_for_all_that_it_does_at_once() -> None:
    exchange = FakeConnectionPool()
    lines = [await exchange.acquire(pool_key("ann")) for _ in range(3)]
    assert len(set(lines)) == len(exchange.connections) == 1
    assert exchange.connections[0].owner is not None
    assert exchange.connections[0].owner.id == "ann"
    await exchange.pool.close()


@virtual_time
async def test_requests_of_a_client_at_the_same_time_open_one_connection() -> None:
    exchange = FakeConnectionPool(at_once=False)
    tasks = [asyncio.create_task(exchange.acquire(pool_key("ann"))) for _ in range(5)]
    await settle()
    (wire,) = exchange.connections
    wire.stands.set_result(None)
    assert len(set(await asyncio.gather(*tasks))) == 1
    await exchange.pool.close()


@virtual_time
async def test_two_handshake_clients_do_not_share_a_line() -> None:
    exchange = FakeConnectionPool()
    ann, bob = await exchange.acquire(pool_key("ann")), await exchange.acquire(pool_key("bob"))
    assert ann is not bob
    exchange.pool.release(ann)
    assert await exchange.acquire(pool_key("bob")) is bob
    await exchange.pool.close()


@pytest.mark.parametrize(
    "other",
    [pool_key(profile=ROOTS), pool_key(principal="key 2"), pool_key("ann"), pool_key(profile=EXTENDED)],
)
@virtual_time
async def test_an_idle_line_is_not_for_somebody_of_another_kind(other: PoolKey) -> None:
    exchange = FakeConnectionPool()
    line = await exchange.acquire(pool_key())
    exchange.pool.release(line)
    assert await exchange.acquire(other) is not line
    await exchange.pool.close()


@virtual_time
async def test_stateless_clients_that_can_be_asked_lease_a_line_alone_and_one_after_the_other() -> None:
    exchange = FakeConnectionPool()
    first, second = await exchange.acquire(pool_key()), await exchange.acquire(pool_key())
    assert first is not second
    exchange.pool.release(first)
    assert await exchange.acquire(pool_key()) is first
    assert len(exchange.connections) == 2
    await exchange.pool.close()


@pytest.mark.parametrize("id", [None, "ann"])
@virtual_time
async def test_a_line_on_which_nobody_can_be_asked_is_everybodys_of_that_profile(id: str | None) -> None:
    exchange = FakeConnectionPool()
    lines = {await exchange.acquire(pool_key(who, EXTENDED)) for who in (id, None, "bob")}
    assert len(lines) == 1
    assert exchange.connections[0].owner is None
    exchange.pool.close_client("ann")
    assert len(exchange.pool) == 1, "it is not ann's alone"
    await exchange.pool.close()


@virtual_time
async def test_who_wants_log_messages_does_not_share_that_line() -> None:
    exchange = FakeConnectionPool()
    shared = await exchange.acquire(pool_key("ann", EXTENDED))
    assert await exchange.acquire(pool_key("ann", EXTENDED, logs=True)) is not shared
    await exchange.pool.close()


# How many there are.


@virtual_time
async def test_the_line_that_was_idle_for_longest_makes_room() -> None:
    exchange = FakeConnectionPool(most=2)
    for name in ("ann", "bob"):
        exchange.pool.release(await exchange.acquire(pool_key(name)))
        await asyncio.sleep(1)
    exchange.pool.release(await exchange.acquire(pool_key("ann")))
    await exchange.acquire(pool_key("cy"))
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["ann", "cy"]
    await exchange.pool.close()


@virtual_time
async def test_a_line_in_use_is_never_closed_for_another() -> None:
    exchange = FakeConnectionPool(most=2)
    mine = [await exchange.acquire(pool_key(name)) for name in ("ann", "bob")]
    late = await exchange.waiting(pool_key("cy"))
    assert len(exchange.open) == 2
    exchange.pool.release(mine[0])
    assert (await late).owner is not None
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["bob", "cy"]
    await exchange.pool.close()


@virtual_time
async def test_who_came_first_is_served_first() -> None:
    exchange = FakeConnectionPool(most=1)
    line = await exchange.acquire(pool_key("ann"))
    served: list[str] = []

    async def use(name: str) -> None:
        mine = await exchange.acquire(pool_key(name))
        served.append(name)
        exchange.pool.release(mine)

    names = [f"client {number}" for number in range(20)]
    waiting = [asyncio.create_task(use(name)) for name in names]
    await settle()
    exchange.pool.release(line)
    await asyncio.gather(*waiting)
    assert served == names
    await exchange.pool.close()


@virtual_time
async def test_who_waits_in_vain_hears_that_all_are_in_use() -> None:
    exchange = FakeConnectionPool(most=1)
    await exchange.acquire(pool_key("ann"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(ResourceExhausted, match="1 connections"):
        await exchange.acquire(pool_key("bob"))
    assert loop.time() - started == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    await exchange.pool.close()


@virtual_time
async def test_a_line_that_ends_by_itself_makes_room() -> None:
    exchange = FakeConnectionPool(most=1)
    await exchange.acquire(pool_key("ann"))
    late = await exchange.waiting(pool_key("bob"))
    exchange.connections[0].lose()
    await late
    await exchange.pool.close()


@virtual_time
async def test_stateless_clients_share_when_there_is_no_room_and_nobody_was_ever_asked() -> None:
    exchange = FakeConnectionPool(most=2)
    lines = [await exchange.acquire(pool_key()) for _ in range(6)]
    assert len(exchange.connections) == 2
    assert sorted(lines.count(line) for line in set(lines)) == [3, 3], "the least busy one first"
    await exchange.pool.close()


@virtual_time
async def test_nobody_shares_once_the_server_has_asked_anybody_anything() -> None:
    exchange = FakeConnectionPool(most=1)
    line = await exchange.acquire(pool_key())
    exchange.pool.server_sends_requests = True
    late = await exchange.waiting(pool_key())
    exchange.pool.release(line)
    assert await late is line
    assert line.leases == 1
    await exchange.pool.close()


@pytest.mark.parametrize("other", [pool_key("ann"), pool_key(profile=ROOTS), pool_key(principal="key 2")])
@virtual_time
async def test_even_then_nobody_of_another_kind_is_let_in(other: PoolKey) -> None:
    exchange = FakeConnectionPool(most=1)
    await exchange.acquire(pool_key())
    with pytest.raises(ResourceExhausted):
        await exchange.acquire(other)
    await exchange.pool.close()


@virtual_time
async def test_nobody_is_let_into_the_line_of_a_handshake_client() -> None:
    exchange = FakeConnectionPool(most=1)
    await exchange.acquire(pool_key("ann"))
    for other in (pool_key(), pool_key("bob")):
        with pytest.raises(ResourceExhausted):
            await exchange.acquire(other)
    await exchange.pool.close()


# When opening fails.


@pytest.mark.parametrize("error", [UpstreamUnreachable("bank", "nobody listens"), ValueError("a bug")])
@virtual_time
async def test_a_connection_that_cannot_be_opened_fails_for_everybody_who_waits_for_it(
    error: Exception,
) -> None:
    exchange = FakeConnectionPool(at_once=False)
    tasks = [await exchange.waiting(pool_key("ann")) for _ in range(3)]
    exchange.connections[0].fail(error)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, UpstreamUnreachable) for outcome in outcomes)
    assert len(exchange.pool) == 0
    exchange.at_once = True
    assert (await exchange.acquire(pool_key("ann"))).leases == 1, "the next one tries anew"
    await exchange.pool.close()


@virtual_time
async def test_who_gives_up_waiting_does_not_take_the_connection_from_the_others() -> None:
    exchange = FakeConnectionPool(at_once=False)
    impatient, patient = await exchange.waiting(pool_key("ann")), await exchange.waiting(pool_key("ann"))
    impatient.cancel()
    await settle()
    exchange.connections[0].stands.set_result(None)
    assert (await patient).leases == 1
    await exchange.pool.close()


@virtual_time
async def test_a_connection_that_everybody_gave_up_waiting_for_is_there_for_the_next() -> None:
    exchange = FakeConnectionPool(at_once=False)
    impatient = await exchange.waiting(pool_key("ann"))
    impatient.cancel()
    await settle()
    exchange.connections[0].stands.set_result(None)
    assert (await exchange.acquire(pool_key("ann"))).leases == 1
    assert len(exchange.connections) == 1
    await exchange.pool.close()


# How lines end.


@virtual_time
async def test_a_client_that_is_gone_has_no_lines() -> None:
    exchange = FakeConnectionPool()
    await exchange.acquire(pool_key("ann"))
    await exchange.acquire(pool_key("bob"))
    exchange.pool.close_client("ann")
    await settle()
    assert [wire.owner.id for wire in exchange.open if wire.owner] == ["bob"]
    assert len(exchange.pool.client_peers("bob")) == 1
    assert exchange.pool.client_peers("ann") == []
    await exchange.pool.close()


@virtual_time
async def test_a_client_that_leaves_while_its_line_is_opened_is_not_waited_for() -> None:
    exchange = FakeConnectionPool(at_once=False)
    under_way = await exchange.waiting(pool_key("ann"))
    exchange.pool.close_client("ann")
    with pytest.raises(HeadgateError):
        await under_way
    await settle()
    assert exchange.open == []
    assert not background()


@virtual_time
async def test_a_client_that_leaves_in_the_same_breath_does_not_wait_for_ever() -> None:
    exchange = FakeConnectionPool(at_once=False)
    under_way = asyncio.create_task(exchange.acquire(pool_key("ann")))
    await asyncio.sleep(0)
    exchange.pool.close_client("ann")
    with pytest.raises(HeadgateError):
        await under_way
    assert exchange.open == []


@virtual_time
async def test_a_line_that_nobody_owns_is_closed_after_a_minute_without_use() -> None:
    exchange = FakeConnectionPool()
    idle, busy = await exchange.acquire(pool_key()), await exchange.acquire(pool_key())
    exchange.pool.release(idle)
    of_ann = await exchange.acquire(pool_key("ann"))
    of_ann.peer.result().used_by_client = True
    exchange.pool.release(of_ann)
    await asyncio.sleep(59)
    exchange.pool.close_idle()
    assert len(exchange.pool) == 3
    await asyncio.sleep(2)
    exchange.pool.close_idle()
    await settle()
    assert len(exchange.pool) == len(exchange.open) == 2
    assert await exchange.acquire(pool_key()) is not busy
    await exchange.pool.close()


@virtual_time
async def test_a_line_on_which_a_client_only_listed_is_closed_after_a_minute_too() -> None:
    exchange = FakeConnectionPool()
    exchange.pool.release(await exchange.acquire(pool_key("ann")))
    await asyncio.sleep(61)
    exchange.pool.close_idle()
    await settle()
    assert len(exchange.pool) == len(exchange.open) == 0


@virtual_time
async def test_a_line_that_was_dropped_is_closed_and_not_given_to_anybody() -> None:
    exchange = FakeConnectionPool()
    line = await exchange.acquire(pool_key("ann"))
    exchange.pool.evict(line)
    exchange.pool.release(line)
    exchange.pool.evict(line)
    assert await exchange.acquire(pool_key("ann")) is not line
    assert [wire.closed for wire in exchange.connections] == [True, False]
    await exchange.pool.close()


@virtual_time
async def test_the_end_leaves_nothing_behind() -> None:
    exchange = FakeConnectionPool(most=4)
    await exchange.acquire(pool_key("ann"))
    exchange.pool.evict(await exchange.acquire(pool_key("bob")))
    exchange.at_once = False
    opening = await exchange.waiting(pool_key("cy"))
    await exchange.pool.close()
    with pytest.raises(HeadgateError):
        await opening
    assert exchange.open == []
    assert not background()


@virtual_time
async def test_who_waits_for_room_at_the_end_opens_nothing_any_more() -> None:
    exchange = FakeConnectionPool(most=1)
    await exchange.acquire(pool_key("ann"))
    late = await exchange.waiting(pool_key("bob"))
    await exchange.pool.close()
    with pytest.raises(HeadgateError):
        await late
    with pytest.raises(HeadgateError):
        await exchange.acquire(pool_key("cy"))
    await settle()
    assert len(exchange.connections) == 1
    assert not background()


# What is found on them.


@virtual_time
async def test_some_connection_of_a_profile_is_found_when_it_stands() -> None:
    exchange = FakeConnectionPool(at_once=False)
    opening = await exchange.waiting(pool_key("ann"))
    assert exchange.pool.peer_for_profile(SAMPLING) is None
    assert exchange.pool.client_peers("ann") == []
    exchange.connections[0].stands.set_result(None)
    line = await opening
    assert exchange.pool.peer_for_profile(SAMPLING) is line.peer.result()
    assert exchange.pool.peer_for_profile(ROOTS) is None
    assert exchange.pool.client_peers("ann") == [line.peer.result()]
    await exchange.pool.close()


@virtual_time
async def test_the_end_waits_for_a_line_that_was_lost_and_is_being_closed() -> None:
    exchange = FakeConnectionPool(slow_to_close=True)
    exchange.pool.release(await exchange.acquire(pool_key("ann")))
    (wire,) = exchange.connections
    wire.lose()
    await settle()
    assert not wire.closed
    await exchange.pool.close()
    assert wire.closed
