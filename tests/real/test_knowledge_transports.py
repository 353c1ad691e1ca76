"""Ways in that are seldom used: the documents alone over SSE, and searches that a replica answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client.sse import sse_client

from testkit import postgres
from testkit.gateway_process import GatewayProcess
from tests.real.knowledge import TOOLS, entered, serving_alone, told, write_all


@pytest.fixture
def over_sse(tmp_path: Path) -> Iterator[GatewayProcess]:
    write_all(tmp_path / "docs", {"marmot.txt": "A marmot whistles.\n"})
    told(tmp_path, "ingest", "docs", "--data-dir", tmp_path / "data")
    with serving_alone(tmp_path / "alone", tmp_path / "data", transport="sse") as gateway:
        yield gateway


async def test_the_documents_are_served_alone_over_sse(over_sse: GatewayProcess) -> None:
    assert over_sse.sse_url in over_sse.log()
    async with entered(sse_client(over_sse.sse_url), "legacy") as endpoint:
        assert (endpoint.mcp_client.client.instructions or "").startswith("The company's own documents.")
        assert set(await endpoint.mcp_client.tools()) == set(TOOLS)
        answer = await endpoint.ask("semantic_search", query="whistling marmot")
        assert answer["results"][0]["source_file"] == "docs/marmot.txt"
        said = await endpoint.refusal("semantic_search", query="x" * 501)
        assert (said["error"], said["code"]) == ("Query too long (max 500)", "QUERY_TOO_LONG")


def test_a_search_reads_the_replica_that_is_set_and_an_ingestion_writes_elsewhere(tmp_path: Path) -> None:
    """A second database stands for the replica, so that it shows which of the two is read."""
    primary, replica = (postgres.server().new_database() for _ in range(2))
    for name, store in (("primary", primary), ("replica", replica)):
        write_all(tmp_path / name, {"marmot.txt": f"A marmot of the {name} whistles.\n"})
        told(tmp_path, "ingest", name, "--store", store)
    config = {"mcpServers": {}, "proxySettings": {"knowledge": {"replica": replica}}}
    (tmp_path / "headgate.json").write_text(json.dumps(config), encoding="utf-8")
    found = told(tmp_path, "search", "marmot", "--store", primary, "--config", "headgate.json", "--json")
    assert [one["source_file"] for one in json.loads(found)["results"]] == ["replica/marmot.txt"]
