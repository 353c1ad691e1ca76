"""Clients that a server may ask something: their own connections, listings, subscriptions and log levels."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import ClientSession, McpResponse
from headgate.domain.server_spec import ServerState
from headgate.upstream.connection_pool import PoolKey
from headgate.upstream.transport import OutgoingRequest
from testkit.virtual_time import virtual_time
from tests.upstream.fake_connections import settle
from tests.upstream.scripted_server import (
    EXTENDED,
    LEGACY,
    MODERN,
    ROOTS,
    SAMPLING,
    ScriptedConnection,
    ScriptedFleet,
    ScriptedServer,
    call,
    failed,
    owner,
    soon,
    spec,
)

LOGGING: dict[str, Any] = {"tools": {}, "logging": {}}
EVERYTHING: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def calls(connection: ScriptedConnection) -> int:
    return sum(asked.method == "tools/call" for asked in connection.asked)


def want(profile: ClientProfile, whose: ClientSession | None = None) -> PoolKey:
    return PoolKey(profile, whose, "local", profile.accepts_input_requests)


def legacy(capabilities: dict[str, Any] = EVERYTHING) -> ScriptedFleet:
    return ScriptedFleet(ScriptedServer(LEGACY, capabilities))


# Which connection a call takes.


@virtual_time
async def test_a_client_that_declared_something_gets_a_connection_that_declares_exactly_that() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, owner("ann")))
        (line,) = harness.server.client_connections
        assert line.declared == {"sampling": {}}
        assert (calls(line), calls(harness.server.main)) == (1, 0)
        assert [said["method"] for said in line.said] == ["notifications/initialized"]
        (status,) = fleet.statuses()
        assert status.client_connections == 1
    assert line.closed


@virtual_time
async def test_a_client_that_declared_nothing_shares_the_main_connection() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        for whose in (owner("ann"), owner("bob"), None):
            await fleet.send_to_server(call(PLAIN_PROFILE, whose))
        assert calls(harness.server.main) == 3
        assert len(harness.transports) == 1


@virtual_time
async def test_a_stateless_server_needs_only_the_main_connection() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))
    async with harness.fleet() as fleet:
        for profile in (SAMPLING, ROOTS, PLAIN_PROFILE):
            await fleet.send_to_server(call(profile, owner("ann")))
        assert len(harness.transports) == 1
        metas = [json.loads(asked.params)["_meta"] for asked in harness.server.asked("tools/call")]
        declared = [meta["io.modelcontextprotocol/clientCapabilities"] for meta in metas]
        assert declared == [{"sampling": {}}, {"roots": {}}, {}]


@virtual_time
async def test_a_server_that_is_said_to_be_shared_has_no_other_connection() -> None:
    harness = legacy(LOGGING)
    async with harness.fleet(shared=True) as fleet:
        await fleet.send_to_server(call(SAMPLING, owner("ann"), log_level="info"))
        await fleet.wait_for_listing(want(SAMPLING))
        assert len(harness.transports) == 1


@pytest.mark.parametrize(("capabilities", "connections"), [(LOGGING, 2), ({"tools": {}}, 1)])
@virtual_time
async def test_who_wants_log_messages_has_a_connection_where_there_are_any(
    capabilities: dict[str, Any], connections: int
) -> None:
    harness = legacy(capabilities)
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(PLAIN_PROFILE, owner("ann"), log_level="info"))
        await fleet.send_to_server(call(PLAIN_PROFILE, owner("ann"), log_level="info"))
        assert len(harness.transports) == connections
        assert len(harness.server.asked("logging/setLevel")) == connections - 1


@virtual_time
async def test_a_client_that_asks_for_other_log_messages_is_heard_on_its_own_connections_only() -> None:
    harness = legacy(LOGGING)
    async with harness.fleet() as fleet:
        for name in ("ann", "bob"):
            await fleet.send_to_server(call(SAMPLING, owner(name)))
        await fleet.set_log_level("ann", "debug")
        heard = [[asked.method for asked in line.asked] for line in harness.server.client_connections]
        assert [methods.count("logging/setLevel") for methods in heard] == [1, 0]


@virtual_time
async def test_what_a_client_tells_its_servers_goes_out_on_its_own_connections() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        for name in ("ann", "bob"):
            await fleet.send_to_server(call(ROOTS, owner(name)))
        await fleet.forward_notification("bob", "notifications/roots/list_changed", b"")
        told = [[said["method"] for said in line.said] for line in harness.server.client_connections]
        assert [("notifications/roots/list_changed" in methods) for methods in told] == [False, True]


@virtual_time
async def test_a_client_that_is_gone_takes_its_connections_with_it() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        for name in ("ann", "bob"):
            await fleet.send_to_server(call(SAMPLING, owner(name)))
        fleet.close_client("ann")
        await settle()
        assert [line.closed for line in harness.server.client_connections] == [True, False]


@virtual_time
async def test_a_connection_that_nobody_uses_any_more_is_closed_in_the_end() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING))
        (line,) = harness.server.client_connections
        await asyncio.sleep(40)
        assert not line.closed
        await asyncio.sleep(80)
        assert line.closed


@virtual_time
async def test_there_are_no_more_connections_than_the_server_may_have() -> None:
    harness = legacy()
    harness.server.may_answer.clear()
    async with harness.fleet(max_connections=2) as fleet:
        under_way = [
            asyncio.create_task(fleet.send_to_server(call(SAMPLING, owner(str(n))))) for n in range(5)
        ]
        await asyncio.sleep(1)
        assert len(harness.server.client_connections) == 2
        harness.server.may_answer.set()
        await asyncio.gather(*under_way)
        await settle()
        assert sum(not line.closed for line in harness.server.client_connections) == 2


# Sessions that the server has forgotten.


@virtual_time
async def test_a_call_on_a_connection_that_the_server_forgot_is_sent_once_more() -> None:
    harness = legacy()
    ann = owner("ann")
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, ann))
        harness.server.client_connections[0].forgets = True
        await fleet.send_to_server(call(SAMPLING, ann))
        await settle()
        old, new = harness.server.client_connections
        assert old.closed
        assert calls(new) == 1
        (status,) = fleet.statuses()
        assert (status.state, status.errors, status.restarts) == (ServerState.READY, 0, 0)


@virtual_time
async def test_a_server_that_forgets_every_session_at_once_is_not_asked_for_ever() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        harness.server.forgets_calls = True
        with pytest.raises(UpstreamUnreachable, match="forgets every session"):
            await fleet.send_to_server(call(SAMPLING, owner("ann")))
        assert len(harness.server.asked("tools/call")) == 2


@virtual_time
async def test_a_listing_on_a_connection_that_the_server_forgot_is_asked_for_once_more() -> None:
    harness = legacy()
    ann = owner("ann")
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, ann))
        harness.server.client_connections[0].forgets = True
        await fleet.wait_for_listing(want(SAMPLING, ann))
        assert len(harness.facts.offers(profile=SAMPLING)) == 1


# What each profile is shown.


@virtual_time
async def test_a_profile_is_listed_once_on_a_connection_of_its_own() -> None:
    harness = legacy()
    ann = owner("ann")
    async with harness.fleet() as fleet:
        for _ in range(3):
            await fleet.wait_for_listing(want(SAMPLING, ann))
        (line,) = harness.server.client_connections
        assert [asked.method for asked in line.asked if asked.method.endswith("/list")] == [
            kind.list_method for kind in ItemKind
        ]
        assert [len(harness.facts.offers(kind, SAMPLING)) for kind in ItemKind] == [1, 1, 1, 1]
        await fleet.send_to_server(call(SAMPLING, ann))
        assert len(harness.server.client_connections) == 1, "the call takes the same connection"


@virtual_time
async def test_a_profile_is_listed_on_the_main_connection_of_a_stateless_server() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))
    async with harness.fleet() as fleet:
        await fleet.wait_for_listing(want(SAMPLING))
        await fleet.wait_for_listing(want(PLAIN_PROFILE))
        assert len(harness.transports) == 1
        assert [len(harness.facts.offers(profile=profile)) for profile in (PLAIN_PROFILE, SAMPLING)] == [1, 1]


@virtual_time
async def test_clients_that_list_at_the_same_time_have_it_asked_for_once() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await asyncio.gather(*(fleet.wait_for_listing(want(SAMPLING)) for _ in range(5)))
        assert len(harness.facts.offers(profile=SAMPLING)) == 1


@virtual_time
async def test_a_profile_that_cannot_be_listed_keeps_nobody_waiting() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        harness.server.later_ones_are_mute = True
        loop = asyncio.get_running_loop()
        started = loop.time()
        await fleet.wait_for_listing(want(SAMPLING))
        assert loop.time() - started < 10
        assert harness.facts.offers(profile=SAMPLING) == []
        (status,) = fleet.statuses()
        assert status.state is ServerState.READY


@virtual_time
async def test_a_change_that_is_told_on_a_line_is_looked_at_for_its_profile() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        harness.server.client_connections[0].say_changed()
        await soon(lambda: len(harness.facts.offers(profile=SAMPLING)) == 2)
        assert len(harness.facts.offers()) == 1, "nobody said that it changed for all"
        assert len(harness.facts.offers(ItemKind.PROMPTS, SAMPLING)) == 1


@virtual_time
async def test_a_change_of_resources_is_one_of_templates_too() -> None:
    harness = legacy()
    async with harness.fleet():
        harness.server.main.say_changed("resources")
        await soon(lambda: len(harness.facts.offers(ItemKind.TEMPLATES)) == 2)
        assert [len(harness.facts.offers(kind)) for kind in ItemKind] == [1, 1, 2, 2]


@virtual_time
async def test_a_change_that_nobody_of_a_profile_was_there_to_hear_is_not_missed() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        fleet.close_client("ann")
        await asyncio.sleep(1)
        harness.server.main.say_changed()
        await asyncio.sleep(5)
        await fleet.wait_for_listing(want(SAMPLING, owner("bob")))
        assert len(harness.facts.offers(profile=SAMPLING)) == 2


@virtual_time
async def test_a_change_at_a_stateless_server_is_one_for_every_profile() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))
    async with harness.fleet() as fleet:
        await fleet.wait_for_listing(want(SAMPLING))
        harness.server.main.say_changed()
        await soon(lambda: len(harness.facts.offers(profile=SAMPLING)) == 2)
        assert len(harness.facts.offers()) == 2


@virtual_time
async def test_what_goes_wrong_on_a_line_does_not_end_the_main_connection() -> None:
    harness = legacy()
    async with harness.fleet(seconds=5.0) as fleet:
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        (line,) = harness.server.client_connections
        line.list_hangs = True
        line.say_changed()
        await asyncio.sleep(60)
        (status,) = fleet.statuses()
        assert (status.state, status.restarts) == (ServerState.READY, 0)
        line.list_hangs = False
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        assert len(harness.facts.offers(profile=SAMPLING)) == 2


@virtual_time
async def test_a_server_that_tells_no_changes_is_asked_again_for_every_profile() -> None:
    harness = legacy({"tools": {}})
    async with harness.fleet() as fleet:
        # So that its line is not looked at in the very moment in which its time is over.
        await asyncio.sleep(10)
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        await asyncio.sleep(30)
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        await asyncio.sleep(1)
        assert len(harness.facts.offers(profile=SAMPLING)) == 1, "not yet"
        await asyncio.sleep(31)
        await fleet.wait_for_listing(want(SAMPLING, owner("ann")))
        await asyncio.sleep(1)
        assert [len(harness.facts.offers(profile=profile)) for profile in (PLAIN_PROFILE, SAMPLING)] == [2, 2]


@virtual_time
async def test_a_new_connection_may_be_to_a_new_version_so_every_profile_is_listed_again() -> None:
    for version in (LEGACY, MODERN):
        harness = ScriptedFleet(ScriptedServer(version, EVERYTHING))
        async with harness.fleet() as fleet:
            await fleet.wait_for_listing(want(EXTENDED))
            harness.server.main.end()
            await asyncio.sleep(5)
            # Where no other connection is needed for that, there is no wait for it.
            assert len(harness.facts.offers(profile=EXTENDED)) == (1 if version == LEGACY else 2)
            await fleet.wait_for_listing(want(EXTENDED))
            assert [len(harness.facts.offers(profile=profile)) for profile in (PLAIN_PROFILE, EXTENDED)] == [
                2,
                2,
            ]


@virtual_time
async def test_a_server_that_declares_resources_but_knows_no_templates_is_served() -> None:
    server = ScriptedServer(LEGACY, EVERYTHING)
    server.answers["resources/templates/list"] = failed(-32601)
    async with ScriptedFleet(server).fleet() as fleet:
        (status,) = fleet.statuses()
        assert status.state is ServerState.READY
        assert (status.tools, status.prompts, status.resources, status.templates) == (1, 1, 1, 0)


@virtual_time
async def test_a_server_whose_pages_go_in_circles_is_said_to_do_so() -> None:
    server = ScriptedServer(LEGACY, EVERYTHING)
    harness = ScriptedFleet(server)
    async with harness.fleet() as fleet:
        server.answers["prompts/list"] = McpResponse(b'{"prompts":[],"nextCursor":"again"}')
        server.main.say_changed("prompts")
        await asyncio.sleep(5)
        (status,) = fleet.statuses()
        assert status.state is ServerState.READY, "its tools are served all the same"
        assert len(server.asked("prompts/list")) < 20


# Subscribed resources.


@virtual_time
async def test_a_new_connection_is_subscribed_again() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.subscribe("bank", "a:/1")
        harness.server.main.end()
        await asyncio.sleep(5)
        assert [json.loads(asked.params) for asked in harness.server.main.asked[-1:]] == [{"uri": "a:/1"}]
        assert len(harness.server.asked("resources/subscribe")) == 2


@virtual_time
async def test_a_subscription_that_finds_no_session_is_sent_once_more() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        harness.server.main.forgets = True
        assert not (await fleet.subscribe("bank", "a:/1")).error
        assert len(harness.transports) == 2


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@virtual_time
async def test_a_server_that_is_defined_anew_keeps_its_subscriptions(version: str) -> None:
    harness = ScriptedFleet(ScriptedServer(version, EVERYTHING))
    async with harness.fleet() as fleet:
        await fleet.subscribe("bank", "a:/1")
        fleet.apply([spec(seconds=61.0)])
        await fleet.await_ready("bank")
        await asyncio.sleep(1)
        method = "resources/subscribe" if version == LEGACY else "subscriptions/listen"
        asked = [each for each in harness.transports[-1].asked if each.method == method]
        assert b"a:/1" in asked[-1].params
        await fleet.unsubscribe("bank", "a:/1")
        await asyncio.sleep(5)
        latest = harness.transports[-1].asked[-1]
        assert latest.method == ("resources/unsubscribe" if version == LEGACY else "subscriptions/listen")
        assert version == LEGACY or b"a:/1" not in latest.params


@virtual_time
async def test_an_update_is_handed_on_as_it_came() -> None:
    harness = legacy()
    async with harness.fleet():
        harness.server.main.say("notifications/resources/updated", {"uri": "a:/1", "x": [1]})
        assert [(server, uri) for server, uri, _ in harness.facts.updates] == [("bank", "a:/1")]
        assert json.loads(harness.facts.updates[0][2]) == {"uri": "a:/1", "x": [1]}


@virtual_time
async def test_a_subscription_of_the_stateless_era_is_widened_without_a_gap() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))
    async with harness.fleet() as fleet:
        main = harness.server.main
        await soon(lambda: main.listening == 1)
        await fleet.subscribe("bank", "a:/1")
        await soon(lambda: main.listening == 2)
        main.say("notifications/subscriptions/acknowledged")
        await soon(lambda: main.listening == 1)
        latest = json.loads(harness.server.asked("subscriptions/listen")[-1].params)
        assert latest["notifications"]["resourceSubscriptions"] == ["a:/1"]


@virtual_time
async def test_a_server_whose_subscription_ended_is_listed_again() -> None:
    server = ScriptedServer(MODERN, EVERYTHING)
    harness = ScriptedFleet(server)
    async with harness.fleet() as fleet:
        await fleet.wait_for_listing(want(SAMPLING))
        server.stop_listening.set()
        await soon(lambda: len(harness.facts.offers(profile=SAMPLING)) >= 2)
        assert len(server.asked("subscriptions/listen")) >= 2


@virtual_time
async def test_who_gives_up_before_a_subscription_is_taken_is_not_subscribed() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))
    async with harness.fleet() as fleet:
        wanting = asyncio.create_task(fleet.subscribe("bank", "a:/1"))
        await soon(lambda: b"a:/1" in latest_subscription(harness))
        wanting.cancel()
        await soon(lambda: b"a:/1" not in latest_subscription(harness))


def latest_subscription(harness: ScriptedFleet) -> bytes:
    """What the stateless server was last asked to tell of."""
    asked = harness.server.asked("subscriptions/listen")
    return asked[-1].params if asked else b""


@virtual_time
async def test_a_listing_that_fails_for_some_clients_is_news_to_the_others() -> None:
    harness = ScriptedFleet(ScriptedServer(MODERN, EVERYTHING))

    def listed(outgoing: OutgoingRequest) -> McpResponse:
        fresh = b'{"tools":[{"name":"fresh"}]}'
        return failed(-32603) if b'{"sampling":{}}' in outgoing.params else McpResponse(fresh)

    async with harness.fleet() as fleet:
        for profile in (SAMPLING, ROOTS):
            await fleet.wait_for_listing(want(profile))
        harness.server.answers["tools/list"] = listed
        harness.server.main.say_changed()
        for profile in (PLAIN_PROFILE, ROOTS):
            await soon(partial(shown_fresh, harness, profile), 60.0)


def shown_fresh(harness: ScriptedFleet, profile: ClientProfile) -> bool:
    """Whether clients of that profile are shown the new tool."""
    return harness.facts.offers(profile=profile)[-1] == [b'{"name":"fresh"}']


@virtual_time
async def test_a_client_whose_connection_is_busy_holds_up_nobody_who_subscribes() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, owner("ann")))
        (line,) = harness.server.client_connections
        line.mute = True
        started = asyncio.get_running_loop().time()
        assert not (await fleet.subscribe("bank", "a:/1")).error
        assert asyncio.get_running_loop().time() - started < 5


@virtual_time
async def test_who_gives_up_while_others_connections_are_subscribed_is_unsubscribed() -> None:
    harness = legacy()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, owner("ann")))
        (line,) = harness.server.client_connections
        line.mute = True
        wanting = asyncio.create_task(fleet.subscribe("bank", "a:/1"))
        await soon(lambda: bool(harness.server.asked("resources/subscribe")[1:]))
        wanting.cancel()
        await soon(lambda: bool(harness.server.asked("resources/unsubscribe")))
