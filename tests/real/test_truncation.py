"""No client can show a truncated result to its model without the notice, whatever it lists and reads."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from testkit.clients.streaming_http import Message
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.sdk_servers.large_results import CLOSED_SCHEMA, PEOPLE_SCHEMA, people
from testkit.upstreams import configuration, http_server, stdio_entry
from tests.real.large_results import LIMIT, Agent, bulk_command, bulk_entry, facts, is_whole, texts
from tests.real.mcp_clients import McpClient

START_SECONDS = 60.0
MODES = ("full", "slim", "search", "dynamic", "budget", "auto")
ERAS = ("legacy", "modern")
WORDS = {"HEADGATE_EMBEDDER": "BM25"}
UPSTREAMS = ("old", "new")


@pytest.fixture(scope="module")
def gateway(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway before servers of both eras, and before one that people use."""
    place = tmp_path_factory.mktemp("truncation")
    shelf = place / "shelf"
    shelf.mkdir()
    files = [str(parts.node), str(parts.npm_bin("mcp-server-filesystem")), str(shelf)]
    with ExitStack() as stack:
        servers = {
            "old": bulk_entry("legacy", place / "old.journal"),
            "new": {"url": stack.enter_context(http_server(bulk_command("modern", place / "new.journal")))},
            "files": stdio_entry(files),
        }
        config = configuration(servers, maxEntriesPerAgent=1000)
        running = running_gateway(config, place, environment=WORDS, start_seconds=START_SECONDS)
        gateway = stack.enter_context(running)
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield gateway


@asynccontextmanager
async def agent(gateway: GatewayProcess, mode: str, era: str = "legacy") -> AsyncIterator[Agent]:
    mcp_client = McpClient(f"{gateway.url}/{mode}", era)
    async with mcp_client.client:
        yield Agent(mcp_client)


def check_notice(result: Message) -> None:
    """Whatever of the result a client shows by itself, it tells what is missing and where that is."""
    notice = texts(result)[-1]
    assert f"cache_id {facts(result)['cache_id']}" in notice
    if "structuredContent" in result:
        first, told = next(iter(result["structuredContent"].items()))
        assert first == "_headgate"
        assert told["cache_id"] == facts(result)["cache_id"]
        assert told["cache_id"] in told["notice"]
        assert f"{told['shown']:,} of {told['total']:,}" in told["notice"]


# The official client checks results against the schemas that it was listed.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
async def test_a_truncated_result_has_the_notice_in_every_listing_mode(
    gateway: GatewayProcess, mode: str, era: str
) -> None:
    async with agent(gateway, mode, era) as client:
        for upstream in UPSTREAMS:
            result = await client.call(f"{upstream}_typed", size=500)
            check_notice(result)
            structured = result["structuredContent"]
            count = len(structured["users"])
            assert 0 < count < 500
            assert structured["users"] == people(500)["users"][:count]
            assert (structured["_headgate"]["shown"], structured["_headgate"]["total"]) == (count, 500)
            jsonschema.validate(structured, PEOPLE_SCHEMA)
            for tool in ("closed", "loose", "bare", "summed"):
                result = await client.call(f"{upstream}_{tool}", size=500)
                check_notice(result)
                assert "structuredContent" not in result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
async def test_through_call_tool_it_is_the_same(gateway: GatewayProcess, mode: str, era: str) -> None:
    async with agent(gateway, mode, era) as client:
        typed = await client.call("call_tool", name="old_typed", args={"size": 500})
        check_notice(typed)
        assert typed["structuredContent"]["_headgate"]["total"] == 500
        closed = await client.call("call_tool", name="old_closed", args={"size": 500})
        check_notice(closed)
        assert "structuredContent" not in closed


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_within_the_limit_is_whole_and_nothing_is_added(
    gateway: GatewayProcess, mode: str, era: str
) -> None:
    async with agent(gateway, mode, era) as client:
        for tool in ("typed", "closed", "loose"):
            result = await client.call(f"old_{tool}", size=50)
            assert is_whole(result)
            assert result["structuredContent"] == people(50)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
