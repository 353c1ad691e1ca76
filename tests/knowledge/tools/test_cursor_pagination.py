"""Lists stay as they were while a client pages through them, and expire."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.tools.cursor_pagination import (
    MOST_SNAPSHOTS,
    TTL_SECONDS,
    CursorPager,
    OpenedSnapshot,
    PageSnapshot,
    page_of,
)


class Shelf:
    """A list that changes, and a pager over it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.revision = 1
        self.ids: tuple[int, ...] = (1, 2, 3)
        self.made = 0
        self.pager: CursorPager[str] = CursorPager("list_sources", lambda: self.now, self.current)

    async def current(self) -> int:
        return self.revision

    async def make(self) -> PageSnapshot[str]:
        self.made += 1
        return PageSnapshot((self.ids,), self.revision, "about")

    async def open(
        self, cursor: str | None = None, caller: Identity = LOCAL_IDENTITY, query: str = "q"
    ) -> OpenedSnapshot[str]:
        return await self.pager.open(cursor, caller, {"query": query}, self.make)

    def cursor(self, opened: OpenedSnapshot[str], place: int = 1, query: str = "q") -> str:
        return self.pager.cursor(opened.snapshot, LOCAL_IDENTITY, {"query": query}, [place])


async def test_a_cursor_leads_to_the_list_as_it_was() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    shelf.ids, shelf.revision = (9, 8), 2
    again = await shelf.open(cursor)
    assert (again.snapshot.lists, again.offsets, again.kept) == (((1, 2, 3),), (1,), True)


async def test_a_list_that_nobody_has_a_cursor_into_is_not_kept() -> None:
    shelf = Shelf()
    await shelf.open()
    assert len(shelf.pager) == 0


async def test_two_states_of_the_same_list_are_both_read_on() -> None:
    shelf = Shelf()
    old = shelf.cursor(await shelf.open())
    shelf.ids, shelf.revision = (9, 8), 2
    new = shelf.cursor(await shelf.open())
    assert [(await shelf.open(cursor)).snapshot.lists[0] for cursor in (old, new)] == [(1, 2, 3), (9, 8)]


async def test_a_list_that_was_forgotten_is_made_again_when_nothing_changed() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    shelf.now += TTL_SECONDS + 1
    assert (await shelf.open(cursor)).offsets == (1,)
    assert shelf.made == 2


async def test_who_goes_on_reading_keeps_his_list() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    for _ in range(3):
        shelf.now += TTL_SECONDS - 1
        shelf.revision += 1
        assert (await shelf.open(cursor)).kept


async def test_a_list_that_was_forgotten_after_a_change_is_gone() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    shelf.now += TTL_SECONDS + 1
    shelf.revision = 2
    with pytest.raises(InvalidKnowledgeArgument, match="cursor has expired: the documents have changed"):
        await shelf.open(cursor)
    assert shelf.made == 1


async def test_a_list_that_comes_out_otherwise_the_second_time_is_not_mixed_with_the_first() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    shelf.now += TTL_SECONDS + 1
    shelf.ids = (3, 2, 1)
    with pytest.raises(InvalidKnowledgeArgument, match="cursor has expired"):
        await shelf.open(cursor)


async def test_only_so_many_lists_are_kept() -> None:
    shelf = Shelf()
    cursor = shelf.cursor(await shelf.open())
    for number in range(MOST_SNAPSHOTS):
        shelf.cursor(await shelf.open(query=str(number)), query=str(number))
    assert len(shelf.pager) == MOST_SNAPSHOTS
    assert not (await shelf.open(cursor)).kept


async def test_very_long_lists_are_kept_in_smaller_numbers() -> None:
    shelf = Shelf()
    shelf.ids = tuple(range(700_000))
    for number in range(4):
        shelf.cursor(await shelf.open(query=str(number)), query=str(number))
    assert len(shelf.pager) == 2


async def test_what_is_known_besides_a_list_counts_as_well() -> None:
    shelf = Shelf()
    for number in range(4):
        opened = await shelf.open(query=str(number))
        heavy = OpenedSnapshot(
            PageSnapshot((shelf.ids,), number, "about", 700_000), opened.offsets, kept=False
        )
        shelf.cursor(heavy, query=str(number))
    assert len(shelf.pager) == 2


@settings(max_examples=60)
@given(
    ids=st.lists(st.integers(1, 60), unique=True, max_size=40),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    removed=st.lists(st.integers(1, 60), max_size=30),
)
async def test_pages_hold_everything_that_stayed_once(
    ids: list[int], sizes: list[int], removed: list[int]
) -> None:
    there = set(ids)

    async def read(some: Sequence[int]) -> Mapping[int, str]:
        return {id: str(id) for id in some if id in there}

    found: list[int] = []
    following: int | None = 0
    turn = 0
    while following is not None:
        size = sizes[turn % len(sizes)]
        page = await page_of(ids, following, size, read)
        assert len(page.items) == size or page.following is None
        found += [id for id, _ in page.items]
        following = page.following
        # Some leave while it is read.
        there -= set(removed[turn * 3 : turn * 3 + 3]) - set(found)
        turn += 1
    assert len(found) == len(set(found))
    assert found == [id for id in ids if id in set(found)]
    assert {id for id in ids if id in there} <= set(found)


async def test_a_long_list_that_is_gone_is_passed_in_few_steps() -> None:
    asked: list[int] = []

    async def read(ids: Sequence[int]) -> Mapping[int, str]:
        asked.append(len(ids))
        return {id: "there" for id in ids if id == 9_999}

    page = await page_of(range(10_000), 0, 1, read)
    assert (page.items, page.following) == (((9_999, "there"),), None)
    assert len(asked) < 40
    assert max(asked) <= 500
