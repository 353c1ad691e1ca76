"""The path that a client comes in by chooses what it is shown, for real clients by every front."""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters

from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from testkit.clients.streaming_http import Handshaker, Plain, Stateless
from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.parts import Parts
from testkit.upstreams import changing_listing_command, plain_environment, stdio_entry, tool, write_listing
from tests.real.delayed_servers import BY_WORDS, call, hundred, text
from tests.real.mcp_clients import McpClient, stdio_gateway_command, words
from tests.real.sdk_scripts import run_script
from tests.real.source_text_clients import modern_http_client, pages

START_SECONDS = 60.0
BUDGET = 3000
SERVERS = ("office", "plant", "yard")
NAMES = [f"{server}_{one['name']}" for server in SERVERS for one in hundred(server)] + ["inn_lodge"]
FINDERS = ["retrieve_tools", "call_tool", "expandSchema"]
# What each mode says of itself in the instructions.
ADVICE = {
    ListingMode.AUTO: "Listing: budget (auto).",
    ListingMode.FULL: "",
    ListingMode.PARTITIONED: "",
    ListingMode.SLIM: "Some tools have a reduced description or schema.",
    ListingMode.SEARCH: "Most tools are not listed.",
    ListingMode.DYNAMIC: "retrieve_tools adds them to the tool list",
    ListingMode.BUDGET: "more tools are not listed.",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with 301 tools and no setting of how to list them."""
    place = tmp_path_factory.mktemp("paths")
    offers = {name: hundred(name) for name in SERVERS} | {"inn": [tool("lodge", "Lodge a traveller.")]}
    for name, tools in offers.items():
        write_listing(place / f"{name}.json", tools)
    servers = {name: stdio_entry(changing_listing_command(name, place / f"{name}.json")) for name in offers}
    with running_gateway({"mcpServers": servers}, place / "gateway", environment=BY_WORDS) as gateway:
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield gateway


def shown(url: str) -> list[dict[str, Any]]:
    with modern_http_client(url) as client:
        return [one for page in pages(client) for one in json.loads(page)["tools"]]


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in tools]


def check(mode: ListingMode, listed: list[str]) -> None:
    """Whether these are names that the mode shows."""
    match mode:
        case ListingMode.FULL:
            assert listed == NAMES
        case ListingMode.SLIM:
            assert listed == ["expandSchema", *NAMES]
        case ListingMode.SEARCH:
            assert listed == FINDERS
        case ListingMode.DYNAMIC:
            assert listed == ["retrieve_tools"]
        case ListingMode.AUTO | ListingMode.BUDGET:
            assert listed[:3] == FINDERS
            assert listed[3:] == [name for name in NAMES if name in listed]
            assert {name.partition("_")[0] for name in listed[3:]} == {*SERVERS, "inn"}
            assert len(listed) < len(NAMES)


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("mode", ListingMode)
def test_each_mode_has_its_path(gateway: GatewayProcess, mode: ListingMode, slash: str) -> None:
    url = f"{gateway.url}/{mode}{slash}"
    check(mode, names(shown(url)))
    session = Handshaker(url)
    listed = names(session.ask("tools/list", {})["result"]["tools"])
    if mode not in (ListingMode.FULL, ListingMode.SLIM):
        check(mode, listed)
    assert ADVICE[mode] in session.welcome.get("instructions", "")
    assert ADVICE[mode] in Stateless(url).ask("server/discover", {})["result"].get("instructions", "")


def test_who_sees_everything_needs_no_advice(gateway: GatewayProcess) -> None:
    assert "instructions" not in Handshaker(f"{gateway.url}/full").welcome
    # A client whose stored results are shared reads that, and nothing else.
    advice = Stateless(f"{gateway.url}/full").ask("server/discover", {})["result"]["instructions"]
    assert "cache_id" in advice
    assert "\n" not in advice


@pytest.mark.parametrize("slash", ["", "/"])
def test_without_a_mode_in_the_path_the_gateway_chooses(gateway: GatewayProcess, slash: str) -> None:
    listed = shown(f"{gateway.url}{slash}")
    check(ListingMode.AUTO, names(listed))
    assert listed == shown(f"{gateway.url}/auto")
    assert count_tokens(json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()) <= BUDGET


@pytest.mark.parametrize(
    ("client", "most"), [("Cursor", 40), ("cursor-vscode", 40), ("windsurf-client", 100)]
)
def test_a_client_that_cuts_off_long_lists_gets_a_short_one(
    gateway: GatewayProcess, client: str, most: int
) -> None:
    for mcp_client in (Handshaker(gateway.url, name=client), Stateless(gateway.url, name=client)):
        listed = names(mcp_client.ask("tools/list", {})["result"]["tools"])
        check(ListingMode.AUTO, listed)
        assert len(listed) <= most
        assert text(call(mcp_client, "yard_rename_song", text="x")) == "yard: rename_song"
    assert len(names(shown(gateway.url))) > 40


@pytest.mark.parametrize("verb", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/mcp/nonsense", "/mcp/slim/more", "/mcp/FULL", "/sse/nonsense"])
def test_a_mode_that_does_not_exist_has_no_path(gateway: GatewayProcess, verb: str, path: str) -> None:
    stream = Plain(f"{gateway.origin}{path}").send(verb, {}, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    stream.close()
    assert stream.status == 404


@pytest.mark.parametrize("path", ["/mcp/sse", "/sse", *(f"/sse/{mode}" for mode in ListingMode)])
def test_the_paths_of_the_legacy_stream_are_for_the_stream(gateway: GatewayProcess, path: str) -> None:
    wrong = Plain(f"{gateway.origin}{path}").send("POST", {}, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    wrong.close()
    assert wrong.status == 405
    stream = Plain(f"{gateway.origin}{path}").send("GET", {"Accept": "text/event-stream"})
    assert (stream.status, stream.streamed) == (200, True)
    stream.close()


async def test_clients_with_different_modes_are_there_at_once(gateway: GatewayProcess) -> None:
    visitors = [
        (mode, McpClient(f"{gateway.url}/{mode}", era))
        for mode in ListingMode
        for era in ("legacy", "modern")
    ]
    visitors += [(mode, McpClient(sse_client(f"{gateway.sse_url}/{mode}"), "legacy")) for mode in ListingMode]
    async with AsyncExitStack() as stack:
        for _, mcp_client in visitors:
            await stack.enter_async_context(mcp_client.client)
        for mode, mcp_client in visitors:
            check(mode, list(await mcp_client.tools()))
        for _, mcp_client in visitors:
            result = await mcp_client.client.call_tool("yard_rename_song", {"text": "x"})
            assert words(result) == "yard: rename_song"


def test_a_session_may_go_on_by_another_path(gateway: GatewayProcess) -> None:
    ann = Handshaker(f"{gateway.url}/search")
    assert names(ann.ask("tools/list", {})["result"]["tools"]) == FINDERS

    elsewhere = Plain(f"{gateway.url}/dynamic")
    headers = {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": ann.id}
    listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
    stream = elsewhere.send("POST", headers, listing)
    assert names(stream.answer()["result"]["tools"]) == ["retrieve_tools"]
    stream.close()

    assert names(ann.ask("tools/list", {})["result"]["tools"]) == FINDERS


async def test_the_stdio_front_is_told_the_mode(gateway: GatewayProcess, tmp_path: Path) -> None:
    command, *arguments = stdio_gateway_command(gateway.config_path, tmp_path / "data")
    arguments += ["--listing", "search"]
    server = StdioServerParameters(command=command, args=arguments, env=clean_environment() | BY_WORDS)
    mcp_client = McpClient(server, "legacy")
    async with mcp_client.client:
        check(ListingMode.SEARCH, list(await mcp_client.tools()))
        assert words(await mcp_client.client.call_tool("inn_lodge", {"text": "x"})) == "inn: lodge"


@pytest.mark.parametrize(
    ("client", "era", "front"),
    [
        ("python-1", "legacy", "http"),
        ("python-1", "legacy", "sse"),
        ("typescript-1", "legacy", "sse"),
        ("typescript-1", "legacy", "stdio"),
        ("typescript-2", "modern", "http"),
    ],
)
def test_every_sdk_comes_in_by_the_path_of_a_mode(
    gateway: GatewayProcess, parts: Parts, tmp_path: Path, client: str, era: str, front: str
) -> None:
    place: dict[str, Any] = {"url": f"{gateway.sse_url if front == 'sse' else gateway.url}/slim"}
    if front == "stdio":
        own_gateway = [*stdio_gateway_command(gateway.config_path, tmp_path / "data"), "--listing", "slim"]
        place = {"command": own_gateway, "env": plain_environment(**BY_WORDS)}
    expand = {"name": "expandSchema", "arguments": {"toolName": "office_create_invoice"}}
    plan = {"front": front, "era": era, "tool": "yard_rename_song", "arguments": {"text": "x"}}

    report = run_script(client, plan | place | {"more": [expand]}, parts)

    check(ListingMode.SLIM, names(report["tools"]))
    assert report["result"]["content"][0]["text"] == "yard: rename_song"
    (expanded,) = report["more"]
    assert json.loads(expanded["content"][0]["text"]) == hundred("office")[0]["inputSchema"]