async def test_a_schema_that_has_no_place_for_the_notice_is_listed_nowhere(
    gateway: GatewayProcess, mode: str, era: str
) -> None:
    async with agent(gateway, mode, era) as client:
        await client.call("retrieve_tools", query="says much of typed")
        await client.call("retrieve_tools", query="says much of closed")
        listed = await client.mcp_client.tools()
        for upstream in UPSTREAMS:
            if f"{upstream}_closed" in listed:
                assert listed[f"{upstream}_closed"].output_schema is None
            found = await client.call("retrieve_tools", query="says much of closed", detail="full")
            expanded = await client.call("expandSchema", toolName=f"{upstream}_closed")
            for told in (found, expanded):
                assert "outputSchema" not in json.dumps(told)
        if mode == "full":
            assert listed["old_typed"].output_schema == PEOPLE_SCHEMA


async def test_a_result_on_disk_is_truncated_in_the_same_way(gateway: GatewayProcess) -> None:
    async with agent(gateway, "full") as client:
        typed = await client.call("old_typed", size=20_000)
        assert facts(typed)["original_size"] > 2_000_000
        check_notice(typed)
        assert typed["structuredContent"]["_headgate"]["total"] == 20_000
        jsonschema.validate(typed["structuredContent"], PEOPLE_SCHEMA)
        closed = await client.call("old_closed", size=20_000)
        check_notice(closed)
        assert "structuredContent" not in closed


async def test_the_id_in_the_structure_reads_the_rest(gateway: GatewayProcess) -> None:
    async with agent(gateway, "full") as client:
        told = (await client.call("old_typed", size=500))["structuredContent"]["_headgate"]
        counted = "SELECT count(*) FROM rows"
        reply = await client.call("proxy_query", cache_id=told["cache_id"], sql=counted)
        assert json.loads(texts(reply)[0])["rows"] == [[500]]


@pytest.mark.parametrize("tool", ["bare", "summed"])
async def test_where_no_text_says_it_a_part_and_an_outline_of_the_structure_are_shown(
    gateway: GatewayProcess, tool: str
) -> None:
    async with agent(gateway, "full") as client:
        *summary, part, outline, notice = texts(await client.call(f"old_{tool}", size=500))
        assert summary == (["500 users"] if tool == "summed" else [])
        users = json.loads(part)["users"]
        assert users == people(500)["users"][: len(users)]
        assert f"{len(users)} of 500 elements" in notice
        assert json.loads(outline)["paths"]["users"]["count"] == 500


# A server that people use.


@pytest.mark.parametrize("mode", MODES)
async def test_a_file_of_half_the_limit_is_whole_and_of_a_longer_one_the_notice_is_shown(
    gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    shelf = Path(gateway.config_path).parent / "shelf"
    (shelf / "half.txt").write_text("half of it\n" * 373)
    (shelf / "long.txt").write_text("a long line\n" * 900)
    async with agent(gateway, mode) as client:
        half = await client.call("files_read_text_file", path=str(shelf / "half.txt"))
        assert len(texts(half)[0]) == 4103
        assert is_whole(half)
        assert half["structuredContent"]["content"] == texts(half)[0]
        long = await client.call("files_read_text_file", path=str(shelf / "long.txt"))
        assert len(texts(long)[0]) < LIMIT
        check_notice(long)
        assert "structuredContent" not in long


# Where nothing is truncated.


@pytest.mark.parametrize("era", ERAS)
async def test_without_truncation_every_output_schema_is_listed(tmp_path: Path, era: str) -> None:
    servers = {"old": bulk_entry("legacy", tmp_path / "old.journal")}
    config = configuration(servers, enableAutoTruncation=False)
    with running_gateway(config, tmp_path, environment=WORDS, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("old", seconds=START_SECONDS)
        async with agent(gateway, "full", era) as client:
            listed = await client.mcp_client.tools()
            assert listed["old_closed"].output_schema == CLOSED_SCHEMA
            result = await client.call("old_closed", size=500)
            assert result["structuredContent"] == people(500)


async def test_a_gateway_that_begins_to_truncate_lists_the_tools_anew(tmp_path: Path) -> None:
    """What it remembers of the tools was looked at when no schema mattered."""
    for truncates in (False, True, False):
        servers = {"old": bulk_entry("legacy", tmp_path / "old.journal")}
        config = configuration(servers, enableAutoTruncation=truncates)
        with running_gateway(config, tmp_path, environment=WORDS, start_seconds=START_SECONDS) as gateway:
            gateway.wait_until_ready("old", seconds=START_SECONDS)
            async with agent(gateway, "full") as client:
                listed: dict[str, Any] = await client.mcp_client.tools()
                assert (listed["old_closed"].output_schema is None) is truncates
                assert listed["old_typed"].output_schema == PEOPLE_SCHEMA
