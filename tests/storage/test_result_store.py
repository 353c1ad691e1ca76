"""Stores of large results: each keeps every byte, for its owner only, for a time, and within its bounds."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from headgate.domain.payload import Payload
from headgate.results.result_store import (
    ResultStoreLimits,
    StoredContent,
    StoredResult,
    new_cache_id,
    open_stored,
)
from headgate.storage.files.result_store import LocalResultStore, open_results
from headgate.upstream.message_assembly import SpooledValue, SpoolFile
from testkit.waiting import eventually
from tests.upstream.spool_limits import open_files, taken

WAIT_SECONDS = 5.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def in_this_process(
    tmp_path: Path, limits: ResultStoreLimits, clock: Clock
) -> AbstractAsyncContextManager[LocalResultStore]:
    return open_results(tmp_path / "spool", limits, clock)


Opening = Callable[[Path, ResultStoreLimits, Clock], AbstractAsyncContextManager[LocalResultStore]]
Open = Callable[[ResultStoreLimits], Awaitable[LocalResultStore]]


@pytest.fixture(params=[in_this_process])
async def opened(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Open]:
    """A function that opens a store of each kind; it is closed with the test, and nothing is left."""
    opening: Opening = request.param
    async with AsyncExitStack() as stores:
        yield lambda limits: stores.enter_async_context(opening(tmp_path, limits, clock))
    assert open_files(tmp_path) == []


async def put(store: LocalResultStore, agent: str, content: Payload, ttl_seconds: float | None = None) -> str:
    return await store.put(agent, content, "tool", b"{}", ttl_seconds)


def data(content: StoredContent | None) -> bytes | None:
    """The bytes of what a reader got, who is done with it."""
    return None if content is None else taken(content)


async def kept(store: LocalResultStore, agent: str, *ids: str) -> list[bool]:
    """Which of them are there."""
    return [data(await store.get(agent, id)) is not None for id in ids]


class Elsewhere:
    """A content that is not in memory, and in no file that could be shared."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)
        self.first = content[:1]
        self.opened = self.closed = False

    def chunks(self) -> Iterator[bytes]:
        self.opened = True
        for start in range(0, self.size, 7):
            yield self._content[start : start + 7]

    def close(self) -> None:
        self.closed = True


async def spooled(tmp_path: Path, content: bytes) -> SpooledValue:
    """One that came as a large message, in the middle of a file."""

    def write() -> SpooledValue:
        file = SpoolFile(tmp_path / "spool")
        file.append(b"before" + content + b"after")
        return SpooledValue(file, 6, 6 + len(content))

    return await asyncio.to_thread(write)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00\xff\xfe\n", b'"' + b"x" * 600_000 + b'"'])
async def test_what_is_put_is_given_back_byte_for_byte(opened: Open, tmp_path: Path, content: bytes) -> None:
    store = await opened(ResultStoreLimits())
    ids = [
        await put(store, "a", one)
        for one in (content, await spooled(tmp_path, content), Elsewhere(content[:999]))
    ]
    assert [data(await store.get("a", id)) for id in ids] == [content, content, content[:999]]


async def test_an_entry_says_what_is_known_about_it(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(ttl_seconds=300.0))
    id = await store.put("a", b"content", "files__read", b'{"path": "x"}')
    clock.now += 5.0
    await store.get("a", id)
    clock.now += 5.0
    assert await store.get_entry("a", id) == StoredResult(
        id=id,
        content=b"content",
        tool_name="files__read",
        arguments=b'{"path": "x"}',
        created_at=1000.0,
        last_accessed_at=1010.0,
        access_count=2,
        size_bytes=7,
        expires_at=1300.0,
    )


async def test_ids_are_random_and_have_96_bits(opened: Open) -> None:
    store = await opened(ResultStoreLimits())
    ids = {await put(store, "a", b"same") for _ in range(20)}
    assert len(ids) == 20
    assert all(len(id) == 24 and int(id, 16) >= 0 for id in ids)


async def test_an_id_can_be_made_before_the_result_is_stored(opened: Open) -> None:
    store = await opened(ResultStoreLimits())
    id = new_cache_id()
    assert await store.put("a", b"1", "tool", b"{}", id=id) == id
    assert await store.put("a", b"2", "tool", b"{}", id=id) == id
    assert await store.get("a", id) == b"2"
    assert await store.size() == 1


@pytest.mark.parametrize("id", ["", "\0", "../../etc/passwd", "%2e", "x" * 10_000, "\ud800", "0" * 24])
async def test_a_foreign_id_is_an_unknown_id(opened: Open, id: str) -> None:
    store = await opened(ResultStoreLimits())
    foreign = await put(store, "owner", b"secret")
    await put(store, "thief", b"own")
    for tried in (id, foreign):
        assert await store.get("thief", tried) is None
        assert await store.get_entry("nobody", tried) is None
        assert await store.remove("thief", tried) is False
        async with open_stored(store, "thief", tried) as entry:
            assert entry is None
    assert await store.get("owner", foreign) == b"secret"


