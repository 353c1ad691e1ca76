"""Answers of retrieve_tools over real catalogs, as SDK clients of a gateway process read them."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from headgate.search.token_counter import count_tokens
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import (
    changing_listing_command,
    configuration,
    listing_command,
    stdio_entry,
    tool,
    write_listing,
)
from tests.real.mcp_clients import McpClient
from tests.real.test_catalogs import catalogs

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
BY_WORDS = {"HEADGATE_EMBEDDER": "BM25"}
# Offered by two servers of the sample in the same words.
CHOSEN = ("azure-mcp", "azure-mcp-all-mode", "wikipedia-mcp", "notion-mcp-server", "playwright-mcp")
CONTRACT = {
    *("message", "tools", "query", "newly_registered", "evicted_tools"),
    *("pool_size", "pool_limit", "total_available_tools"),
}
ENTRY = {"name", "original_name", "server", "description", "score"}
LARGEST_ANSWER_TOKENS = 1_500
UNKNOWN = "qzxvkj wpfhgtz"
WEAK = "cook a dinner for six guests"
SECRET = tool("secret_summary", "Get the secret summary of a Wikipedia article.")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway in front of real catalogs and of a server with a hidden tool."""
    place = tmp_path_factory.mktemp("answers")
    # Reads its vocabulary, which must not happen on the event loop.
    count_tokens(b"")
    servers: dict[str, Any] = {}
    for server, listing in catalogs():
        if server in CHOSEN:
            (place / f"{server}.json").write_text(listing, encoding="utf-8")
            servers[server] = stdio_entry(listing_command(server, place / f"{server}.json"))
    write_listing(place / "vault.json", [SECRET, tool("open_vault", "Open the vault.")])
    vault = changing_listing_command("vault", place / "vault.json")
    servers["vault"] = stdio_entry(vault, hide=["secret_*"])
    config = configuration(servers, listing="search")
    with running_gateway(
        config, place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
    ) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield gateway


