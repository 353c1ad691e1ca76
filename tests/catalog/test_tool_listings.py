"""What clients see: every tool, or the gateway's own and what they found, and who is notified of changes."""

import json

import pytest

from headgate.catalog.listing_variant import ListingContext
from headgate.catalog.paged_listing import NO_HINT, CacheHint, InvalidCursor
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import profile_of
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from tests.catalog.sample_catalog import SAMPLING, item, tool
from tests.catalog.sample_listings import (
    ONE,
    OTHER,
    OWN_TOOLS,
    PAGE_BYTES,
    ListingFixture,
    request_of,
    session,
    stateless,
)
from tests.delivery.scripted_upstream import Clock

LONG = CacheHint(60_000, public=True)
A, B, C = ("s", "a"), ("s", "b"), ("s", "c")


class ToolListingsFixture(ListingFixture):
    """A catalog with three tools, shown in one mode."""

    def __init__(self, mode: ListingMode, page_bytes: int = PAGE_BYTES) -> None:
        self.pools = ToolPools(15, Clock())
        super().__init__(mode, {"s": []}, pools=self.pools, page_bytes=page_bytes)
        self.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b"), tool("c")], hint=LONG)

    def find(self, listing_context: ListingContext, *keys: tuple[str, str]) -> None:
        self.pools.register(listing_context.visibility_group, dict.fromkeys(keys, 0.5))


# What is listed.


async def test_in_full_mode_every_tool_is_listed_and_no_own_one() -> None:
    shown = ToolListingsFixture(ListingMode.FULL)
    assert await shown.names() == ["s_a", "s_b", "s_c"]
    assert shown.tool_listings.shows_full_schemas(request_of(ONE))
    assert await shown.tool_listings.instructions(ONE) == ""


async def test_in_search_mode_exactly_the_own_tools_are_listed() -> None:
    shown = ToolListingsFixture(ListingMode.SEARCH)
    shown.find(ONE, A)
    for listing_context in (ONE, OTHER, stateless("local")):
        assert await shown.names(listing_context) == OWN_TOOLS
    assert not shown.tool_listings.shows_full_schemas(request_of(ONE))
    advice = await shown.tool_listings.instructions(ONE)
    assert "retrieve_tools" in advice
    assert "call_tool" in advice


async def test_in_dynamic_mode_what_was_found_follows_in_the_order_of_finding() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    assert await shown.names() == ["retrieve_tools"]
    shown.find(ONE, B)
    shown.find(ONE, A, B)
    assert await shown.names() == ["retrieve_tools", "s_b", "s_a"]
    assert await shown.names(OTHER) == ["retrieve_tools"]
    assert (await shown.listed())[1:] == [
        {**json.loads(tool(name)), "name": f"s_{name}"} for name in ("b", "a")
    ]
    assert not shown.tool_listings.shows_full_schemas(request_of(ONE))
    assert "call_tool" not in await shown.tool_listings.instructions(ONE)


@pytest.mark.parametrize("mode", ListingMode)
async def test_prompts_and_resources_are_listed_in_full_in_every_mode(mode: ListingMode) -> None:
    shown = ToolListingsFixture(mode)
    for kind in (ItemKind.PROMPTS, ItemKind.RESOURCES, ItemKind.TEMPLATES):
        shown.catalog.replace_listing("s", kind, [item(kind, "x://y")])
        assert len(await shown.listed(kind=kind)) == 1
        assert shown.tool_listings.changed_groups(kind) is None


async def test_a_list_is_the_same_bytes_until_something_changes() -> None:
    for mode in ListingMode:
        shown = ToolListingsFixture(mode)
        shown.find(ONE, A, B)
        first = await shown.tool_listings.list_page(ItemKind.TOOLS, None, ONE)
        assert await shown.tool_listings.list_page(ItemKind.TOOLS, None, ONE) == first


async def test_what_was_found_comes_in_pages_too() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC, page_bytes=100)
    shown.find(ONE, A, B, C)
    assert await shown.names() == ["retrieve_tools", "s_a", "s_b", "s_c"]
    with pytest.raises(InvalidCursor):
        await shown.tool_listings.list_page(ItemKind.TOOLS, "nonsense", ONE)
    with pytest.raises(InvalidCursor):
        await ToolListingsFixture(ListingMode.SEARCH).tool_listings.list_page(ItemKind.TOOLS, "nonsense", ONE)


async def test_the_tool_that_finds_others_names_the_servers_of_now() -> None:
    for mode in (ListingMode.SEARCH, ListingMode.DYNAMIC):
        shown = ToolListingsFixture(mode)
        assert "Servers: s." in (await shown.listed())[0]["description"]
        shown.catalog.set_servers(["s", "t"])
        assert "Servers: s, t." in (await shown.listed())[0]["description"]
        shown.catalog.set_servers([])
        assert "Servers" not in (await shown.listed())[0]["description"]


async def test_a_profile_sees_its_own_definition_of_what_was_found_and_nothing_that_it_may_not_see() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers"), tool("d")], SAMPLING)
    one, sampler = stateless("local"), stateless("local", SAMPLING)
    shown.find(one, A, B, ("s", "d"))
    assert await shown.names(one) == ["retrieve_tools", "s_a", "s_b"]
    assert await shown.names(sampler) == ["retrieve_tools", "s_a", "s_d"]
    assert (await shown.listed(sampler))[1]["description"] == "for samplers"


# Who shares a list.


async def test_a_session_has_its_own_list_and_in_the_stateless_era_a_principal_has() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A)
    shown.find(stateless("alice"), B)
    shown.find(stateless("local"), C)
    assert await shown.names(ONE) == ["retrieve_tools", "s_a"]
    assert await shown.names(OTHER) == ["retrieve_tools"]
    assert await shown.names(stateless("alice")) == ["retrieve_tools", "s_b"]
    assert await shown.names(stateless("local")) == ["retrieve_tools", "s_c"]
    assert await shown.names(stateless("bob")) == ["retrieve_tools"]


