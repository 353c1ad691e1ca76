"""Who gets `list_changed`: exactly the clients whose list of tools differs in its bytes."""

import asyncio

import pytest

from headgate.catalog.listing_variant import KnownClients
from headgate.catalog.public_names import Key
from headgate.catalog.tool_dialects import Dialect
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import Curation, ListingMode
from tests.catalog.sample_catalog import ROOTS, SAMPLING, tool
from tests.catalog.sample_listings import ListingFixture, session, stateless, wordy

MANY = {f"server{number}": [wordy(f"do{one}") for one in range(30)] for number in range(10)}
KNOWN = ["one", "two", "three", stateless("local").visibility_group]
VIEWED = [ListingMode.AUTO, ListingMode.SLIM, ListingMode.BUDGET]


async def told(stage: ListingFixture) -> set[str]:
    """Those of the clients that tests have that hear of a change, at once or soon."""
    at_once = stage.tool_listings.changed_groups(ItemKind.TOOLS)
    soon = await stage.tool_listings.refresh()
    return {
        visibility_group
        for visibility_group in KNOWN
        if at_once is None or visibility_group in at_once or visibility_group in soon
    }


@pytest.mark.parametrize("mode", ListingMode)
async def test_whoever_has_listed_is_told_when_another_tool_is_shown(mode: ListingMode) -> None:
    stage = ListingFixture(mode, {"s": [tool("a")]})
    for name in ("one", "two"):
        await stage.names(session(name))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    shows = mode not in (ListingMode.SEARCH, ListingMode.DYNAMIC)
    assert {"one", "two"} & await told(stage) == ({"one", "two"} if shows else set())


@pytest.mark.parametrize("mode", VIEWED)
async def test_whoever_has_listed_the_new_one_already_is_not_told_again(mode: ListingMode) -> None:
    stage = ListingFixture(mode, MANY)
    for name in ("one", "two"):
        await stage.names(session(name))
    stage.catalog.replace_listing("server0", ItemKind.TOOLS, [wordy("other")])
    await stage.names(session("one"))
    assert await told(stage) == {"two"}
    assert await told(stage) == set()


async def test_nobody_is_told_of_a_change_that_a_budget_does_not_show() -> None:
    stage = ListingFixture(ListingMode.BUDGET, MANY)
    names = await stage.names(session("one"))
    last = [wordy(f"do{one}") for one in range(29)]
    assert "server9_do29" not in names
    stage.catalog.replace_listing("server9", ItemKind.TOOLS, [*last, wordy("do29", 400)])
    assert await told(stage) == set()
    assert await stage.names(session("one")) == names


@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.SLIM])
async def test_a_change_is_told_to_those_in_a_mode_that_shows_it_and_to_no_other(mode: ListingMode) -> None:
    stage = ListingFixture(mode, MANY)
    await stage.names(session("one"))
    await stage.names(session("two", mode=ListingMode.BUDGET))
    await stage.names(session("three", mode=ListingMode.SEARCH))
    changed = [wordy(f"do{one}") for one in range(29)]
    stage.catalog.replace_listing("server9", ItemKind.TOOLS, [*changed, wordy("do29", 400), wordy("do30")])
    assert {"one", "two", "three"} & await told(stage) == {"one"}


async def test_a_change_of_prose_that_slim_leaves_out_is_told_in_full_alone() -> None:
    def pay(note: str) -> bytes:
        return wordy("pay", 200, _meta={"note": note})

    stage = ListingFixture(ListingMode.FULL, {"s": [pay("old")]})
    await stage.names(session("one"))
    await stage.names(session("two", mode=ListingMode.SLIM))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [pay("new")])
    assert {"one", "two"} & await told(stage) == {"one"}


@pytest.mark.parametrize("mode", VIEWED)
async def test_a_change_for_one_profile_is_told_to_its_clients_alone(mode: ListingMode) -> None:
    stage = ListingFixture(mode, {"s": [tool("a")]})
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("sampled")], SAMPLING)
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("rooted")], ROOTS)
    await stage.names(session("one"))
    await stage.names(session("two", SAMPLING))
    await stage.names(session("three", ROOTS))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), wordy("sampled")], SAMPLING)
    assert await stage.tool_listings.refresh() == {"two"}


