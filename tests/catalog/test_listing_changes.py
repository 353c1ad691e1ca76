"""Changes of listings are counted and named, and what is called most is taken down once a day."""

import pytest

from headgate.catalog.listing_changes import ListingChangeLog
from headgate.catalog.paged_listing import ListingFingerprint, PagedListing
from headgate.catalog.public_names import Key
from headgate.catalog.tool_pool import MostUsedTools
from headgate.domain.client_profile import profile_of
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from tests.catalog.sample_catalog import tool
from tests.catalog.sample_listings import InMemoryListingState, ListingFixture, session, stateless
from tests.delivery.scripted_upstream import Clock

DAY = 24 * 3600.0


def listing(**tools: str) -> ListingFingerprint:
    return PagedListing("tools", [(name, text.encode()) for name, text in tools.items()]).fingerprint


# Changes.


def test_the_first_time_is_no_change_and_neither_are_the_same_bytes() -> None:
    changes = ListingChangeLog(InMemoryListingState())
    for _ in range(3):
        changes.record("full", listing(a="1", b="2"))
    assert changes.counts() == {"full": 0}
    assert changes.last("full") is None


def test_a_change_is_counted_and_says_what_it_is() -> None:
    clock = Clock()
    changes = ListingChangeLog(InMemoryListingState(), clock)
    changes.record("full", listing(a="1", b="2", c="3"))
    clock.forward(5)
    changes.record("full", listing(d="4", b="2", c="other"))
    last = changes.last("full")
    assert last is not None
    assert (last.at, last.added, last.removed, last.changed, last.more) == (1005, ("d",), ("a",), ("c",), 0)
    assert (changes.total, changes.counts()) == (1, {"full": 1})


def test_another_order_is_a_change_too() -> None:
    changes = ListingChangeLog(InMemoryListingState())
    changes.record("full", listing(a="1", b="2"))
    changes.record("full", listing(b="2", a="1"))
    assert changes.total == 1


def test_a_change_of_thousands_names_a_few_of_them() -> None:
    changes = ListingChangeLog(InMemoryListingState())
    changes.record("full", listing(**{f"old{number}": "x" for number in range(5000)}))
    changes.record("full", listing(**{f"new{number}": "x" for number in range(3000)}))
    last = changes.last("full")
    assert last is not None
    assert len(last.added) == len(last.removed) == 20
    assert last.more == 8000 - 40


def test_a_restart_between_is_seen_and_the_same_after_it_is_none() -> None:
    memory = InMemoryListingState()
    ListingChangeLog(memory).record("full", listing(a="1"))
    same = ListingChangeLog(memory)
    same.record("full", listing(a="1"))
    assert same.total == 0
    other = ListingChangeLog(memory)
    other.record("full", listing(a="2"))
    assert other.total == 1
    assert ListingChangeLog(memory).counts() == {}


def test_listings_are_counted_apart_and_odd_ones_do_not_pile_up() -> None:
    changes = ListingChangeLog(InMemoryListingState())
    changes.record("first", listing(a="1"))
    changes.record("first", listing(a="2"))
    changes.record("second", listing(a="1"))
    assert changes.counts() == {"first": 1, "second": 0}
    for number in range(1000):
        changes.record(f"odd {number}", listing(a="1"))
    assert len(changes.counts()) <= 64


@pytest.mark.parametrize("mode", [mode for mode in ListingMode if mode is not ListingMode.DYNAMIC])
async def test_a_listing_that_clients_see_is_counted_in_its_own_name(mode: ListingMode) -> None:
    memory = InMemoryListingState()
    stage = ListingFixture(mode, {"s": [tool("a")]}, memory=memory)
    for listing_context in (session("one"), session("two"), session("three", client="claude-ai")):
        await stage.names(listing_context)
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")])
    stage.catalog.set_servers(["s", "t"])
    for listing_context in (session("one"), session("two")):
        await stage.names(listing_context)
    # However many see it, it changed once.
    assert stage.tool_listings.changes.counts() == {f"{mode} handshake": 1}
    await stage.names(stateless("local"))
    assert stage.tool_listings.changes.counts() == {f"{mode} handshake": 1, f"{mode} stateless": 0}
    (report, *_) = [shown for shown in stage.tool_listings.report() if shown.listing == f"{mode} handshake"]
    assert report.last_change is not None
    assert report.changes == 1
    if mode is not ListingMode.SEARCH:
        assert report.last_change.added == ("s_b",)
    # After a restart the same is nothing new, and something else is.
    again = ListingFixture(mode, {"s": [tool("a"), tool("b")], "t": []}, memory=memory)
    await again.names(session("one"))
    assert again.tool_listings.changes.total == 0
    other = ListingFixture(mode, {"u": [tool("a")]}, memory=memory)
    await other.names(session("one"))
    assert other.tool_listings.changes.total == 1


