"""The documents beside another server of a gateway: listed, searched for, counted, edited in and out."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import TextContent

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration
from tests.real.knowledge import (
    BY_WORDS,
    SECONDS,
    TOOLS,
    KnowledgeEndpoint,
    entered,
    environment,
    first_text,
    told,
    write_all,
)

KNOWLEDGE = {"builtin": "knowledge"}
EXAMPLE = {"builtin": "example"}
NAMES = {f"knowledge_{name}" for name in TOOLS}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with the documents and the example, whose clients search for tools."""
    place = tmp_path_factory.mktemp("beside")
    long = {f"badger{number}.txt": f"Badger {number} digs. " * 130 for number in range(12)}
    write_all(place / "docs", {"marmot.txt": "A marmot whistles.\n", **long})
    told(place, "ingest", "docs", "--data-dir", place / "gateway" / "data")
    config = configuration({"knowledge": KNOWLEDGE, "example": EXAMPLE}, listing="search")
    more = {**BY_WORDS, "HEADGATE_EMBEDDER": "BM25"}
    with running_gateway(config, place / "gateway", environment=more, start_seconds=SECONDS) as gateway:
        gateway.wait_until_ready("knowledge", "example")
        yield gateway


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_agent_finds_the_tool_and_calls_it(gateway: GatewayProcess, era: str) -> None:
    async with entered(gateway.url, era) as endpoint:
        assert not NAMES & set(await endpoint.mcp_client.tools())
        found = await endpoint.call("retrieve_tools", {"query": "search passages of the team's documents"})
        assert "knowledge_semantic_search" in str(found.content)
        arguments = {"name": "knowledge_semantic_search", "arguments": {"query": "marmot"}}
        result = await endpoint.call("call_tool", arguments)
        assert isinstance(result.structured_content, dict)
        assert result.structured_content["results"][0]["source_file"] == "docs/marmot.txt"


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("what does the contract say about termination", "semantic_search"),
        ("answer a question from the handbook", "semantic_search"),
        ("company policy on passwords", "semantic_search"),
        ("knowledge base", "semantic_search"),
        ("search our documents", "semantic_search"),
        ("find passages about the return policy", "semantic_search"),
        ("find information in company documents", "semantic_search"),
        ("what is our vacation policy", "semantic_search"),
        ("look up a supplier", "find_vendor_info"),
        ("customer information", "find_vendor_info"),
        ("which files are there", "list_sources"),
        ("get the text of a chunk", "get_chunks"),
        ("how are two companies related", "neighbours"),
    ],
)
async def test_each_tool_is_found_first_by_what_it_answers(
    gateway: GatewayProcess, query: str, tool: str
) -> None:
    async with entered(gateway.url, "modern") as endpoint:
        found = await endpoint.call("retrieve_tools", {"query": query})
    assert isinstance(found.structured_content, dict)
    assert [one["name"] for one in found.structured_content["tools"]][:1] == [f"knowledge_{tool}"]


async def test_a_model_is_told_that_there_are_documents(gateway: GatewayProcess) -> None:
    advice = [
        Handshaker(gateway.url).welcome["instructions"],
        Stateless(gateway.url).ask("server/discover", {})["result"]["instructions"],
    ]
    assert all("# knowledge\n\nThe company's own documents." in text for text in advice)


async def test_a_large_page_is_shown_whole_because_its_caller_chose_it(gateway: GatewayProcess) -> None:
    async with entered(gateway.url, "modern", "knowledge_") as endpoint:
        first = await endpoint.ask("semantic_search", query="badger", response_mode="full", page_size=8)
        cursor = first["pagination"]["cursor"]
        rest = await endpoint.ask(
            "semantic_search", query="badger", response_mode="full", page_size=50, cursor=cursor
        )
    assert len(str(first)) > 8000
    assert len({one["chunk_id"] for one in first["results"] + rest["results"]}) == first["total_found"]


async def test_an_answer_is_filtered_and_asked_about_by_its_keys(gateway: GatewayProcess) -> None:
    async with entered(gateway.url, "modern") as endpoint:
        asked = {"tool": "knowledge_semantic_search", "arguments": {"query": "badger", "page_size": 50}}
        kept = await endpoint.call("proxy_filter", {**asked, "fields": ["results.source_file"]})
        sql = "SELECT count(DISTINCT source_file) AS files FROM rows"
        counted = await endpoint.call("proxy_query", {**asked, "path": "results", "sql": sql})
    assert not kept.is_error
    assert not counted.is_error
    files = json.loads(first_text(kept))["results"]
    assert len(files) > 20
    assert [set(one) for one in files] == [{"source_file"}] * len(files)
    # Nothing that was to be left out comes after it.
    assert not any("hybrid_score" in block.text for block in kept.content if isinstance(block, TextContent))
    assert json.loads(first_text(counted))["rows"] == [[12]]


