"""The same tools over PostgreSQL: fed by a command, asked by real clients, and away for a while."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import postgres
from tests.gate import Answer, Gate, running_gate
from tests.real.knowledge import (
    Door,
    Message,
    alone_on_stdio,
    embedder,
    run,
    told,
    write_all,
    write_lines,
)
from tests.real.upstreams import configuration
from tests.real.visitors import Lodge, Visitor
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = {f"turbines/t{n:02}.md": f"# Turbine {n}\n\nThe turbine of hall {n}.\n" for n in range(42)}
GRAPH: list[Message] = [
    {"kind": "entity", "id": "v-1", "type": "VENDOR", "name": "Initech", "aliases": ["INI"]},
    *({"kind": "entity", "id": f"q-{n}", "type": "PRODUCT", "name": f"Qpart {n}"} for n in range(12)),
    *({"kind": "relationship", "source": "v-1", "target": f"q-{n}", "type": "makes"} for n in range(12)),
]
SECONDS = 30.0


class House:
    """A database with documents, a gateway and a server of its own before it."""

    def __init__(self, place: Path, store: str, variables: dict[str, str], doors: list[Door]) -> None:
        self.place = place
        self.store = store
        self.variables = variables
        self.doors = doors
        self.gate: Gate | None = None

    def readiness(self) -> Answer:
        """What /ready of the gateway says."""
        assert self.gate is not None
        return self.gate.get("/ready")

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
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    place = tmp_path_factory.mktemp("postgres")
    store = (await asyncio.to_thread(postgres.server)).new_database()
    write_all(place / "library", DOCUMENTS)
    with embedder() as remote:
        found = House(place, store, remote.variables, [])
        graph = write_lines(place / "graph.jsonl", GRAPH)
        summary = await found.ingest("library", "--graph", graph)
        assert (summary["added"], summary["vectors"]) == (42, 42)
        config = configuration({"knowledge": {"builtin": "knowledge"}}, knowledge={"store": store})
        with running_gate(config, place / "gate", environment=remote.variables, start_seconds=60) as gate:
            gate.wait_until_ready("knowledge")
            alone = alone_on_stdio(place, place / "data", "--store", store, more=remote.variables)
            found.gate = gate
            found.doors += [Door(Visitor(gate.url, "modern"), "knowledge_"), Door(Visitor(alone, "legacy"))]
            lodge = Lodge()
            for door in found.doors:
                await lodge.admit(door.visitor.client)
            yield found
            await lodge.leave()


async def test_pages_are_whole_while_another_process_ingests(house: House) -> None:
    search: Message = {"query": "turbine", "strategy": "bm25", "page_size": 10}
    vendor: Message = {"vendor_name": "ini", "response_mode": "full", "page_size": 5}
    firsts = [
        (await door.ask("semantic_search", **search), await door.ask("find_vendor_info", **vendor))
        for door in house.doors
    ]
    more = write_all(house.place / "later", {"t.md": "# Turbine\n\nOne more turbine.\n"})
    assert (await house.ingest(more))["added"] == 1
    for door, (found, known) in zip(house.doors, firsts, strict=True):
        pages = await door.pages("semantic_search", found, **search)
        assert [len(page["results"]) for page in pages] == [10, 10, 10, 10, 2]
        assert len({result["chunk_id"] for page in pages for result in page["results"]}) == 42
        around = await door.pages("find_vendor_info", known, **vendor)
        entities = [entity["name"] for page in around for entity in page["entities"]]
        assert sorted(entities) == sorted(f"Qpart {n}" for n in range(12))


async def test_a_score_is_the_sum_of_what_both_ranks_give(house: House) -> None:
    for door in house.doors:
        answer = await door.ask("semantic_search", query="hall 7", page_size=10, explain=True)
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


async def test_a_search_is_known_until_another_process_ingests(house: House) -> None:
    async def hits() -> list[bool]:
        asked = {"query": "gearbox", "response_format": "desktop"}
        answers = [await door.ask("semantic_search", **asked) for door in house.doors]
        return [answer["execution_context"]["cache_hit"] for answer in answers]

    assert await hits() == [False, False]
    assert await hits() == [True, True]
    more = write_all(house.place / "more", {"gearbox.md": "# Gearbox\n\nThe gearbox is new.\n"})
    assert (await house.ingest(more))["added"] == 1
    assert await hits() == [False, False]


async def test_a_database_that_is_away_comes_back_without_a_restart(house: House) -> None:
    server = postgres.server()
    await asyncio.to_thread(server.stop)
    try:
        for door in house.doors:
            said = await door.refusal("semantic_search", query="turbine away")
            assert (said["error"], said["code"]) == ("Database unavailable, retry in 5s", "DB_CONNECTION")
        # The call has seen it, so that nobody waits for the next look.
        await eventually(lambda: house.state == "backoff", SECONDS, "shown as down")
        report = await asyncio.to_thread(house.readiness)
        assert report.status == 503
        (shown,) = report.json()["servers"]
        assert "; " in shown["last_error"]
        ended = await asyncio.to_thread(run, house.place, "stats", "--store", house.store)
        assert ended.returncode == 2
        assert "headgate: the store of the documents cannot be used: no server listens" in ended.stderr
    finally:
        await asyncio.to_thread(server.start)
    for door in house.doors:
        answers: list[Message] = []

        async def ask(door: Door = door, answers: list[Message] = answers) -> None:
            result = await door.call("semantic_search", {"query": "turbine"})
            if not result.is_error:
                answers.append(result.structured_content or {})

        async with asyncio.timeout(SECONDS):
            while not answers:
                await ask()
        assert answers[0]["total_found"] >= 42
    await eventually(lambda: house.state == "ready", SECONDS, "shown as ready again")
    assert (await asyncio.to_thread(house.readiness)).status == 200
