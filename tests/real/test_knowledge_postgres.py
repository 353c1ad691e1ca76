"""The same tools over PostgreSQL: fed by a command, asked by real clients, and away for a while."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from testkit import postgres
from testkit.gateway_process import GatewayProcess, HttpAnswer, running_gateway
from testkit.upstreams import configuration
from testkit.waiting import eventually
from tests.real.knowledge import (
    KnowledgeEndpoint,
    Message,
    alone_on_stdio,
    embedder,
    run,
    told,
    write_all,
    write_lines,
)
from tests.real.mcp_clients import ClientTasks, McpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = {f"turbines/t{n:02}.md": f"# Turbine {n}\n\nThe turbine of hall {n}.\n" for n in range(42)}
GRAPH: list[Message] = [
    {"kind": "entity", "id": "v-1", "type": "VENDOR", "name": "Initech", "aliases": ["INI"]},
    *({"kind": "entity", "id": f"q-{n}", "type": "PRODUCT", "name": f"Qpart {n}"} for n in range(12)),
    *({"kind": "relationship", "source": "v-1", "target": f"q-{n}", "type": "makes"} for n in range(12)),
]
SECONDS = 30.0


class PostgresKnowledgeHarness:
    """A database with documents, a gateway and a server of its own before it."""

    def __init__(
        self, place: Path, store: str, variables: dict[str, str], endpoints: list[KnowledgeEndpoint]
    ) -> None:
        self.place = place
        self.store = store
        self.variables = variables
        self.endpoints = endpoints
        self.gateway: GatewayProcess | None = None

    def readiness(self) -> HttpAnswer:
        """What /ready of the gateway says."""
        assert self.gateway is not None
        return self.gateway.get("/ready")

    @property
    def state(self) -> str:
        """Of the documents' server."""
        state: str = self.readiness().json()["servers"][0]["state"]
        return state

    async def ingest(self, *arguments: str | Path) -> Message:
        """Have another process ingest."""
        ingest = ("ingest", *arguments, "--store", self.store, "--json")
        summary: Message = json.loads(await asyncio.to_thread(told, self.place, *ingest, more=self.variables))
        return summary


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PostgresKnowledgeHarness]:
    place = tmp_path_factory.mktemp("postgres")
    store = (await asyncio.to_thread(postgres.server)).new_database()
    write_all(place / "library", DOCUMENTS)
    with embedder() as remote:
        found = PostgresKnowledgeHarness(place, store, remote.variables, [])
        graph = write_lines(place / "graph.jsonl", GRAPH)
        summary = await found.ingest("library", "--graph", graph)
        assert (summary["added"], summary["vectors"]) == (42, 42)
        config = configuration({"knowledge": {"builtin": "knowledge"}}, knowledge={"store": store})
        with running_gateway(
            config, place / "gateway", environment=remote.variables, start_seconds=60
        ) as gateway:
            gateway.wait_until_ready("knowledge")
            alone = alone_on_stdio(place, place / "data", "--store", store, more=remote.variables)
            found.gateway = gateway
            found.endpoints += [
                KnowledgeEndpoint(McpClient(gateway.url, "modern"), "knowledge_"),
                KnowledgeEndpoint(McpClient(alone, "legacy")),
            ]
            lodge = ClientTasks()
            for endpoint in found.endpoints:
                await lodge.admit(endpoint.mcp_client.client)
            yield found
            await lodge.leave()


async def test_pages_are_whole_while_another_process_ingests(harness: PostgresKnowledgeHarness) -> None:
    search: Message = {"query": "turbine", "strategy": "bm25", "page_size": 10}
    vendor: Message = {"vendor_name": "ini", "response_mode": "full", "page_size": 5}
    firsts = [
        (await endpoint.ask("semantic_search", **search), await endpoint.ask("find_vendor_info", **vendor))
        for endpoint in harness.endpoints
    ]
    more = write_all(harness.place / "later", {"t.md": "# Turbine\n\nOne more turbine.\n"})
    assert (await harness.ingest(more))["added"] == 1
    for endpoint, (found, known) in zip(harness.endpoints, firsts, strict=True):
        pages = await endpoint.pages("semantic_search", found, **search)
        assert [len(page["results"]) for page in pages] == [10, 10, 10, 10, 2]
        assert len({result["chunk_id"] for page in pages for result in page["results"]}) == 42
        around = await endpoint.pages("find_vendor_info", known, **vendor)
        entities = [entity["name"] for page in around for entity in page["entities"]]
        assert sorted(entities) == sorted(f"Qpart {n}" for n in range(12))


async def test_a_score_is_the_sum_of_what_both_ranks_give(harness: PostgresKnowledgeHarness) -> None:
    for endpoint in harness.endpoints:
        answer = await endpoint.ask("semantic_search", query="hall 7", page_size=10, explain=True)
        assert answer["strategy_used"] == "hybrid"
        best = answer["results"][0]["explanation"]
        assert best["vector"]["weight"] + best["bm25"]["weight"] == 1
        scores = {
            (told["vector"]["rank"], told["bm25"]["rank"]): told["fused"]
            for told in (result["explanation"] for result in answer["results"])
            if told["vector"] and told["bm25"]
        }
        assert scores
        for (near, worded), fused in scores.items():
            assert fused == pytest.approx(0.5 / (60 + near) + 0.5 / (60 + worded), abs=1e-6)


async def test_a_search_is_known_until_another_process_ingests(harness: PostgresKnowledgeHarness) -> None:
    async def hits() -> list[bool]:
        asked = {"query": "gearbox", "response_format": "desktop"}
        answers = [await endpoint.ask("semantic_search", **asked) for endpoint in harness.endpoints]
        return [answer["execution_context"]["cache_hit"] for answer in answers]

    assert await hits() == [False, False]
    assert await hits() == [True, True]
    more = write_all(harness.place / "more", {"gearbox.md": "# Gearbox\n\nThe gearbox is new.\n"})
    assert (await harness.ingest(more))["added"] == 1
    assert await hits() == [False, False]


async def test_a_database_that_is_away_comes_back_without_a_restart(
    harness: PostgresKnowledgeHarness,
) -> None:
    server = postgres.server()
    await asyncio.to_thread(server.stop)
    try:
        for endpoint in harness.endpoints:
            said = await endpoint.refusal("semantic_search", query="turbine away")
            assert (said["error"], said["code"]) == ("Database unavailable, retry in 5s", "DB_CONNECTION")
        # The call has seen it, so there is no wait for the next check.
        await eventually(lambda: harness.state == "backoff", SECONDS, "shown as down")
        report = await asyncio.to_thread(harness.readiness)
        assert report.status == 503
        (shown,) = report.json()["servers"]
        assert "; " in shown["last_error"]
        ended = await asyncio.to_thread(run, harness.place, "stats", "--store", harness.store)
        assert ended.returncode == 2
        assert "headgate: the store of the documents cannot be used: no server listens" in ended.stderr
    finally:
        await asyncio.to_thread(server.start)
    for endpoint in harness.endpoints:
        answers: list[Message] = []

        async def ask(endpoint: KnowledgeEndpoint = endpoint, answers: list[Message] = answers) -> None:
            result = await endpoint.call("semantic_search", {"query": "turbine"})
            if not result.is_error:
                answers.append(result.structured_content or {})

        async with asyncio.timeout(SECONDS):
            while not answers:
                await ask()
        assert answers[0]["total_found"] >= 42
    await eventually(lambda: harness.state == "ready", SECONDS, "shown as ready again")
    assert (await asyncio.to_thread(harness.readiness)).status == 200
