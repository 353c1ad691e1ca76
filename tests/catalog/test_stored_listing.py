"""What servers told before the gateway was started is offered until they tell it again."""

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import ToolNotFound
from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.paged_listing import NO_HINT, CacheHint
from headgate.catalog.stored_listing import DefinitionPosition, StoredListing, places
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import (
    SAMPLING,
    InMemoryNameOwners,
    called,
    catalog_of,
    item,
    listed,
    target,
    tool,
)

A, B, C = tool("a"), tool("b"), tool("c")


def stored(server: str, *definitions: bytes, kind: ItemKind = ItemKind.TOOLS) -> StoredListing:
    """As it is kept: with the places of the names."""
    intake = catalog_of(server).replace_listing(server, kind, definitions)
    return StoredListing(server, kind, list(definitions), NO_HINT, places(definitions, intake.sources))


def recalled(*servers: str) -> Catalog:
    """A catalog just after the start: every server had the tools `a` and `b`."""
    catalog = catalog_of(*servers)
    catalog.restore_listings([stored(server, A, B) for server in servers])
    return catalog


@pytest.mark.parametrize("kind", ItemKind)
def test_what_was_told_before_is_listed_at_once(kind: ItemKind) -> None:
    told = catalog_of("s")
    told.replace_listing("s", kind, [item(kind, "x://y")])
    catalog = catalog_of("s")
    catalog.restore_listings([stored("s", item(kind, "x://y"), kind=kind)])
    assert called(catalog, kind) == called(told, kind) != []


def test_a_tool_that_is_known_can_be_called_without_waiting_for_the_listing() -> None:
    catalog = recalled("s", "t")
    for name in ("s_a", "s:a", "s__a"):
        assert target(catalog, name) == ("s", "a")
        assert catalog.pending_server(ItemKind.TOOLS, name) is None


@pytest.mark.parametrize("name", ["t_new", "t:new", "t__new"])
def test_a_tool_that_is_not_known_may_be_new_so_its_server_is_waited_for(name: str) -> None:
    catalog = recalled("s", "t")
    assert catalog.pending_server(ItemKind.TOOLS, name) == "t"
    catalog.replace_listing("t", ItemKind.TOOLS, [A, tool("new")])
    assert target(catalog, name) == ("t", "new")
    # It has told everything now, and is not waited for any more.
    assert catalog.pending_server(ItemKind.TOOLS, "t_other") is None
    assert catalog.pending_server(ItemKind.TOOLS, "s_other") == "s"


def test_a_server_that_is_defined_anew_is_waited_for_where_something_is_missing() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    assert catalog.pending_server(ItemKind.TOOLS, "s_new") is None
    catalog.mark_stale(["s"])
    assert catalog.pending_server(ItemKind.TOOLS, "s_new") == "s"
    assert target(catalog, "s_a") == ("s", "a")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("new")])
    assert target(catalog, "s_new") == ("s", "new")
    assert catalog.pending_server(ItemKind.TOOLS, "s_a") is None


def test_what_vanished_meanwhile_leaves_when_the_server_tells() -> None:
    catalog = recalled("s", "t")
    told: list[ItemKind] = []
    catalog.on_change(told.append)
    catalog.replace_listing("s", ItemKind.TOOLS, [B, C])
    assert told == [ItemKind.TOOLS]
    assert called(catalog, ItemKind.TOOLS) == ["s_b", "s_c", "t_a", "t_b"]
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "s_a", LOCAL_IDENTITY)
    catalog.replace_listing("t", ItemKind.TOOLS, [])
    assert called(catalog, ItemKind.TOOLS) == ["s_b", "s_c"]


def test_a_server_that_tells_the_same_is_no_news() -> None:
    catalog = recalled("s")
    told: list[ItemKind] = []
    catalog.on_change(told.append)
    before = catalog.every_tool
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B])
    assert told == []
    assert catalog.every_tool is before
    assert catalog.pending_server(ItemKind.TOOLS, "s_c") is None


def test_a_server_that_is_not_configured_any_more_is_not_recalled() -> None:
    catalog = catalog_of("s")
    catalog.restore_listings([stored("gone", A), stored("s", B)])
    assert called(catalog, ItemKind.TOOLS) == ["s_b"]
    assert catalog.pending_server(ItemKind.TOOLS, "gone_a") is None
    catalog.set_servers(["s", "gone"])
    assert called(catalog, ItemKind.TOOLS) == ["s_b"]


def test_a_server_that_is_removed_takes_along_what_was_recalled() -> None:
    catalog = recalled("s", "t")
    catalog.set_servers(["t"])
    assert called(catalog, ItemKind.TOOLS) == ["t_a", "t_b"]
    # When it comes back it is a new one of which nothing is known.
    catalog.set_servers(["s", "t"])
    assert called(catalog, ItemKind.TOOLS) == ["t_a", "t_b"]
    assert catalog.pending_server(ItemKind.TOOLS, "s_a") == "s"


def test_names_are_those_of_before_the_start() -> None:
    owners = InMemoryNameOwners()
    before = catalog_of("big_two", "big", owners=owners)
    before.replace_listing("big_two", ItemKind.TOOLS, [tool("x")])
    before.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    names = called(before, ItemKind.TOOLS)
    after = catalog_of("big_two", "big", owners=owners)
    after.restore_listings([stored("big", tool("two_x")), stored("big_two", tool("x"))])
    assert called(after, ItemKind.TOOLS) == names
    assert target(after, "big_two_x") == ("big_two", "x")


