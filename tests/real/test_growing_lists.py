"""In dynamic mode a client's list grows by what that client finds, and by nothing else."""

import asyncio
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.parts import Parts
from testkit.upstreams import (
    changing_listing_command,
    http_server,
    lines_of,
    stdio_entry,
    tool,
    whole_command,
    write_listing,
)
from testkit.waiting import wait_until
from tests.real.mcp_clients import McpClient, stdio_gateway_command, words
from tests.real.sdk_scripts import run_script

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
NOTICE_SECONDS = 10.0
LIMIT = 3
# Each is found by its own words alone.
TRADES = ("bake bread", "paint fence", "polish brass", "sort mail", "weigh anchor", "wind clocks")
# As operators of another proxy have it in their environment.
DYNAMIC = {
    "HEADGATE_EMBEDDER": "BM25",
    "MCPPROXY_ROUTING_TYPE": "DYNAMIC",
    "MCPPROXY_TOOLS_LIMIT": str(LIMIT),
}
# Makes its server tell that its list has changed.
RESTOCK = tool("restock", "News of the warehouse.")
FOUND_MORE = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
# Sent to every client, so a client that gets this first got nothing before.
PROMPTS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


@dataclass(frozen=True)
class Dock:
    """A gateway in dynamic mode, what some of its servers list, and what its command wrote down."""

    gateway: GatewayProcess
    # What each of the two servers lists that change.
    stalls: dict[str, Path]
    journal: Path


@pytest.fixture(scope="module")
def dock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dock]:
    place = tmp_path_factory.mktemp("growing")
    journal = place / "journal"
    note = f"open({str(journal)!r}, 'a').write('changed\\n')"
    environment = {"MCPPROXY_LIST_CHANGED_EXEC": shlex.join([sys.executable, "-ISc", note])}
    write_listing(place / "depot.json", [tool(snake(trade), f"Can {trade}.") for trade in TRADES])
    stalls = {name: place / f"{name}.json" for name in ("stall", "kiosk")}
    for listing in stalls.values():
        write_listing(listing, [RESTOCK])
    with ExitStack() as stack:
        old = whole_command("legacy", "old", place / "old.journal")
        servers = {
            "depot": stdio_entry(changing_listing_command("depot", place / "depot.json")),
            **{
                name: stdio_entry(changing_listing_command(name, listing)) for name, listing in stalls.items()
            },
            "old": {"url": stack.enter_context(http_server(old))},
        }
        gateway = stack.enter_context(
            running_gateway({"mcpServers": servers}, place / "gateway", environment=DYNAMIC | environment)
        )
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield Dock(gateway, stalls, journal)


def snake(trade: str) -> str:
    return trade.replace(" ", "_")


def named(*trades: str) -> list[str]:
    return [f"depot_{snake(trade)}" for trade in trades]


def call(client: Handshaker | Stateless, name: str, /, **arguments: Any) -> Message:
    result: Message = client.ask("tools/call", {"name": name, "arguments": arguments})["result"]
    return result


def search(client: Handshaker | Stateless, query: str, limit: int = 1) -> Message:
    answer: Message = call(client, "retrieve_tools", query=query, limit=limit)["structuredContent"]
    return answer


def listed(client: Handshaker | Stateless) -> list[str]:
    """What the list has beside the tool that makes it grow."""
    first, *others = (one["name"] for one in client.ask("tools/list", {})["result"]["tools"])
    assert first == "retrieve_tools"
    return others


def tell_everybody(dock: Dock) -> None:
    call(Handshaker(dock.gateway.url), "old_grow_prompts", text=f"p{uuid4().hex[:8]}")


# The list.