def test_no_session_can_be_called_like_a_principal() -> None:
    assert session("local").visibility_group != stateless("local").visibility_group
    assert stateless("a").visibility_group != stateless("b").visibility_group


async def test_a_client_that_is_gone_leaves_nothing() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A)
    await shown.names(ONE)
    shown.tool_listings.forget_group("one")
    shown.tool_listings.forget_group("one")
    assert await shown.names(ONE) == ["retrieve_tools"]
    assert len(shown.pools) == 0


# Who is notified that the catalog has changed.


async def test_in_full_mode_everybody_is_and_in_search_mode_nobody() -> None:
    assert ToolListingsFixture(ListingMode.FULL).tool_listings.changed_groups(ItemKind.TOOLS) is None
    shown = ToolListingsFixture(ListingMode.SEARCH)
    await shown.names()
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()


async def test_in_dynamic_mode_those_who_have_found_what_changed() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A)
    shown.find(OTHER, B)
    for listing_context in (ONE, OTHER, session("third")):
        await shown.names(listing_context)
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "better"), tool("b"), tool("c")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"one"}
    assert (await shown.listed(ONE))[1]["description"] == "better"
    # A tool that no client has found is not notified.
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "better"), tool("b")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()


@pytest.mark.parametrize("mode", [ListingMode.SEARCH, ListingMode.DYNAMIC])
async def test_who_lists_before_the_others_are_told_does_not_keep_them_from_it(mode: ListingMode) -> None:
    shown = ToolListingsFixture(mode)
    await shown.listed(ONE)
    await shown.listed(OTHER)
    shown.catalog.set_servers(["s", "t"])
    # One of them sees the new server by chance.
    await shown.listed(ONE)
    shown.catalog.replace_listing("t", ItemKind.TOOLS, [tool("a")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"other"}
    # Once is enough.
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()


@pytest.mark.parametrize("mode", [ListingMode.DYNAMIC, ListingMode.SEARCH])
async def test_when_other_servers_are_there_everybody_is_because_they_are_named(mode: ListingMode) -> None:
    shown = ToolListingsFixture(mode)
    shown.catalog.set_servers(["s", "t"])
    await shown.names(ONE)
    await shown.names(OTHER)
    shown.catalog.set_servers(["t"])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"one", "other"}


async def test_a_tool_that_is_no_more_leaves_every_list_and_its_place() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A, B)
    await shown.names()
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("b")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"one"}
    assert await shown.names() == ["retrieve_tools", "s_b"]
    assert shown.pools.keys("one") == (B,)
    # It does not come back into the list by itself.
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()
    assert await shown.names() == ["retrieve_tools", "s_b"]


async def test_the_tools_of_a_server_that_is_no_more_leave_their_places_too() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A, B)
    await shown.names()
    shown.catalog.set_servers([])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"one"}
    assert shown.pools.keys("one") == ()


async def test_a_tool_of_one_profile_stays_in_the_pool_as_long_as_that_profile_has_it() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("d")], SAMPLING)
    sampler = session("one", SAMPLING)
    shown.find(sampler, ("s", "d"))
    assert await shown.names(sampler) == ["retrieve_tools", "s_d"]
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()
    assert await shown.names(sampler) == ["retrieve_tools", "s_d"]


async def test_of_clients_that_share_a_list_each_hears_of_what_its_own_profile_saw() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers"), tool("d")], SAMPLING)
    one, sampler = stateless("local"), stateless("local", SAMPLING)
    shown.find(one, A, ("s", "d"))
    for listing_context in (sampler, one):
        await shown.names(listing_context)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers")], SAMPLING)
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {one.visibility_group}
    await shown.names(sampler)
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()


async def test_of_a_thousand_profiles_the_latest_are_remembered() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(stateless("local"), A)
    for number in range(1000):
        capabilities = json.dumps({"experimental": {str(number): {}}}).encode()
        await shown.names(stateless("local", profile_of(capabilities)))
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "better")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {stateless("local").visibility_group}


async def test_a_change_for_one_profile_is_news_to_its_clients_though_nobody_has_the_whole_list() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    sampler = session("one", SAMPLING)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers")], SAMPLING)
    shown.find(sampler, A)
    await shown.names(sampler)
    news: list[ItemKind] = []
    shown.catalog.on_change(news.append)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "better for samplers")], SAMPLING)
    assert news == [ItemKind.TOOLS]
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == {"one"}


async def test_whoever_has_not_listed_has_nothing_out_of_date() -> None:
    shown = ToolListingsFixture(ListingMode.DYNAMIC)
    shown.find(ONE, A)
    shown.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "better")])
    assert shown.tool_listings.changed_groups(ItemKind.TOOLS) == set()


# How long a list may be kept.


async def test_a_list_that_grows_may_not_be_kept_and_others_as_their_servers_say() -> None:
    for mode in (ListingMode.AUTO, ListingMode.FULL, ListingMode.SLIM, ListingMode.BUDGET):
        assert ToolListingsFixture(mode).tool_listings.cache_hint(ItemKind.TOOLS, ONE) == LONG
    assert ToolListingsFixture(ListingMode.DYNAMIC).tool_listings.cache_hint(ItemKind.TOOLS, ONE) == NO_HINT
    dynamic = ToolListingsFixture(ListingMode.DYNAMIC)
    dynamic.catalog.replace_listing("s", ItemKind.PROMPTS, [], hint=LONG)
    assert dynamic.tool_listings.cache_hint(ItemKind.PROMPTS, ONE) == LONG
