"""What a server lists is known per profile, and what is out of date is listed again in good time."""

import asyncio
import json
from collections import deque
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headgate.catalog.paged_listing import CacheHint
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import InvalidUpstreamResponse
from headgate.domain.item import ItemKind
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.upstream_listings import UpstreamListings
from testkit.virtual_time import virtual_time
from tests.upstream.conversation import RecordedServerEvents
from tests.upstream.scripted_server import (
    MODERN,
    ROOTS,
    SAMPLING,
    RecordedUpstreamEvents,
    ScriptedServer,
    failed,
    spec,
)

ALL: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
AGE_SECONDS = 61.0


class Library:
    """Listings of one server, and who reads them."""

    def __init__(self, capabilities: dict[str, Any] = ALL) -> None:
        self.server = ScriptedServer(MODERN, capabilities)
        self.facts = RecordedUpstreamEvents()
        self.listings = UpstreamListings("bank", self.facts)
        self.greeting = NegotiationResult(MODERN, json.dumps(capabilities).encode())

    async def peer(self, stack: AsyncExitStack) -> McpPeer:
        transport = self.server.open(spec(), NotificationRouter("bank", RecordedServerEvents()), deque())
        return McpPeer(spec(), await stack.enter_async_context(transport), self.greeting)

    async def learn(self, *profiles: Any) -> None:
        async with AsyncExitStack() as stack:
            for profile in profiles:
                await self.listings.refresh(await self.peer(stack), profile)


@virtual_time
async def test_a_profile_is_known_once_it_was_asked_for_and_is_kept() -> None:
    library = Library()
    await library.learn(PLAIN_PROFILE, SAMPLING)
    assert library.listings.has_listing(SAMPLING)
    assert not library.listings.has_listing(ROOTS)
    library.facts.kept.discard(SAMPLING)
    assert not library.listings.has_listing(SAMPLING), "the catalog has dropped it"


@virtual_time
async def test_the_numbers_are_those_that_everybody_sees() -> None:
    library = Library({"tools": {}, "prompts": {}})
    await library.learn(PLAIN_PROFILE, SAMPLING)
    assert library.listings.counts == {
        ItemKind.TOOLS: 1,
        ItemKind.PROMPTS: 1,
        ItemKind.RESOURCES: 0,
        ItemKind.TEMPLATES: 0,
    }


@virtual_time
async def test_a_profile_that_could_not_be_listed_whole_is_not_known() -> None:
    library = Library()
    library.server.answers["tools/list"] = failed(-32603)
    with pytest.raises(InvalidUpstreamResponse):
        await library.learn(SAMPLING)
    assert not library.listings.has_listing(SAMPLING)


@virtual_time
async def test_a_new_connection_makes_everything_unknown() -> None:
    library = Library()
    await library.learn(PLAIN_PROFILE, SAMPLING, ROOTS)
    library.listings.mark_stale("tools", SAMPLING)
    assert set(library.listings.reset()) == {SAMPLING, ROOTS}
    assert not library.listings.has_listing(SAMPLING)
    assert not library.listings.stale
    assert library.listings.reset() == []


@virtual_time
async def test_a_profile_that_is_forgotten_is_asked_for_anew() -> None:
    library = Library()
    await library.learn(SAMPLING)
    library.listings.forget(SAMPLING)
    assert not library.listings.has_listing(SAMPLING)
    library.listings.forget(ROOTS)


@pytest.mark.parametrize(
    ("capability", "kinds"),
    [
        ("tools", {ItemKind.TOOLS}),
        ("prompts", {ItemKind.PROMPTS}),
        ("resources", {ItemKind.RESOURCES, ItemKind.TEMPLATES}),
        ("dances", set()),
    ],
)
@virtual_time
async def test_a_change_is_about_the_kinds_of_its_capability(capability: str, kinds: set[ItemKind]) -> None:
    listings = Library().listings
    assert listings.mark_stale(capability, SAMPLING) == bool(kinds)
    assert listings.stale == bool(kinds)
    assert listings.take_stale() == ({SAMPLING: kinds} if kinds else {})
    assert not listings.stale


@virtual_time
async def test_a_change_that_is_known_is_no_news_until_it_was_looked_at() -> None:
    listings = Library().listings
    assert listings.mark_stale("tools", PLAIN_PROFILE)
    assert not listings.mark_stale("tools", PLAIN_PROFILE)
    assert listings.mark_stale("tools", SAMPLING)
    assert listings.mark_stale("prompts", PLAIN_PROFILE)
    await asyncio.sleep(1)
    listings.take_stale()
    assert listings.mark_stale("tools", PLAIN_PROFILE)


@virtual_time
async def test_a_change_for_all_is_one_for_every_profile_that_is_known() -> None:
    library = Library()
    await library.learn(PLAIN_PROFILE, SAMPLING)
    assert library.listings.mark_stale_for_all("tools")
    assert not library.listings.mark_stale_for_all("tools")
    assert library.listings.take_stale() == {PLAIN_PROFILE: {ItemKind.TOOLS}, SAMPLING: {ItemKind.TOOLS}}