async def test_the_list_grows_by_what_is_found_up_to_its_limit(dock: Dock) -> None:
    ann = Handshaker(dock.gateway.url)
    assert listed(ann) == []
    assert "retrieve_tools" in ann.welcome["instructions"]

    first = search(ann, "bake bread")
    assert first["newly_registered"] == named("bake bread") == [one["name"] for one in first["tools"]]
    assert first["tools"][0]["newly_registered"] is True
    assert (first["evicted_tools"], first["pool_size"], first["pool_limit"]) == ([], 1, LIMIT)
    assert listed(ann) == named("bake bread")

    again = search(ann, "bake bread")
    assert (again["newly_registered"], again["pool_size"]) == ([], 1)
    assert again["tools"][0]["newly_registered"] is False

    search(ann, "paint fence")
    search(ann, "polish brass")
    assert listed(ann) == named("bake bread", "paint fence", "polish brass")

    one_more = search(ann, "sort mail")
    assert one_more["newly_registered"] == named("sort mail")
    (gone,) = one_more["evicted_tools"]
    assert one_more["pool_size"] == LIMIT
    assert gone in named("bake bread", "paint fence", "polish brass")
    rest = [name for name in named("bake bread", "paint fence", "polish brass") if name != gone]
    assert listed(ann) == [*rest, *named("sort mail")]


async def test_a_full_list_takes_in_what_was_just_found_however_poor_its_score(dock: Dock) -> None:
    async with Client(dock.gateway.url, mode="legacy") as ann:

        async def find(**arguments: Any) -> dict[str, Any]:
            answer = await ann.call_tool("retrieve_tools", arguments)
            assert answer.structured_content is not None
            told: dict[str, Any] = answer.structured_content
            return told

        # The pool is full of tools that could not fit better.
        await find(queries=["bake bread", "paint fence", "polish brass"], limit=1)
        # Called, so it is fresher than the others.
        await ann.call_tool("depot_bake_bread", {})
        # Its name is half of the request, so its score is lower than theirs.
        poor = await find(query="anchor warehouse bicycle", limit=1)

        (one,) = poor["tools"]
        assert (one["name"], one["listed"], one["newly_registered"]) == ("depot_weigh_anchor", True, True)
        assert one["score"] < 1.0
        assert poor["newly_registered"] == named("weigh anchor")
        assert poor["evicted_tools"] == named("paint fence")
        first, *names = [one.name for one in (await ann.list_tools()).tools]
        assert (first, names) == ("retrieve_tools", named("bake bread", "polish brass", "weigh anchor"))


async def test_what_is_found_can_be_called_and_calls_change_no_list(dock: Dock) -> None:
    ann = Handshaker(dock.gateway.url)
    search(ann, "bake bread")
    before = ann.ask("tools/list", {})["result"]

    assert call(ann, "depot_bake_bread")["content"][0]["text"] == "depot: bake_bread"
    # Not found yet, and there all the same.
    assert call(ann, "depot_weigh_anchor")["content"][0]["text"] == "depot: weigh_anchor"
    assert call(ann, "call_tool", name="depot:sort_mail")["content"][0]["text"] == "depot: sort_mail"

    assert ann.ask("tools/list", {})["result"] == before


async def test_a_search_that_finds_nothing_changes_nothing(dock: Dock) -> None:
    ann = Handshaker(dock.gateway.url)
    search(ann, "bake bread")

    answer = search(ann, "xkcd qwfpgj zzzz")
    assert (answer["message"], answer["tools"]) == ("No relevant tools found", [])
    assert (answer["newly_registered"], answer["evicted_tools"], answer["pool_size"]) == ([], [], 1)

    assert listed(ann) == named("bake bread")


async def test_sessions_have_lists_of_their_own_and_stateless_clients_share_one(dock: Dock) -> None:
    ann, bob = Handshaker(dock.gateway.url), Handshaker(dock.gateway.url)
    eve, joe = Stateless(dock.gateway.url), Stateless(dock.gateway.url)

    search(ann, "weigh anchor")
    search(eve, "wind clocks")

    assert (listed(ann), listed(bob)) == (named("weigh anchor"), [])
    assert "depot_wind_clocks" in listed(joe)
    assert listed(eve) == listed(joe)


async def test_many_sessions_at_once_keep_their_lists_apart(dock: Dock) -> None:
    def live(seed: int) -> None:
        chance, client = random.Random(seed), Handshaker(dock.gateway.url)
        expected: list[str] = []
        for _ in range(8):
            answer = search(client, chance.choice(TRADES), limit=2)
            expected = [name for name in expected if name not in answer["evicted_tools"]]
            expected += answer["newly_registered"]
            assert answer["pool_size"] == len(expected) <= LIMIT
            assert listed(client) == expected
        client.leave()

    await asyncio.gather(*(asyncio.to_thread(live, seed) for seed in range(12)))


