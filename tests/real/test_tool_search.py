"""Agents that see two tools find and call all others, with real clients of both eras and real servers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, http_server, plain_environment, stdio_entry, whole_command
from testkit.waiting import wait_until
from tests.real.answering_clients import Company, Person
from tests.real.mcp_clients import stdio_gateway_command
from tests.real.sdk_scripts import run_script

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
NOTICE_SECONDS = 10.0
BY_WORDS = {"HEADGATE_EMBEDDER": "BM25"}
OWN_TOOLS = ["retrieve_tools", "call_tool", "expandSchema"]


@pytest.fixture(scope="module")
def gateway(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway in search mode, in front of real servers and of ours that ask, of either era."""
    place = tmp_path_factory.mktemp("finding")
    node = str(parts.node)
    with ExitStack() as stack:
        servers: dict[str, Any] = {
            "everything": stdio_entry([node, str(parts.npm_bin("mcp-server-everything")), "stdio"]),
            "files": stdio_entry([node, str(parts.npm_bin("mcp-server-filesystem")), str(place)]),
            "time": stdio_entry([str(parts.server_bin("mcp-server-time"))]),
            "example": {"builtin": "example"},
        }
        for name, era in (("old", "legacy"), ("new", "modern")):
            command = whole_command(era, name, place / f"{name}.journal")
            servers[name] = {"url": stack.enter_context(http_server(command))}
        config = configuration(servers, listing="search")
        running = running_gateway(
            config, place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
        )
        gateway = stack.enter_context(running)
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(gateway: GatewayProcess) -> AsyncIterator[Company]:
    people = Company(gateway.url)
    yield people
    await people.leave()


@pytest.fixture(params=[Handshaker, Stateless], ids=["legacy", "modern"])
def client(request: pytest.FixtureRequest, gateway: GatewayProcess) -> "Handshaker | Stateless":
    found: Handshaker | Stateless = request.param(gateway.url)
    return found


def call(client: Handshaker | Stateless, tool: str, /, **arguments: Any) -> Message:
    """The result of a call."""
    reply = client.ask("tools/call", {"name": tool, "arguments": arguments})
    result: Message = reply["result"]
    return result


def search(client: Handshaker | Stateless, query: str, **more: Any) -> Message:
    """What retrieve_tools answers, which says the same twice."""
    result = call(client, "retrieve_tools", query=query, **more)
    (block,) = result["content"]
    answer: Message = result["structuredContent"]
    assert json.loads(block["text"]) == answer
    return answer


def found(client: Handshaker | Stateless, query: str, **more: Any) -> list[str]:
    return [tool["name"] for tool in search(client, query, **more)["tools"]]


def texts(result: Message) -> str:
    return "\n".join(block["text"] for block in result["content"])


# Every client, by every front that it speaks.


@dataclass(frozen=True)
class Cell:
    """One client, the front that it takes and the era that it asks for."""

    client: str
    front: str
    era: str = "legacy"

    def __str__(self) -> str:
        return f"{self.client}-{self.front}-{self.era}"


