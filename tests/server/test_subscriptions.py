"""Each client counts once for each resource that it wants to hear of, whatever happens on the way."""

import asyncio
import json
from typing import Any

from msgspec import Raw

from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.paged_listing import NO_HINT, CacheHint
from headgate.domain.client_profile import ClientProfile
from headgate.domain.errors import UpstreamUnavailable
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import ClientSession
from headgate.protocol.jsonrpc import Envelope
from headgate.protocol.protocol_version import Era
from headgate.server.client_context import ClientContext, SessionPreferences
from headgate.server.method_router import MethodRouter
from testkit.waiting import eventually
from tests.delivery.scripted_upstream import WAIT_SECONDS
from tests.gateway_harness import GatewayHarness
from tests.upstream.scripted_server import SilentChannel

URI = "bank:/1"
SUBSCRIBED, UNSUBSCRIBED = ("subscribe", "bank", URI), ("unsubscribe", "bank", URI)


class Client:
    """A client of the handshake era, the gateway that answers it, and the server behind."""

    def __init__(self, *servers: str) -> None:
        self.harness = GatewayHarness(*servers)
        self.upstream = self.harness.desk.upstream
        self.router = MethodRouter(self.harness.gateway, "headgate", self)
        self.preferences = SessionPreferences()
        self.outdated: list[str] = []
        # What servers send when a client is about to list.
        self.told_late: list[str] = []

    def list(self, *uris: str) -> None:
        self.harness.offer("bank", ItemKind.RESOURCES, *({"uri": uri, "name": uri} for uri in uris))
        self.harness.offer("bank", ItemKind.TEMPLATES)

    async def ask(self, method: str, uri: str = URI) -> dict[str, Any]:
        envelope = Envelope(
            jsonrpc="2.0", id=Raw(b"1"), method=method, params=Raw(json.dumps({"uri": uri}).encode())
        )
        context = ClientContext(
            era=Era.HANDSHAKE, channel=SilentChannel(), caller=LOCAL_IDENTITY, preferences=self.preferences
        )
        reply = await self.router.handle_request(envelope, context)
        said: dict[str, Any] = json.loads(reply.whole or b"")
        return said

    async def come_back(self) -> None:
        await self.router.restore_subscriptions(self.preferences, LOCAL_IDENTITY, self.outdated.append)

    # What surrounds the answers.

    async def await_listings(
        self, profile: ClientProfile, owner: ClientSession | None, caller: Identity
    ) -> None:
        if self.told_late:
            self.list(*self.told_late)

    def capabilities(self, era: Era, caller: Identity) -> bytes:
        return b"{}"

    async def instructions(self, listing_context: ListingContext) -> str:
        return ""

    def cache_hint(self, kind: ItemKind, listing_context: ListingContext) -> CacheHint:
        return NO_HINT

    async def set_log_level(self, owner: ClientSession, level: str, caller: Identity) -> None:
        """Log nothing."""

    def forward_notification(
        self, owner: ClientSession, method: str, params: bytes, caller: Identity
    ) -> None:
        """Notify no client."""


async def test_who_could_not_be_subscribed_again_takes_nothing_from_the_others() -> None:
    client = Client()
    client.preferences.subscriptions.add(URI)
    client.upstream.absence = UpstreamUnavailable("bank", "it rests", retry_after_seconds=1.0)
    await client.come_back()
    assert client.outdated == [URI], "it may have changed all the same"
    await client.router.drop_subscriptions(client.preferences, LOCAL_IDENTITY)
    client.upstream.absence = None
    client.list(URI)
    assert await client.ask("resources/unsubscribe") == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert client.upstream.subscriptions == []


async def test_who_could_not_be_subscribed_again_may_subscribe_anew() -> None:
    client = Client()
    client.preferences.subscriptions.add(URI)
    client.upstream.absence = UpstreamUnavailable("bank", "it rests", retry_after_seconds=1.0)
    await client.come_back()
    client.upstream.absence = None
    client.list(URI)
    await client.ask("resources/subscribe")
    assert client.upstream.subscriptions == [SUBSCRIBED]


async def test_who_is_subscribed_again_leaves_once() -> None:
    client = Client()
    client.list(URI)
    client.preferences.subscriptions.add(URI)
    await client.come_back()
    await client.router.drop_subscriptions(client.preferences, LOCAL_IDENTITY)
    assert client.upstream.subscriptions == [SUBSCRIBED, UNSUBSCRIBED]