def test_clients_with_capabilities_see_it_too_until_they_are_told_something_else() -> None:
    catalog = recalled("s")
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_b"]
    assert not catalog.has_own_listing("s", SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [A, C], SAMPLING)
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_c"]
    assert called(catalog, ItemKind.TOOLS) == ["s_a", "s_b"]


def test_how_long_a_listing_may_be_kept_is_recalled() -> None:
    catalog = catalog_of("s")
    catalog.restore_listings([StoredListing("s", ItemKind.TOOLS, [A], CacheHint(5000, public=True))])
    assert catalog.cache_hint(ItemKind.TOOLS, PLAIN_PROFILE) == CacheHint(5000, public=True)


def test_definitions_that_a_newer_gateway_refuses_cost_nothing_else() -> None:
    catalog = catalog_of("s")
    catalog.restore_listings([stored("s", b"nonsense", A, b'{"inputSchema":{}}', b"\xff")])
    assert called(catalog, ItemKind.TOOLS) == ["s_a"]


@pytest.mark.parametrize(
    "known",
    [
        [],
        [None],
        [None, None],
        [DefinitionPosition("a", 0, 0), DefinitionPosition("b", 5, 3)],
        [DefinitionPosition("a", 8, 11), DefinitionPosition("x", 8, 11)],
        [DefinitionPosition("a", -5, 10_000)],
        [DefinitionPosition("b", 8, 11), DefinitionPosition("a", 8, 11)],
        [None] * 50,
    ],
)
def test_places_that_are_not_those_of_the_definitions_cost_nothing(
    known: list[DefinitionPosition | None],
) -> None:
    """A damaged file must not make an unreadable listing."""
    assert A[8:11] == b'"a"'
    catalog = catalog_of("s")
    catalog.restore_listings([StoredListing("s", ItemKind.TOOLS, [A, B], NO_HINT, known)])
    assert called(catalog, ItemKind.TOOLS) == ["s_a", "s_b"]
    assert target(catalog, "s_b") == ("s", "b")


def test_what_had_to_be_repaired_is_repaired_again() -> None:
    odd = b'{"name":"a","inputSchema":{"type":"object"},"title":"\xff"}'
    before, after = catalog_of("s"), catalog_of("s")
    before.replace_listing("s", ItemKind.TOOLS, [odd, B, b'{"name":"c"}'])
    after.restore_listings([stored("s", odd, B, b'{"name":"c"}')])
    for era in Era:
        assert listed(after, ItemKind.TOOLS, era=era) == listed(before, ItemKind.TOOLS, era=era)


async def test_what_is_recalled_is_found_at_once_and_what_vanished_is_not() -> None:
    catalog = catalog_of("s")
    catalog.restore_listings([stored("s", tool("paint", "Paint a picture"), tool("cook", "Cook a meal"))])
    finder = Finder(lambda: catalog.every_tool)
    assert [one.key for one in await finder.find(ToolQuery("paint a picture"))] == [("s", "paint")]
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("cook", "Cook a meal")])
    assert await finder.find(ToolQuery("paint a picture")) == []
    assert [one.key for one in await finder.find(ToolQuery("cook a meal"))] == [("s", "cook")]


# What is counted of tools.


def test_calls_are_counted_until_they_are_asked_for() -> None:
    catalog = recalled("s", "t")
    for name in ("s_a", "s_a", "t_b"):
        catalog.count_use(catalog.resolve(ItemKind.TOOLS, name, LOCAL_IDENTITY))
    assert catalog.drain_usage() == {("s", "a"): 2, ("t", "b"): 1}
    assert catalog.drain_usage() == {}


def test_one_tool_is_looked_up_as_each_profile_sees_it() -> None:
    catalog = recalled("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers"), C], SAMPLING)
    plain, other = catalog.tool(("s", "a"), PLAIN_PROFILE), catalog.tool(("s", "a"), SAMPLING)
    assert plain is not None
    assert other is not None
    assert b"for samplers" not in plain.definition
    assert b"for samplers" in other.definition
    assert catalog.tool(("s", "c"), PLAIN_PROFILE) is None
    assert catalog.tool(("s", "b"), SAMPLING) is None
    assert catalog.tool(("no", "a"), PLAIN_PROFILE) is None
    assert [catalog.has(key) for key in (("s", "b"), ("s", "c"), ("s", "d"), ("no", "a"))] == [
        True,
        True,
        False,
        False,
    ]


def test_a_profile_sees_everything_only_where_nothing_is_told_apart() -> None:
    catalog = recalled("s")
    assert catalog.shows_all(PLAIN_PROFILE)
    assert catalog.shows_all(SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    assert catalog.shows_all(SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B, C], SAMPLING)
    assert not catalog.shows_all(PLAIN_PROFILE)
    assert not catalog.shows_all(SAMPLING)
    # It has as many tools as there are, but not the same.
    catalog.replace_listing("s", ItemKind.TOOLS, [A], SAMPLING)
    assert not catalog.shows_all(SAMPLING)
    assert catalog.shows_all(PLAIN_PROFILE)
    catalog.forget_profile(SAMPLING)
    assert catalog.shows_all(SAMPLING)