async def test_clients_that_see_different_tools_by_turns_are_no_change() -> None:
    memory = InMemoryListingState()
    one, other = (profile_of(b'{"sampling":{"tools":%s}}' % tools) for tools in (b"{}", b'{"x":1}'))
    for _ in range(2):
        stage = ListingFixture(ListingMode.SLIM, {"s": [tool("a")]}, memory=memory)
        stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("b")], one)
        stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("a"), tool("c")], other)
        for _ in range(3):
            for profile, name in ((one, "s_b"), (other, "s_c")):
                assert name in await stage.names(session("x", profile))
        assert stage.tool_listings.changes.counts() == {"slim handshake sampling": 0}
    stage.catalog.replace_listing("s", ItemKind.TOOLS, [tool("c")], other)
    await stage.names(session("x", other))
    await stage.names(session("x", one))
    assert stage.tool_listings.changes.counts() == {"slim handshake sampling": 1}
    last = stage.tool_listings.changes.last("slim handshake sampling")
    assert last is not None
    assert last.removed == ("s_a",)


async def test_a_list_that_is_meant_to_grow_is_not_counted() -> None:
    memory = InMemoryListingState()
    stage = ListingFixture(ListingMode.DYNAMIC, {"s": [tool("a")]}, memory=memory)
    await stage.names()
    stage.catalog.set_servers(["s", "t"])
    await stage.names()
    assert stage.tool_listings.changes.counts() == {}
    assert memory.digests == {}


# What is called most.

CALLS: dict[Key, int] = {("s", "a"): 3, ("s", "b"): 7, ("t", "a"): 7, ("s", "never"): 0}


def test_the_most_called_comes_first_and_what_nobody_calls_is_none() -> None:
    favourites = MostUsedTools(InMemoryListingState())
    assert favourites.is_due
    assert favourites.update(CALLS)
    assert list(favourites.ranks) == [("s", "b"), ("t", "a"), ("s", "a")]
    assert list(favourites.ranks.values()) == [0, 1, 2]


def test_they_are_taken_down_once_a_day_and_after_a_restart_no_sooner() -> None:
    clock, memory = Clock(), InMemoryListingState()
    favourites = MostUsedTools(memory, clock)
    favourites.update(CALLS)
    assert not favourites.is_due
    clock.forward(DAY - 1)
    again = MostUsedTools(memory, clock)
    assert (again.is_due, again.ranks) == (False, favourites.ranks)
    clock.forward(1)
    assert again.is_due
    assert favourites.is_due


def test_a_clock_that_was_set_back_does_not_keep_them_for_ever() -> None:
    clock, memory = Clock(), InMemoryListingState()
    MostUsedTools(memory, clock).update(CALLS)
    clock.forward(-500)
    favourites = MostUsedTools(memory, clock)
    assert favourites.is_due
    favourites.update({("s", "a"): 1})
    assert not favourites.is_due


def test_that_nobody_called_anything_is_taken_down_for_a_day_too() -> None:
    memory, clock = InMemoryListingState(), Clock()
    favourites = MostUsedTools(memory, clock)
    assert not favourites.update({})
    assert (favourites.is_due, memory.taken) == (False, (clock(), []))


def test_a_count_that_was_lost_keeps_the_favourites_there_are_for_another_day() -> None:
    memory, clock = InMemoryListingState(), Clock()
    favourites = MostUsedTools(memory, clock)
    favourites.update(CALLS)
    before = dict(favourites.ranks)
    clock.forward(DAY)
    assert not favourites.update({})
    assert not favourites.update({("s", "never"): 0})
    assert (favourites.is_due, favourites.ranks) == (False, before)
    assert memory.taken == (clock(), list(before))


def test_only_another_order_is_a_change() -> None:
    favourites = MostUsedTools(InMemoryListingState())
    favourites.update(CALLS)
    assert not favourites.update({key: count * 10 for key, count in CALLS.items()})
    assert favourites.update(CALLS | {("s", "a"): 100})


def test_of_thousands_the_most_called_are_remembered() -> None:
    memory = InMemoryListingState()
    favourites = MostUsedTools(memory)
    favourites.update({("s", f"{number:05}"): number for number in range(10_000)})
    assert len(favourites.ranks) == len(memory.taken[1]) == 200
    assert next(iter(favourites.ranks)) == ("s", "09999")


async def test_a_tool_that_is_a_favourite_and_no_more_there_does_no_harm() -> None:
    ranks = {("gone", "x"): 0, ("s", "gone"): 1, ("s", "a"): 2}
    stage = ListingFixture(ListingMode.BUDGET, {"s": [tool("a")]}, ranks=ranks)
    assert await stage.names() == ["s_a"]
