"""Large results stay outside of conversations: who gets to see what, and what is kept for whom."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from headgate.domain.errors import (
    HeadgateError,
    InvalidArguments,
    ResourceExhausted,
    ResultNotFound,
    WorkerLimitExceeded,
)
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse, UpstreamCall
from headgate.domain.payload import Payload
from headgate.results import job_runner
from headgate.results.jobs import ExcerptJob
from headgate.results.large_results import JobRunner, LargeResults, TruncationSettings
from headgate.results.result_store import ResultStoreLimits
from headgate.storage.files.result_store import LocalResultStore, open_results
from tests.catalog.sample_listings import UnreachableChannel
from tests.results.inline_workers import InlineWorkers
from tests.results.sample_results import IMAGE, facts_of, result, spooled, text, texts_of
from tests.upstream.spool_limits import open_files, taken

WAIT_SECONDS = 5.0
LINES = "\n".join(f"line {number}" for number in range(2000))
LARGE = result(text(LINES), IMAGE)
ALICE, BOB = Identity(principal="alice"), Identity(principal="bob")


class Desk:
    """Responses with a real store, and workers at hand."""

    def __init__(self, store: LocalResultStore, display: TruncationSettings, *, listed: bool) -> None:
        self.store = store
        self.hands = InlineWorkers()
        self.loads = 0
        self.responses = LargeResults(store, self.hands, self._work, display, lambda request: listed)

    async def _work(self) -> JobRunner:
        self.loads += 1
        return job_runner

    async def shape(self, data: Payload, caller: Identity = LOCAL_IDENTITY, **more: Any) -> McpResponse:
        return await self.responses.truncate_if_large(call(caller, **more), McpResponse(data))

    async def shown(self, data: Payload, caller: Identity = LOCAL_IDENTITY, **more: Any) -> bytes:
        return bytes_of(await self.shape(data, caller, **more))

    async def read(self, tool: str, caller: Identity = LOCAL_IDENTITY, **arguments: Any) -> bytes:
        requested = request(f"proxy_{tool}", arguments, caller)
        _, answer = await self.responses.read_stored(
            requested, await self.responses.parse_read_request(requested)
        )
        return bytes_of(answer)

    async def fresh(self, tool: str, data: Payload, **arguments: Any) -> bytes:
        read_request = await self.responses.parse_read_request(
            request(f"proxy_{tool}", {"tool": "bank_look", **arguments})
        )
        return bytes_of(await self.responses.read_new(call(), read_request, McpResponse(data)))


def request(
    name: str,
    arguments: dict[str, Any],
    caller: Identity = LOCAL_IDENTITY,
    owner: ClientSession | None = None,
) -> McpRequest:
    params = {"arguments": Raw(json.dumps(arguments).encode())}
    return McpRequest(caller=caller, name=name, params=params, session=owner)


def call(
    caller: Identity = LOCAL_IDENTITY, owner: ClientSession | None = None, definition: bytes = b"{}"
) -> UpstreamCall:
    item = Item(ItemKind.TOOLS, "bank", "look", "bank_look", definition)
    return UpstreamCall(request("bank_look", {"a": 1}, caller, owner), item)


def bytes_of(answer: McpResponse) -> bytes:
    assert isinstance(answer.result, bytes)
    return answer.result


def id_of(data: bytes) -> str:
    cache_id: str = facts_of(data)["cache_id"]
    return cache_id


Build = Callable[..., Desk]


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    async with open_results(tmp_path / "spool") as store:
        yield lambda display=None, *, listed=True: Desk(store, display or TruncationSettings(), listed=listed)
    assert open_files(tmp_path) == []


@pytest.fixture
def desk(build: Build) -> Desk:
    return build()


# Which answers it concerns.


@pytest.mark.parametrize(
    ("display", "size", "concerned"),
    [
        (TruncationSettings(), 8000, False),
        (TruncationSettings(), 8001, True),
        (TruncationSettings(max_tokens=10), 10, False),
        (TruncationSettings(max_tokens=10), 11, True),
        (TruncationSettings(max_size=100, max_tokens=200), 101, True),
        (TruncationSettings(truncates=False), 1_000_000, False),
    ],
)
def test_what_cannot_be_too_large_is_not_opened(
    build: Build, display: TruncationSettings, size: int, *, concerned: bool
) -> None:
    assert build(display).responses.may_exceed_limit(McpResponse(b"x" * size)) is concerned


async def test_what_is_on_disk_is_told_by_its_size_and_an_error_never_is(desk: Desk, tmp_path: Path) -> None:
    assert not desk.responses.may_exceed_limit(McpResponse(error=b"x" * 100_000))
    for size, concerned in ((8000, False), (8001, True)):
        value = await spooled(tmp_path, b"x" * size)
        assert desk.responses.may_exceed_limit(McpResponse(value)) is concerned
        value.close()


async def test_what_is_large_only_as_json_is_handed_on_as_it_is(desk: Desk) -> None:
    for data in (result(text("a" * 8000)), result({**IMAGE, "data": "A" * 50_000}), result(text("é" * 8000))):
        answer = McpResponse(data)
        assert await desk.responses.truncate_if_large(call(), answer) is answer
    assert await desk.store.size() == 0
    assert desk.loads == 0


# What is shown, and what is kept.


async def test_an_excerpt_is_shown_and_every_byte_is_kept(desk: Desk) -> None:
    shown = await desk.shown(LARGE)
    assert len(shown) < 4000
    assert LINES.startswith(texts_of(shown)[0])
    entry = await desk.store.get_entry("principal local", id_of(shown))
    assert entry is not None
    assert (entry.content, entry.tool_name, entry.arguments) == (LARGE, "bank_look", b'{"a": 1}')


async def test_the_rest_of_an_answer_stays(desk: Desk) -> None:
    answer = await desk.responses.truncate_if_large(call(), McpResponse(LARGE, typed=True))
    assert answer.typed
    assert answer.error == b""


async def test_the_notice_says_how_long_it_is_kept_and_by_what_it_is_read(build: Build) -> None:
    notice = texts_of(await build(TruncationSettings(kept_seconds=90)).shown(LARGE))[-1]
    assert "kept for 1.5 min" in notice
    assert "with proxy_search, proxy_filter, proxy_explore, proxy_read or proxy_query.]" in notice
    notice = texts_of(await build(listed=False).shown(LARGE))[-1]
    assert "with call_tool and one of proxy_search," in notice


async def test_an_operator_may_say_it_in_other_words_and_show_more(build: Build) -> None:
    desk = build(TruncationSettings(message="Ask {tools} for {cache_id}.", excerpt_size=6000))
    excerpt, notice = texts_of(await desk.shown(LARGE))
    assert notice.startswith("Ask proxy_search, ")
    assert 5900 < len(excerpt) <= 6000


async def test_structure_is_cut_as_the_tool_promises(desk: Desk) -> None:
    promise = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
    definition = json.dumps({"name": "look", "outputSchema": promise}).encode()
    data = result(structuredContent={"rows": list(range(5000))})
    output = json.loads(await desk.shown(data, definition=definition))["structuredContent"]
    assert output["rows"] == list(range(len(output["rows"])))
    assert output["rows"]
    for unreadable in (b"", b"\xff", b"[]", b'{"outputSchema":' + b"[" * 5000):
        assert "structuredContent" not in json.loads(await desk.shown(data, definition=unreadable))


@pytest.mark.parametrize("data", [b"x" * 10_000, b'{"content":5,"x":"%b"}' % (b"x" * 10_000)])
async def test_what_is_no_result_is_handed_on_as_it_is(desk: Desk, data: bytes) -> None:
    answer = McpResponse(data)
    assert await desk.responses.truncate_if_large(call(), answer) is answer
    assert await desk.store.size() == 0


# Where the work is done.


async def test_small_work_is_done_here_and_large_work_elsewhere(desk: Desk) -> None:
    await desk.shown(LARGE)
    assert desk.hands.jobs == []
    large = result(text(LINES * 20))
    shown = await desk.shown(large, ALICE)
    ((job, agent, entry),) = desk.hands.jobs
    assert isinstance(job, ExcerptJob)
    assert (agent, entry) == ("principal alice", id_of(shown))
    assert job.cache_id == entry


async def test_a_stored_result_is_read_here_only_if_it_is_tiny_and_a_question_never_is(desk: Desk) -> None:
    large = await desk.shown(result(text(LINES[:18_000])))
    assert desk.hands.jobs == []
    await desk.read("read", cache_id=id_of(large))
    assert len(desk.hands.jobs) == 1
    desk.hands.failure = WorkerLimitExceeded(1.0)
    with pytest.raises(WorkerLimitExceeded):
        await desk.read("query", cache_id=id_of(large), sql="SELECT 1")


async def test_what_is_on_disk_is_cut_elsewhere_and_kept_as_it_is(desk: Desk, tmp_path: Path) -> None:
    value = await spooled(tmp_path, LARGE)
    shown = await desk.shown(value)
    assert LINES.startswith(texts_of(shown)[0])
    assert len(desk.hands.jobs) == 1
    stored = await desk.store.get("principal local", id_of(shown))
    assert stored is not None
    assert taken(stored) == LARGE
    assert texts_of(await desk.read("read", cache_id=id_of(shown), offset=1999))[0] == "line 1999"


async def test_what_is_on_disk_and_small_enough_is_handed_on_open(desk: Desk, tmp_path: Path) -> None:
    value = await spooled(tmp_path, result(text("small"), IMAGE))
    answer = await desk.shape(value)
    assert answer.result is value
    assert taken(value) == result(text("small"), IMAGE)


@pytest.mark.parametrize("failure", [WorkerLimitExceeded(10.0), ResourceExhausted("too much to do")])
async def test_what_cannot_be_cut_in_time_is_kept_all_the_same_and_the_agent_is_told_why(
    desk: Desk, tmp_path: Path, failure: HeadgateError
) -> None:
    desk.hands.failure = failure
    shown = await desk.shown(await spooled(tmp_path, LARGE))
    (notice,) = texts_of(shown)
    assert failure.message in notice
    # Whatever the upstream did, it was done, and need not be done again.
    (cache_id,) = re.findall(r"cache_id ([0-9a-f]{24})", notice)
    desk.hands.failure = None
    assert texts_of(await desk.read("read", cache_id=cache_id, limit=1))[0] == "line 0"


async def test_whoever_stops_waiting_leaves_no_file_open(desk: Desk, tmp_path: Path) -> None:
    desk.hands.open.clear()
    waiting = asyncio.ensure_future(desk.shape(await spooled(tmp_path, LARGE)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert open_files(tmp_path) == []


# Reading.


async def test_every_tool_reads_what_an_excerpt_names(desk: Desk) -> None:
    rows = [{"id": number, "name": f"name {number}"} for number in range(400)]
    cache_id = id_of(await desk.shown(result(text(json.dumps(rows)))))
    for tool, arguments, first in (
        ("filter", {"fields": ["id"]}, '[{"id":0},'),
        ("search", {"pattern": "name 399"}, '[{"id":399,"name":"name 399"}]'),
        ("explore", {}, "{"),
        ("read", {"offset": -1}, '[{"id":399,"name":"name 399"}]'),
    ):
        reply = await desk.read(tool, cache_id=cache_id, **arguments)
        assert texts_of(reply)[0].startswith(first)
        assert texts_of(reply)[-1].startswith(f"cache_id: {cache_id}")
        assert facts_of(reply)["cache_id"] == cache_id
        assert facts_of(reply)["processed_size"] <= 8000
        # It is never stored again.
        assert await desk.store.size() == 1


async def test_another_key_or_session_gets_the_answer_for_an_unknown_id(desk: Desk) -> None:
    def owner(id: str) -> ClientSession:
        return ClientSession(id, UnreachableChannel())

    async def refused(caller: Identity, owner: ClientSession | None, cache_id: str) -> str:
        requested = request("proxy_read", {"cache_id": cache_id}, caller, owner)
        with pytest.raises(ResultNotFound) as missing:
            await desk.responses.read_stored(requested, await desk.responses.parse_read_request(requested))
        return missing.value.sentence.replace(cache_id, "x")

    unknown = await refused(LOCAL_IDENTITY, owner("one"), "0" * 24)
    assert unknown == "Cache entry 'x' not found or expired. Re-call the original tool to get a new cache_id."
    of_key = id_of(await desk.shown(LARGE, ALICE, owner=owner("one")))
    of_session = id_of(await desk.shown(LARGE, owner=owner("one")))
    of_all = id_of(await desk.shown(LARGE))
    for caller, session, theirs in (
        (BOB, owner("one"), of_key),
        (LOCAL_IDENTITY, owner("one"), of_key),
        (LOCAL_IDENTITY, None, of_key),
        (LOCAL_IDENTITY, owner("two"), of_session),
        (LOCAL_IDENTITY, None, of_session),
        (ALICE, None, of_session),
        (ALICE, None, of_all),
    ):
        assert await refused(caller, session, theirs) == unknown
    # A key is the same agent in every session.
    requested = request("proxy_read", {"cache_id": of_key}, ALICE, owner("two"))
    _, answer = await desk.responses.read_stored(
        requested, await desk.responses.parse_read_request(requested)
    )
    assert facts_of(bytes_of(answer))["cache_id"] == of_key


@pytest.mark.parametrize("cache_id", ["../../etc/passwd", "x" * 10_000, "\0", "'; DROP TABLE", "ÿ"])
async def test_an_id_that_is_none_is_an_unknown_one(desk: Desk, cache_id: str) -> None:
    with pytest.raises(ResultNotFound) as missing:
        await desk.read("explore", cache_id=cache_id)
    assert len(missing.value.sentence) < 700


async def test_a_mistake_is_found_before_anything_is_called(desk: Desk) -> None:
    for tool, arguments in (
        ("search", {"pattern": "a(b"}),
        ("filter", {"fields": ["a["]}),
        ("read", {"path": "a["}),
    ):
        requested = request(f"proxy_{tool}", {"tool": "bank_look", **arguments})
        with pytest.raises(InvalidArguments) as refused:
            await desk.responses.parse_read_request(requested)
        assert refused.value.message.startswith(f"proxy_{tool}: ")
    assert desk.responses.metrics.refused == 3


async def test_a_path_that_leads_nowhere_is_said(desk: Desk) -> None:
    cache_id = id_of(await desk.shown(LARGE))
    with pytest.raises(InvalidArguments, match="proxy_read: "):
        await desk.read("read", cache_id=cache_id, path="users.email")


async def test_only_the_five_tools_read(desk: Desk) -> None:
    reads = [
        name
        for name in ("proxy_filter", "proxy_query", "proxy_other", "")
        if desk.responses.is_result_tool(name)
    ]
    assert reads == ["proxy_filter", "proxy_query"]


# Fresh calls.


async def test_a_fresh_result_is_kept_whole_and_read_at_once(desk: Desk) -> None:
    reply = await desk.fresh("search", LARGE, pattern="line 1999")
    assert texts_of(reply)[0] == "line 1999"
    assert json.loads(reply)["content"][1] == IMAGE
    entry = await desk.store.get_entry("principal local", id_of(reply))
    assert entry is not None
    assert entry.content == LARGE
    # The next look does not call the tool again.
    assert texts_of(await desk.read("read", cache_id=id_of(reply), limit=1))[0] == "line 0"


async def test_a_small_fresh_result_is_kept_too(desk: Desk) -> None:
    reply = await desk.fresh("read", result(text("a\nb")))
    assert texts_of(reply) == ["a\nb", f"cache_id: {id_of(reply)}"]


async def test_an_error_of_the_upstream_is_its_answer(desk: Desk) -> None:
    read_request = await desk.responses.parse_read_request(request("proxy_read", {"tool": "bank_look"}))
    answer = McpResponse(error=b'{"code":-1}')
    assert await desk.responses.read_new(call(), read_request, answer) is answer
    assert await desk.store.size() == 0


async def test_after_a_mistake_a_fresh_result_need_not_be_called_for_again(desk: Desk) -> None:
    with pytest.raises(InvalidArguments) as refused:
        await desk.fresh("read", LARGE, path="users.email")
    assert "bank_look was called" in refused.value.hint
    cache_id = refused.value.hint.rpartition(" ")[2]
    assert texts_of(await desk.read("read", cache_id=cache_id, limit=1))[0] == "line 0"


async def test_a_fresh_result_on_disk_is_read_elsewhere(desk: Desk, tmp_path: Path) -> None:
    reply = await desk.fresh("search", await spooled(tmp_path, LARGE), pattern="line 1999")
    assert texts_of(reply)[0] == "line 1999"
    assert len(desk.hands.jobs) == 1


async def test_the_newest_result_is_there_however_small_the_store_is(tmp_path: Path) -> None:
    async with open_results(tmp_path / "spool", ResultStoreLimits(entries_per_agent=1, max_bytes=1)) as store:
        desk = Desk(store, TruncationSettings(), listed=True)
        one, other = await desk.shown(LARGE), await desk.shown(LARGE)
        assert texts_of(await desk.read("read", cache_id=id_of(other), limit=1))[0] == "line 0"
        with pytest.raises(ResultNotFound):
            await desk.read("read", cache_id=id_of(one))


# What is counted.


async def test_what_was_saved_is_counted(desk: Desk) -> None:
    savings = desk.responses.metrics
    shown = await desk.shown(LARGE)
    saved = savings.saved_tokens
    assert savings.excerpts == 1
    assert facts_of(shown)["original_tokens"] - facts_of(shown)["processed_tokens"] == saved
    await desk.read("read", cache_id=id_of(shown), limit=100)
    assert savings.reads_by_tool == {"proxy_read": 1}
    assert savings.saved_tokens < saved
    with pytest.raises(ResultNotFound):
        await desk.read("read", cache_id="0")
    assert savings.refused == 1
