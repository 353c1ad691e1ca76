"""The life of one upstream: it changes, is replaced, hangs and fails, and its calls go on where they can."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from headgate.domain.call import LOCAL, Answer, Call, Request
from headgate.domain.errors import UpstreamTimeout
from headgate.domain.server import ServerSpec, State, Transport
from headgate.domain.tool import Tool
from headgate.upstream.fleet import Fleet, run_fleet
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Link, Outgoing
from headgate.wire.envelope import Envelope
from tests.upstream.clock import in_no_time

START_SECONDS = 20.0


class Facts:
    """What the gateway was told."""

    def __init__(self) -> None:
        self.offers: list[list[bytes]] = []
        self.connections = 0
        self.versions = 0

    def version(self, server: str) -> str | None:
        return None

    def remember_version(self, server: str, version: str) -> None:
        self.versions += 1

    def offered(self, server: str, definitions: list[bytes]) -> dict[str, str]:
        self.offers.append(definitions)
        return {}

    def connected(self, server: str) -> None:
        self.connections += 1


class ScriptedLink:
    """A stateless server in memory; the test says what it does."""

    pid = None

    def __init__(self, spec: ServerSpec, inbox: Inbox, *, mute: bool) -> None:
        self._spec = spec
        self._inbox = inbox
        self._lost = asyncio.Event()
        self.mute = mute
        self.list_hangs = False
        self.listings: list[float] = []
        self.subscriptions = 0
        self.may_answer = asyncio.Event()

    async def request(self, outgoing: Outgoing) -> Answer:
        if self.mute:
            await asyncio.Event().wait()
        if outgoing.method == "tools/list":
            return await self._list(outgoing)
        if outgoing.method == "tools/call":
            await self.may_answer.wait()
        if outgoing.method == "subscriptions/listen":
            self.subscriptions += 1
            raise ValueError("a bug")
        tools = {"listChanged": True} if self._spec.name == "subscribed" else {}
        told = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": tools}}
        return Answer(msgspec.json.encode(told))

    async def _list(self, outgoing: Outgoing) -> Answer:
        self.listings.append(asyncio.get_running_loop().time())
        if self.list_hangs:
            await asyncio.sleep(outgoing.timeout_seconds)
            raise UpstreamTimeout(self._spec.name, outgoing.what, outgoing.timeout_seconds)
        return Answer(b'{"tools":[{"name":"of %g"}]}' % self._spec.timeout_seconds)

    async def notify(self, message: bytes) -> None:
        """Nobody listens."""

    def adopt(self, version: str) -> None:
        """It speaks only one."""

    async def lost(self) -> str:
        await self._lost.wait()
        return "it ended"

    def end(self) -> None:
        self._lost.set()

    def say_changed(self) -> None:
        self._inbox.take(Envelope(jsonrpc="2.0", method="notifications/tools/list_changed"))


class Scene:
    """A fleet and every connection that it opened."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.links: list[ScriptedLink] = []
        self.opened: list[float] = []
        self.later_ones_are_mute = False

    @asynccontextmanager
    async def open(self, spec: ServerSpec, inbox: Inbox, stderr: deque[str]) -> AsyncIterator[Link]:
        self.opened.append(asyncio.get_running_loop().time())
        link = ScriptedLink(spec, inbox, mute=self.later_ones_are_mute and bool(self.links))
        self.links.append(link)
        yield link

    @asynccontextmanager
    async def fleet(self, name: str = "bank", seconds: float = 60.0) -> AsyncIterator[Fleet]:
        async with run_fleet(self.open, self.facts, self.facts) as fleet:
            fleet.apply([spec(name, seconds)])
            await fleet.await_ready(name)
            yield fleet


def spec(name: str = "bank", seconds: float = 60.0) -> ServerSpec:
    return ServerSpec(
        name=name,
        transport=Transport.BUILTIN,
        timeout_seconds=seconds,
        start_timeout_seconds=START_SECONDS,
    )


def call() -> Call:
    tool = Tool("bank", "pay", "bank_pay", b'{"name":"pay"}', b'{"name":"pay"}')
    return Call(Request(caller=LOCAL, tool="bank_pay", arguments=b"{}"), tool)


