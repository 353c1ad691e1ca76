"""A listing has the same bytes until its tools change, also after a restart, and a change is counted."""

import asyncio
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens
from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import changing_listing_command, listings_over_http, stdio_entry, tool, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import BY_WORDS, hundred
from tests.real.listing_text import sources
from tests.real.mcp_clients import McpClient
from tests.real.source_text_clients import RawClient, legacy_http_client, modern_http_client, pages
from tests.real.test_catalogs import catalogs

START_SECONDS = 60.0
NOTICE_SECONDS = 20.0
# Real servers, in the order of the file; their tools cost more than any budget here.
MOST_SERVERS = 12
LISTED = ("full stateless", "full handshake", "slim stateless", "slim handshake")
Start = Callable[..., GatewayProcess]
STALL = [f"stall_{one['name']}" for one in hundred("stall")[:75]]
RESTOCK = tool("restock", "News of the warehouse.")


@dataclass(frozen=True)
class Market:
    """What gateways of this module stand in front of, and the data that they keep."""

    place: Path
    servers: dict[str, dict[str, Any]]
    # What the one server lists that changes.
    stall: Path

    def gateway(self, **settings: Any) -> AbstractContextManager[GatewayProcess]:
        """A gateway that has the data of the one before."""
        config = {"mcpServers": self.servers, "proxySettings": settings}
        return running_gateway(
            config, self.place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
        )

    def change(self, gateway: GatewayProcess, *tools: dict[str, Any]) -> None:
        """Let the stall list these, and say so."""
        write_listing(self.stall, [RESTOCK, *tools])
        Stateless(gateway.url).call("stall_restock", {})
        wait_until(lambda: told(gateway) == 1 + len(tools), NOTICE_SECONDS, "listed anew")


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    place = tmp_path_factory.mktemp("market")
    (place / "shelves").mkdir()
    listings = dict(itertools.islice(catalogs(), MOST_SERVERS))
    for name, listing in listings.items():
        (place / "shelves" / f"{name}.json").write_text(listing, encoding="utf-8")
    write_listing(place / "stall.json", [RESTOCK])
    with listings_over_http(place / "shelves") as origin:
        servers: dict[str, dict[str, Any]] = {
            "stall": stdio_entry(changing_listing_command("stall", place / "stall.json")),
            **{name: {"url": f"{origin}/{name}"} for name in listings},
        }
        yield Market(place, servers, place / "stall.json")


@pytest.fixture(autouse=True)
def fresh(market: Market) -> None:
    """The stall as it was, and no memory of it."""
    write_listing(market.stall, [RESTOCK])
    shutil.rmtree(market.place / "gateway", ignore_errors=True)


def seen(gateway: GatewayProcess) -> dict[str, list[str]]:
    """The source text of every page, in each mode and era."""
    found: dict[str, list[str]] = {}
    for mode in ListingMode:
        with ExitStack() as stack:
            clients: dict[str, RawClient] = {
                "legacy": stack.enter_context(legacy_http_client(f"{gateway.url}/{mode}")),
                "modern": stack.enter_context(modern_http_client(f"{gateway.url}/{mode}")),
            }
            found |= {f"{mode} {era}": list(pages(client)) for era, client in clients.items()}
    return found


def test_every_listing_has_the_same_bytes_between_calls_and_after_a_restart(market: Market) -> None:
    with market.gateway() as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        before = seen(gateway)
        assert seen(gateway) == before
    with market.gateway() as gateway:
        assert seen(gateway) == before
        gateway.wait_until_ready(seconds=START_SECONDS)
        assert seen(gateway) == before
        assert changes(gateway) == dict.fromkeys(changes(gateway), 0)
    assert len(before["full modern"]) > 1


def changes(gateway: GatewayProcess) -> dict[str, float]:
    """How often each listing has changed."""
    start = "headgate_listing_changes_total{listing="
    found = {name: value for name, value in gateway.metrics().items() if name.startswith(start)}
    return {name.removeprefix(start).strip('"}'): value for name, value in found.items()}


