"""Section `listing` measures what it says: other texts, every tool, and what a conversation pays."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from bench import listing
from bench.listing.catalogs import SMALL, Catalogue, every_catalogue, of_size, small, without_second_mode
from bench.listing.gateway_process import open_gateway_process, replaying, wait_for_servers
from bench.listing.in_memory_gateway import Guest, open_stand
from bench.listing.mcp_client import McpClient
from bench.listing.questions import questions_for
from bench.listing.slim_search import NothingShorter, compared
from bench.listing.uses import Talk, opened
from bench.options import Options
from headgate.domain.listing_mode import ListingMode


def test_a_short_run_measures_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    figures = msgspec.json.decode(msgspec.json.encode(listing.run(Options(quick=True, candidates="abcdehm"))))
    modes = {mode.value for mode in ListingMode}
    assert {one["mode"] for one in figures["timed"]} == modes
    assert modes <= {one["mode"] for one in figures["reached"]}
    assert all(one["reached"] == one["called"] == 61 for one in figures["reached"])
    by_mode = {one["mode"]: one["tokens"] for one in figures["listed"]}
    assert by_mode["search"] < by_mode["budget 3,000"] <= 3000 < by_mode["slim"] < by_mode["full"]
    assert "listing, goals" in capsys.readouterr().out


def test_a_server_in_two_modes_counts_once() -> None:
    every = every_catalogue()
    once = without_second_mode(every)
    assert len(every) - len(once) == 1
    assert sum(one.server.startswith("azure-mcp") for one in once) == 1


def test_a_catalog_of_any_size_has_that_many_tools_of_different_names() -> None:
    catalogues = of_size(every_catalogue(), 4_050)
    names = [(one.server, json.loads(tool)["name"]) for one in catalogues for tool in one.tools]
    assert len(names) == len(set(names)) == 4_050


def test_texts_that_did_not_become_shorter_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terse = tmp_path / "terse"
    terse.mkdir()
    tool = {"id": "a", "server": "s", "name": "go", "description": "Go", "input_schema": {}}
    (terse / "tools.jsonl").write_text(json.dumps(tool))
    (terse / "queries.jsonl").write_text(json.dumps({"query": "go", "gold": ["a"]}))
    monkeypatch.setenv("HEADGATE_RETRIEVAL_DATA", str(tmp_path))
    with pytest.raises(NothingShorter):
        compared(quick=True)


def test_the_stand_counts_the_definitions_that_a_gateway_lists(tmp_path: Path) -> None:
    # The first servers of the file with output schemas that admit no notice, and with some that do.
    chosen = [one for one in every_catalogue() if any(b'"outputSchema"' in tool for tool in one.tools)][:8]
    with replaying(chosen, tmp_path) as config, open_gateway_process(config) as gateway_process:
        wait_for_servers(gateway_process, len(chosen))
        with McpClient(gateway_process.port, "/mcp/full") as mcp_client:
            mcp_client.introduce()
            page = json.loads(mcp_client.exchange(mcp_client.request("tools/list", {}))[1])["result"]
    counted = [json.loads(one) for one in asyncio.run(_listing(chosen))]
    assert page == {"tools": counted}
    with_schema = sum("outputSchema" in one for one in counted)
    assert 0 < with_schema < sum(b'"outputSchema"' in tool for one in chosen for tool in one.tools)


async def _listing(catalogues: list[Catalogue]) -> list[bytes]:
    async with open_stand(catalogues) as stand:
        return await stand.listing(Guest("guest", ListingMode.FULL))


def test_a_tool_that_is_shown_whole_costs_nothing_more() -> None:
    contexts, turns = asyncio.run(_uses(ListingMode.FULL))
    assert contexts[0] == contexts[-1]
    assert turns == [1, 2, 3]


def test_every_search_is_paid_for() -> None:
    contexts, turns = asyncio.run(_uses(ListingMode.SEARCH))
    assert contexts[0] < contexts[1] < contexts[2]
    assert turns == [2, 4, 6]


async def _uses(mode: ListingMode) -> tuple[list[int], list[int]]:
    catalogues = small(every_catalogue())
    assert len(catalogues) == len(SMALL)
    async with open_stand(catalogues, searched=True) as stand:
        guest = Guest("guest", mode)
        talk = Talk(stand, guest, await opened(stand, guest), expands=True)
        states = [await talk.use(one) for one in questions_for(stand.items, 3, seed=1)]
    return [one.context for one in states], [one.turns for one in states]