CELLS = (
    Cell("python-2", "http"),
    Cell("python-2", "http", "modern"),
    Cell("python-2", "stdio", "modern"),
    Cell("python-2", "sse"),
    Cell("typescript-2", "http", "modern"),
    Cell("typescript-2", "stdio"),
    Cell("typescript-1", "http"),
    Cell("typescript-1", "sse"),
    Cell("python-1", "http"),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a gateway that starts at once, for clients that start their own."""
    path = tmp_path_factory.mktemp("small") / "headgate.json"
    path.write_text(json.dumps({"mcpServers": {"example": {"builtin": "example"}}}))
    return path


@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_real_client_sees_three_tools_and_finds_and_calls_another(
    cell: Cell, gateway: GatewayProcess, parts: Parts, small: Path, tmp_path: Path
) -> None:
    plan: Message = {"front": cell.front, "era": cell.era}
    if cell.front == "stdio":
        # The mode as operators of another proxy have it in their environment.
        environment = plain_environment(**BY_WORDS, MCPPROXY_ROUTING_TYPE="CALL_TOOL")
        plan |= {"command": stdio_gateway_command(small, tmp_path), "env": environment}
    else:
        plan |= {"url": gateway.sse_url if cell.front == "sse" else gateway.url}
    zone = {"timezone": "Asia/Tokyo"}
    plan |= {"tool": "retrieve_tools", "arguments": {"query": "current date and time in a timezone"}}
    plan["more"] = [
        {"name": "call_tool", "arguments": {"name": "example_time", "args": zone}},
        # Not in the list, and there all the same.
        {"name": "example_time", "arguments": zone},
    ]

    report = await asyncio.to_thread(run_script, cell.client, plan, parts)

    assert [tool["name"] for tool in report["tools"]] == OWN_TOOLS
    answer = report["result"]["structuredContent"]
    assert "example_time" in [tool["name"] for tool in answer["tools"]]
    for result in report["more"]:
        assert "+09:00" in texts(result)
        assert not result.get("isError")


async def test_the_instructions_say_how_to_find_tools(gateway: GatewayProcess) -> None:
    told = [
        Handshaker(gateway.url).welcome["instructions"],
        Stateless(gateway.url).ask("server/discover", {})["result"]["instructions"],
    ]

    for instructions in told:
        first, *of_servers = instructions.split("\n\n")
        assert "retrieve_tools" in first
        assert "call_tool" in first
        assert "Advice of old." in of_servers


# retrieve_tools.


@pytest.mark.parametrize(
    ("query", "server", "original"),
    [
        ("add two numbers", "everything", "get-sum"),
        ("convert a time between time zones", "time", "convert_time"),
        ("search files that match a pattern", "files", "search_files"),
        ("current date in a timezone", "example", "time"),
    ],
)
async def test_a_tool_of_a_real_server_is_found_by_what_it_does(
    client: Handshaker | Stateless, query: str, server: str, original: str
) -> None:
    answer = search(client, query)

    assert answer["query"] == query
    assert answer["total_available_tools"] > 30
    (tool,) = [tool for tool in answer["tools"] if tool["original_name"] == original]
    assert tool["server"] == server
    assert tool["name"] == f"{server}_{original.replace('-', '_')}"
    assert 0 < tool["score"] <= 1
    assert tool["description"]
    assert tool["input_schema"]["type"] == "object"
    assert answer["tools"] == sorted(answer["tools"], key=lambda one: -one["score"])


@pytest.mark.parametrize("query", ["xkcd qwfpgj zzzz", "", "   ", "🎈"])
async def test_nonsense_finds_nothing(client: Handshaker | Stateless, query: str) -> None:
    answer = search(client, query)
    assert (answer["message"], answer["tools"]) == ("No relevant tools found", [])
    assert "also" not in answer


async def test_the_alias_finds_the_same(client: Handshaker | Stateless) -> None:
    asked = {"query": "read a file"}

    assert call(client, "retrieve_tool", **asked) == call(client, "retrieve_tools", **asked)


async def test_a_search_keeps_to_the_servers_and_the_kind_that_it_names(
    client: Handshaker | Stateless,
) -> None:
    assert {tool["server"] for tool in search(client, "time", servers=["time"])["tools"]} == {"time"}
    reading = found(client, "write or read a file", read_only=True, limit=50)
    assert "files_read_text_file" in reading
    assert "files_write_file" not in reading
    assert "files_write_file" in found(client, "write or read a file", limit=50)

    unknown = call(client, "retrieve_tools", query="time", servers=["tyme"])
    assert unknown["isError"]
    assert "time" in texts(unknown)


async def test_several_questions_are_answered_at_once(client: Handshaker | Stateless) -> None:
    asked = ["add two numbers", "xkcd qwfpgj zzzz", "convert a time between time zones"]

    answer = call(client, "retrieve_tools", queries=asked)["structuredContent"]

    assert [one["query"] for one in answer["results"]] == asked
    names = [[tool["name"] for tool in one["tools"]] for one in answer["results"]]
    assert "everything_get_sum" in names[0]
    assert names[1] == []
    assert "time_convert_time" in names[2]


async def test_wrong_arguments_are_refused_in_one_sentence(client: Handshaker | Stateless) -> None:
    for wrong in ({}, {"query": 1}, {"query": "x", "limit": 0}, {"query": "x", "limit": 51}):
        refused = call(client, "retrieve_tools", **wrong)
        assert refused["isError"]
        assert texts(refused).count("\n") == 0
    assert call(client, "call_tool", args={})["isError"]
    assert call(client, "call_tool", name="time_convert_time", args=[1])["isError"]


async def test_a_client_finds_only_what_servers_show_to_clients_like_it(gateway: GatewayProcess) -> None:
    query, only = "trigger a sampling request", "everything_trigger_sampling_request"
    plain: list[Handshaker | Stateless] = [Handshaker(gateway.url), Stateless(gateway.url)]
    able: list[Handshaker | Stateless] = [
        Handshaker(gateway.url, ANSWERS_ALL),
        Stateless(gateway.url, ANSWERS_ALL),
    ]

    for client in able:
        assert only in found(client, query)
    for client in plain:
        assert only not in found(client, query, limit=50)


# call_tool.


@pytest.mark.parametrize("name", ["everything_get_sum", "everything:get-sum", "everything__get-sum"])
async def test_a_tool_is_called_by_any_of_its_names(client: Handshaker | Stateless, name: str) -> None:
    wrapped = call(client, "call_tool", name=name, args={"a": 19, "b": 23})

    assert "42" in texts(wrapped)
    assert not wrapped.get("isError")
    assert call(client, name, a=19, b=23) == wrapped


async def test_arguments_may_come_as_models_write_them(client: Handshaker | Stateless) -> None:
    for written in ({"args": '{"a": 19, "b": 23}'}, {"arguments": {"a": 19, "b": 23}}):
        assert "42" in texts(call(client, "call_tool", name="everything_get_sum", **written))
    assert not call(client, "call_tool", name="example_time").get("isError")


async def test_a_wrong_name_is_answered_with_the_nearest(client: Handshaker | Stateless) -> None:
    wrong = call(client, "call_tool", name="everything_get_summ", args={})

    assert wrong["isError"]
    assert "everything_get_sum" in texts(wrong)
    assert wrong["_meta"]["io.headgate/error"]["code"] == "TOOL_NOT_FOUND"
    assert call(client, "everything_get_summ") == wrong


@pytest.mark.parametrize(
    ("tool", "argument"),
    [("everything_get_sum", "b"), ("files_read_text_file", "path"), ("time_convert_time", "time")],
)
async def test_refused_arguments_are_answered_with_the_schema(
    client: Handshaker | Stateless, tool: str, argument: str
) -> None:
    refused = call(client, "call_tool", name=tool, args={"nonsense": True})

    assert refused["isError"]
    said, schema = (block["text"] for block in refused["content"])
    assert argument in said
    label, _, text = schema.partition(": ")
    assert label == f"input_schema of {tool}"
    assert argument in json.loads(text)["required"]
    # Its caller has not seen the schema either.
    assert call(client, tool, nonsense=True) == refused


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest_asyncio.fixture(loop_scope="module")
async def ann(company: Company, era: str) -> Person:
    return await company.person("Ann", era)


@pytest.mark.parametrize("server", ["old", "new"])
async def test_questions_of_a_server_reach_the_client_through_call_tool(ann: Person, server: str) -> None:
    number = uuid4().hex
    told = await ann.call("call_tool", name=f"{server}_ask_all", args={"text": number})

    assert told == f"{number}: Ann, Ann on {number}, Ann"
    assert ann.asked == [number, number]


async def test_a_form_of_a_real_server_reaches_the_client_through_call_tool(ann: Person) -> None:
    told = await ann.call("call_tool", name="everything_trigger_elicitation_request")

    assert "- Name: Ann" in told


@pytest.mark.parametrize("server", ["old", "new", "everything"])
async def test_progress_reaches_the_client_through_call_tool(ann: Person, server: str) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    named = {"name": f"{server}_steps", "args": {"text": "walk"}}
    if server == "everything":
        tool = "everything_trigger_long_running_operation"
        named = {"name": tool, "args": {"duration": 0.1, "steps": 3}}
    await ann.client.call_tool("call_tool", named, progress_callback=note)

    assert steps == [1, 2, 3]


async def test_a_call_within_a_call_is_found_no_deeper(client: Handshaker | Stateless) -> None:
    within = call(client, "call_tool", name="retrieve_tools", args={"query": "add two numbers"})
    assert "everything_get_sum" in texts(within)

    nested = {"name": "call_tool", "args": {"name": "everything_get_sum", "args": {"a": 1, "b": 2}}}
    assert call(client, "call_tool", **nested)["isError"]


# Servers that change.


@pytest.mark.parametrize("server", ["old", "new"])
async def test_a_tool_that_a_server_adds_is_found(client: Handshaker | Stateless, server: str) -> None:
    grown = f"pumpkin_harvest_{uuid4().hex[:8]}"
    assert f"{server}_{grown}" not in found(client, grown)
    assert (
        texts(call(client, "call_tool", name=f"{server}_grow_tools", args={"text": grown})) == f"grew {grown}"
    )

    # The server tells it when it likes.
    wait_until(lambda: f"{server}_{grown}" in found(client, grown), NOTICE_SECONDS, "the new tool is found")

    assert texts(call(client, "call_tool", name=f"{server}_{grown}")) == f"{grown} is here"


async def test_who_searches_is_not_told_of_changes_that_he_does_not_see(gateway: GatewayProcess) -> None:
    ann = Handshaker(gateway.url)
    grown = f"g{uuid4().hex[:8]}"
    with ann.listening() as stream:
        call(ann, "call_tool", name="old_grow_tools", args={"text": grown})
        wait_until(lambda: f"old_{grown}" in found(ann, grown), NOTICE_SECONDS, "the new tool is found")
        call(ann, "call_tool", name="old_grow_prompts", args={"text": grown})

        assert stream.next() == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}
