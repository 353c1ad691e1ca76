"""Results that are odd, huge or heavy to look at: a clear answer to one client, no trouble for others."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Handshaker, Message
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.procfs import descendants
from testkit.upstreams import configuration
from testkit.waiting import eventually
from tests.real.delayed_servers import call
from tests.real.large_results import (
    ENDLESS,
    LIMIT,
    QUESTIONS,
    READERS,
    Agent,
    buried,
    facts,
    id_of,
    is_whole,
    quarry_entry,
    said,
    texts,
)
from tests.real.mcp_clients import McpClients

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
NOTICE_SECONDS = 15.0
DEPTH = 10_000
DEEP = "[" * DEPTH + "]" * DEPTH
STOPPED = "headgate_result_jobs_stopped_total"
JOBS = "headgate_result_jobs_total"
DIG = "quarry_dig"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("odd")
    config = configuration({"quarry": quarry_entry()}, listResultTools=True)
    with running_gateway(config, place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("quarry", seconds=START_SECONDS)
        yield gateway


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Handshaker:
    return Handshaker(gateway.url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(gateway: GatewayProcess) -> AsyncIterator[McpClients]:
    staying = McpClients(gateway)
    yield staying
    await staying.leave()


# Small results.


@pytest.mark.parametrize(
    "result",
    [
        b'{ "content" : [ {"type":"text" , "text":"a\\u0041\\/\\u00e9"} ] , "x":1.0, "y": 1e400, "x": 2 }',
        b'{"content":[{"type":"text","text":"half \\ud800 of a pair"}]}',
        b'{"content":[],"structuredContent":{"n":%s}}' % (b"9" * 400),
        b'{"content":[],"structuredContent":{"deep":%s}}' % (b"[" * 3000 + b"]" * 3000),
        b'{"content":[{"type":"text","text":"%s"}]}' % ("ä" * LIMIT).encode(),
        b'{"content":[{"type":"text","text":"%s"}]}' % ("😀" * LIMIT).encode(),
        b'{"content":[{"type":"text","text":"%s"}]}' % (b"\\u0041" * LIMIT),
        b'{"content":[{"type":"image","data":"%s","mimeType":"image/png"}]}' % (b"QUJD" * 10_000),
        b'{"content":[{"type":"text","text":"no luck"}],"isError":true,"_meta":{"a":{"b":1.50}}}',
    ],
    ids=["odd", "half", "digits", "deep", "umlauts", "emoji", "escapes", "image", "failed"],
)
async def test_what_is_within_the_limit_comes_byte_for_byte(
    gateway: GatewayProcess, tmp_path: Path, result: bytes
) -> None:
    params = {"name": DIG, "arguments": {"file": buried(tmp_path, result)}}
    answer = Handshaker(gateway.url).begin("tools/call", params, 7).texts()[-1]

    # Not parsed here either: some of it is more than a parser takes.
    assert answer.encode() == b'{"jsonrpc":"2.0","id":7,"result":%s}' % result


@pytest.mark.parametrize("character", ["a", "ä", "😀", "\\", "\0"])
async def test_characters_are_counted_and_not_bytes(
    client: Handshaker, tmp_path: Path, character: str
) -> None:
    within = call(client, DIG, file=buried(tmp_path, said(character * LIMIT)))
    beyond = call(client, DIG, file=buried(tmp_path, said(character * (LIMIT + 1))))

    assert texts(within) == [character * LIMIT]
    assert is_whole(within)
    assert facts(beyond)["original_size"] == LIMIT + 1
    assert set(texts(beyond)[0]) == {character}


# Odd results.


@pytest.mark.parametrize(
    "result",
    [
        said(DEEP),
        said("short", structuredContent={"deep": None}),
        said("a\0\x01\x7fb\n" * 3000),
        said("\ufffd\x1b[31m" * 3000),
        said("x" * 200_000),
        said("\n" * 20_000),
        said(json.dumps([10**400] * 30)),
        said(json.dumps({"a" * 9000: 1})),
        said('{"a": 1, "a": 2}' + " " * 9000),
        said(json.dumps([{"half": "\ud800"}] * 1000)),
        said("half \ud800\n" * 2000),
        said("half \udc00\n" * 200_000),
    ],
    ids=[
        "deep text",
        "deep structure",
        "control characters",
        "escape sequences",
        "one line",
        "empty lines",
        "digits",
        "long name",
        "twice the same name",
        "half a pair in JSON",
        "half a pair",
        "half a pair on disk",
    ],
)
async def test_an_odd_result_is_cut_and_every_tool_has_a_clear_answer(
    client: Handshaker, tmp_path: Path, result: Message
) -> None:
    source = json.dumps(result).replace('"deep": null', f'"deep": {DEEP}')

    cut = call(client, DIG, file=buried(tmp_path, source.encode()))

    assert len("".join(texts(cut))) <= LIMIT
    for tool in READERS:
        reply = call(client, tool, cache_id=id_of(cut), **QUESTIONS[tool])
        code = reply["_meta"].get("io.headgate/error", {}).get("code")
        assert code in (None, "INVALID_PARAMS"), texts(reply)
        assert sum(map(len, texts(reply))) <= LIMIT + 500
        json.dumps(reply, ensure_ascii=False).encode()


async def test_a_result_that_is_no_text_at_all_is_refused_and_the_next_one_comes(
    client: Handshaker, tmp_path: Path
) -> None:
    broken = b'{"content":[{"type":"text","text":"%s"}]}' % (b"caf\xe9\xff " * 3000)

    refused = call(client, DIG, file=buried(tmp_path, broken))

    assert refused["isError"]
    assert "not UTF-8" in texts(refused)[0]
    assert texts(call(client, DIG, file=buried(tmp_path, said("fine")))) == ["fine"]


async def test_structure_that_says_more_than_the_text_is_within_reach(
    client: Handshaker, tmp_path: Path
) -> None:
    users = [{"id": number, "name": f"user{number}"} for number in range(1000)]
    cut = call(client, DIG, file=buried(tmp_path, said("1000 users", structuredContent={"users": users})))

    assert texts(cut)[0] == "1000 users"
    reply = call(client, "proxy_search", cache_id=id_of(cut), pattern="user999")
    assert "user999" in texts(reply)[0]
    counted = call(
        client, "proxy_query", cache_id=id_of(cut), sql="SELECT name FROM rows WHERE name = 'user998'"
    )
    assert "user998" in texts(counted)[0]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("(a+)+$", 0), ("(a|aa)+$", 0), ("(.*)*b", 0), ("^(a|a)*!", 1), ("(a?){50}a{50}", 500)],
)
async def test_a_pattern_that_could_go_on_for_ever_does_not(
    client: Handshaker, tmp_path: Path, pattern: str, found: int
) -> None:
    cache_id = id_of(call(client, DIG, file=buried(tmp_path, said("a" * 50_000 + "!"))))

    reply = call(client, "proxy_search", cache_id=cache_id, pattern=pattern)

    assert not reply.get("isError")
    assert facts(reply)["search"]["matches"] == found


# What the contract says of each tool, by a new call.


def fresh(client: Handshaker, place: Path, content: Any, tool: str, **asked: Any) -> str:
    """What the tool answers about this content, without the note below it."""
    text = content if isinstance(content, str) else json.dumps(content)
    source = {"tool": DIG, "arguments": {"file": buried(place, said(text))}}
    answer, _ = texts(call(client, tool, **source, **asked))
    return answer


async def test_filters_keep_and_leave_out(client: Handshaker, tmp_path: Path) -> None:
    ann = {"name": "Ann", "email": "a@x", "age": 7, "city": "Rome"}

    def filtered(content: Any, **asked: Any) -> Any:
        return json.loads(fresh(client, tmp_path, content, "proxy_filter", **asked))

    assert filtered(ann, fields=["name", "email"]) == {"name": "Ann", "email": "a@x"}
    assert filtered(ann | {"password": 1, "ssn": 2}, exclude=["password", "ssn"]) == ann
    assert filtered(ann | {"ssn": 2}, fields=["ssn"], mode="exclude") == ann
    assert filtered({"users": [ann, ann]}, fields=["users.name"]) == {"users": [{"name": "Ann"}] * 2}
    assert filtered({"user": ann, "more": 1}, fields=["user"]) == {"user": ann}
    assert fresh(client, tmp_path, "plain text", "proxy_filter", fields=["a"]) == "plain text"


async def test_searches_find_lines_elements_and_near_words(client: Handshaker, tmp_path: Path) -> None:
    def search(content: Any, pattern: str, **asked: Any) -> str:
        return fresh(client, tmp_path, content, "proxy_search", pattern=pattern, **asked)

    log = "INFO one\nERROR two\nWARN three\nINFO four"
    assert search(log, "ERROR") == "ERROR two"
    assert search(log, "ERROR|WARN") == "ERROR two\nWARN three"
    assert search("1\n2 hit\n3\n4 hit\n5\n6", "hit", context_lines=1) == "1\n2 hit\n3\n4 hit\n5"
    mails = [{"email": "a@gmail.x"}, {"email": "b@y"}, {"email": "c@gmail.x"}]
    assert json.loads(search(mails, "gmail")) == [mails[0], mails[2]]
    products = [{"name": "MacBook"}, {"name": "Kettle"}]
    assert json.loads(search(products, "MacBok", mode="fuzzy")) == products[:1]
    four = "Start\nmiddle\nEnd\nmore"
    assert search(four, "Start.*End", multiline=True) == "Start\nmiddle\nEnd"
    assert search(four, "Start.*End") == ""


# Every front.


@pytest.mark.parametrize(("front", "era"), [("stdio", "modern"), ("sse", "legacy")])
async def test_large_results_are_within_reach_by_every_front(
    guests: McpClients, tmp_path: Path, front: str, era: str
) -> None:
    agent = Agent(await guests.mcp_client(front, era))
    users = [{"name": f"user{number}"} for number in range(1000)]

    cut = await agent.call(DIG, file=buried(tmp_path, said(json.dumps({"users": users}))))

    shown = json.loads(texts(cut)[0])["users"]
    assert shown == users[: len(shown)] != users
    replies = [await agent.call(tool, cache_id=id_of(cut), **QUESTIONS[tool]) for tool in READERS]
    assert [reply.get("isError", False) for reply in replies] == [False] * 5


# Heavy results.


@pytest_asyncio.fixture(loop_scope="module", params=["legacy", "modern"])
async def agent(guests: McpClients, request: pytest.FixtureRequest) -> Agent:
    return Agent(await guests.mcp_client("http", request.param))


async def test_twenty_megabytes_are_kept_on_disk_while_others_are_served(
    guests: McpClients, client: Handshaker, gateway: GatewayProcess, tmp_path: Path
) -> None:
    agent = Agent(await guests.mcp_client("http", "modern"))
    rows = [{"id": number, "text": f"row {number} " + "x" * 90} for number in range(170_000)]
    text = json.dumps(rows)
    large, small = buried(tmp_path, said(text)), buried(tmp_path, said("fine"))
    heavy = asyncio.create_task(agent.call(DIG, file=large))
    served = 0
    while not heavy.done():
        assert texts(await asyncio.to_thread(call, client, DIG, file=small)) == ["fine"]
        served += 1
    cut = await heavy

    # One at a time, so that they were not all answered after it.
    assert served > 10
    assert facts(cut)["original_size"] == len(text) > 20_000_000
    shown = json.loads(texts(cut)[0])
    assert shown == rows[: len(shown)] != []
    assert gateway.metrics()["headgate_result_bytes_on_disk"] > 20_000_000
    last = await agent.call("proxy_read", cache_id=id_of(cut), offset=-1)
    assert json.loads(texts(last)[0]) == rows[-1:]
    fresh = {"tool": DIG, "arguments": {"file": large}}
    found = await agent.call("proxy_search", **fresh, pattern="row 123456 ")
    assert json.loads(texts(found)[0]) == [rows[123_456]]


async def test_others_are_served_while_an_endless_question_runs_until_it_is_given_up(
    agent: Agent, client: Handshaker, gateway: GatewayProcess, tmp_path: Path
) -> None:
    small = buried(tmp_path, said("fine"))
    cache_id = id_of(await agent.call(DIG, file=buried(tmp_path, said("line\n" * 5000))))
    before = gateway.metrics()
    heavy = asyncio.create_task(agent.call("proxy_query", cache_id=cache_id, sql=ENDLESS))
    await eventually(lambda: gateway.metrics()[JOBS] > before[JOBS], NOTICE_SECONDS, "the question is asked")

    for _ in range(50):
        assert texts(call(client, DIG, file=small)) == ["fine"]
    other = call(client, "proxy_query", tool=DIG, arguments={"file": small}, sql="SELECT line FROM rows")
    assert json.loads(texts(other)[0])["rows"] == [["fine"]]

    assert not heavy.done()
    working = descendants(gateway.pid)
    heavy.cancel()
    await eventually(
        lambda: gateway.metrics()[STOPPED] > before[STOPPED], NOTICE_SECONDS, "the job is stopped"
    )
    await eventually(lambda: bool(working - descendants(gateway.pid)), NOTICE_SECONDS, "its process is gone")
    # What it was about is still there.
    reply = await agent.call("proxy_query", cache_id=cache_id, sql="SELECT count(*) FROM rows")
    assert json.loads(texts(reply)[0])["rows"] == [[5000]]
