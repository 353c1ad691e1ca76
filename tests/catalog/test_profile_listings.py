"""Clients that declare capabilities see what servers told such clients, under the names everybody knows."""

import time

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import ToolNotFound
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import ItemKind
from headgate.protocol.protocol_version import Era
from tests.catalog.sample_catalog import (
    ROOTS,
    SAMPLING,
    InMemoryNameOwners,
    called,
    catalog_of,
    first_page,
    item,
    listed,
    target,
    tool,
)

A, B, C = tool("a"), tool("b"), tool("c")


def profile(number: int) -> ClientProfile:
    return profile_of(f'{{"experimental":{{"{number}":{{}}}}}}'.encode())


@pytest.mark.parametrize("kind", ItemKind)
def test_a_profile_sees_its_own_listing_and_otherwise_the_plain_one(kind: ItemKind) -> None:
    catalog = catalog_of("one", "two")
    for server in ("one", "two"):
        catalog.replace_listing(server, kind, [item(kind, f"{server}://a")])
    plain = called(catalog, kind)
    assert called(catalog, kind, SAMPLING) == plain
    catalog.replace_listing("one", kind, [item(kind, "one://a"), item(kind, "one://b")], SAMPLING)
    assert called(catalog, kind) == called(catalog, kind, ROOTS) == plain
    assert len(called(catalog, kind, SAMPLING)) == 3
    assert called(catalog, kind, SAMPLING)[0] == plain[0]
    assert called(catalog, kind, SAMPLING)[-1] == plain[-1]


def test_a_profile_may_see_less_and_other_definitions_under_the_same_name() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B])
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("a", "for samplers")], SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [], ROOTS)
    assert [one["description"] for one in listed(catalog, ItemKind.TOOLS, SAMPLING)] == ["for samplers"]
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a"]
    assert called(catalog, ItemKind.TOOLS, ROOTS) == []
    assert called(catalog, ItemKind.TOOLS) == ["s_a", "s_b"]
    assert len(catalog) == 2


def test_names_are_distinct_over_all_profiles_and_every_tool_is_reached() -> None:
    catalog = catalog_of("big", "big_two")
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")], SAMPLING)
    catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
    catalog.replace_listing("big_two", ItemKind.TOOLS, [tool("x")], ROOTS)
    assert (
        called(catalog, ItemKind.TOOLS, SAMPLING)[1]
        == called(catalog, ItemKind.TOOLS, ROOTS)[1]
        == "big_two_x"
    )
    assert target(catalog, "big_two_x") == ("big_two", "x")
    assert target(catalog, called(catalog, ItemKind.TOOLS)[0]) == ("big", "two_x")


def test_a_profile_that_is_forgotten_takes_along_what_it_alone_had() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    assert catalog.has_own_listing("s", SAMPLING)
    assert target(catalog, "s_b") == ("s", "b")
    catalog.forget_profile(SAMPLING)
    assert not catalog.has_own_listing("s", SAMPLING)
    assert catalog.has_own_listing("s", PLAIN_PROFILE)
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a"]
    with pytest.raises(ToolNotFound):
        catalog.resolve(ItemKind.TOOLS, "s_b", LOCAL_IDENTITY)


def test_a_server_has_offered_only_to_whom_it_told_its_tools() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.PROMPTS, [], SAMPLING)
    assert not catalog.has_own_listing("s", SAMPLING)
    assert not catalog.has_own_listing("s", PLAIN_PROFILE)
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    assert catalog.has_own_listing("s", PLAIN_PROFILE)
    # The same as the plain listing, but its own.
    catalog.replace_listing("s", ItemKind.TOOLS, [A], SAMPLING)
    assert catalog.has_own_listing("s", SAMPLING)
    assert not catalog.has_own_listing("s", ROOTS)
    catalog.set_servers([])
    assert not catalog.has_own_listing("s", SAMPLING)


def test_sixteen_profiles_are_kept_and_the_longest_unused_goes_first() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    for number in range(16):
        catalog.replace_listing("s", ItemKind.TOOLS, [A, tool(f"t{number}")], profile(number))
    first_page(catalog, ItemKind.PROMPTS, profile(0))
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], profile(16))
    kept = [number for number in range(17) if catalog.has_own_listing("s", profile(number))]
    assert kept == [0, *range(2, 17)]
    assert called(catalog, ItemKind.TOOLS, profile(1)) == ["s_a"]
    assert called(catalog, ItemKind.TOOLS, profile(0)) == ["s_a", "s_t0"]


def test_profiles_that_only_look_push_nobody_out() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    for number in range(1000):
        first_page(catalog, profile=profile(number))
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_b"]