# Who is notified.


async def test_a_session_is_told_on_its_own_stream_and_others_are_not(dock: Dock) -> None:
    ann, bob = Handshaker(dock.gateway.url), Handshaker(dock.gateway.url)
    eve = Stateless(dock.gateway.url)
    wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
    listening = eve.begin("subscriptions/listen", wanted)
    assert listening.until("notifications/subscriptions/acknowledged")
    with ann.listening() as of_ann, bob.listening() as of_bob:
        search(ann, "bake bread")
        # Found again: nothing has changed.
        search(ann, "bake bread")
        tell_everybody(dock)

        assert [of_ann.next(), of_ann.next()] == [FOUND_MORE, PROMPTS_CHANGED]
        assert of_bob.next() == PROMPTS_CHANGED
        assert (listening.next() or {})["method"] == PROMPTS_CHANGED["method"]
    listening.close()


async def test_a_session_without_a_stream_is_told_before_the_answer(dock: Dock) -> None:
    ann = Handshaker(dock.gateway.url)
    asked = ann.call("retrieve_tools", query="bake bread", limit=1)

    assert asked.next() == FOUND_MORE
    assert "result" in (asked.next() or {})
    assert asked.next() is None
    asked.close()


async def test_stateless_clients_are_told_where_they_listen(dock: Dock) -> None:
    ann, eve = Handshaker(dock.gateway.url), Stateless(dock.gateway.url)
    listening = eve.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert listening.until("notifications/subscriptions/acknowledged")
    with ann.listening() as of_ann:
        answer = search(eve, "polish brass")
        told = listening.next() or {}
        tell_everybody(dock)

        assert answer["newly_registered"] == named("polish brass")
        assert told["method"] == FOUND_MORE["method"]
        assert "depot_polish_brass" in listed(Stateless(dock.gateway.url))
        assert of_ann.next() == PROMPTS_CHANGED
    listening.close()


def front_transport(dock: Dock, front: str, place: Path) -> Any:
    """What an SDK client needs to come in; the stdio front is a gateway of its own."""
    if front == "stdio":
        serve, *arguments = stdio_gateway_command(dock.gateway.config_path, place)
        return StdioServerParameters(command=serve, args=arguments, env=clean_environment() | DYNAMIC)
    return sse_client(dock.gateway.sse_url) if front == "sse" else dock.gateway.url


@pytest.mark.parametrize(
    ("front", "era", "trade"),
    [
        ("http", "legacy", "bake bread"),
        ("sse", "legacy", "bake bread"),
        ("stdio", "legacy", "bake bread"),
        ("stdio", "modern", "bake bread"),
        ("http", "modern", "sort mail"),
    ],
)
async def test_an_sdk_client_sees_what_it_has_found(
    dock: Dock, tmp_path: Path, front: str, era: str, trade: str
) -> None:
    mcp_client = McpClient(front_transport(dock, front, tmp_path), era)
    (name,) = named(trade)
    async with mcp_client.client, mcp_client.watching():
        assert name not in await mcp_client.tools()

        await mcp_client.client.call_tool("retrieve_tools", {"query": trade, "limit": 1})
        await mcp_client.wait_for_tool(name)

        assert words(await mcp_client.client.call_tool(name, {})) == f"depot: {snake(trade)}"


@pytest.mark.parametrize(("sdk", "era", "trade"), [(1, "legacy", "bake bread"), (2, "modern", "paint fence")])
async def test_a_typescript_client_sees_what_it_has_found(
    dock: Dock, parts: Parts, sdk: int, era: str, trade: str
) -> None:
    (name,) = named(trade)
    plan = {"url": dock.gateway.url, "sdk": sdk, "era": era, "tool": name}

    plan |= {"search": {"query": trade, "limit": 1}}
    report = await asyncio.to_thread(run_script, "typescript-growing", plan, parts)

    assert name not in report["before"]
    assert report["found"]["structuredContent"]["newly_registered"] == [name]
    assert name in report["after"]
    assert report["result"]["content"][0]["text"] == f"depot: {snake(trade)}"