async def test_who_subscribes_twice_at_the_same_time_counts_once() -> None:
    client = Client()
    client.upstream.open.clear()
    both = asyncio.gather(client.ask("resources/subscribe"), client.ask("resources/subscribe"))
    await eventually(lambda: len(client.upstream.awaited) == 2, WAIT_SECONDS, "both wait")
    client.list(URI)
    client.upstream.open.set()
    assert all("result" in said for said in await both)
    await client.router.drop_subscriptions(client.preferences, LOCAL_IDENTITY)
    told = [what for what, _, _ in client.upstream.subscriptions]
    assert sorted(told) == ["subscribe", "subscribe", "unsubscribe", "unsubscribe"]


async def test_a_stateless_client_may_subscribe_while_servers_are_still_starting() -> None:
    # With two silent servers its owner is unknown until they answer.
    client = Client("bank", "other")
    client.told_late = [URI]
    assert not (await client.router.subscribe(URI, LOCAL_IDENTITY)).error
    assert client.upstream.subscriptions == [SUBSCRIBED]


async def test_a_client_cannot_subscribe_to_any_number_of_resources() -> None:
    client = Client()
    client.list(URI)
    client.preferences.subscriptions.update(f"bank:/more/{number}" for number in range(1000))
    assert (await client.ask("resources/subscribe"))["error"]["data"]["code"] == "RESOURCE_EXHAUSTED"
    client.preferences.subscriptions.clear()
    refused = await client.ask("resources/subscribe", "bank:/" + "x" * 10_000)
    assert refused["error"]["data"]["code"] == "RESOURCE_EXHAUSTED"
    assert client.upstream.subscriptions == []
    assert "result" in await client.ask("resources/subscribe")


# How much a client may subscribe to.


def long(number: int, size: int = 8000) -> str:
    return f"bank:/{number}/".ljust(size, "x")


async def test_the_uris_of_one_client_are_bounded_in_bytes() -> None:
    client = Client()
    uris = [long(number) for number in range(100)]
    client.list(*uris)
    refused = [said for uri in uris if "error" in (said := await client.ask("resources/subscribe", uri))]
    assert 30 <= len(refused) <= 40, "512 KiB are 65 of 8,000 bytes"
    assert refused[0]["error"]["message"] == (
        "the subscription is refused: the URIs of one client may take 524288 bytes together; "
        "unsubscribe from other resources first"
    )
    await client.ask("resources/unsubscribe", uris[0])
    assert "result" in await client.ask("resources/subscribe", uris[-1])


async def test_many_requests_at_once_cannot_exceed_the_bound() -> None:
    client = Client()
    client.upstream.open.clear()
    uris = [long(number) for number in range(100)]
    asked = asyncio.gather(*(client.ask("resources/subscribe", uri) for uri in uris))
    await eventually(lambda: len(client.upstream.awaited) > 50, WAIT_SECONDS, "they wait")
    client.list(*uris)
    client.upstream.open.set()
    await asked
    assert sum(map(len, client.preferences.subscriptions)) <= 512 * 1024


async def test_all_clients_together_are_bounded_and_each_may_have_some() -> None:
    client = Client()
    uris = [long(number) for number in range(65)]
    client.list(*uris, URI)
    for _ in range(40):
        client.preferences = SessionPreferences()
        for uri in uris:
            await client.ask("resources/subscribe", uri)
    assert client.router.subscriptions.bytes <= 16 * 1024 * 1024
    client.preferences = SessionPreferences()
    refused = await client.ask("resources/subscribe", uris[0])
    assert "of all clients" in refused["error"]["message"]
    assert "result" in await client.ask("resources/subscribe")


async def test_whatever_happens_to_a_subscription_its_bytes_are_given_back() -> None:
    client = Client()
    client.list(URI, long(1))
    await client.ask("resources/subscribe")
    await client.ask("resources/subscribe", long(1))
    await client.ask("resources/subscribe", "bank:/unknown")
    await client.ask("resources/unsubscribe", long(1))
    await client.ask("resources/unsubscribe", long(1))
    await client.router.drop_subscriptions(client.preferences, LOCAL_IDENTITY)
    assert client.router.subscriptions.bytes == 0


async def test_the_bytes_of_a_client_that_comes_back_count_again() -> None:
    client = Client()
    client.list(URI)
    client.preferences.subscriptions.update({URI, "bank:/gone"})
    await client.come_back()
    counted = client.router.subscriptions.bytes
    assert 0 < counted < 200
    await client.router.drop_subscriptions(client.preferences, LOCAL_IDENTITY)
    assert client.router.subscriptions.bytes == 0
