"""The audience: whoever sees a difference is told once, and nobody else."""

import asyncio
import json
from typing import Any

import pytest

from headgate.catalog.seen import AllBut
from headgate.domain.call import Caller, Owner
from headgate.front.audience import Audience, Circles
from headgate.front.outbox import Outbox
from headgate.front.reach import Reach
from headgate.front.sessions import HttpSession, Session
from headgate.front.stateless import Subscription
from headgate.front.streams import Room
from headgate.wire.envelope import parse
from tests.front.test_questions import Mailbox
from tests.waiting import eventually

WAIT_SECONDS = 5.0
CHANGED = "notifications/tools/list_changed"
CIRCLES = ("one", "two", "three")


class Ear:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Circles]] = []

    def changed(self, capability: str, circles: Circles) -> None:
        self.heard.append((capability, circles))

    def updated(self, uri: str, params: bytes, owner: Owner | None) -> None:
        raise AssertionError(uri)

    async def hears(self, number: int = 1) -> list[tuple[str, set[str] | None]]:
        """Each capability that has changed, and whom of three circles it concerns; None is everybody."""
        await eventually(lambda: len(self.heard) >= number, WAIT_SECONDS, "heard")
        return [
            (capability, None if circles is None else {name for name in CIRCLES if name in circles})
            for capability, circles in self.heard
        ]


# When.


async def test_many_changes_of_one_moment_are_told_once() -> None:
    audience, ear = Audience(), Ear()
    audience.join(ear)
    for _ in range(50):
        audience.changed("tools")
    audience.changed("prompts")
    assert ear.heard == []
    assert sorted(await ear.hears(2)) == [("prompts", None), ("tools", None)]
    assert audience.told == 1


async def test_what_is_told_now_is_told_before_anything_else_happens() -> None:
    audience, ear = Audience(), Ear()
    audience.join(ear)
    audience.tell("tools", ("one",))
    assert ear.heard == [("tools", ("one",))]


async def test_a_change_after_one_was_told_is_told_again() -> None:
    audience, ear = Audience(), Ear()
    audience.join(ear)
    audience.changed("tools", ["one"])
    await ear.hears(1)
    audience.changed("tools", ["two"])
    assert await ear.hears(2) == [("tools", {"one"}), ("tools", {"two"})]
    assert audience.told == 2


async def test_who_has_left_or_a_gateway_that_ends_is_told_nothing() -> None:
    audience, ear, stays = Audience(), Ear(), Ear()
    audience.join(ear)
    audience.join(stays)
    audience.changed("tools")
    audience.leave(ear)
    audience.leave(ear)
    assert await stays.hears()
    audience.changed("tools")
    audience.dismiss()
    audience.join(ear)
    audience.changed("prompts")
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
        ([AllBut({"one"}), ["two"]], {"two", "three"}),
        ([AllBut({"one"}), ["one"]], {"one", "two", "three"}),
    ],
)
async def test_changes_of_one_moment_concern_everybody_whom_any_of_them_concerns(
    changes: list[Circles], expected: set[str] | None
) -> None:
    audience, ear = Audience(), Ear()
    audience.join(ear)
    for circles in changes:
        audience.changed("tools", circles)
    assert await ear.hears() == [("tools", expected)]


async def test_each_capability_has_its_own_circles() -> None:
    audience, ear = Audience(), Ear()
    audience.join(ear)
    audience.changed("tools", ["one"])
    audience.changed("prompts", None)
    assert sorted(await ear.hears(2)) == [("prompts", None), ("tools", {"one"})]


def test_circles_given_by_a_caller_stay_as_they_are() -> None:
    async def change() -> None:
        audience = Audience()
        given = {"one"}
        audience.changed("tools", given)
        audience.changed("tools", ["two"])
        assert given == {"one"}
        audience.dismiss()

    asyncio.run(change())


# A session.


def methods(mailbox: Mailbox) -> list[str]:
    return [message["method"] for message in mailbox.sent]


@pytest.mark.parametrize(("circles", "times"), [(None, 1), ((), 0), (["another"], 0)])
async def test_a_session_hears_what_is_for_everybody_and_nothing_for_others(
    circles: Circles, times: int
) -> None:
    mailbox = Mailbox()
    Session(mailbox).changed("tools", circles)
    assert methods(mailbox) == [CHANGED] * times


async def test_a_session_hears_what_is_for_its_own_circle() -> None:
    mailbox = Mailbox()
    session = Session(mailbox)
    session.changed("tools", ["another", session.owner.id])
    assert methods(mailbox) == [CHANGED]


class UnderWay:
    """A request that is being answered."""

    live = True

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def emit(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def cancel(self) -> None:
        raise AssertionError


async def test_a_session_without_a_stream_hears_of_its_own_list_with_the_answer_under_way() -> None:
    session = HttpSession(Reach(Room()), 0.0)
    call = UnderWay()
    session.reach.exchanges[b"1"] = call
    session.changed("tools", ["another"])
    assert call.said == []
    session.changed("tools", [session.owner.id])
    assert [message["method"] for message in call.said] == [CHANGED]
    # It knows, so it is not told again when it opens a stream.
    session.reach.open_listening()
    assert list(session.reach.listening.events if session.reach.listening else ()) == []


# The stateless era.


def subscription(caller: Caller, *wanted: str) -> Subscription:
    notifications = {f"{name}ListChanged": True for name in wanted}
    message = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "subscriptions/listen",
        "params": {"notifications": notifications},
    }
    return Subscription(parse(json.dumps(message).encode()), Outbox(), caller)


async def heard(one: Subscription) -> list[str]:
    """What waits in its outbox."""
    one.outbox.end()
    found: list[str] = []
    while (reply := await one.outbox.get(WAIT_SECONDS)) is not None:
        assert isinstance(reply.head, bytes)
        found.append(json.loads(reply.head)["method"])
    return found


@pytest.mark.parametrize(
    ("circles", "hears"),
    [
        (None, ["alice", "local"]),
        (["principal alice"], ["alice"]),
        (["principal local"], ["local"]),
        (["alice", "local"], []),
        ((), []),
    ],
)
async def test_a_subscription_hears_what_concerns_its_principal(circles: Circles, hears: list[str]) -> None:
    subscriptions = {name: subscription(Caller(name), "tools") for name in ("alice", "local")}
    for one in subscriptions.values():
        one.changed("tools", circles)
    assert [name for name, one in subscriptions.items() if await heard(one)] == hears


async def test_a_subscription_hears_only_of_what_it_asked_for() -> None:
    one = subscription(Caller("local"), "prompts")
    one.changed("tools", None)
    one.changed("prompts", None)
    assert await heard(one) == ["notifications/prompts/list_changed"]
