"""The documents as a built-in server: open while a client is connected, counted, and served alone."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from headgate.app.knowledge import knowledge_only_settings, knowledge_options, knowledge_upstream
from headgate.config.settings import KnowledgeSettings, Settings
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.embedding.embedder_factory import OfflineModel
from headgate.knowledge.server import KnowledgeServer
from headgate.upstream.transports.builtin import BuiltinCall, BuiltinTool, BuiltinToolResult


def settings(data_dir: Path, *, structured_content: bool = True, **more: Any) -> Settings:
    wanted = KnowledgeSettings(embedder="BM25", structured_content=structured_content)
    return Settings(data_dir=data_dir, knowledge=wanted, **more)


def new_server(settings: Settings) -> KnowledgeServer:
    return KnowledgeServer(knowledge_options(settings), OfflineModel())


def open_tools(server: KnowledgeServer) -> AbstractAsyncContextManager[tuple[BuiltinTool, ...]]:
    return knowledge_upstream(server).open(lambda reason: None)


async def call(tools: tuple[BuiltinTool, ...], name: str, **arguments: Any) -> BuiltinToolResult:
    (tool,) = (tool for tool in tools if tool.definition["name"] == name)
    said = await tool.run(arguments, BuiltinCall(LOCAL_IDENTITY, lambda done, total: None))
    assert isinstance(said, BuiltinToolResult)
    return said


async def test_a_model_and_a_program_are_told_the_same(tmp_path: Path) -> None:
    async with open_tools(new_server(settings(tmp_path))) as tools:
        said = await call(tools, "list_sources")
        assert not said.failed
        assert said.structured is not None
        assert json.loads(said.text).items() <= said.structured.items()
        assert said.structured.keys() - json.loads(said.text).keys() == {"execution_time_ms"}
        wrong = await call(tools, "semantic_search", query="")
    assert wrong.failed
    assert wrong.structured is not None
    assert wrong.text == wrong.structured["error"] == "Query cannot be empty or whitespace-only"
    assert wrong.meta["io.headgate/error"]["code"] == wrong.structured["code"] == "INVALID_PARAMS"


async def test_answers_are_text_alone_where_clients_show_structure_to_the_model(tmp_path: Path) -> None:
    async with open_tools(new_server(settings(tmp_path, structured_content=False))) as tools:
        said = await call(tools, "list_sources")
        wrong = await call(tools, "semantic_search", query="")
    assert json.loads(said.text)["total_found"] == 0
    assert said.structured is None
    # A program still gets what it needs to distinguish them.
    assert wrong.structured is not None
    assert wrong.structured["code"] == "INVALID_PARAMS"


async def test_what_it_did_is_counted_while_it_is_open(tmp_path: Path) -> None:
    server = new_server(settings(tmp_path))
    assert (server.gauges(), server.counters()) == ({}, {})
    async with open_tools(server) as tools:
        for _ in range(2):
            await call(tools, "semantic_search", query="marmot")
        await call(tools, "get_chunk", chunk_id=7)
        counters = server.counters()
        assert counters["knowledge_calls", '{tool="semantic_search"}'] == 2
        assert counters["knowledge_failures", '{tool="get_chunk"}'] == 1
        assert (counters["knowledge_cache_misses", ""], counters["knowledge_cache_hits", ""]) == (1, 1)
        assert server.gauges()["knowledge_tokens_spent"] > 0
        assert server.gauges()["knowledge_tokens_reserved"] == 0
    assert (server.gauges(), server.counters()) == ({}, {})


async def test_it_can_be_opened_again(tmp_path: Path) -> None:
    server = new_server(settings(tmp_path))
    for _ in range(2):
        async with open_tools(server) as tools:
            assert json.loads((await call(tools, "list_sources")).text)["total_found"] == 0


async def test_what_was_spent_stays_spent_when_it_is_opened_again(tmp_path: Path) -> None:
    server = new_server(settings(tmp_path))
    async with open_tools(server) as tools:
        await call(tools, "semantic_search", query="marmot")
        spent = server.gauges()["knowledge_tokens_spent"]
    async with open_tools(server):
        assert server.gauges()["knowledge_tokens_spent"] == spent > 0


async def test_a_secret_in_what_was_asked_comes_back_in_no_form(tmp_path: Path) -> None:
    async with open_tools(new_server(settings(tmp_path))) as tools:
        wrong = await call(tools, "find_vendor_info", vendor_name="password=hunter2")
    assert wrong.failed
    assert "hunter2" not in f"{wrong.text} {wrong.structured} {wrong.meta}"
    assert wrong.structured is not None
    assert wrong.text == wrong.structured["error"]


@pytest.mark.parametrize("listing", ["search", "auto"])
def test_alone_it_has_plain_names_and_nothing_is_cut(tmp_path: Path, listing: Any) -> None:
    other = ServerSpec(name="other", transport=TransportType.BUILTIN, builtin="example")
    found = knowledge_only_settings(settings(tmp_path, servers=(other,), listing=listing))
    assert [(server.name, server.builtin) for server in found.servers] == [("knowledge", "knowledge")]
    assert (found.prefix, found.listing, found.enable_auto_truncation) == (False, "full", False)
    assert (found.data_dir, found.knowledge.embedder) == (tmp_path, "BM25")