async def test_the_same_call_of_two_agents_gives_two_entries(opened: Open) -> None:
    store = await opened(ResultStoreLimits())
    first = await put(store, "alice", b"private to alice")
    second = await put(store, "bob", b"private to bob")
    assert await store.get("alice", first) == b"private to alice"
    assert await store.get("alice", second) is None


async def test_without_isolation_everybody_is_one_agent(opened: Open) -> None:
    store = await opened(ResultStoreLimits(isolated=False, max_entries=2, entries_per_agent=1))
    first, second = [await put(store, agent, b"x") for agent in "ab"]
    assert await kept(store, "c", first, second) == [True, True]
    await put(store, "d", b"x")
    assert await store.size() == 2


@pytest.mark.parametrize(
    "limits", [ResultStoreLimits(isolated=False, max_entries=2), ResultStoreLimits(entries_per_agent=2)]
)
@pytest.mark.parametrize("seconds", [0.0, 1.0])
async def test_what_was_touched_stays_when_room_is_needed(
    opened: Open, clock: Clock, limits: ResultStoreLimits, seconds: float
) -> None:
    store = await opened(limits)
    a = await put(store, "x", b"a")
    clock.now += seconds
    b = await put(store, "x", b"b")
    clock.now += seconds
    await store.get("x", a)
    clock.now += seconds
    c = await put(store, "x", b"c")
    assert await kept(store, "x", a, b, c) == [True, False, True]


async def test_a_large_idle_result_goes_before_a_small_one_that_is_older(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(entries_per_agent=2))
    small = await put(store, "a", b"x")
    clock.now += 10.0
    large = await put(store, "a", b"x" * 1000)
    clock.now += 10.0
    await put(store, "a", b"x")
    assert await kept(store, "a", small, large) == [True, False]


async def test_an_agent_that_fills_its_shelf_pushes_out_its_own_results_only(opened: Open) -> None:
    store = await opened(ResultStoreLimits(entries_per_agent=3))
    quiet = await put(store, "quiet", b"x" * 1000)
    loud = [await put(store, "loud", b"x") for _ in range(10)]
    assert await kept(store, "quiet", quiet) == [True]
    assert await kept(store, "loud", *loud) == [False] * 7 + [True] * 3


async def test_with_too_many_agents_the_one_goes_that_was_idle_longest(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(agents=2))
    first = [await put(store, "first", b"x") for _ in range(3)]
    second = [await put(store, "second", b"x") for _ in range(3)]
    assert await kept(store, "first", first[0]) == [True]
    third = await put(store, "third", b"x")
    assert await kept(store, "second", *second) == [False] * 3
    assert await kept(store, "first", *first) == [True] * 3
    assert await kept(store, "third", third) == [True]


async def test_all_contents_together_have_a_bound(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(max_bytes=1000))
    for number in range(20):
        clock.now += 1.0
        await put(store, f"agent {number % 5}", b"x" * 300)
        assert (await store.stats()).total_cached_bytes <= 1000
    assert await store.size() == 3


async def test_a_result_larger_than_the_store_stays_until_the_next_one_comes(opened: Open) -> None:
    store = await opened(ResultStoreLimits(max_bytes=1000))
    before = await put(store, "a", b"x")
    huge = await put(store, "b", b"x" * 5000)
    assert await kept(store, "a", before) == [False]
    assert await kept(store, "b", huge) == [True]
    after = await put(store, "a", b"x")
    assert await kept(store, "b", huge) == [False]
    assert await kept(store, "a", after) == [True]


async def test_reading_does_not_make_a_result_live_longer(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(ttl_seconds=300.0))
    id = await put(store, "a", b"x")
    clock.now += 299.0
    assert await store.get("a", id) == b"x"
    clock.now += 1.0
    assert await store.get("a", id) is None
    assert await store.get_entry("a", id) is None
    assert await store.remove("a", id) is False
    assert await store.size() == 0


async def test_a_result_may_have_its_own_time_to_live(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(ttl_seconds=300.0))
    short = await put(store, "a", b"x", ttl_seconds=10.0)
    usual = await put(store, "a", b"x")
    long = await put(store, "a", b"x", ttl_seconds=1000.0)
    never = await put(store, "a", b"x", ttl_seconds=float("nan"))
    assert await kept(store, "a", short, usual, long, never) == [True, True, True, False]
    clock.now += 10.0
    assert await kept(store, "a", short, usual, long) == [False, True, True]
    clock.now += 290.0
    assert await kept(store, "a", short, usual, long) == [False, False, True]
    assert await store.size() == 1