async def test_the_command_of_the_operator_runs_after_a_search_that_changed_a_list(dock: Dock) -> None:
    before = len(lines_of(dock.journal))

    search(Handshaker(dock.gateway.url), "bake bread")

    wait_until(lambda: len(lines_of(dock.journal)) > before, NOTICE_SECONDS, "the command has run")


# Servers that change.


async def test_a_tool_that_is_gone_leaves_the_lists_of_those_who_had_found_it(dock: Dock) -> None:
    ann, bob, eve = (Handshaker(dock.gateway.url) for _ in range(3))
    kites, boats = tool("fly_kites", "Can fly kites."), tool("row_boats", "Can row boats.")
    restock(dock, "stall", ann, [kites, boats])
    wait_until(lambda: found(ann, "fly kites") == ["stall_fly_kites"], NOTICE_SECONDS, "kites are found")
    search(bob, "row boats")
    # A change is notified to clients that have listed, so each has to list first.
    assert [listed(one) for one in (ann, bob, eve)] == [["stall_fly_kites"], ["stall_row_boats"], []]

    with ann.listening() as of_ann, bob.listening() as of_bob, eve.listening() as of_eve:
        restock(dock, "stall", eve, [boats])
        assert of_ann.next() == FOUND_MORE
        tell_everybody(dock)

        assert of_bob.next() == of_eve.next() == PROMPTS_CHANGED
        assert [listed(one) for one in (ann, bob, eve)] == [[], ["stall_row_boats"], []]
        assert found(ann, "fly kites") == []


async def test_a_tool_that_is_described_anew_is_told_to_those_who_had_found_it(dock: Dock) -> None:
    ann, bob = Handshaker(dock.gateway.url), Handshaker(dock.gateway.url)
    restock(dock, "kiosk", ann, [tool("ring_bells", "Can ring bells.")])
    wait_until(lambda: found(ann, "ring bells") == ["kiosk_ring_bells"], NOTICE_SECONDS, "bells are found")
    assert (listed(ann), listed(bob)) == (["kiosk_ring_bells"], [])

    with ann.listening() as of_ann, bob.listening() as of_bob:
        restock(dock, "kiosk", bob, [tool("ring_bells", "Can ring bells and gongs.")])
        assert of_ann.next() == FOUND_MORE
        tell_everybody(dock)

        assert of_bob.next() == PROMPTS_CHANGED
        assert found(bob, "gongs") == ["kiosk_ring_bells"]


def restock(dock: Dock, stall: str, client: Handshaker, tools: list[Message]) -> None:
    """Let the server list these tools, and tell so."""
    write_listing(dock.stalls[stall], [*tools, RESTOCK])
    assert call(client, f"{stall}_restock")["content"][0]["text"] == f"{stall}: restock"


def found(client: Handshaker, query: str) -> list[str]:
    return [one["name"] for one in search(client, query)["tools"]]


# Settings out of range.


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("TOP_K", "0"),
        ("TOP_K", "51"),
        ("TOOLS_LIMIT", "0"),
        ("TOOLS_LIMIT", "101"),
        ("TOOL_NAME_LIMIT", "9"),
        ("TOOL_NAME_LIMIT", "201"),
        ("ROUTING_TYPE", "STATIC"),
    ],
)
async def test_a_setting_out_of_range_ends_the_start_with_one_sentence(
    tmp_path: Path, setting: str, value: str
) -> None:
    config = tmp_path / "headgate.json"
    config.write_text(json.dumps({"mcpServers": {"example": {"builtin": "example"}}}))
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(config), "--transport", "http"]
    done = subprocess.run(
        [*command, "--port", "0", "--data-dir", str(tmp_path / "data")],
        env=clean_environment() | {f"MCPPROXY_{setting}": value},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )

    assert done.returncode == 2
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert f"MCPPROXY_{setting}" in sentence
    assert repr(value) in sentence
    assert not (tmp_path / "data").exists()
