"""Large results of real servers: real clients see an excerpt, and reach all of the rest."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.sdk_servers.large_results import META, log, mixed, people, pieces
from testkit.upstreams import configuration, http_server, lines_of
from tests.real.answering_clients import Person
from tests.real.large_results import (
    LIMIT,
    QUESTIONS,
    READERS,
    Agent,
    bulk_command,
    bulk_entry,
    dump,
    facts,
    id_of,
    is_whole,
    others,
    texts,
    unknown,
)
from tests.real.mcp_clients import McpClient, McpClients

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
UPSTREAMS = ("old", "new")
WORDS = {"HEADGATE_EMBEDDER": "BM25"}


@dataclass(frozen=True)
class ResultsHarness:
    """A gateway, and what reached the servers behind it."""

    gateway: GatewayProcess
    journals: dict[str, Path]

    def calls(self, upstream: str) -> int:
        return len(lines_of(self.journals[upstream]))


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultsHarness]:
    place = tmp_path_factory.mktemp("results")
    journals = {name: place / f"{name}.journal" for name in UPSTREAMS}
    with ExitStack() as stack:
        servers = {
            "old": bulk_entry("legacy", journals["old"]),
            "new": {"url": stack.enter_context(http_server(bulk_command("modern", journals["new"])))},
        }
        config = configuration(servers, listResultTools=True, maxEntriesPerAgent=1000)
        running = running_gateway(config, place, environment=WORDS, start_seconds=START_SECONDS)
        gateway = stack.enter_context(running)
        gateway.wait_until_ready(*UPSTREAMS, seconds=START_SECONDS)
        yield ResultsHarness(gateway, journals)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(harness: ResultsHarness) -> AsyncIterator[McpClients]:
    staying = McpClients(harness.gateway)
    yield staying
    await staying.leave()


@pytest_asyncio.fixture(loop_scope="module", params=["legacy", "modern"])
async def agent(guests: McpClients, request: pytest.FixtureRequest) -> Agent:
    return Agent(await guests.mcp_client("http", request.param))


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_the_tools_are_listed_after_those_of_servers(agent: Agent) -> None:
    listed = [*await agent.mcp_client.tools()]

    assert tuple(listed[-5:]) == READERS
    assert listed[0] == "old_echo"


# What is shown.


async def test_an_excerpt_of_json_parses_and_tells_where_the_rest_is(agent: Agent, upstream: str) -> None:
    result = await agent.call(f"{upstream}_users", size=500)

    excerpt, notice = texts(result)
    shown = json.loads(excerpt)
    assert shown["total"] == 500
    assert 0 < len(shown["users"]) < 500
    assert shown["users"] == people(500)["users"][: len(shown["users"])]
    assert len(excerpt) + len(notice) <= LIMIT
    assert f"{len(json.dumps(people(500))):,} characters" in notice
    assert all(name in notice for name in (id_of(result), *READERS))


async def test_an_excerpt_of_text_ends_with_a_line(agent: Agent, upstream: str) -> None:
    excerpt, _ = texts(await agent.call(f"{upstream}_log", size=500))

    lines = log(500).split("\n")
    shown = excerpt.removesuffix("\n").split("\n")
    assert 0 < len(shown) < 500
    assert shown == lines[: len(shown)]


@pytest.mark.parametrize(("upstream", "tool"), [("old", "mixed"), ("new", "failed")])
async def test_whatever_is_no_text_survives_the_cut(agent: Agent, upstream: str, tool: str) -> None:
    result = await agent.call(f"{upstream}_{tool}")

    *cut, notice = result["content"]
    written = [block.model_dump(by_alias=True, mode="json", exclude_unset=True) for block in mixed()]
    assert [block["type"] for block in cut] == [block["type"] for block in written]
    assert others(result) == [block for block in written if block["type"] != "text"]
    assert cut[0]["_meta"] == written[0]["_meta"]
    assert written[0]["text"].startswith(cut[0]["text"])
    assert json.loads(cut[-1]["text"])["users"]
    assert notice["type"] == "text"
    assert bool(result.get("isError")) is (tool == "failed")
    assert {key: result["_meta"].get(key) for key in META} == META


async def test_very_many_texts_are_shown_whole_as_far_as_there_is_room(agent: Agent, upstream: str) -> None:
    result = await agent.call(f"{upstream}_pieces", size=500)

    *shown, _ = texts(result)
    assert 0 < len(shown) < 500
    assert shown == pieces(500)[: len(shown)]
    found = [page async for page in agent.pages("proxy_read", cache_id=id_of(result))]
    assert [one for page in found for one in json.loads(page)] == [json.loads(one) for one in pieces(500)]


async def test_an_excerpt_is_what_the_tool_promises_to_clients_that_check_it(
    agent: Agent, upstream: str
) -> None:
    # The SDK compares it with the schema, and raises where it differs.
    result = await agent.call(f"{upstream}_typed", size=500)

    structured = result["structuredContent"]
    assert next(iter(structured)) == "_headgate"
    assert structured["_headgate"]["cache_id"] == id_of(result)
    assert structured["total"] == 500
    assert 0 < len(structured["users"]) < 500
    assert structured["users"] == people(500)["users"][: len(structured["users"])]
    assert len(json.dumps(structured)) <= LIMIT


async def test_structure_without_a_promise_is_left_out(agent: Agent, upstream: str) -> None:
    result = await agent.call(f"{upstream}_loose", size=500)

    assert "structuredContent" not in result
    assert json.loads(texts(result)[0])["users"]


async def test_text_and_structure_that_say_the_same_count_once(agent: Agent, upstream: str) -> None:
    size = next(size for size in range(1, 100) if len(json.dumps(people(size))) > LIMIT)

    assert is_whole(await agent.call(f"{upstream}_users", size=size - 1))
    for tool in ("loose", "typed", "closed"):
        whole = await agent.call(f"{upstream}_{tool}", size=size - 1)
        assert is_whole(whole)
        assert whole["structuredContent"] == people(size - 1)
        assert facts(await agent.call(f"{upstream}_{tool}", size=size))["original_size"] == len(
            json.dumps(people(size))
        )


async def test_the_limit_itself_is_shown_and_one_more_is_not(agent: Agent, upstream: str) -> None:
    whole = await agent.call(f"{upstream}_echo", size=LIMIT)
    assert texts(whole) == ["x" * LIMIT]
    assert is_whole(whole)

    cut = await agent.call(f"{upstream}_echo", size=LIMIT + 1)
    assert len(texts(cut)[0]) < LIMIT
    assert facts(cut)["original_size"] == LIMIT + 1


async def test_what_was_saved_is_told_and_counted(agent: Agent, harness: ResultsHarness) -> None:
    counters = ("headgate_results_excerpted_total", 'headgate_result_reads_total{tool="proxy_explore"}')
    before = harness.gateway.metrics()
    result = await agent.call("old_users", size=500)
    reply = await agent.call("proxy_explore", cache_id=id_of(result))

    for told in (facts(result), facts(reply)):
        assert told["original_size"] == len(json.dumps(people(500)))
        assert told["processed_size"] <= LIMIT
        assert 0 < told["processed_tokens"] < told["original_tokens"] / 5
    after = harness.gateway.metrics()
    assert [after[name] - before.get(name, 0) for name in counters] == [1, 1]


# What is within reach.


async def test_the_id_of_an_excerpt_works_in_every_tool(agent: Agent, upstream: str) -> None:
    cache_id = id_of(await agent.call(f"{upstream}_users", size=300))

    await check_every_tool(agent, cache_id)


async def test_the_id_of_a_new_call_works_in_every_tool(
    agent: Agent, upstream: str, harness: ResultsHarness
) -> None:
    users = people(300)["users"]
    for tool, question in QUESTIONS.items():
        before = harness.calls(upstream)
        fresh = {"tool": f"{upstream}_users", "arguments": {"size": 300}}
        reply = await agent.call(tool, **fresh, **question)

        assert harness.calls(upstream) == before + 1
        if tool == "proxy_search":
            await check_every_tool(agent, id_of(reply))
        else:
            page = await agent.call("proxy_read", cache_id=id_of(reply), path="users", offset=-1)
            assert json.loads(texts(page)[0]) == users[-1:]
        assert harness.calls(upstream) == before + 1


async def check_every_tool(agent: Agent, cache_id: str) -> None:
    users = people(300)["users"]
    replies = {
        tool: await agent.call(tool, cache_id=cache_id, **question) for tool, question in QUESTIONS.items()
    }
    assert {id_of(reply) for reply in replies.values()} == {cache_id}
    content = {tool: json.loads(texts(reply)[0]) for tool, reply in replies.items()}
    assert content["proxy_search"] == {"users": [user for user in users if "user7" in user["name"]]}
    assert content["proxy_filter"] == {"users": [{"name": user["name"]} for user in users]}
    assert content["proxy_explore"]["paths"]["users"]["count"] == 300
    assert content["proxy_read"]["users"][:20] == users[:20]
    assert content["proxy_query"]["rows"] == [[300]]


async def test_pages_are_within_the_limit_and_make_up_the_whole(agent: Agent) -> None:
    users = people(300)["users"]
    known = id_of(await agent.call("old_users", size=300))
    logged = id_of(await agent.call("new_log", size=500))
    line = id_of(await agent.call("new_echo", size=20_000))

    async def elements(tool: str, **asked: Any) -> list[Any]:
        pages = [json.loads(page) async for page in agent.pages(tool, cache_id=known, **asked)]
        assert len(pages) > 1
        return [one for page in pages for one in (page["users"] if isinstance(page, dict) else page)]

    assert await elements("proxy_read") == users
    assert await elements("proxy_read", path="users") == users
    assert await elements("proxy_search", pattern="gmail") == [
        one for one in users if "gmail" in one["email"]
    ]
    without = [{key: one[key] for key in one if key != "password"} for one in users]
    assert await elements("proxy_filter", exclude=["users.password"]) == without
    lines = [page async for page in agent.pages("proxy_read", cache_id=logged)]
    assert "\n".join(page.removesuffix("\n") for page in lines) == log(500)
    characters = [page async for page in agent.pages("proxy_read", cache_id=line, unit="characters")]
    assert "".join(characters) == "x" * 20_000


async def test_replies_are_never_stored_again(agent: Agent, harness: ResultsHarness) -> None:
    cache_id = id_of(await agent.call("old_users", size=300))
    before = harness.gateway.metrics()["headgate_results_stored"]

    for tool in READERS:
        await agent.call(tool, cache_id=cache_id, **QUESTIONS[tool])

    assert harness.gateway.metrics()["headgate_results_stored"] == before


@pytest.mark.parametrize("fresh", [False, True], ids=["stored", "fresh"])
@pytest.mark.parametrize(("upstream", "tool"), [("old", "failed"), ("new", "mixed")])
async def test_whatever_is_no_text_survives_a_filter(
    agent: Agent, upstream: str, tool: str, *, fresh: bool
) -> None:
    cut = await agent.call(f"{upstream}_{tool}")
    source: Message = {"tool": f"{upstream}_{tool}"} if fresh else {"cache_id": id_of(cut)}

    reply = await agent.call("proxy_filter", **source, fields=["users.email"])

    assert others(reply) == others(cut)
    first, second, _ = texts(reply)
    assert log(200).startswith(first)
    assert json.loads(second)["users"][0] == {"email": "u0@corp.example"}
    assert bool(reply.get("isError")) is (tool == "failed")
    assert {key: reply["_meta"].get(key) for key in META} == META


async def test_structure_is_filtered_with_the_text(agent: Agent, upstream: str) -> None:
    cache_id = id_of(await agent.call(f"{upstream}_typed", size=100))

    reply = await agent.call("proxy_filter", cache_id=cache_id, fields=["users.city"])

    cities = {"users": [{"city": user["city"]} for user in people(100)["users"]]}
    assert reply["structuredContent"] == cities
    assert json.loads(texts(reply)[0]) == cities


@pytest.mark.parametrize("field", ["users.email", "users[].email", "users[*].email", "users.*.email"])
async def test_fields_are_named_as_people_write_them(agent: Agent, field: str) -> None:
    cache_id = id_of(await agent.call("old_users", size=100))

    reply = await agent.call("proxy_filter", cache_id=cache_id, fields=[field])

    emails = [{"email": user["email"]} for user in people(100)["users"]]
    assert json.loads(texts(reply)[0]) == {"users": emails}


@pytest.mark.parametrize("field", ["users[7].email", "/users/7/email", "users.7.email"])
async def test_one_element_is_named_as_people_write_it(agent: Agent, field: str) -> None:
    cache_id = id_of(await agent.call("old_users", size=100))

    reply = await agent.call("proxy_filter", cache_id=cache_id, fields=[field])

    assert json.loads(texts(reply)[0]) == {"users": [{"email": "u7@gmail.example"}]}


async def test_paths_that_are_explored_can_be_filtered_by(agent: Agent) -> None:
    cache_id = id_of(await agent.call("old_users", size=100))
    explored = json.loads(texts(await agent.call("proxy_explore", cache_id=cache_id))[0])

    assert "users[].email" in explored["paths"] or "users.email" in explored["paths"]
    for path in explored["paths"]:
        reply = await agent.call("proxy_filter", cache_id=cache_id, fields=[path])
        assert not reply.get("isError")
        assert "not found" not in texts(reply)[-1]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_that_asks_is_answered_also_within_a_new_call(harness: ResultsHarness, era: str) -> None:
    ann = Person("Ann", harness.gateway.url, era)
    async with ann.client as client:
        cut = dump(await client.call_tool("new_ask", {}))
        sources = {"cache_id": id_of(cut)}, {"tool": "new_ask"}
        replies = [
            await client.call_tool("proxy_search", {**source, "pattern": "^for "}) for source in sources
        ]

    assert ann.asked == ["Whom is it for?"] * 2
    assert [texts(dump(reply))[0] for reply in replies] == ["for Ann"] * 2


# Whose it is.


@pytest.mark.parametrize(
    "cache_id", ["f" * 24, "../../etc/passwd", "a\0b", "x'; DROP TABLE rows", "q" * 10_240]
)
async def test_an_id_that_nobody_has_is_answered_with_what_to_do(agent: Agent, cache_id: str) -> None:
    for tool in READERS:
        reply = await agent.call(tool, cache_id=cache_id, **QUESTIONS[tool])

        assert reply["isError"]
        assert texts(reply) == [unknown(cache_id)]


async def test_the_id_of_another_is_answered_as_one_that_nobody_has(guests: McpClients) -> None:
    ann, bob = [Agent(await guests.mcp_client("http", "legacy", number)) for number in (0, 1)]
    stateless = Agent(await guests.mcp_client("http", "modern"))
    cache_id = id_of(await ann.call("old_users", size=300))

    for tool in READERS:
        mine = await ann.call(tool, cache_id=cache_id, **QUESTIONS[tool])
        assert not mine.get("isError")
        for other in (bob, stateless):
            nobody = await other.call(tool, cache_id="f" * 24, **QUESTIONS[tool])
            refused = await other.call(tool, cache_id=cache_id, **QUESTIONS[tool])
            assert json.dumps(refused) == json.dumps(nobody).replace("f" * 24, cache_id)


async def test_clients_without_sessions_and_keys_share_their_results_and_are_told(
    guests: McpClients, harness: ResultsHarness
) -> None:
    ann, bob = [Agent(await guests.mcp_client("http", "modern", number)) for number in (0, 1)]
    cache_id = id_of(await ann.call("old_users", size=300))

    await check_every_tool(bob, cache_id)

    discovered = Stateless(harness.gateway.url).ask("server/discover", {})["result"]
    assert "every local client" in discovered["instructions"]
    assert "every local client" not in Handshaker(harness.gateway.url).welcome.get("instructions", "")


# What cannot be.


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("proxy_read", {}, ["cache_id", "tool", "arguments"]),
        ("proxy_filter", {"fields": ["a"]}, ["cache_id", "tool", "arguments"]),
        ("proxy_filter", {"cache_id": "x"}, ["fields", "exclude"]),
        ("proxy_filter", {"cache_id": "x", "fields": []}, ["fields is empty", "exclude"]),
        ("proxy_filter", {"cache_id": "x", "exclude": []}, ["exclude is empty", "fields"]),
        ("proxy_filter", {"cache_id": "x", "fields": ["a"], "mode": "some"}, ["mode", "include", "exclude"]),
        ("proxy_search", {"cache_id": "x"}, ["pattern"]),
        ("proxy_search", {"cache_id": "x", "pattern": ""}, ["pattern"]),
        (
            "proxy_search",
            {"cache_id": "x", "pattern": "a", "mode": "some"},
            ["mode", "regex", "bm25", "fuzzy", "context", "structure"],
        ),
        ("proxy_search", {"cache_id": "x", "pattern": "a(b"}, ["position 1", "missing )"]),
        ("proxy_search", {"cache_id": "x", "pattern": "(a)\\1"}, ["position 3", "linear time"]),
        ("proxy_search", {"cache_id": "x", "pattern": "a", "threshold": 7}, ["threshold", "1"]),
        ("proxy_query", {"cache_id": "x"}, ["sql"]),
    ],
)
async def test_a_wrong_argument_is_named_with_what_is_allowed(
    agent: Agent, tool: str, arguments: Message, words: list[str]
) -> None:
    reply = await agent.call(tool, **arguments)

    assert reply["isError"]
    assert [word for word in words if word not in texts(reply)[0]] == []


@pytest.mark.parametrize(
    ("name", "nearest"), [("old_usrs", "old_users"), ("odl:users", "old"), ("old:usrs", "old_users")]
)
async def test_an_unknown_tool_or_server_is_answered_with_the_nearest(
    agent: Agent, name: str, nearest: str
) -> None:
    reply = await agent.call("proxy_search", tool=name, pattern="x")

    assert reply["isError"]
    assert nearest in texts(reply)[0]


@pytest.mark.parametrize(
    ("tool", "wrong"),
    [
        ("proxy_search", {"pattern": "a(b"}),
        ("proxy_search", {"pattern": "(((a{1000}){1000}){1000})"}),
        ("proxy_search", {}),
        ("proxy_filter", {"fields": []}),
        ("proxy_filter", {"fields": ["users[x"]}),
        ("proxy_explore", {"path": "users[x"}),
        ("proxy_query", {"sql": " "}),
    ],
)
async def test_no_tool_is_called_for_a_question_that_is_wrong(
    agent: Agent, harness: ResultsHarness, tool: str, wrong: Message
) -> None:
    before = harness.calls("new")
    source = {"tool": "new_users", "arguments": {"size": 300}}

    refused = await agent.call(tool, **source, **wrong)

    assert refused["isError"]
    assert harness.calls("new") == before
    assert not (await agent.call(tool, **source, **QUESTIONS[tool])).get("isError")
    assert harness.calls("new") == before + 1


async def test_a_tool_is_not_called_again_for_a_question_that_its_result_cannot_answer(
    agent: Agent, upstream: str, harness: ResultsHarness
) -> None:
    before = harness.calls(upstream)
    refused = await agent.call(
        "proxy_query", tool=f"{upstream}_users", arguments={"size": 300}, sql="SELECT nothing FROM rows"
    )

    assert refused["isError"]
    told, _, cache_id = texts(refused)[0].rpartition("cache_id ")
    assert "was called" in told
    await check_every_tool(agent, cache_id.rstrip("."))
    assert harness.calls(upstream) == before + 1


# Where the tools are not listed.


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_who_searches_for_tools_reads_results_by_call_tool(harness: ResultsHarness, era: str) -> None:
    mcp_client = McpClient(f"{harness.gateway.url}/search", era)
    async with mcp_client.client:
        agent = Agent(mcp_client)
        assert not {*READERS} & {*await mcp_client.tools()}
        result = await agent.call("call_tool", name="old_users", args={"size": 300})

        assert "call_tool and one of proxy_search" in texts(result)[-1]
        asked = {"cache_id": id_of(result), "pattern": "user299"}
        reply = await agent.call("call_tool", name="proxy_search", args=asked)
        assert json.loads(texts(reply)[0]) == {"users": people(300)["users"][-1:]}


async def test_many_agents_at_once_read_their_own(guests: McpClients) -> None:
    async def visit(number: int) -> None:
        agent = Agent(await guests.mcp_client("http", "legacy", number))
        cache_id = id_of(await agent.call("old_users", size=200 + number))
        reply = await agent.call("proxy_query", cache_id=cache_id, sql="SELECT count(*) FROM rows")
        assert json.loads(texts(reply)[0])["rows"] == [[200 + number]]

    await asyncio.gather(*(visit(number) for number in range(2, 7)))