async def test_what_has_expired_goes_before_what_has_not(opened: Open, clock: Clock) -> None:
    store = await opened(ResultStoreLimits(entries_per_agent=2))
    await put(store, "a", b"x", ttl_seconds=5.0)
    clock.now += 1.0
    lasting = await put(store, "a", b"x" * 1000)
    clock.now += 5.0
    await put(store, "a", b"x")
    assert await kept(store, "a", lasting) == [True]
    stats = await store.stats()
    assert (stats.expired, stats.evicted) == (1, 0)


async def test_what_is_removed_is_removed_once(opened: Open) -> None:
    store = await opened(ResultStoreLimits())
    id = await put(store, "a", b"x")
    assert [await store.remove("a", id), await store.remove("a", id)] == [True, False]
    assert await store.get("a", id) is None


async def test_one_agent_or_all_can_be_cleared(opened: Open) -> None:
    store = await opened(ResultStoreLimits())
    for agent in ("a", "a", "b", "c"):
        await put(store, agent, b"x")
    assert await store.clear("a") == 2
    assert await store.clear("a") == 0
    assert await store.size() == 2
    assert await store.clear() == 2
    assert await store.size() == 0


async def test_the_figures_say_what_is_held_and_what_became_of_the_rest(
    opened: Open, clock: Clock, tmp_path: Path
) -> None:
    store = await opened(ResultStoreLimits(entries_per_agent=2, agents=7, ttl_seconds=60.0))
    await put(store, "a", b"x" * 10, ttl_seconds=1.0)
    ids = [await put(store, "a", b"x" * 10) for _ in range(2)]
    clock.now += 1.0
    await put(store, "b", await spooled(tmp_path, b"x" * 30))
    await put(store, "a", b"x" * 5, ttl_seconds=1.0)
    clock.now += 1.0
    await kept(store, "a", *ids, "unknown")
    stats = await store.stats()
    assert (stats.entries, stats.max_entries, stats.agents, stats.ttl_seconds) == (2, 14, 2, 60.0)
    assert (stats.total_cached_bytes, stats.bytes_on_disk) == (40, 30)
    assert (stats.hits, stats.misses, stats.evicted, stats.expired) == (1, 2, 2, 1)


async def test_a_reader_is_not_disturbed_when_its_entry_goes(opened: Open, tmp_path: Path) -> None:
    store = await opened(ResultStoreLimits())
    id = await put(store, "a", await spooled(tmp_path, b"x" * 300_000))
    async with open_stored(store, "a", id) as entry:
        assert await store.remove("a", id)
        assert entry is not None
        assert not isinstance(entry.content, bytes)
        assert entry.content.first == b"x"
        assert b"".join(entry.content.chunks()) == b"x" * 300_000
        assert len(open_files(tmp_path)) == 1
    assert open_files(tmp_path) == []


async def test_two_readers_of_one_file_do_not_disturb_each_other(opened: Open, tmp_path: Path) -> None:
    store = await opened(ResultStoreLimits())
    id = await put(store, "a", await spooled(tmp_path, b"x" * 300_000))
    async with open_stored(store, "a", id) as first, open_stored(store, "a", id) as second:
        assert first is not None
        assert second is not None
        assert data(first.content) == data(second.content) == b"x" * 300_000
    assert data(await store.get("a", id)) == b"x" * 300_000


# ---- in this process -------------------------------------------------------------------------------------


@pytest.fixture
async def hold(
    tmp_path: Path, clock: Clock
) -> AsyncIterator[Callable[[ResultStoreLimits], LocalResultStore]]:
    """A function that makes a store which writes where `open_files` looks."""
    made: list[LocalResultStore] = []

    def hold(limits: ResultStoreLimits) -> LocalResultStore:
        made.append(LocalResultStore(tmp_path / "spool", limits, clock))
        return made[-1]

    yield hold
    for results in made:
        await results.close()


Hold = Callable[[ResultStoreLimits], LocalResultStore]


@pytest.mark.parametrize(
    "limits", [ResultStoreLimits(memory_per_agent=1000), ResultStoreLimits(max_memory=1000)]
)
async def test_a_result_over_the_memory_goes_to_disk_and_nobody_has_to_go(
    hold: Hold, tmp_path: Path, limits: ResultStoreLimits
) -> None:
    results = hold(limits)
    ids = [await put(results, "a", bytes([number]) * 400) for number in range(5)]
    assert len(open_files(tmp_path)) == 3
    assert (await results.stats()).bytes_on_disk == 1200
    assert [data(await results.get("a", id)) for id in ids] == [bytes([n]) * 400 for n in range(5)]