@virtual_time
async def test_what_could_not_be_listed_is_listed_later() -> None:
    listings = Library().listings
    listings.mark_stale("resources", PLAIN_PROFILE)
    ((profile, kinds),) = listings.take_stale().items()
    listings.requeue(profile, kinds)
    assert listings.stale
    assert listings.seconds_until_refresh() > 0, "not at once"
    await asyncio.sleep(2)
    assert listings.seconds_until_refresh() == 0
    assert listings.take_stale() == {PLAIN_PROFILE: {ItemKind.RESOURCES, ItemKind.TEMPLATES}}


@virtual_time
async def test_what_changes_all_the_time_does_not_hold_up_the_rest() -> None:
    listings = Library().listings
    for _ in range(100):
        listings.mark_stale("resources", PLAIN_PROFILE)
        if listings.seconds_until_refresh() == 0:
            listings.take_stale()
        await asyncio.sleep(0.5)
    listings.mark_stale("resources", PLAIN_PROFILE)
    assert listings.seconds_until_refresh() > 0
    listings.mark_stale("tools", PLAIN_PROFILE)
    assert listings.seconds_until_refresh() == 0
    assert listings.take_stale() == {PLAIN_PROFILE: {ItemKind.TOOLS}}
    assert listings.stale, "the resources have their own time"


@virtual_time
async def test_a_server_that_was_replaced_is_not_read_any_more() -> None:
    library = Library()
    library.listings.muted = True
    await library.learn(PLAIN_PROFILE)
    assert library.facts.told == []
    assert not library.listings.mark_stale("tools", PLAIN_PROFILE)
    assert not library.listings.stale


# Servers that do not tell when something changes.


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"prompts": {}}, {"resources": {}}])
@virtual_time
async def test_what_nobody_tells_of_is_out_of_date_after_a_minute(capabilities: dict[str, Any]) -> None:
    library = Library(capabilities)
    await library.learn(PLAIN_PROFILE, SAMPLING)
    await asyncio.sleep(AGE_SECONDS - 2)
    assert not library.listings.mark_expired(library.greeting)
    await asyncio.sleep(2)
    assert library.listings.mark_expired(library.greeting)
    kinds = {kind for kind in ItemKind if kind.capability in capabilities}
    assert library.listings.take_stale() == {PLAIN_PROFILE: kinds, SAMPLING: kinds}
    assert not library.listings.mark_expired(library.greeting), "once is enough"


@virtual_time
async def test_what_the_server_tells_of_does_not_age() -> None:
    library = Library({"tools": {"listChanged": True}, "prompts": {}})
    await library.learn(PLAIN_PROFILE)
    await asyncio.sleep(AGE_SECONDS)
    library.listings.mark_expired(library.greeting)
    assert library.listings.take_stale() == {PLAIN_PROFILE: {ItemKind.PROMPTS}}


@virtual_time
async def test_what_may_be_kept_for_longer_is_kept_for_longer() -> None:
    library = Library({"tools": {}})
    library.server.answers["tools/list"] = McpResponse(b'{"tools":[],"ttlMs":300000}')
    await library.learn(PLAIN_PROFILE)
    await asyncio.sleep(299)
    assert not library.listings.mark_expired(library.greeting)
    await asyncio.sleep(2)
    assert library.listings.mark_expired(library.greeting)


@virtual_time
async def test_profiles_that_the_catalog_has_dropped_are_not_listed_again() -> None:
    library = Library()
    await library.learn(PLAIN_PROFILE, SAMPLING)
    library.facts.kept.discard(SAMPLING)
    await library.learn(ROOTS)
    assert library.listings.reset() == [ROOTS]


async def test_servers_that_list_at_once_are_heard_one_by_one_and_others_in_between() -> None:
    libraries = [Library({"tools": {}}) for _ in range(20)]
    facts = Orderly()
    for library in libraries:
        library.listings = UpstreamListings("bank", facts)
    others = asyncio.create_task(facts.serve_others())
    async with asyncio.TaskGroup() as group:
        for library in libraries:
            group.create_task(library.learn(PLAIN_PROFILE))
    others.cancel()
    assert len(facts.heard) == 20 * len(ItemKind)
    assert len(set(facts.heard)) == len(facts.heard), "two were heard before anybody else had a turn"


class Orderly(RecordedUpstreamEvents):
    """Notes how often others had had a turn when a server was heard."""

    def __init__(self) -> None:
        super().__init__()
        self.turns_of_others = 0
        self.heard: list[int] = []

    async def serve_others(self) -> None:
        while True:
            self.turns_of_others += 1
            await asyncio.sleep(0)

    def listing_received(
        self, server: str, kind: ItemKind, definitions: list[bytes], profile: ClientProfile, hint: CacheHint
    ) -> dict[str, str]:
        self.heard.append(self.turns_of_others)
        return super().listing_received(server, kind, definitions, profile, hint)