@in_no_time
async def test_a_server_that_was_replaced_says_nothing_about_its_successor() -> None:
    scene = Scene()
    async with scene.fleet(seconds=60.0) as fleet:
        under_way = asyncio.create_task(fleet.send(call()))
        await asyncio.sleep(1)
        fleet.apply([spec(seconds=61.0)])
        await fleet.await_ready("bank")
        old, _ = scene.links
        old.say_changed()
        await asyncio.sleep(1)
        old.end()
        await asyncio.sleep(1)
        assert len(scene.links) == 3, "the old one was connected again for the call under way"
        assert scene.facts.offers == [[b'{"name":"of 60"}'], [b'{"name":"of 61"}']]
        assert (scene.facts.connections, scene.facts.versions) == (2, 2)
        old.may_answer.set()
        await under_way


@in_no_time
async def test_a_server_too_busy_to_list_its_tools_keeps_its_calls() -> None:
    scene = Scene()
    async with scene.fleet(seconds=5.0) as fleet:
        (link,) = scene.links
        under_way = asyncio.create_task(fleet.send(call()))
        link.list_hangs = True
        await asyncio.sleep(1)
        link.say_changed()
        await asyncio.sleep(60)
        assert len(scene.links) == 1
        assert len(link.listings) < 12
        link.list_hangs = False
        await asyncio.sleep(60)
        assert len(scene.facts.offers) == 2
        link.may_answer.set()
        await under_way
        (status,) = fleet.statuses()
        assert status.state is State.READY


@in_no_time
async def test_an_idle_server_that_does_not_list_its_tools_is_connected_again() -> None:
    scene = Scene()
    async with scene.fleet(seconds=5.0):
        scene.links[0].list_hangs = True
        scene.links[0].say_changed()
        await asyncio.sleep(6)
        assert len(scene.links) == 2


@in_no_time
async def test_a_server_that_changes_all_the_time_is_asked_now_and_then() -> None:
    scene = Scene()
    async with scene.fleet():
        (link,) = scene.links
        link.listings.clear()
        for _ in range(2400):
            link.say_changed()
            await asyncio.sleep(0.05)
        gaps = [later - before for before, later in pairwise(link.listings)]
        assert gaps[:5] == pytest.approx([1, 2, 4, 8, 16], abs=0.2)
        assert gaps[5:] == pytest.approx([30] * len(gaps[5:]), abs=0.2)
        asked = len(link.listings)
        await asyncio.sleep(31)
        assert len(link.listings) == asked + 1, "the last change is not missed"


@in_no_time
async def test_after_a_quiet_minute_a_change_is_looked_at_soon_again() -> None:
    scene = Scene()
    async with scene.fleet():
        (link,) = scene.links
        for _ in range(1200):
            link.say_changed()
            await asyncio.sleep(0.05)
        await asyncio.sleep(100)
        link.listings.clear()
        started = asyncio.get_running_loop().time()
        for _ in range(15):
            link.say_changed()
            await asyncio.sleep(0.1)
        assert [when - started for when in link.listings] == pytest.approx([0, 1], abs=0.2)


@in_no_time
async def test_a_bug_in_a_subscription_is_logged_and_does_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    async with scene.fleet("subscribed"):
        await asyncio.sleep(10)
        assert scene.links[0].subscriptions >= 3
    assert any(record.message == "subscription failed" and record.exc_info for record in caplog.records)


@in_no_time
async def test_a_start_that_hangs_is_no_good_connection_and_the_rests_get_longer() -> None:
    scene = Scene()
    scene.later_ones_are_mute = True
    async with scene.fleet():
        scene.links[0].end()
        await asyncio.sleep(8 * START_SECONDS)
        hung = scene.opened[1:]
        rests = [later - before - START_SECONDS for before, later in pairwise(hung)]
        assert rests[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2], abs=0.05)


@in_no_time
async def test_the_loss_of_a_connection_that_stood_counts_as_the_first() -> None:
    scene = Scene()
    async with scene.fleet():
        for _ in range(5):
            await asyncio.sleep(15)
            before = asyncio.get_running_loop().time()
            scene.links[-1].end()
            await asyncio.sleep(5)
            assert scene.opened[-1] - before == pytest.approx(0.1, abs=0.05)