async def test_a_change_that_only_one_dialect_shows_is_told_to_its_clients() -> None:
    stage = ListingFixture(
        ListingMode.SLIM, {"s": [tool("a")]}, clients=KnownClients(dialects={"strict": Dialect.OPENAI})
    )
    await stage.names(session("one"))
    await stage.names(session("two", client="strict"))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    assert await told(stage) == {"one", "two"}


async def test_a_session_that_listed_in_two_modes_is_told_when_either_differs() -> None:
    stage = ListingFixture(ListingMode.SEARCH, {"s": [tool("a")]})
    await stage.names(session("one"))
    await stage.names(session("one", mode=ListingMode.SLIM))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    assert await told(stage) == {"one"}


async def test_clients_without_sessions_are_told_until_all_of_them_can_know() -> None:
    stage = ListingFixture(ListingMode.SLIM, {"s": [tool("a")]})
    await stage.names(stateless("local"))
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    # One of those with the same key lists by chance; the others have not heard of it.
    await stage.names(stateless("local"))
    assert await told(stage) == {stateless("local").visibility_group}
    assert await told(stage) == set()


async def test_whoever_is_gone_is_told_nothing() -> None:
    stage = ListingFixture(ListingMode.BUDGET, {"s": [tool("a")]})
    await stage.names(session("one"))
    stage.tool_listings.forget_group("one")
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("b")])
    assert await stage.tool_listings.refresh() == set()


async def test_whoever_has_not_listed_is_told_where_everything_is_shown_and_may_be_kept() -> None:
    full = ListingFixture(ListingMode.FULL, {"s": [tool("a")]})
    assert full.tool_listings.changed_groups(ItemKind.TOOLS) is None
    budget = ListingFixture(ListingMode.BUDGET, MANY)
    assert budget.tool_listings.changed_groups(ItemKind.TOOLS) == set()


# What changes besides the tools.


async def test_new_favourites_are_told_to_those_whose_listing_they_change() -> None:
    ranks: dict[Key, int] = {}
    stage = ListingFixture(ListingMode.BUDGET, MANY, ranks=ranks)
    before = await stage.names(session("one"))
    await stage.names(session("two", mode=ListingMode.SLIM))
    await stage.names(session("three", mode=ListingMode.FULL))
    assert "server5_do25" not in before
    ranks[("server5", "do25")] = 0
    # A listing stays as it is until the favourites are taken down.
    assert await stage.names(session("one")) == before
    stage.tool_listings.clear_cache()
    assert await stage.tool_listings.refresh() == {"one"}
    assert "server5_do25" in await stage.names(session("one"))
    assert await stage.tool_listings.refresh() == set()


async def test_what_an_operator_changes_is_told_to_those_whose_listing_it_changes() -> None:
    stage = ListingFixture(ListingMode.SLIM, MANY)
    await stage.names(session("one"))
    await stage.names(session("two", mode=ListingMode.SEARCH))
    await stage.names(session("three", mode=ListingMode.FULL))
    assert stage.catalog.curate({"server3": Curation(pinned=("do1",))})
    stage.tool_listings.clear_cache()
    assert await stage.tool_listings.refresh() == {"one"}


async def test_views_are_there_before_anybody_asks() -> None:
    stage = ListingFixture(ListingMode.AUTO, MANY)
    await stage.tool_listings.refresh()
    (report,) = stage.tool_listings.report()
    assert report.mode is ListingMode.BUDGET
    # Built once: every client gets the one that exists.
    assert report.digest == stage.tool_listings.report()[0].digest
    await stage.names(session("one"))
    assert len(stage.tool_listings.report()) == 1


async def test_many_clients_at_once_are_served_the_same_bytes_made_once() -> None:
    counts: list[int] = []

    def count(text: bytes) -> int:
        counts.append(len(text))
        return len(text) // 4 + 1

    stage = ListingFixture(ListingMode.BUDGET, MANY, count=count)
    await stage.pages(session("first"))
    once = len(counts)
    counts.clear()
    again = ListingFixture(ListingMode.BUDGET, MANY, count=count)
    pages = await asyncio.gather(*(again.pages(session(str(number))) for number in range(20)))
    assert all(page == pages[0] for page in pages)
    assert len(counts) == once
