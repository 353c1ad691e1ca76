"""Each client counts once for each resource that it wants to hear of, whatever happens on the way."""

import asyncio
import json
from typing import Any

from msgspec import Raw

from headgate.catalog.hints import NO_HINT, CacheHint
from headgate.catalog.viewer import Viewer
from headgate.domain.call import Owner
from headgate.domain.errors import UpstreamUnavailable
from headgate.domain.kind import Kind
from headgate.domain.profile import Profile
from headgate.front.answers import Answers
from headgate.front.visitor import Standing, Visitor
from headgate.wire.envelope import Envelope
from headgate.wire.eras import Era
from tests.delivery.scripted import WAIT_SECONDS
from tests.house import House
from tests.upstream.stage import Quiet
from tests.waiting import eventually

URI = "bank:/1"
SUBSCRIBED, UNSUBSCRIBED = ("subscribe", "bank", URI), ("unsubscribe", "bank", URI)


class Client:
    """A client of the handshake era, the gateway that answers it, and the server behind."""

    def __init__(self, *servers: str) -> None:
        self.house = House(*servers)
        self.upstream = self.house.desk.upstream
        self.answers = Answers(self.house.gateway, "headgate", self)
        self.standing = Standing()
        self.outdated: list[str] = []
        # What servers tell when somebody is about to list.
        self.told_late: list[str] = []

    def list(self, *uris: str) -> None:
        self.house.offer("bank", Kind.RESOURCES, *({"uri": uri, "name": uri} for uri in uris))
        self.house.offer("bank", Kind.TEMPLATES)

    async def ask(self, method: str, uri: str = URI) -> dict[str, Any]:
        envelope = Envelope(
            jsonrpc="2.0", id=Raw(b"1"), method=method, params=Raw(json.dumps({"uri": uri}).encode())
        )
        visitor = Visitor(era=Era.HANDSHAKE, channel=Quiet(), standing=self.standing)
        reply = await self.answers.answer(envelope, visitor)
        said: dict[str, Any] = json.loads(reply.whole or b"")
        return said

    async def come_back(self) -> None:
        await self.answers.come_back(self.standing, self.outdated.append)

    # What surrounds the answers.

    async def before_listing(self, profile: Profile, owner: Owner | None) -> None:
        if self.told_late:
            self.list(*self.told_late)

    def capabilities(self, era: Era) -> bytes:
        return b"{}"

    async def instructions(self, viewer: Viewer) -> str:
        return ""

    def caching(self, kind: Kind, viewer: Viewer) -> CacheHint:
        return NO_HINT

    async def set_level(self, owner: Owner, level: str) -> None:
        """Nobody logs."""

    def notified(self, owner: Owner, method: str, params: bytes) -> None:
        """Nobody is told."""


async def test_who_could_not_be_subscribed_again_takes_nothing_from_the_others() -> None:
    client = Client()
    client.standing.subscriptions.add(URI)
    client.upstream.absence = UpstreamUnavailable("bank", "it rests", retry_after_seconds=1.0)
    await client.come_back()
    assert client.outdated == [URI], "it may have changed all the same"
    await client.answers.leave(client.standing)
    client.upstream.absence = None
    client.list(URI)
    assert await client.ask("resources/unsubscribe") == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert client.upstream.subscriptions == []


async def test_who_could_not_be_subscribed_again_may_subscribe_anew() -> None:
    client = Client()
    client.standing.subscriptions.add(URI)
    client.upstream.absence = UpstreamUnavailable("bank", "it rests", retry_after_seconds=1.0)
    await client.come_back()
    client.upstream.absence = None
    client.list(URI)
    await client.ask("resources/subscribe")
    assert client.upstream.subscriptions == [SUBSCRIBED]


async def test_who_is_subscribed_again_leaves_once() -> None:
    client = Client()
    client.list(URI)
    client.standing.subscriptions.add(URI)
    await client.come_back()
    await client.answers.leave(client.standing)
    assert client.upstream.subscriptions == [SUBSCRIBED, UNSUBSCRIBED]


async def test_who_subscribes_twice_at_the_same_time_counts_once() -> None:
    client = Client()
    client.upstream.open.clear()
    both = asyncio.gather(client.ask("resources/subscribe"), client.ask("resources/subscribe"))
    await eventually(lambda: len(client.upstream.awaited) == 2, WAIT_SECONDS, "both wait")
    client.list(URI)
    client.upstream.open.set()
    assert all("result" in said for said in await both)
    await client.answers.leave(client.standing)
    told = [what for what, _, _ in client.upstream.subscriptions]
    assert sorted(told) == ["subscribe", "subscribe", "unsubscribe", "unsubscribe"]


async def test_a_stateless_client_may_subscribe_while_servers_are_still_starting() -> None:
    # With two that are silent nobody can say whose it is, before they have told.
    client = Client("bank", "other")
    client.told_late = [URI]
    assert not (await client.answers.subscribe(URI)).error
    assert client.upstream.subscriptions == [SUBSCRIBED]


async def test_a_client_cannot_subscribe_to_any_number_of_resources() -> None:
    client = Client()
    client.list(URI)
    client.standing.subscriptions.update(f"bank:/more/{number}" for number in range(1000))
    assert (await client.ask("resources/subscribe"))["error"]["data"]["code"] == "RESOURCE_EXHAUSTED"
    client.standing.subscriptions.clear()
    refused = await client.ask("resources/subscribe", "bank:/" + "x" * 10_000)
    assert refused["error"]["data"]["code"] == "RESOURCE_EXHAUSTED"
    assert client.upstream.subscriptions == []
    assert "result" in await client.ask("resources/subscribe")
