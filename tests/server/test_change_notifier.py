"""The change notifier: clients that see a difference are notified once, and no others."""

import asyncio
import json
from typing import Any

import pytest

from headgate.catalog.listing_cache import AllExcept
from headgate.domain.identity import LOCAL_IDENTITY, Identity, everything_visible
from headgate.domain.mcp_request import ClientSession
from headgate.protocol.jsonrpc import parse_message
from headgate.server.change_notifier import ChangeNotifier, VisibilityGroups
from headgate.server.event_streams import ReplayBuffer
from headgate.server.outbound_queue import OutboundQueue
from headgate.server.session_streams import SessionStreams
from headgate.server.sessions import HandshakeSession, HttpSession
from headgate.server.stateless_http import ClientSubscription
from testkit.waiting import eventually
from tests.server.test_session_channel import Mailbox

WAIT_SECONDS = 5.0
CHANGED = "notifications/tools/list_changed"
CIRCLES = ("one", "two", "three")


class Ear:
    """Notes what it hears."""

    identity = LOCAL_IDENTITY

    def __init__(self) -> None:
        self.heard: list[tuple[str, VisibilityGroups]] = []

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        self.heard.append((capability, visibility_groups))

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        raise AssertionError(uri)

    async def hears(self, number: int = 1) -> list[tuple[str, set[str] | None]]:
        """Each capability that has changed, and whom of three circles it concerns; None is everybody."""
        await eventually(lambda: len(self.heard) >= number, WAIT_SECONDS, "heard")
        return [
            (
                capability,
                None
                if visibility_groups is None
                else {name for name in CIRCLES if name in visibility_groups},
            )
            for capability, visibility_groups in self.heard
        ]


# When.


async def test_many_changes_of_one_moment_are_told_once() -> None:
    change_notifier, ear = ChangeNotifier(everything_visible), Ear()
    change_notifier.add_listener(ear)
    for _ in range(50):
        change_notifier.list_changed("tools")
    change_notifier.list_changed("prompts")
    assert ear.heard == []
    assert sorted(await ear.hears(2)) == [("prompts", None), ("tools", None)]
    assert change_notifier.tool_list_changes == 1


async def test_what_is_told_now_is_told_before_anything_else_happens() -> None:
    change_notifier, ear = ChangeNotifier(everything_visible), Ear()
    change_notifier.add_listener(ear)
    change_notifier.notify_now("tools", ("one",))
    assert ear.heard == [("tools", ("one",))]


async def test_a_change_after_one_was_told_is_told_again() -> None:
    change_notifier, ear = ChangeNotifier(everything_visible), Ear()
    change_notifier.add_listener(ear)
    change_notifier.list_changed("tools", ["one"])
    await ear.hears(1)
    change_notifier.list_changed("tools", ["two"])
    assert await ear.hears(2) == [("tools", {"one"}), ("tools", {"two"})]
    assert change_notifier.tool_list_changes == 2


async def test_who_has_left_or_a_gateway_that_ends_is_told_nothing() -> None:
    change_notifier, ear, stays = ChangeNotifier(everything_visible), Ear(), Ear()
    change_notifier.add_listener(ear)
    change_notifier.add_listener(stays)
    change_notifier.list_changed("tools")
    change_notifier.remove_listener(ear)
    change_notifier.remove_listener(ear)
    assert await stays.hears()
    change_notifier.list_changed("tools")
    change_notifier.end_streams()
    change_notifier.add_listener(ear)
    change_notifier.list_changed("prompts")
    await ear.hears()
    assert ear.heard == [("prompts", None)]
    assert stays.heard == [("tools", None), ("prompts", None)]


# Whom.


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([["one"], ["two"], ["one"]], {"one", "two"}),
        ([["one"], None], None),
        ([None, ["one"]], None),
        ([(), ["one"]], {"one"}),
        ([["one"], ()], {"one"}),
        ([AllExcept({"one"}), ["two"]], {"two", "three"}),
        ([AllExcept({"one"}), ["one"]], {"one", "two", "three"}),
    ],
)
async def test_changes_of_one_moment_concern_everybody_whom_any_of_them_concerns(
    changes: list[VisibilityGroups], expected: set[str] | None
) -> None:
    change_notifier, ear = ChangeNotifier(everything_visible), Ear()
    change_notifier.add_listener(ear)
    for visibility_groups in changes:
        change_notifier.list_changed("tools", visibility_groups)
    assert await ear.hears() == [("tools", expected)]


