"""What a caller may spend, and what no caller reads: tokens, paths, passwords."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.upstreams import configuration
from tests.real.knowledge import (
    BY_WORDS,
    TOOLS,
    Message,
    alone_on_stdio,
    entered,
    refusal_of,
    refused,
    told,
    write_all,
)

CANARY = "xcanary7"
LONG = " It sits on a stone in the sun." * 20
AWAY = "Database unavailable, retry in 5s"
QUESTIONS: dict[str, Message] = {
    "semantic_search": {"query": "marmot"},
    "find_vendor_info": {"vendor_name": "Acme"},
    "list_sources": {},
    "get_chunk": {"chunk_id": 1},
    "get_chunks": {"chunk_ids": [1]},
    "neighbours": {"entity": "Acme"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("limits")
    write_all(place / "docs", {f"m{n}.txt": f"Marmot {n} whistles.{LONG}\n" for n in range(30)})
    told(place, "ingest", "docs", "--data-dir", "data")
    return place


async def test_what_is_too_dear_is_refused_with_the_cheaper_mode(place: Path) -> None:
    more = {**BY_WORDS, "HEADGATE_KNOWLEDGE_TOKEN_BUDGET": "6000"}
    async with entered(alone_on_stdio(place, place / "data", more=more), "modern") as endpoint:
        said = await endpoint.refusal("semantic_search", query="marmot", page_size=20, response_mode="full")
        assert said["code"] == "RATE_LIMIT"
        assert said["error"].startswith(
            "Not enough of the token budget: 6000 of 6000 tokens are left for the next 24 hours and this "
            "answer may take 30000; page_size 4 fits, or "
        )
        assert "response_mode 'metadata'" in said["error"]
        richest = await endpoint.ask("semantic_search", query="marmot", page_size=20, response_mode="auto")
        assert "source_file" in richest["results"][0]
        assert "chunk_snippet" not in richest["results"][0]
        whole = await endpoint.ask("semantic_search", query="marmot", page_size=1, response_mode="auto")
        assert "chunk_text" in whole["results"][0]


async def test_alone_the_largest_page_comes_whole(place: Path) -> None:
    async with entered(alone_on_stdio(place, place / "data", more=BY_WORDS), "legacy") as endpoint:
        answer = await endpoint.ask("semantic_search", query="marmot", page_size=50, response_mode="full")
        assert len({result["chunk_id"] for result in answer["results"]}) == 30
        assert all(result["chunk_text"].endswith(LONG) for result in answer["results"])


def test_a_command_that_cannot_reach_its_store_says_so_and_nothing_else(tmp_path: Path) -> None:
    store = f"postgresql://team:{CANARY}@127.0.0.1:{free_port()}/{CANARY}db"
    write_all(tmp_path / "docs", {"a.txt": "A marmot.\n"})
    for command in (["search", "marmot"], ["ingest", "docs"]):
        said = refused(tmp_path, *command, "--store", store)
        assert "headgate: the store of the documents cannot be used: no server listens where" in said
        check_clean(said, tmp_path)


@pytest.mark.parametrize(
    "store", [f"mysql://team:{CANARY}@host/db", f"{CANARY}", f"postgresql://a:{CANARY} @x/"]
)
def test_an_address_that_will_not_do_is_refused_without_repeating_it(tmp_path: Path, store: str) -> None:
    check_clean(refused(tmp_path, "stats", "--store", store), tmp_path)


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Two gateways: the database of one is away, the file of the other is no database."""
    store = f"postgresql://team:{CANARY}@127.0.0.1:{free_port()}/{CANARY}db"
    servers = {"knowledge": {"builtin": "knowledge"}}
    with ExitStack() as stack:
        found = []
        for name, knowledge in (("away", {"store": store}), (f"{CANARY}-file", {})):
            data = tmp_path / name / "data"
            data.mkdir(parents=True)
            if not knowledge:
                (data / "knowledge.db").write_bytes(b"no database at all" * 1000)
            running = running_gateway(
                configuration(servers, knowledge=knowledge),
                tmp_path / name,
                environment=BY_WORDS,
                start_seconds=60,
            )
            found.append(stack.enter_context(running))
        yield found


async def test_a_store_that_is_away_is_told_in_the_same_words_by_every_tool(
    broken: list[GatewayProcess],
) -> None:
    for gateway in broken:
        page = await asyncio.to_thread(gateway.get, "/ready")
        (shown,) = page.json()["servers"]
        assert (page.status, shown["state"], shown["tools"]) == (503, "backoff", len(TOOLS))
        assert CANARY not in shown["last_error"]
        async with entered(gateway.url, "modern", "knowledge_") as endpoint:
            for tool in TOOLS:
                result = await endpoint.call(tool, QUESTIONS[tool])
                check_clean(result.model_dump_json(), gateway.data_dir)
                said = refusal_of(result)
                assert (said["error"], said["code"]) == (AWAY, "DB_CONNECTION")
                about = (result.meta or {})["io.headgate/error"]
                assert (about["retryable"], about["retry_after_seconds"]) == (True, 5.0)
    # Its own place may stand in a log, but no password.
    assert CANARY not in broken[0].log()


def check_clean(said: str, place: Path) -> None:
    """Neither password nor place, neither SQL nor the words of a driver."""
    for word in (CANARY, "SELECT", "psycopg", "sqlite", "Traceback", str(place), "knowledge.db"):
        assert word not in said, said
