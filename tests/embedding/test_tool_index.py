"""Vectors follow the catalog, once per text; when they cannot be had, search goes on without them."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import TEXTS_PER_TOOL, Embedder
from headgate.embedding.minilm import MiniLMEmbedder
from headgate.embedding.openai import OpenAIEmbedder
from headgate.embedding.threaded_embedder import BATCH_TOOLS
from headgate.embedding.tool_index import LARGE_BATCH, ToolVectorIndex, open_tool_index
from headgate.storage.sqlite.catalog_store import SqliteCatalogStore
from testkit.embeddings_endpoint import Endpoint, Reply, Script, embeddings, running_endpoint

REST_SECONDS = 0.02


def tool(name: str, description: str = "", server: str = "s") -> ToolDocument:
    return ToolDocument((server, name), name, name, description=description)


def key(name: str, server: str = "s") -> ToolKey:
    return server, name


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def complete(meaning: ToolVectorIndex) -> None:
    def done() -> bool:
        made, of = meaning.progress()
        return made == of

    await until(done)


async def asked(meaning: ToolVectorIndex, query: str, limit: int = 5) -> list[str] | None:
    found = await meaning.cosines(query, limit, allowed=None, also=())
    return None if found is None else [name for _, name in found]


@asynccontextmanager
async def opened(
    make: Callable[[], Embedder], directory: Path, **options: Any
) -> AsyncIterator[ToolVectorIndex]:
    """A real file for the vectors, as the gateway has one."""
    file = SqliteCatalogStore(directory / "proxy.db")
    try:
        async with open_tool_index(make, file, first_rest_seconds=REST_SECONDS, **options) as meaning:
            yield meaning
    finally:
        await file.flush()


def remote(endpoint: Endpoint, **options: Any) -> Callable[[], OpenAIEmbedder]:
    return lambda: OpenAIEmbedder(base_url=endpoint.url, sleep=lambda _: None, **options)


def kept(directory: Path) -> int:
    with sqlite3.connect(directory / "proxy.db") as connection:
        count: int = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
    connection.close()
    return count


WEATHER = tool("now", "Current temperature of a city.", "weather")
REMINDER = tool("remind", "Send a reminder of an invoice.", "invoices")


# What it is for.


async def test_the_offline_model_finds_what_shares_no_word(tmp_path: Path) -> None:
    async with opened(MiniLMEmbedder, tmp_path) as meaning:
        meaning.put("weather", [WEATHER])
        meaning.put("invoices", [REMINDER])
        await complete(meaning)
        found = await meaning.cosines("how warm is it outside", 5, allowed=None, also=())
        assert found is not None
        assert found[WEATHER.key] > found[REMINDER.key] + 0.2
        assert meaning.progress() == (2, 2)
        only = await meaning.cosines(
            "how warm", 5, allowed=lambda one: one[0] == "invoices", also=[WEATHER.key]
        )
        assert list(only or ()) == [REMINDER.key]
    async with opened(MiniLMEmbedder, tmp_path) as meaning:
        meaning.put("invoices", [REMINDER])
        meaning.put("weather", [WEATHER])
        await complete(meaning)
        assert found == await meaning.cosines("how warm is it outside", 5, allowed=None, also=())


async def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    made: list[str] = []
    with running_endpoint(embeddings) as endpoint:

        def make() -> OpenAIEmbedder:
            made.append(threading.current_thread().name)
            return remote(endpoint)()

        async with opened(make, tmp_path) as meaning:
            await asyncio.sleep(0)
            assert made == []
            assert await asked(meaning, "anything") is None
            await until(lambda: bool(made))
    assert made != [threading.current_thread().name]
    assert not endpoint.asked


async def test_while_the_model_loads_there_is_no_answer_and_no_wait(tmp_path: Path) -> None:
    load = threading.Event()
    with running_endpoint(embeddings) as endpoint:

        def make() -> OpenAIEmbedder:
            assert load.wait(10)
            return remote(endpoint)()

        async with opened(make, tmp_path) as meaning:
            meaning.put("s", [tool("a")])
            assert await asked(meaning, "a") is None
            assert meaning.progress() == (0, 1)
            load.set()
            await complete(meaning)
            assert await asked(meaning, "a") == ["a"]


# Once per text.


async def test_each_text_is_embedded_once_whatever_restarts(tmp_path: Path) -> None:
    tools = [tool(f"tool{number}") for number in range(20)]
    with running_endpoint(embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", tools)
            await complete(meaning)
        assert sum(endpoint.batches) == 20 * TEXTS_PER_TOOL
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [*tools, tool("new")])
            await complete(meaning)
            assert sum(endpoint.batches) == 21 * TEXTS_PER_TOOL
            # A server that leaves and comes back has its vectors still.
            meaning.remove("s")
            assert await asked(meaning, "tool") is None
            meaning.put("s", tools)
            await complete(meaning)
            assert sum(endpoint.batches) == 21 * TEXTS_PER_TOOL
            assert len(await asked(meaning, "tool", 50) or ()) == 20


async def test_a_tool_that_says_something_else_gets_another_vector(tmp_path: Path) -> None:
    with running_endpoint(embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a", "One thing."), tool("b", "Another.")])
            await complete(meaning)
            before = sum(endpoint.batches)
            meaning.put("s", [tool("a", "One thing."), tool("b", "Something else.")])
            # No search leads to what it was.
            assert meaning.progress() == (1, 2)
            await complete(meaning)
            assert sum(endpoint.batches) == before + TEXTS_PER_TOOL
            meaning.put("s", [tool("b", "Something else.")])
            assert await asked(meaning, "thing") == ["b"]
    assert kept(tmp_path) == 3


async def test_vectors_that_nobody_uses_are_forgotten_but_for_a_few(tmp_path: Path) -> None:
    with running_endpoint(embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path, settled_seconds=0.05, spare_vectors=2) as meaning:
            meaning.put("s", [tool(f"tool{number}") for number in range(6)])
            await complete(meaning)
            await until(lambda: kept(tmp_path) == 6)
            meaning.put("s", [tool("tool0")])
            await until(lambda: kept(tmp_path) == 3)
            before = sum(endpoint.batches)
            meaning.put("s", [tool("tool0"), tool("tool1")])
            await complete(meaning)
            assert sum(endpoint.batches) - before in (0, TEXTS_PER_TOOL)


async def test_a_vector_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    with running_endpoint(embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a"), tool("b")])
            await complete(meaning)
        with sqlite3.connect(tmp_path / "proxy.db") as connection:
            connection.execute(
                "UPDATE vectors SET vector = x'00' WHERE hash = (SELECT min(hash) FROM vectors)"
            )
        connection.close()
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a"), tool("b")])
            await complete(meaning)
            assert sorted(await asked(meaning, "a") or ()) == ["a", "b"]
    assert sum(endpoint.batches) == 3 * TEXTS_PER_TOOL + 1


async def test_another_model_under_the_old_name_is_noticed(tmp_path: Path) -> None:
    def larger(request: dict[str, Any]) -> Reply:
        return embeddings(request, 6)

    with running_endpoint(embeddings, larger) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a"), tool("b")])
            await complete(meaning)
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a"), tool("b")])
            await complete(meaning)
            # The question is the first that the other model sees.
            assert await asked(meaning, "a") is None
            await complete(meaning)
            assert sorted(await asked(meaning, "a") or ()) == ["a", "b"]


async def test_large_work_is_logged_with_its_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate.embedding")
    with running_endpoint(embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool(f"tool{number}") for number in range(LARGE_BATCH)])
            await complete(meaning)
            await until(lambda: len(caplog.records) == 2)
    begun, ended = caplog.records
    assert (begun.message, vars(begun)["tools"]) == ("making vectors", LARGE_BATCH)
    assert (ended.message, vars(ended)["tools"]) == ("vectors made", LARGE_BATCH)
    assert vars(ended)["seconds"] >= 0


async def test_tools_that_come_during_large_work_do_not_wait_for_its_end(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(request: dict[str, Any]) -> Reply:
        begun.set()
        assert go_on.wait(10)
        return embeddings(request)

    with running_endpoint(slowly, embeddings) as endpoint:
        async with opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("z", [tool(f"tool{number}", server="z") for number in range(2 * BATCH_TOOLS)])
            await until(begun.is_set)
            meaning.put("a", [tool("urgent", server="a")])
            go_on.set()
            await complete(meaning)
    batches = [len(request["input"]) for request in endpoint.asked]
    assert batches == [TEXTS_PER_TOOL * size for size in (BATCH_TOOLS, BATCH_TOOLS, 1)]
    assert "a urgent" in endpoint.asked[1]["input"]


# When the embedder is away.


def failing(status: int, body: bytes = b"") -> Script:
    return lambda _: (status, {}, body)


def silent(_: dict[str, Any]) -> None:
    return None


class Switch:
    """An endpoint that behaves or not, as a test says."""

    def __init__(self, wrong: Script) -> None:
        self.wrong = wrong
        self.well = False

    def __call__(self, request: dict[str, Any]) -> Reply | None:
        return embeddings(request) if self.well else self.wrong(request)


@pytest.mark.parametrize(
    "wrong",
    [failing(429), failing(500), failing(401), failing(200, b"<html>"), silent],
    ids=["429", "500", "401", "garbage", "slow"],
)
async def test_an_endpoint_that_is_away_leaves_words_alone_and_is_tried_again(
    wrong: Script, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.embedding")
    switch = Switch(wrong)
    with running_endpoint(switch) as endpoint:
        async with opened(remote(endpoint, timeout_seconds=0.02), tmp_path) as meaning:
            meaning.put("s", [tool("a")])
            await until(lambda: len(endpoint.asked) > 5)
            assert await asked(meaning, "a") is None
            assert meaning.progress() == (0, 1)
            switch.well = True
            await complete(meaning)
            assert await asked(meaning, "a") == ["a"]
    said = [record.message for record in caplog.records]
    assert said == ["search goes on with words alone", "the embedder answers again"]


async def test_a_port_where_nobody_listens_leaves_words_alone(tmp_path: Path) -> None:
    with running_endpoint(embeddings) as endpoint:
        pass
    async with opened(remote(endpoint), tmp_path) as meaning:
        meaning.put("s", [tool("a")])
        await until(lambda: meaning.is_backing_off)
        assert await asked(meaning, "a") is None


async def test_a_question_that_gets_no_vector_is_not_asked_again_at_once(tmp_path: Path) -> None:
    switch = Switch(failing(503))
    switch.well = True
    with running_endpoint(switch) as endpoint:
        file = SqliteCatalogStore(tmp_path / "proxy.db")
        async with open_tool_index(remote(endpoint), file, first_rest_seconds=30) as meaning:
            meaning.put("s", [tool("a")])
            await complete(meaning)
            switch.well = False
            before = len(endpoint.asked)
            assert await asked(meaning, "a") is None
            assert await asked(meaning, "a") is None
            assert len(endpoint.asked) == before + 1
            # Vectors of tools that are made meanwhile show that it answers again.
            switch.well = True
            meaning.put("s", [tool("a"), tool("b")])
            await complete(meaning)
            await until(lambda: not meaning.is_backing_off)
            assert sorted(await asked(meaning, "a") or ()) == ["a", "b"]
        await file.flush()


async def test_a_stop_does_not_wait_for_an_endpoint_that_is_slow(tmp_path: Path) -> None:
    with running_endpoint(silent) as endpoint:
        async with asyncio.timeout(5), opened(remote(endpoint), tmp_path) as meaning:
            meaning.put("s", [tool("a")])
            await until(lambda: bool(endpoint.asked))
        async with asyncio.timeout(5):
            while any(thread.name.startswith("embed-") for thread in threading.enumerate()):
                await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("error", "message"),
    [(RuntimeError("a bug"), "the embedder failed"), (ConfigError("no such model", hint="look"), "alone")],
)
async def test_a_model_that_cannot_be_loaded_is_said_once_and_words_go_on(
    error: Exception, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> Embedder:
        raise error

    async with opened(make, tmp_path) as meaning:
        meaning.put("s", [tool("a")])
        await until(lambda: bool(caplog.records))
        meaning.put("s", [tool("b")])
        assert await asked(meaning, "b") is None
    [record] = caplog.records
    assert message in record.message