async def test_a_refusal_keeps_its_words_where_the_schema_was_not_seen(gateway: GatewayProcess) -> None:
    async with entered(gateway.url, "modern") as endpoint:
        arguments = {"name": "knowledge_semantic_search", "arguments": {"query": " "}}
        said = await endpoint.refusal("call_tool", **arguments)
        assert said["error"] == "Query cannot be empty or whitespace-only"
        assert (said["code"], set(said)) == ("INVALID_PARAMS", {"error", "action", "code"})


async def test_what_the_tools_did_is_counted(gateway: GatewayProcess) -> None:
    async with entered(gateway.url, "modern", "knowledge_") as endpoint:
        await endpoint.ask("semantic_search", query="whistling marmot")
    told = await asyncio.to_thread(gateway.metrics)
    assert told['headgate_knowledge_calls_total{tool="semantic_search"}'] >= 1
    assert told["headgate_knowledge_cache_misses_total"] >= 1
    assert told["headgate_knowledge_tokens_spent"] > 0


def test_the_listing_counts_the_tools(gateway: GatewayProcess) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "headgate", "listing", "--config", str(gateway.config_path), "--json"],
        cwd=gateway.config_path.parent,
        env=environment(gateway.config_path.parent, {**BY_WORDS, "HEADGATE_DATA_DIR": "listing-data"}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["tools"] >= len(TOOLS)


async def test_a_client_that_shows_structure_to_its_model_may_be_given_texts_alone(tmp_path: Path) -> None:
    write_all(tmp_path / "docs", {f"{name}.txt": "A marmot whistles.\n" for name in ("one", "two")})
    told(tmp_path, "ingest", "docs", "--data-dir", tmp_path / "gateway" / "data")
    config = configuration({"knowledge": KNOWLEDGE}, knowledge={"structuredContent": False})
    place = tmp_path / "gateway"
    with running_gateway(config, place, environment=BY_WORDS, start_seconds=SECONDS) as gateway:
        gateway.wait_until_ready("knowledge")
        async with entered(gateway.url, "modern", "knowledge_") as endpoint:
            result = await endpoint.call("semantic_search", {"query": "marmot", "fields": ["source_file"]})
            assert result.structured_content is None
            table = json.loads(first_text(result))["results"]
            assert table == {"columns": ["source_file"], "rows": [["docs/one.txt"], ["docs/two.txt"]]}
            assert (await endpoint.refusal("semantic_search", query=""))["code"] == "INVALID_PARAMS"


def config_with(*names: str) -> dict[str, Any]:
    entries = {"knowledge": KNOWLEDGE, "example": EXAMPLE}
    return configuration({name: entries[name] for name in names})


async def test_the_line_comes_and_goes_while_the_gateway_runs(tmp_path: Path) -> None:
    place = tmp_path / "gateway"
    with running_gateway(
        config_with("example"), place, environment=BY_WORDS, start_seconds=SECONDS
    ) as gateway:
        async with entered(gateway.url, "modern", "knowledge_") as endpoint, endpoint.mcp_client.watching():
            assert not NAMES & set(await endpoint.mcp_client.tools())
            gateway.write_config(config_with("example", "knowledge"))
            await endpoint.mcp_client.wait_for_tool("knowledge_get_chunks")
            assert set(await endpoint.mcp_client.tools()) >= NAMES
            await check_empty(endpoint)
            gateway.write_config(config_with("example"))
            await endpoint.mcp_client.wait_for_tool("knowledge_get_chunks", gone=True)
            assert not NAMES & set(await endpoint.mcp_client.tools())
            gateway.write_config(config_with("example", "knowledge"))
            await endpoint.mcp_client.wait_for_tool("knowledge_get_chunks")
            await check_empty(endpoint)


async def check_empty(endpoint: KnowledgeEndpoint) -> None:
    """Nothing has been ingested, which is said and is no failure."""
    answer = await endpoint.ask("semantic_search", query="anything")
    assert (answer["results"], answer["total_found"]) == ([], 0)
    assert [warning["code"] for warning in answer["warnings"]] == ["NOTHING_INGESTED"]
