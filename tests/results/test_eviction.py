"""What is evicted when space is needed: large and long idle results of the client that holds most."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.result_store import EvictionIndex, ResultStoreLimits, StoredResult, select_victim


class InFile:
    """A content in a file, as far as anybody can tell."""

    start = 0
    first = b""

    def __init__(self, size: int) -> None:
        self.size = size

    def fileno(self) -> int:
        return -1

    def chunks(self) -> Iterator[bytes]:
        yield bytes(self.size)

    def close(self) -> None:
        pass


def entry(id: str, size: int = 1, touched: float = 0.0, **more: Any) -> StoredResult:
    fields = {"content": bytes(size), "tool_name": "t", "arguments": b"", "expires_at": touched + 300.0}
    return StoredResult(
        id=id, created_at=touched, last_accessed_at=touched, size_bytes=size, **{**fields, **more}
    )


def in_file(id: str, size: int = 1, touched: float = 0.0, **more: Any) -> StoredResult:
    return entry(id, size, touched, content=InFile(size), **more)


def dropped(shelves: EvictionIndex, agent: str, now: float) -> list[str]:
    """The ids of what has to go, which then has gone."""
    gone = []
    for key in shelves.keys_to_evict(agent, now):
        shelves.remove(*key)
        gone.append(key[1])
    return gone


def put(shelves: EvictionIndex, agent: str, new: StoredResult) -> list[str]:
    """The ids of what had to go for it."""
    shelves.add(agent, new, 300.0)
    return dropped(shelves, agent, new.created_at)


def found(entries: list[StoredResult], now: float) -> str:
    chosen = select_victim(entries, now)
    assert chosen is not None
    return chosen.id


def test_idle_time_and_size_count_alike() -> None:
    old, large = entry("old", 10, touched=0.0), entry("large", 100, touched=90.0)
    assert found([old, large], now=99.0) == "old"
    assert found([old, large], now=102.0) == "large"


def test_of_equals_the_one_goes_that_was_not_touched_for_longest() -> None:
    assert found([entry("first"), entry("second")], now=5.0) == "first"
    assert found([entry("first"), entry("second")], now=0.0) == "first"


def test_a_clock_that_was_set_back_makes_nothing_idle() -> None:
    assert found([entry("later", 1000, touched=50.0), entry("now", touched=10.0)], now=11.0) == "now"


def test_of_nothing_nothing_goes() -> None:
    assert select_victim([], now=1.0) is None


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30), st.integers(0, 30)
)
def test_looking_at_few_entries_finds_the_same_as_looking_at_all(
    pairs: list[tuple[int, int]], now: int
) -> None:
    entries = [
        entry(str(n), size, touched) for n, (size, touched) in enumerate(sorted(pairs, key=lambda p: p[1]))
    ]
    largest = max(each.size_bytes for each in entries)
    chosen = select_victim(entries, now, largest=largest)
    wastes = [max(0, now - each.last_accessed_at) * each.size_bytes for each in entries]
    assert chosen is entries[wastes.index(max(wastes))]


def test_who_holds_most_gives_first_though_another_was_idle_for_longer() -> None:
    shelves = EvictionIndex(ResultStoreLimits(max_bytes=100))
    put(shelves, "modest", entry("m", 40, touched=0.0))
    put(shelves, "greedy", entry("g1", 30, touched=50.0))
    put(shelves, "greedy", entry("g2", 30, touched=60.0))
    assert put(shelves, "greedy", entry("g3", 30, touched=70.0)) == ["g1"]


def test_the_newest_stays_though_its_agent_holds_most() -> None:
    shelves = EvictionIndex(ResultStoreLimits(max_bytes=100))
    put(shelves, "a", entry("a1", 30))
    put(shelves, "b", entry("b1", 20))
    assert put(shelves, "b", entry("b2", 60, touched=1.0)) == ["b1"]
    assert put(shelves, "c", entry("c1", 500, touched=2.0)) == ["b2", "a1"]
    assert put(shelves, "c", entry("c2", 1, touched=3.0)) == ["c1"]


def test_of_those_who_hold_as_much_the_one_gives_that_was_idle_longest() -> None:
    shelves = EvictionIndex(ResultStoreLimits(max_files=3))
    for agent in ("c", "a", "b"):
        put(shelves, agent, in_file(agent))
    shelves.touch("c", "c", 1.0)
    assert put(shelves, "d", in_file("d", touched=2.0)) == ["a"]


def test_files_are_given_by_those_who_hold_files() -> None:
    shelves = EvictionIndex(ResultStoreLimits(max_files=2))
    put(shelves, "a", entry("large", 10_000))
    put(shelves, "a", in_file("f1", 10))
    put(shelves, "a", in_file("f2", 30))
    assert put(shelves, "b", in_file("f3", 10, touched=1.0)) == ["f2"]
    assert shelves.usage.files == 2


def test_memory_is_given_by_what_is_in_memory() -> None:
    shelves = EvictionIndex(ResultStoreLimits(max_memory=100))
    put(shelves, "a", in_file("file", 10_000))
    put(shelves, "a", entry("m1", 60))
    assert put(shelves, "b", entry("m2", 60, touched=1.0)) == ["m1"]


def test_arguments_take_memory_too() -> None:
    shelves = EvictionIndex(ResultStoreLimits(memory_per_agent=100))
    assert shelves.fits_in_memory("a", 100)
    assert not shelves.fits_in_memory("a", 101)
    put(shelves, "a", entry("talkative", 1, arguments=bytes(90)))
    assert not shelves.fits_in_memory("a", 10)
    assert shelves.fits_in_memory("b", 10)
    assert put(shelves, "a", entry("next", 50, touched=1.0)) == ["talkative"]


def test_arguments_of_a_result_on_disk_evict_nothing_of_its_agent() -> None:
    shelves = EvictionIndex(ResultStoreLimits(memory_per_agent=100))
    put(shelves, "a", entry("resident", 90))
    for number in range(5):
        assert put(shelves, "a", in_file(f"f{number}", arguments=bytes(30))) == []
    assert shelves.usage.memory == 90 + 5 * 30
    assert shelves.fits_in_memory("a", 10)
    assert not shelves.fits_in_memory("a", 11)


def test_arguments_of_results_on_disk_count_towards_the_memory_of_all() -> None:
    shelves = EvictionIndex(ResultStoreLimits(memory_per_agent=0, max_memory=100))
    put(shelves, "a", in_file("first", arguments=bytes(60)))
    assert put(shelves, "b", in_file("second", touched=1.0, arguments=bytes(60))) == ["first"]


@pytest.mark.parametrize("isolated", [True, False])
def test_with_no_memory_nothing_fits_and_entries_are_still_bounded(*, isolated: bool) -> None:
    shelves = EvictionIndex(
        ResultStoreLimits(memory_per_agent=0, entries_per_agent=3, max_entries=3, isolated=isolated)
    )
    assert not shelves.fits_in_memory("a", 1)
    gone = [put(shelves, "a", in_file(f"f{n}", touched=n, arguments=b"{}")) for n in range(5)]
    assert gone == [[], [], [], ["f0"], ["f1"]]


def test_with_no_memory_a_result_that_no_disk_took_goes_with_the_next() -> None:
    shelves = EvictionIndex(ResultStoreLimits(memory_per_agent=0))
    put(shelves, "a", in_file("file"))
    put(shelves, "a", entry("unwritten", 50, touched=1.0))
    assert put(shelves, "a", in_file("next", touched=2.0)) == ["unwritten"]


def test_what_came_later_may_end_earlier() -> None:
    shelves = EvictionIndex(ResultStoreLimits())
    shelves.add("a", entry("long", expires_at=300.0), 300.0)
    shelves.add("a", entry("short", expires_at=10.0), 10.0)
    assert shelves.next_expired(9.9) is None
    assert shelves.next_expired(10.0) == ("a", "short")
    shelves.remove("a", "short")
    assert shelves.next_expired(299.0) is None
    assert shelves.next_expired(300.0) == ("a", "long")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["memory", "file", "use", "remove"]),
        st.sampled_from("abcd"),
        st.integers(0, 60),
        st.sampled_from([0, 1, 7]),
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(steps=STEPS, isolated=st.booleans())
def test_whatever_is_done_no_bound_is_passed_and_the_newest_stays(
    steps: list[tuple[str, str, int, int]], *, isolated: bool
) -> None:
    limits = ResultStoreLimits(
        max_entries=5,
        isolated=isolated,
        entries_per_agent=3,
        memory_per_agent=80,
        agents=3,
        max_bytes=150,
        max_memory=100,
        max_files=4,
    )
    shelves, now = EvictionIndex(limits), 0
    for number, (step, agent, size, seconds) in enumerate(steps):
        now += seconds
        owner = agent if isolated else ""
        known = [id for _, id in shelves.keys_of(owner)]
        if step == "use" and known:
            used = shelves.touch(owner, known[size % len(known)], now)
            assert used is None or (used.last_accessed_at == now and used.access_count > 0)
        elif step == "remove" and known:
            assert shelves.remove(owner, known[size % len(known)]) is not None
        elif step in ("memory", "file"):
            put(shelves, owner, (entry if step == "memory" else in_file)(str(number), size, now))
            assert (owner, str(number)) in shelves.keys_of(None)
        assert shelves.entries == len(shelves.keys_of(None))
        assert shelves.usage.contents <= limits.max_bytes
        assert shelves.usage.memory <= limits.max_memory
        assert shelves.usage.files <= limits.max_files
        assert shelves.agents <= limits.agents
        assert len(shelves.keys_of(owner)) <= (3 if isolated else 5)
    for key in shelves.keys_of(None):
        shelves.remove(*key)
    assert (shelves.usage.contents, shelves.usage.memory, shelves.usage.files, shelves.usage.disk) == (
        0,
        0,
        0,
        0,
    )
    assert shelves.next_expired(float("inf")) is None