async def test_each_capability_has_its_own_circles() -> None:
    change_notifier, ear = ChangeNotifier(everything_visible), Ear()
    change_notifier.add_listener(ear)
    change_notifier.list_changed("tools", ["one"])
    change_notifier.list_changed("prompts", None)
    assert sorted(await ear.hears(2)) == [("prompts", None), ("tools", {"one"})]


def test_circles_given_by_a_caller_stay_as_they_are() -> None:
    async def change() -> None:
        change_notifier = ChangeNotifier(everything_visible)
        given = {"one"}
        change_notifier.list_changed("tools", given)
        change_notifier.list_changed("tools", ["two"])
        assert given == {"one"}
        change_notifier.end_streams()

    asyncio.run(change())


# A session.


def methods(mailbox: Mailbox) -> list[str]:
    return [message["method"] for message in mailbox.sent]


@pytest.mark.parametrize(("visibility_groups", "times"), [(None, 1), ((), 0), (["another"], 0)])
async def test_a_session_hears_what_is_for_everybody_and_nothing_for_others(
    visibility_groups: VisibilityGroups, times: int
) -> None:
    mailbox = Mailbox()
    HandshakeSession(mailbox, LOCAL_IDENTITY).list_changed("tools", visibility_groups)
    assert methods(mailbox) == [CHANGED] * times


async def test_a_session_hears_what_is_for_its_own_circle() -> None:
    mailbox = Mailbox()
    session = HandshakeSession(mailbox, LOCAL_IDENTITY)
    session.list_changed("tools", ["another", session.owner.id])
    assert methods(mailbox) == [CHANGED]


class UnderWay:
    """A request that is being answered."""

    live = True

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def send_before_reply(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def cancel(self) -> None:
        raise AssertionError


async def test_a_session_without_a_stream_hears_of_its_own_list_with_the_answer_under_way() -> None:
    session = HttpSession(SessionStreams(ReplayBuffer()), 0.0, LOCAL_IDENTITY)
    call = UnderWay()
    session.streams.exchanges[b"1"] = call
    session.list_changed("tools", ["another"])
    assert call.said == []
    session.list_changed("tools", [session.owner.id])
    assert [message["method"] for message in call.said] == [CHANGED]
    # It knows, so it is not told again when it opens a stream.
    session.streams.open_standalone()
    assert list(session.streams.standalone.events if session.streams.standalone else ()) == []


# The stateless era.


def subscription(caller: Identity, *wanted: str) -> ClientSubscription:
    notifications = {f"{name}ListChanged": True for name in wanted}
    message = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "subscriptions/listen",
        "params": {"notifications": notifications},
    }
    return ClientSubscription(parse_message(json.dumps(message).encode()), OutboundQueue(), caller)


async def heard(one: ClientSubscription) -> list[str]:
    """What waits in its outbox."""
    one.outbound_queue.end()
    found: list[str] = []
    while (reply := await one.outbound_queue.get(WAIT_SECONDS)) is not None:
        assert isinstance(reply.head, bytes)
        found.append(json.loads(reply.head)["method"])
    return found


@pytest.mark.parametrize(
    ("visibility_groups", "hears"),
    [
        (None, ["alice", "local"]),
        (["principal alice"], ["alice"]),
        (["principal local"], ["local"]),
        (["alice", "local"], []),
        ((), []),
    ],
)
async def test_a_subscription_hears_what_concerns_its_principal(
    visibility_groups: VisibilityGroups, hears: list[str]
) -> None:
    subscriptions = {name: subscription(Identity(principal=name), "tools") for name in ("alice", "local")}
    for one in subscriptions.values():
        one.list_changed("tools", visibility_groups)
    assert [name for name, one in subscriptions.items() if await heard(one)] == hears


async def test_a_subscription_hears_only_of_what_it_asked_for() -> None:
    one = subscription(Identity(principal="local"), "prompts")
    one.list_changed("tools", None)
    one.list_changed("prompts", None)
    assert await heard(one) == ["notifications/prompts/list_changed"]