@pytest.fixture(params=["search", "dynamic", "full", "slim"])
def mode(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@asynccontextmanager
async def connected(gateway: GatewayProcess, mode: str) -> AsyncIterator[McpClient]:
    """A client whose list of tools is in that mode."""
    mcp_client = McpClient(f"{gateway.url}/{mode}", "modern")
    async with mcp_client.client:
        yield mcp_client


async def ask(client: McpClient, name: str = "retrieve_tools", /, **arguments: Any) -> dict[str, Any]:
    """The answer, whose text and structure are the same and which is never large."""
    result = await client.client.call_tool(name, arguments)
    assert not result.is_error, result
    (text,) = texts_of(result)
    answer: dict[str, Any] | None = result.structured_content
    assert answer is not None
    assert json.loads(text) == answer
    if arguments.get("detail") != "full":
        assert count_tokens(text.encode()) < LARGEST_ANSWER_TOKENS
    return answer


def texts_of(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def names(answer: dict[str, Any]) -> list[str]:
    return [one["name"] for one in answer["tools"]]


async def test_an_answer_has_every_member_of_the_contract_in_every_mode(
    gateway: GatewayProcess, mode: str
) -> None:
    async with connected(gateway, mode) as client:
        answer = await ask(client, query="get article summary")
        assert set(answer) == CONTRACT | {"also"}
        for one in answer["tools"]:
            assert set(one) > ENTRY
            assert ("input_schema" in one) or ("newly_registered" in one)
            assert 0 <= one["score"] <= 1
        nothing = await ask(client, query=UNKNOWN)
        assert set(nothing) == CONTRACT
        assert (nothing["message"], nothing["tools"]) == ("No relevant tools found", [])


async def test_a_number_as_a_text_and_one_server_as_a_text_are_read(
    gateway: GatewayProcess, mode: str
) -> None:
    async with connected(gateway, mode) as client:
        answer = await ask(client, "retrieve_tool", query="get article", limit="3", servers="wikipedia-mcp")
        assert len(answer["tools"]) == 3
        assert {one["server"] for one in answer["tools"]} == {"wikipedia-mcp"}


async def test_fifteen_more_candidates_follow_and_can_be_called(gateway: GatewayProcess, mode: str) -> None:
    async with connected(gateway, mode) as client:
        answer = await ask(client, query="list resources of a subscription")
        assert len(answer["tools"]) == 5
        assert len(answer["also"]) == 15
        assert not set(answer["also"]) & set(names(answer))
        called = await client.client.call_tool(answer["also"][-1], {})
        assert not called.is_error
        # In dynamic mode only what is shown in full joins the list.
        assert not set(answer["also"]) & set(answer["newly_registered"])


async def test_one_entry_stands_for_the_same_tool_of_two_servers(gateway: GatewayProcess, mode: str) -> None:
    async with connected(gateway, mode) as client:
        answer = await ask(client, query="generate Azure CLI commands for a goal")
        (entry,) = [one for one in answer["tools"] if one["original_name"] == "extension_cli_generate"]
        (other,) = entry["same_as"]
        assert other not in [*names(answer), *answer["also"]]
        called = await client.client.call_tool(other, {})
        texts = texts_of(called)
        assert texts[1] == "extension_cli_generate"
        assert {texts[0], entry["server"]} == {"azure-mcp", "azure-mcp-all-mode"}


async def test_without_a_sure_match_candidates_servers_and_advice_are_given(
    gateway: GatewayProcess, mode: str
) -> None:
    async with connected(gateway, mode) as client:
        answer = await ask(client, query=WEAK)
        assert answer["weak"] is True
        assert answer["tools"]
        assert all(one["weak"] for one in answer["tools"])
        assert {one["server"] for one in answer["likely_servers"]} <= {*CHOSEN, "vault"}
        assert all(one["does"] for one in answer["likely_servers"])
        assert "verb and an object" in answer["hint"]


async def test_a_hidden_tool_is_in_no_part_of_an_answer(gateway: GatewayProcess, mode: str) -> None:
    async with connected(gateway, mode) as client:
        for query in ("get the secret summary of a Wikipedia article", "open vault", WEAK):
            for limit in (1, 50):
                answer = await ask(client, query=query, limit=limit, detail="full")
                assert "secret_summary" not in json.dumps(answer)


async def test_the_description_says_how_to_ask(gateway: GatewayProcess) -> None:
    async with connected(gateway, "search") as client:
        described = (await client.tools())["retrieve_tools"].description or ""
    assert "verb and an object" in described
    assert "second wording" in described


MOST_CHARACTERS = 32_000
# So different that none is a near-duplicate of another.
SUBJECTS = ("sales", "tax", "travel", "stock", "salary", "energy", "traffic", "weather", "music", "garden")
PLACES = ("berlin", "paris", "oslo", "madrid", "cairo", "lima")
REPORTS = [f"{subject}_{place}" for subject in SUBJECTS for place in PLACES]


def wordy_tool(report: str, arguments: int) -> dict[str, Any]:
    """A tool with many arguments, each of which is described at length."""
    said = {"type": "string", "description": f"A word about {report} that is long enough to take some room."}
    schema = {"type": "object", "properties": {f"{report}_{number}": said for number in range(arguments)}}
    return {**tool(f"make_report_{report}", f"Make the report {report}."), "inputSchema": schema}


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway in front of a server with 60 long schemas, one of them longer than an answer."""
    place = tmp_path_factory.mktemp("wordy")
    sizes = [1_000, *[20] * (len(REPORTS) - 1)]
    write_listing(place / "office.json", list(map(wordy_tool, REPORTS, sizes)))
    servers = {"office": stdio_entry(changing_listing_command("office", place / "office.json"))}
    config = configuration(servers, listing="search", toolsLimit=100)
    with running_gateway(
        config, place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
    ) as gateway:
        gateway.wait_until_ready("office", seconds=START_SECONDS)
        yield gateway


async def bounded(client: McpClient, **arguments: Any) -> dict[str, Any]:
    result = await client.client.call_tool("retrieve_tools", arguments)
    (text,) = texts_of(result)
    assert len(text) <= MOST_CHARACTERS
    answer: dict[str, Any] | None = result.structured_content
    assert answer is not None
    assert json.loads(text) == answer
    return answer


@pytest.mark.parametrize("detail", ["brief", "full", "explain"])
async def test_an_answer_is_bounded_and_tells_what_is_left_out(
    wordy: GatewayProcess, mode: str, detail: str
) -> None:
    async with connected(wordy, mode) as client:
        answer = await bounded(client, query="make report", limit=50, detail=detail)
        assert answer["message"] == "Found 50 tools"
        shown, short = answer["tools"], [one for one in answer["tools"] if one.get("brief")]
        # All of the 50 are there, at least by name.
        assert len({*names(answer), *answer.get("also", ())}) >= 50
        if detail == "full":
            assert 0 < len(short) < len(shown)
            # What is not brief is whole.
            for one in shown:
                report = one["original_name"].removeprefix("make_report_")
                whole = wordy_tool(report, 1_000 if report == REPORTS[0] else 20)
                assert one.get("brief") or one["input_schema"] == whole["inputSchema"]
            assert f"{len(short)} tools are only brief" in answer["hint"]
            assert "expandSchema" in answer["hint"]
        # A schema that no answer has room for can still be had.
        expanded = await client.client.call_tool("expandSchema", {"toolName": names(answer)[-1]})
        assert not expanded.is_error


async def test_an_answer_to_ten_queries_is_bounded_too(wordy: GatewayProcess, mode: str) -> None:
    async with connected(wordy, mode) as client:
        queries = [f"make report {subject}" for subject in SUBJECTS]
        answer = await bounded(client, queries=queries, limit=50, detail="full")
        for subject, one in zip(SUBJECTS, answer["results"], strict=True):
            # The best of each is there, and the others are counted.
            assert subject in names(one)[0]
            assert "The answer is limited to 32,000 characters" in one["hint"]


async def test_an_answer_with_room_shows_everything_that_was_asked_for(
    wordy: GatewayProcess, mode: str
) -> None:
    async with connected(wordy, mode) as client:
        answer = await bounded(client, query="make report tax cairo", limit=3, detail="full")
        assert "hint" not in answer
        assert not any("brief" in one for one in answer["tools"])
