"""Real clients ask the tools of the documents, through a gateway and alone: the cases of the contract."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp_types import TextContent

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration
from tests.real.knowledge import (
    TOOLS,
    KnowledgeEndpoint,
    Message,
    alone_on_stdio,
    embedder,
    first_text,
    gateway_on_stdio,
    serving_alone,
    told,
    write_all,
    write_lines,
)
from tests.real.mcp_clients import ClientTasks, McpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDPOINTS = [
    "gateway-http-legacy",
    "gateway-http-modern",
    "gateway-stdio-modern",
    "alone-http-legacy",
    "alone-http-modern",
]
ENDPOINTS += ["alone-stdio-legacy"]
WEIGHTS = {"gateway": (0.75, 0.25), "alone": (0.5, 0.5)}
LONG = ("The zebra grazes" + " near the river" * 30)[:300]
PARTS = 12
DOCUMENTS = {
    **{f"turbines/t{n:02}.md": f"# Turbine {n}\n\nThe turbine of hall {n}.\n" for n in range(42)},
    **{f"pumps/c{n:02}.md": f"# Compressor {n}\n\nThe compressor of hall {n}.\n" for n in range(23)},
    "animals/zebra.txt": LONG,
    "ships/zeppelin.md": "---\ndate: 2026-03-04\n---\n# Ships\n\n## Zeppelin\n\nA zeppelin flies slowly.\n",
    "ships/anvil.md": "# Anvil\n\nAn anvil does not fly.\n",
}
GRAPH: list[Message] = [
    {"kind": "entity", "id": "v-1", "type": "VENDOR", "name": "Initech", "aliases": ["Initech Ltd", "INI"]},
    {"kind": "entity", "id": "v-2", "type": "VENDOR", "name": "Acme Corp", "aliases": ["Acme"]},
    {"kind": "entity", "id": "v-3", "type": "VENDOR", "name": "Acme GmbH", "aliases": ["Acme"]},
    {"kind": "entity", "id": "v-4", "type": "VENDOR", "name": "Hub Works"},
    {"kind": "entity", "id": "x-1", "type": "PLACE", "name": "Quux Harbour"},
    {"kind": "entity", "id": "x-2", "type": "PERSON", "name": "Ada Doubtful"},
    *({"kind": "entity", "id": f"q-{n}", "type": "PRODUCT", "name": f"Qpart {n}"} for n in range(PARTS)),
    *({"kind": "relationship", "source": "v-4", "target": f"q-{n}", "type": "makes"} for n in range(PARTS)),
    {"kind": "relationship", "source": "q-0", "target": "x-1", "type": "stored_in", "confidence": 0.8},
    {"kind": "relationship", "source": "x-2", "target": "q-1", "type": "uses", "confidence": 0.5},
]


@dataclass(frozen=True)
class KnowledgeHarness:
    """A store with documents, and the two that serve it."""

    place: Path
    gateway: GatewayProcess
    alone: GatewayProcess
    variables: dict[str, str]

    @property
    def data(self) -> Path:
        """Where the store is."""
        return self.gateway.data_dir

    async def ingest(self, *arguments: str | Path) -> Message:
        """Have another process ingest while these serve."""
        summary: Message = json.loads(
            await asyncio.to_thread(
                told, self.place, "ingest", *arguments, "--data-dir", self.data, "--json", more=self.variables
            )
        )
        return summary


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeHarness]:
    place = tmp_path_factory.mktemp("cases")
    write_all(place / "library", DOCUMENTS)
    graph = write_lines(place / "graph.jsonl", GRAPH)
    data = place / "gateway" / "data"
    with ExitStack() as stack:
        variables = stack.enter_context(embedder()).variables
        told(place, "ingest", "library", "--graph", graph, "--data-dir", data, more=variables)
        config = configuration(
            {"knowledge": {"builtin": "knowledge"}}, knowledge={"weights": {"vector": 3, "bm25": 1}}
        )
        running = running_gateway(config, place / "gateway", environment=variables, start_seconds=60)
        gateway = stack.enter_context(running)
        gateway.wait_until_ready("knowledge")
        alone = stack.enter_context(serving_alone(place / "alone", data, more=variables))
        yield KnowledgeHarness(place, gateway, alone, variables)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoints(harness: KnowledgeHarness) -> AsyncIterator[dict[str, KnowledgeEndpoint]]:
    """Every way in: two eras, two transports, the gateway and the documents alone."""
    more = harness.variables
    servers: dict[str, Any] = {
        "gateway-http": harness.gateway.url,
        "gateway-stdio": gateway_on_stdio(harness.gateway.config_path, harness.data, more),
        "alone-http": harness.alone.url,
        "alone-stdio": alone_on_stdio(harness.place, harness.data, more=more),
    }
    lodge = ClientTasks()
    found = {}
    for name in ENDPOINTS:
        way, _, era = name.rpartition("-")
        found[name] = KnowledgeEndpoint(
            McpClient(servers[way], era), "knowledge_" if way.startswith("gateway") else ""
        )
        await lodge.admit(found[name].mcp_client.client)
    yield found
    await lodge.leave()


@pytest.fixture(params=ENDPOINTS)
def endpoint(request: pytest.FixtureRequest, endpoints: dict[str, KnowledgeEndpoint]) -> KnowledgeEndpoint:
    return endpoints[request.param]


def ids(pages: list[Message]) -> list[int]:
    return [result["chunk_id"] for page in pages for result in page["results"]]


async def test_there_are_six_tools(endpoint: KnowledgeEndpoint) -> None:
    tools = await endpoint.mcp_client.tools()
    assert sorted(tools) == sorted(endpoint.prefix + name for name in TOOLS)
    for tool in tools.values():
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.input_schema["additionalProperties"] is False


async def test_42_matches_come_in_pages_of_10(endpoint: KnowledgeEndpoint) -> None:
    arguments = {"query": "turbine", "strategy": "bm25", "page_size": 10}
    first = await endpoint.ask("semantic_search", **arguments)
    pages = await endpoint.pages("semantic_search", first, **arguments)
    assert [len(page["results"]) for page in pages] == [10, 10, 10, 10, 2]
    assert [page["pagination"]["has_more"] for page in pages] == [True] * 4 + [False]
    assert {(page["total_found"], page["pagination"]["total_available"]) for page in pages} == {(42, 42)}
    assert len(set(ids(pages))) == 42


async def test_selected_fields_are_exactly_those(endpoint: KnowledgeEndpoint) -> None:
    answer = await endpoint.ask("semantic_search", query="turbine", fields=["chunk_id", "source_file"])
    assert {tuple(sorted(result)) for result in answer["results"]} == {("chunk_id", "source_file")}


async def test_a_long_text_is_shown_in_203_characters(endpoint: KnowledgeEndpoint) -> None:
    answer = await endpoint.ask("semantic_search", query="zebra", response_mode="preview", page_size=1)
    (found,) = answer["results"]
    assert found["chunk_snippet"] == LONG[:200] + "..."
    assert found["context_header"] == "library/animals/zebra.txt"


async def test_the_first_of_both_lists_has_one_61st(endpoint: KnowledgeEndpoint) -> None:
    answer = await endpoint.ask("semantic_search", query="zeppelin", page_size=1, response_mode="full")
    (found,) = answer["results"]
    assert answer["strategy_used"] == found["score_type"] == "hybrid"
    assert (found["hybrid_score"], found["rank"]) == (round(1 / 61, 6), 1)
    assert found["context_header"] == "library/ships/zeppelin.md > Ships > Zeppelin"


async def test_weights_come_from_the_configuration_and_are_normalised(
    endpoint: KnowledgeEndpoint, request: pytest.FixtureRequest
) -> None:
    answer = await endpoint.ask("semantic_search", query="zeppelin", page_size=1, explain=True)
    explanation = answer["results"][0]["explanation"]
    weights = (explanation["vector"]["weight"], explanation["bm25"]["weight"])
    assert weights == WEIGHTS[request.node.callspec.params["endpoint"].partition("-")[0]]
    assert explanation["vector"]["contribution"] == round(weights[0] / 61, 6)


async def test_boosts_raise_a_score_and_never_above_one(endpoint: KnowledgeEndpoint) -> None:
    plain = await endpoint.ask("semantic_search", query="anvil", strategy="bm25", page_size=1)
    arguments = {"strategy": "bm25", "page_size": 1, "boosts": True, "explain": True}
    boosted = await endpoint.ask("semantic_search", query="anvil", **arguments)
    assert boosted["results"][0]["explanation"]["boosts"]["topic"] == 0.08
    assert plain["results"][0]["hybrid_score"] == boosted["results"][0]["hybrid_score"] == 1.0


async def test_the_same_query_is_known_until_another_process_ingests(
    harness: KnowledgeHarness, endpoints: dict[str, KnowledgeEndpoint]
) -> None:
    async def hits() -> list[bool]:
        answers = [
            await endpoint.ask("semantic_search", query="anvil", response_format="desktop")
            for endpoint in endpoints.values()
        ]
        return [answer["execution_context"]["cache_hit"] for answer in answers]

    await hits()
    assert await hits() == [True] * len(endpoints)
    more = write_all(harness.place / "more", {"gearbox.md": "# Gearbox\n\nThe gearbox is new.\n"})
    assert (await harness.ingest(more))["added"] == 1
    # Two eras come in by one process, and the second of them finds what the first one asked for.
    first = dict(zip(endpoints, await hits(), strict=True))
    assert [
        first[name] for name in ENDPOINTS if name not in ("gateway-http-modern", "alone-http-modern")
    ] == [False] * 4
    assert await hits() == [True] * len(endpoints)


async def test_the_envelope_of_a_desktop(endpoint: KnowledgeEndpoint) -> None:
    answer = await endpoint.ask("semantic_search", query="turbine", response_format="desktop", top_k=2)
    assert set(answer["_metadata"]) == {"operation", "version", "timestamp", "request_id", "status"}
    assert answer["_metadata"]["operation"] == "semantic_search"
    context = answer["execution_context"]
    assert set(context) == {"tokens_estimated", "tokens_used", "cache_hit", "execution_time_ms"}
    assert (context["tokens_estimated"], len(answer["results"])) == (500, 2)
    (warning,) = answer["warnings"]
    assert set(warning) == {"level", "code", "message", "suggestion"}
    assert warning["code"] == "DEPRECATED"


METADATA = [
    "chunk_id",
    "chunk_index",
    "hybrid_score",
    "rank",
    "source_category",
    "source_file",
    "total_chunks",
]
NOBODY = (
    "Vendor 'Nobody At All' not found. Try using semantic_search first to find exact vendor names and IDs in "
    "the knowledge graph."
)
REFUSALS: list[tuple[str, Message, str, str]] = [
    (
        "find_vendor_info",
        {"vendor_name": "Nobody At All"},
        "VENDOR_NOT_FOUND",
        NOBODY,
    ),
    ("semantic_search", {"query": "x" * 501}, "QUERY_TOO_LONG", "Query too long (max 500)"),
    ("semantic_search", {"query": " \n "}, "INVALID_PARAMS", "Query cannot be empty or whitespace-only"),
    (
        "semantic_search",
        {"query": "x", "fields": ["chunk_text"]},
        "INVALID_PARAMS",
        f"Invalid fields for response_mode 'metadata': ['chunk_text']. Allowed fields: {METADATA}",
    ),
    (
        "semantic_search",
        {"query": "x", "fields": []},
        "INVALID_PARAMS",
        "fields list cannot be empty (use None to return all fields)",
    ),
    (
        "find_vendor_info",
        {"vendor_name": "x" * 201},
        "INVALID_PARAMS",
        f"vendor_name must be the name of a vendor of 1 to 200 characters, not of 201 ('{'x' * 58}…)",
    ),
    (
        "semantic_search",
        {"query": "x", "page_size": 51},
        "INVALID_PARAMS",
        "page_size must be a whole number from 1 to 50, not 51",
    ),
    (
        "semantic_search",
        {"query": "x", "response_mode": "everything"},
        "INVALID_PARAMS",
        "response_mode must be ids_only, metadata, preview, full or auto, not 'everything'",
    ),
    (
        "semantic_search",
        {"query": "x", "cursor": "nonsense"},
        "INVALID_PARAMS",
        "cursor is not one that this server gave; leave it out to start again",
    ),
    (
        "get_chunk",
        {"chunk_id": 1_000_000},
        "RESULT_NOT_FOUND",
        "Chunk 1000000 not found: it was removed or never there. Search again with semantic_search",
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "code", "sentence"), REFUSALS)
async def test_every_refusal_has_its_exact_words_and_its_code(
    endpoint: KnowledgeEndpoint, tool: str, arguments: Message, code: str, sentence: str
) -> None:
    result = await endpoint.call(tool, arguments)
    assert result.is_error
    assert first_text(result) == sentence
    said = result.structured_content
    assert isinstance(said, dict)
    assert (said["error"], said["code"]) == (sentence, code)
    assert said["action"]
    about = (result.meta or {})["io.headgate/error"]
    assert (about["code"], about["effect"], about["retryable"]) == (code, "none", False)
    assert about["hint"]


async def test_a_vendor_is_found_by_any_case_alias_and_id(endpoint: KnowledgeEndpoint) -> None:
    found = [
        await endpoint.ask("find_vendor_info", vendor_name=name, response_mode="ids_only")
        for name in ("Initech", "iNITECH", "initech ltd", "ini", " Initech, Ltd. ", "v-1")
    ]
    assert {answer["vendor_name"] for answer in found} == {"Initech"}
    (id,) = {answer["vendor_id"] for answer in found}
    assert (await endpoint.ask("find_vendor_info", vendor_name=str(id)))["vendor_name"] == "Initech"


async def test_a_model_reads_who_may_have_been_meant_after_the_sentence(endpoint: KnowledgeEndpoint) -> None:
    result = await endpoint.call("find_vendor_info", {"vendor_name": "Innitech Ld"})
    assert first_text(result) == NOBODY.replace("Nobody At All", "Innitech Ld")
    (advice,) = [block.text for block in result.content[1:] if isinstance(block, TextContent)]
    assert advice == "Names like it: Initech Ltd."


async def test_two_vendors_of_one_name_are_listed_and_their_ids_choose(endpoint: KnowledgeEndpoint) -> None:
    said = await endpoint.refusal("find_vendor_info", vendor_name="ACME")
    assert said["code"] == "VENDOR_AMBIGUOUS"
    assert "'Acme Corp' (" in said["error"]
    assert "'Acme GmbH' (" in said["error"]
    chosen = [
        await endpoint.ask("find_vendor_info", vendor_name=str(match["vendor_id"]))
        for match in said["matches"]
    ]
    assert [answer["vendor_name"] for answer in chosen] == ["Acme Corp", "Acme GmbH"]


async def test_neighbours_of_one_and_two_hops(endpoint: KnowledgeEndpoint) -> None:
    near = await endpoint.ask("neighbours", entity="hub works", page_size=50)
    assert {entity["name"] for entity in near["entities"]} == {f"Qpart {n}" for n in range(PARTS)}
    far = await endpoint.ask("neighbours", entity="Hub Works", hops=2, page_size=50)
    reached = {entity["name"]: entity for entity in far["entities"]}
    assert (reached["Quux Harbour"]["hop"], reached["Quux Harbour"]["confidence"]) == (2, 0.8)
    assert reached["Quux Harbour"]["via"]["name"] == "Qpart 0"
    assert "Ada Doubtful" not in reached
    doubtful = await endpoint.ask(
        "neighbours", entity="Hub Works", hops=2, min_confidence=0.4, entity_types="person"
    )
    assert [entity["name"] for entity in doubtful["entities"]] == ["Ada Doubtful"]


async def test_a_chunk_is_had_by_its_id(endpoint: KnowledgeEndpoint) -> None:
    found = await endpoint.ask("semantic_search", query="zebra", response_mode="ids_only", page_size=1)
    id = found["results"][0]["chunk_id"]
    chunk = await endpoint.ask("get_chunk", chunk_id=id)
    assert (chunk["chunk_text"], chunk["source_file"]) == (LONG, "library/animals/zebra.txt")
    several = await endpoint.ask("get_chunks", chunk_ids=[id, 999_999], fields=["chunk_id", "chunk_text"])
    assert several["results"] == [{"chunk_id": id, "chunk_text": LONG}]
    assert several["missing"] == [999_999]


async def test_sources_are_listed_and_filtered(endpoint: KnowledgeEndpoint) -> None:
    answer = await endpoint.ask("list_sources", filters={"source_category": "SHIPS", "source_file": "*zep*"})
    (source,) = answer["sources"]
    assert (source["source_file"], source["date"], source["doc_type"]) == (
        "library/ships/zeppelin.md",
        "2026-03-04",
        "markdown",
    )
    arguments = {"fields": ["source_file"], "page_size": 50}
    pages = await endpoint.pages("list_sources", await endpoint.ask("list_sources", **arguments), **arguments)
    listed = [source["source_file"] for page in pages for source in page["sources"]]
    assert {f"library/{name}" for name in DOCUMENTS} <= set(listed)
    assert len(set(listed)) == len(listed)


async def test_filters_choose_documents(endpoint: KnowledgeEndpoint) -> None:
    march = {"date_from": "2026-03-04", "date_to": "2026-03-04"}
    answer = await endpoint.ask("semantic_search", query="fly anvil zeppelin", filters=march)
    assert [result["source_file"] for result in answer["results"]] == ["library/ships/zeppelin.md"]


MODES = ["ids_only", "metadata", "preview", "full"]
RESULT_KEYS = {
    "ids_only": ["chunk_id", "hybrid_score", "rank"],
    "metadata": METADATA,
    "preview": [*METADATA, "chunk_snippet", "context_header"],
    "full": [
        *METADATA,
        *(
            "chunk_text",
            "similarity_score",
            "bm25_score",
            "score_type",
            "context_header",
            "chunk_token_count",
        ),
    ],
}
VENDOR_KEYS = {
    "ids_only": ["entity_ids", "relationship_ids"],
    "metadata": ["statistics", "top_entities", "last_updated"],
    "preview": ["statistics", "entities", "relationships"],
    "full": ["statistics", "entities", "relationships", "aliases", "last_updated"],
}
AROUND = {"execution_time_ms", "pagination"}


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_shows_its_fields_and_each_of_them_alone(
    endpoint: KnowledgeEndpoint, mode: str
) -> None:
    arguments = {"query": "zeppelin", "response_mode": mode, "page_size": 1}
    whole = (await endpoint.ask("semantic_search", **arguments))["results"][0]
    assert sorted(whole) == sorted(RESULT_KEYS[mode])
    for key in RESULT_KEYS[mode]:
        answer = await endpoint.ask("semantic_search", **arguments, fields=[key])
        assert answer["results"] == [{key: whole[key]}]


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_of_a_vendor_shows_its_fields_and_each_of_them_alone(
    endpoint: KnowledgeEndpoint, mode: str
) -> None:
    arguments = {"vendor_name": "Hub Works", "response_mode": mode}
    whole = await endpoint.ask("find_vendor_info", **arguments)
    assert set(VENDOR_KEYS[mode]) <= set(whole)
    for key in VENDOR_KEYS[mode]:
        answer = await endpoint.ask("find_vendor_info", **arguments, fields=[key])
        assert set(answer) - AROUND == {key}
        assert answer[key] == whole[key]
    if mode != "ids_only":
        counts = whole["statistics"]
        assert counts["entity_count"] >= PARTS
        assert counts["entity_type_distribution"]["PRODUCT"] >= PARTS


async def test_pages_stay_whole_in_every_mode_while_another_process_ingests(
    harness: KnowledgeHarness, endpoints: dict[str, KnowledgeEndpoint]
) -> None:
    """All first pages are read before, all others after documents and entities have come and gone."""
    asked: list[tuple[KnowledgeEndpoint, str, Message]] = []
    for endpoint in endpoints.values():
        for mode in MODES:
            search: Message = {"query": "compressor", "strategy": "bm25", "page_size": 7}
            asked.append((endpoint, "semantic_search", {**search, "response_mode": mode}))
            vendor: Message = {"vendor_name": "Hub Works", "page_size": 5}
            asked.append((endpoint, "find_vendor_info", {**vendor, "response_mode": mode}))
    before = [await endpoint.ask(tool, **arguments) for endpoint, tool, arguments in asked]
    more = {f"c{n}.md": f"# Compressor {n}\n\nAnother compressor.\n" for n in range(100, 109)}
    write_all(harness.place / "later", more)
    added: list[Message] = [
        {"kind": "entity", "id": f"r-{n}", "type": "PRODUCT", "name": f"Another {n}"} for n in range(4)
    ]
    added += [{"source": "v-4", "target": f"r-{n}", "type": "makes"} for n in range(4)]
    graph = write_lines(harness.place / "later.jsonl", added)
    assert (await harness.ingest("later", "--graph", graph))["added"] == len(more)
    for first, (endpoint, tool, arguments) in zip(before, asked, strict=True):
        pages = await endpoint.pages(tool, first, **arguments)
        if tool == "semantic_search":
            assert (len(ids(pages)), len(set(ids(pages)))) == (23, 23)
        else:
            check_vendor(pages, arguments["response_mode"])
    arguments = asked[0][2]
    again = await endpoints[ENDPOINTS[0]].ask("semantic_search", **arguments)
    assert again["total_found"] == 32


def check_vendor(pages: list[Message], mode: str) -> None:
    """Every entity and relationship of the start is there once."""
    if mode == "ids_only":
        entities = [id for page in pages for id in page["entity_ids"]]
        related = [id for page in pages for id in page["relationship_ids"]]
    else:
        key = "top_entities" if mode == "metadata" else "entities"
        entities = [entity["entity_id"] for page in pages for entity in page[key]]
        related = [one["relationship_id"] for page in pages for one in page.get("relationships", ())]
    assert (len(entities), len(set(entities))) == (PARTS, PARTS)
    assert len(related) == len(set(related)) == (0 if mode == "metadata" else PARTS)
