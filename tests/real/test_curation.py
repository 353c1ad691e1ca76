"""What the operator pins, hides and renames holds at once, and clients that see a difference are notified."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from testkit.clients.streaming_http import Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.procfs import descendants
from testkit.upstreams import changing_listing_command, stdio_entry, tool, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import BY_WORDS, call, found, hundred, text
from tests.real.mcp_clients import McpClient
from tests.real.source_text_clients import modern_http_client, pages

START_SECONDS = 60.0
NOTICE_SECONDS = 20.0
BUDGET = 600
RESTOCK = tool("restock", "News of the warehouse.")
OFFICES = ("north", "south")
FINDERS = ("retrieve_tools", "call_tool", "expandSchema")


@dataclass(frozen=True)
class Town:
    """A gateway with little room in its lists, and the configuration that its operator edits."""

    gateway: GatewayProcess
    place: Path
    config: dict[str, Any] = field(default_factory=dict)

    def edit(self, server: str, **more: Any) -> None:
        """Write the configuration with another word about a server."""
        servers = self.config["mcpServers"]
        self.gateway.write_config(self.config | {"mcpServers": servers | {server: servers[server] | more}})

    def restock(self, *tools: dict[str, Any]) -> None:
        """Let the stall list these, and say so."""
        write_listing(self.place / "stall.json", [RESTOCK, *hundred("stall"), *tools])
        Stateless(self.gateway.url).call("stall_restock", {})


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    place = tmp_path_factory.mktemp("town")
    for name in OFFICES:
        write_listing(place / f"{name}.json", hundred(name))
    write_listing(place / "stall.json", [RESTOCK, *hundred("stall")])
    names = (*OFFICES, "stall")
    config: dict[str, Any] = {
        "mcpServers": {
            name: stdio_entry(changing_listing_command(name, place / f"{name}.json")) for name in names
        },
        "proxySettings": {"listing": "budget", "listingBudgetTokens": BUDGET},
    }
    with running_gateway(config, place / "gateway", environment=BY_WORDS) as gateway:
        gateway.wait_until_ready(*names, seconds=START_SECONDS)
        yield Town(gateway, place, config)


@pytest.fixture
def town(streets: Town) -> Iterator[Town]:
    """Nothing is pinned, hidden or renamed, before and after."""
    plain = listed(streets.gateway, "full")
    yield streets
    streets.gateway.write_config(streets.config)
    wait_until(lambda: listed(streets.gateway, "full") == plain, NOTICE_SECONDS, "everything is as it was")


def shown(gateway: GatewayProcess, mode: str) -> list[dict[str, Any]]:
    with modern_http_client(f"{gateway.url}/{mode}") as client:
        return [one for page in pages(client) for one in json.loads(page)["tools"]]


def listed(gateway: GatewayProcess, mode: str) -> list[str]:
    return [one["name"] for one in shown(gateway, mode)]


def whole(gateway: GatewayProcess, mode: str, name: str) -> bool:
    """Whether the tool is listed as its server defined it."""
    server, _, own = name.partition("_")
    original = next(one for one in hundred(server) if one["name"] == own)
    return original | {"name": name} in shown(gateway, mode)


# What is edited.


def test_a_pin_shows_the_tool_in_full_and_its_server_goes_on(town: Town) -> None:
    children = descendants(town.gateway.pid)
    assert not whole(town.gateway, "budget", "south_rename_song")

    town.edit("south", pin=["rename_s*"])

    wait_until(lambda: whole(town.gateway, "budget", "south_rename_song"), NOTICE_SECONDS, "it is pinned")
    assert whole(town.gateway, "slim", "south_rename_song")
    assert not whole(town.gateway, "slim", "south_rename_flight")
    assert descendants(town.gateway.pid) == children


def test_what_is_hidden_is_neither_listed_found_nor_called_nor_expanded(town: Town) -> None:
    children = descendants(town.gateway.pid)
    client = Stateless(town.gateway.url)
    assert "north_share_recipe" in found(client, "share a recipe at north")

    town.edit("north", hide=["share_*"])

    wait_until(lambda: len(listed(town.gateway, "full")) == 291, NOTICE_SECONDS, "ten tools are hidden")
    for mode in ListingMode:
        assert not [name for name in listed(town.gateway, mode) if name.startswith("north_share")]
        answer = Stateless(f"{town.gateway.url}/{mode}").call("north_share_recipe", {})["result"]
        assert answer["_meta"]["io.headgate/error"]["code"] == "TOOL_NOT_FOUND"
        assert "north_share" not in answer["content"][0]["text"].partition("nearest")[2]
    assert "north_share_recipe" not in found(client, "share a recipe at north")
    refused = client.call("expandSchema", {"toolName": "north_share_recipe"})["error"]
    assert refused["code"] == -32602
    assert descendants(town.gateway.pid) == children


def test_a_new_name_is_the_one_by_which_the_tool_is_listed_and_called(town: Town) -> None:
    children = descendants(town.gateway.pid)

    taken = {"create_photo": "south_create_photo", "create_song": "call_tool"}
    town.edit("north", rename={"create_invoice": "Bill a customer"} | taken)

    wait_until(lambda: "bill_a_customer" in listed(town.gateway, "full"), NOTICE_SECONDS, "it is renamed")
    names = listed(town.gateway, "full")
    assert len(names) == len(set(names)) == 301
    assert "north_create_invoice" not in names
    for mode in ListingMode:
        client = Stateless(f"{town.gateway.url}/{mode}")
        assert text(call(client, "bill_a_customer")) == "north: create_invoice"
        # Whose name it was keeps it.
        assert text(call(client, "south_create_photo")) == "south: create_photo"
    for original, given in taken.items():
        (other,) = [name for name in names if name.startswith(f"{given}_")]
        assert text(call(Stateless(town.gateway.url), other)) == f"north: {original}"
    assert descendants(town.gateway.pid) == children


@pytest.mark.parametrize(("mode", "expected"), [("full", 100), ("slim", 0), ("search", 0)])
def test_a_server_may_be_listed_in_another_way(town: Town, mode: str, expected: int) -> None:
    children = descendants(town.gateway.pid)

    town.edit("south", listing=mode)

    names = {"full": 301, "slim": 301, "search": 201}[mode]

    def south() -> list[dict[str, Any]]:
        return [one for one in shown(town.gateway, "slim") if one["name"].startswith("south_")]

    originals = [one | {"name": f"south_{one['name']}"} for one in hundred("south")]
    wait_until(
        lambda: (
            sum(one in originals for one in south()) == expected
            and len([name for name in listed(town.gateway, "full") if "_" in name and name not in FINDERS])
            == names
        ),
        NOTICE_SECONDS,
        "it is listed so",
    )
    assert text(call(Stateless(f"{town.gateway.url}/full"), "south_rename_song")) == "south: rename_song"
    assert descendants(town.gateway.pid) == children


# Who is notified.

UNTOLD = ("search", "dynamic", "budget", "auto")


@asynccontextmanager
async def watchers(gateway: GatewayProcess) -> AsyncIterator[dict[str, McpClient]]:
    """A client in each mode that has listed."""
    visitors = {str(mode): McpClient(f"{gateway.url}/{mode}", "legacy") for mode in ListingMode}
    visitors["modern"] = McpClient(f"{gateway.url}/slim", "modern")
    async with AsyncExitStack() as stack:
        for mcp_client in visitors.values():
            await stack.enter_async_context(mcp_client.client)
            await stack.enter_async_context(mcp_client.watching())
            await mcp_client.tools()
        yield visitors


async def test_who_sees_a_difference_is_told_and_nobody_else(town: Town) -> None:
    # A tool more changes full and slim; in the budget there is no room for the last of so many.
    async with watchers(town.gateway) as visitors:
        before = await asyncio.to_thread(shown, town.gateway, "budget")
        await asyncio.to_thread(town.restock, tool(f"wrap_{'a' * 40}", "Wrap it up nicely."))
        for name in ("full", "slim", "modern"):
            async with asyncio.timeout(NOTICE_SECONDS):
                await visitors[name].news.get()
        after = await asyncio.to_thread(shown, town.gateway, "budget")
        for name in UNTOLD:
            assert await visitors[name].tools()
        told = [name for name in UNTOLD if not visitors[name].news.empty()]

        # Now everybody: the tool that finds others names the servers.
        others = {name: entry for name, entry in town.config["mcpServers"].items() if name != "north"}
        town.gateway.write_config(town.config | {"mcpServers": others})
        for mcp_client in visitors.values():
            async with asyncio.timeout(NOTICE_SECONDS):
                await mcp_client.news.get()
    assert after == before
    assert told == []
    town.restock()