@pytest.mark.parametrize("isolated", [True, False])
async def test_without_memory_every_result_is_kept_on_disk(
    hold: Hold, tmp_path: Path, *, isolated: bool
) -> None:
    results = hold(ResultStoreLimits(memory_per_agent=0, isolated=isolated))
    ids = [await put(results, "a", bytes([number]) * 400) for number in range(5)]
    ids.append(await put(results, "a", await spooled(tmp_path, bytes([5]) * 400)))
    assert len(open_files(tmp_path)) == 6
    assert [data(await results.get("a", id)) for id in ids] == [bytes([n]) * 400 for n in range(6)]
    stats = await results.stats()
    assert (stats.bytes_on_disk, stats.total_cached_bytes, stats.evicted) == (2400, 2400, 0)
    assert await results.clear("a") == 6
    assert open_files(tmp_path) == []


async def test_one_agent_in_its_memory_leaves_the_others_theirs(hold: Hold) -> None:
    results = hold(ResultStoreLimits(memory_per_agent=1000))
    for agent in ("a", "a", "a", "b"):
        await put(results, agent, b"x" * 400)
    assert (await results.stats()).bytes_on_disk == 400


async def test_there_are_never_more_files_than_may_be_open(hold: Hold, tmp_path: Path, clock: Clock) -> None:
    results = hold(ResultStoreLimits(max_files=3, max_memory=100))
    first = await put(results, "a", b"x" * 1000)
    clock.now += 1.0
    for number in range(8):
        clock.now += 1.0
        await put(results, f"agent {number % 2}", b"x" * 1000)
        assert len(open_files(tmp_path)) <= 3
    assert await kept(results, "a", first) == [True]
    assert (await results.stats()).evicted == 6


async def test_files_are_closed_when_their_time_is_over_though_nobody_asks_for_them(
    hold: Hold, tmp_path: Path, clock: Clock
) -> None:
    results = hold(ResultStoreLimits(max_memory=100))
    await put(results, "a", b"x" * 1000)
    await put(results, "a", await spooled(tmp_path, b"x"))
    assert await results.expire() == 0
    assert len(open_files(tmp_path)) == 2
    clock.now += 300.0
    assert results.current_stats().entries == 2
    assert await results.expire() == 2
    assert results.current_stats().entries == 0
    assert open_files(tmp_path) == []


async def test_many_that_end_at_once_do_not_keep_others_waiting(hold: Hold, clock: Clock) -> None:
    results = hold(ResultStoreLimits(entries_per_agent=1000))
    for _ in range(1000):
        await put(results, "a", b"x")
    clock.now += 300.0
    expiring = asyncio.create_task(results.expire())
    turns = 0
    while not expiring.done():
        await asyncio.sleep(0)
        turns += 1
    assert expiring.result() == 1000
    assert turns > 50


async def test_what_is_in_no_file_is_written_to_one_and_closed(hold: Hold, tmp_path: Path) -> None:
    content = Elsewhere(b"some content")
    results = hold(ResultStoreLimits())
    id = await put(results, "a", content)
    assert content.closed
    assert len(open_files(tmp_path)) == 1
    assert data(await results.get("a", id)) == b"some content"


async def test_without_a_disk_a_result_stays_in_memory_and_others_go(
    hold: Hold, tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "spool").write_bytes(b"no directory")
    results = hold(ResultStoreLimits(memory_per_agent=1000))
    ids = []
    for _ in range(3):
        clock.now += 1.0
        ids.append(await put(results, "a", b"x" * 400))
    assert await kept(results, "a", *ids) == [False, True, True]


async def test_without_a_disk_what_is_in_no_file_is_closed_all_the_same(hold: Hold, tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"no directory")
    content = Elsewhere(b"x")
    with pytest.raises(OSError, match="spool"):
        await put(hold(ResultStoreLimits()), "a", content)
    assert content.closed


class Slow(Elsewhere):
    """It can be read only when the test says so."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.go_on = threading.Event()

    def chunks(self) -> Iterator[bytes]:
        self.opened = True
        assert self.go_on.wait(WAIT_SECONDS)
        yield from super().chunks()


async def test_a_put_that_is_given_up_leaves_no_file(hold: Hold, tmp_path: Path) -> None:
    results, slow = hold(ResultStoreLimits()), Slow(b"x" * 100)
    putting = asyncio.create_task(put(results, "a", slow))
    await eventually(lambda: slow.opened, WAIT_SECONDS, "written")
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    slow.go_on.set()
    await eventually(lambda: slow.closed and not open_files(tmp_path), WAIT_SECONDS, "closed")
    assert await results.size() == 0


async def test_what_comes_after_the_end_is_closed(hold: Hold, tmp_path: Path) -> None:
    results = hold(ResultStoreLimits())
    await results.close()
    id = await put(results, "a", await spooled(tmp_path, b"x"))
    assert open_files(tmp_path) == []
    assert await results.get("a", id) is None