@pytest.mark.parametrize("budget", [500, 2_000, 60_000])
def test_a_listing_never_exceeds_its_budget(market: Market, budget: int) -> None:
    with market.gateway(listing="budget", listingBudgetTokens=budget) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        for mode in (ListingMode.AUTO, ListingMode.BUDGET):
            with modern_http_client(f"{gateway.url}/{mode}") as client:
                array = ",".join(text for page in pages(client) for text in sources(page))
            tokens = count_tokens(f"[{array}]".encode())
            assert budget * 0.8 < tokens <= budget
            (shown,) = [one for one in report(gateway)["listings"] if one["listing"] == f"{mode} stateless"]
            assert shown["tokens"] == tokens


def report(gateway: GatewayProcess) -> dict[str, Any]:
    answer: dict[str, Any] = gateway.get("/listing").json()
    return answer


def told(gateway: GatewayProcess) -> int:
    """How many tools the stall has."""
    tools: int = gateway.servers()["stall"]["tools"]
    return tools


def test_a_change_is_counted_and_named(market: Market) -> None:
    new = tool("brew", "Brew a pot of tea.")
    with market.gateway() as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        seen(gateway)
        market.change(gateway, new)
        seen(gateway)
        market.change(gateway, new | {"description": "Brew coffee, too."})
        wait_until(lambda: settled(gateway), NOTICE_SECONDS, "the change of a description is listed")
        counted = changes(gateway)
        told = {one["listing"]: one for one in report(gateway)["listings"]}
    for label in LISTED:
        assert counted[label] == 2
        assert told[label]["changes"] == 2
        assert told[label]["last_change"]["changed"] == ["stall_brew"]
        assert told[label]["last_change"]["added"] == []
    assert counted["search stateless"] == 0
    assert report_total(told) == sum(counted.values())


def settled(gateway: GatewayProcess) -> bool:
    assert seen(gateway)
    return all(changes(gateway)[label] == 2 for label in LISTED)


def report_total(told: dict[str, dict[str, Any]]) -> int:
    return sum(one["changes"] for one in told.values())


def test_a_change_while_the_gateway_was_away_is_counted(market: Market) -> None:
    with market.gateway() as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        seen(gateway)
    write_listing(market.stall, [RESTOCK, tool("brew", "Brew a pot of tea.")])
    with market.gateway() as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        wait_until(lambda: told(gateway) == 2, NOTICE_SECONDS, "listed anew")
        seen(gateway)
        counted = changes(gateway)
    assert counted["full stateless"] == counted["slim handshake"] == 1
    assert counted["search handshake"] == 0


# What is chosen by itself.


async def test_auto_shows_less_when_there_is_more_and_says_so(tmp_path: Path, start_gateway: Start) -> None:
    write_listing(tmp_path / "stall.json", [RESTOCK])
    gateway = start_gateway(
        {"mcpServers": {"stall": stdio_entry(changing_listing_command("stall", tmp_path / "stall.json"))}},
        environment=BY_WORDS,
    )
    visitors = [McpClient(gateway.url, era) for era in ("legacy", "modern")]
    async with visitors[0].client, visitors[1].client, visitors[1].watching():
        for mcp_client in visitors:
            assert list(await mcp_client.tools()) == ["stall_restock"]
        assert await said(gateway) == "Listing: full (auto)."

        write_listing(tmp_path / "stall.json", [RESTOCK, *hundred("stall")[:75]])
        await visitors[0].client.call_tool("stall_restock", {})

        for mcp_client in visitors:
            await mcp_client.wait_for_tool("expandSchema")
            assert list(await mcp_client.tools())[1:] == ["stall_restock", *STALL]
        assert "Listing: slim (auto)." in await said(gateway)

        write_listing(tmp_path / "stall.json", [RESTOCK, *twins(hundred("stall"))])
        await visitors[0].client.call_tool("stall_restock", {})

        for mcp_client in visitors:
            await mcp_client.wait_for_tool("retrieve_tools")
        assert "Listing: budget (auto)." in await said(gateway)


async def said(gateway: GatewayProcess) -> str:
    """The listing instructions of a client that connects now."""
    greeting = await asyncio.to_thread(Handshaker, gateway.url)
    advice: str = greeting.welcome["instructions"]
    return advice


def twins(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one | {"name": f"{one['name']}_{number}"} for number in range(5) for one in tools]