def told_of(catalog: Catalog) -> list[ItemKind]:
    told: list[ItemKind] = []
    catalog.on_change(told.append)
    return told


def test_who_listens_is_told_each_kind_that_changed() -> None:
    catalog = catalog_of("one", "two")
    told = told_of(catalog)
    catalog.replace_listing("one", ItemKind.PROMPTS, [item(ItemKind.PROMPTS, "p")])
    catalog.replace_listing("one", ItemKind.PROMPTS, [item(ItemKind.PROMPTS, "p")])
    catalog.replace_listing("one", ItemKind.RESOURCES, [])
    catalog.replace_listing("two", ItemKind.TEMPLATES, [item(ItemKind.TEMPLATES, "a://{b}")])
    assert told == [ItemKind.PROMPTS, ItemKind.TEMPLATES]
    told.clear()
    catalog.set_servers(["two", "one"])
    assert told == []
    catalog.set_servers([])
    assert told == [ItemKind.PROMPTS, ItemKind.TEMPLATES]


def test_a_listing_of_one_profile_is_news_where_somebody_has_seen_another() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    told = told_of(catalog)
    # No client of that profile has listed yet.
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    assert told == []
    first_page(catalog, profile=SAMPLING)
    first_page(catalog, profile=ROOTS)
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [A], ROOTS)
    assert told == []
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B, C], SAMPLING)
    assert told == [ItemKind.TOOLS]


@pytest.mark.parametrize("era", Era)
def test_every_profile_and_era_sees_a_change_after_its_first_look(era: Era) -> None:
    catalog = catalog_of("s", "t")
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    for one in (PLAIN_PROFILE, SAMPLING, ROOTS):
        first_page(catalog, profile=one, era=era)
    catalog.replace_listing("s", ItemKind.TOOLS, [C], SAMPLING)
    catalog.replace_listing("t", ItemKind.TOOLS, [C])
    assert [one["name"] for one in listed(catalog, ItemKind.TOOLS, SAMPLING, era)] == ["s_c", "t_c"]
    for other in (PLAIN_PROFILE, ROOTS):
        assert [one["name"] for one in listed(catalog, ItemKind.TOOLS, other, era)] == ["s_a", "t_c"]


def test_a_server_that_goes_is_news_to_those_who_alone_saw_its_tools() -> None:
    catalog = catalog_of("one", "two")
    catalog.replace_listing("one", ItemKind.TOOLS, [])
    catalog.replace_listing("one", ItemKind.TOOLS, [A], SAMPLING)
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["one_a"]
    news: list[ItemKind] = []
    catalog.on_change(news.append)
    catalog.set_servers(["two"])
    assert news == [ItemKind.TOOLS]
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == []
    catalog.set_servers(["two", "three"])
    assert news == [ItemKind.TOOLS]


def test_what_was_the_same_as_the_plain_listing_follows_it() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], SAMPLING)
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B], ROOTS)
    catalog.replace_listing("s", ItemKind.TOOLS, [A])
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_b"]
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B])
    catalog.replace_listing("s", ItemKind.TOOLS, [A, B, C])
    assert called(catalog, ItemKind.TOOLS, SAMPLING) == ["s_a", "s_b", "s_c"]


def test_a_tool_and_a_prompt_of_one_name_are_not_confused() -> None:
    owners = InMemoryNameOwners()
    for servers in (["big", "big_two"], ["big_two", "big"]):
        catalog = catalog_of(*servers, owners=owners)
        catalog.replace_listing("big", ItemKind.TOOLS, [tool("two_x")])
        catalog.replace_listing("big_two", ItemKind.PROMPTS, [item(ItemKind.PROMPTS, "x")])
        assert target(catalog, "big_two_x") == ("big", "two_x")
        prompt = catalog.resolve(ItemKind.PROMPTS, "big_two_x", LOCAL_IDENTITY)
        assert (prompt.kind, prompt.server, prompt.name) == (ItemKind.PROMPTS, "big_two", "x")


def test_ten_thousand_tools_and_every_profile_stay_quick() -> None:
    definitions = [tool(f"tool_number_{number}", "x" * 500) for number in range(10_000)]
    catalog = catalog_of("s")
    started = time.process_time()
    catalog.replace_listing("s", ItemKind.TOOLS, definitions)
    once = time.process_time() - started
    started = time.process_time()
    for number in range(16):
        own = [*definitions, tool(f"own_{number}")] if number % 2 else definitions
        catalog.replace_listing("s", ItemKind.TOOLS, own, profile(number))
        first_page(catalog, profile=profile(number))
    # What is the same as in the plain listing is shared; copies of it would take 16 times as long.
    assert time.process_time() - started < 4 * once + 1
