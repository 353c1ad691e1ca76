"""What is called most is shown in full where there is no room for all; that changes once a day at most."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import changing_listing_command, stdio_entry, write_listing
from testkit.waiting import wait_until
from tests.real.delayed_servers import BY_WORDS, call, hundred

START_SECONDS = 60.0
NOTICE_SECONDS = 20.0
SERVERS = ("north", "south")
TWO_DAYS = 48 * 3600.0


@dataclass(frozen=True)
class Library:
    """Gateways with little room in their lists that keep the same data, one after the other."""

    place: Path

    def gateway(self) -> AbstractContextManager[GatewayProcess]:
        servers = {
            name: stdio_entry(changing_listing_command(name, self.place / f"{name}.json")) for name in SERVERS
        }
        settings = {"listing": "budget", "listingBudgetTokens": 600}
        config = {"mcpServers": servers, "proxySettings": settings}
        return running_gateway(
            config, self.place / "gateway", environment=BY_WORDS, start_seconds=START_SECONDS
        )

    def age(self, seconds: float) -> None:
        """Let the favourites have been taken down so long ago."""
        path = self.place / "gateway" / "data" / "state.json"
        state = json.loads(path.read_bytes())
        state["favourites"][0] -= seconds
        assert state["favourites"][0] < time.time() - seconds + NOTICE_SECONDS
        path.write_text(json.dumps(state))


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for name in SERVERS:
        write_listing(tmp_path / f"{name}.json", hundred(name))
    return Library(tmp_path)


def shown(gateway: GatewayProcess) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = Stateless(gateway.url).ask("tools/list", {})["result"]["tools"]
    return tools


def whole(gateway: GatewayProcess) -> Iterator[str]:
    """The names of those that are listed as their servers defined them."""
    originals = [one | {"name": f"{server}_{one['name']}"} for server in SERVERS for one in hundred(server)]
    return (one["name"] for one in shown(gateway) if one in originals)


def use(gateway: GatewayProcess, name: str, times: int) -> None:
    for _ in range(times):
        call(Stateless(gateway.url), name)


def test_the_most_used_are_shown_in_full_and_stay_for_a_day(library: Library) -> None:
    with library.gateway() as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        before = shown(gateway)
        use(gateway, "south_rename_song", 3)
        # One who is called meanwhile changes nothing: it would cost others their prompt cache.
        assert shown(gateway) == before
        assert "south_rename_song" not in whole(gateway)

    with library.gateway() as gateway:
        # Nor does a restart.
        assert shown(gateway) == before

    library.age(TWO_DAYS)
    with library.gateway() as gateway:
        wait_until(lambda: "south_rename_song" in whole(gateway), NOTICE_SECONDS, "it is a favourite")
        first = shown(gateway)
        assert gateway.get("/listing").json()["favourites"] == ["south_rename_song"]
        use(gateway, "north_merge_photo", 9)

    with library.gateway() as gateway:
        assert shown(gateway) == first

    library.age(TWO_DAYS)
    with library.gateway() as gateway:
        wait_until(lambda: "north_merge_photo" in whole(gateway), NOTICE_SECONDS, "it is a favourite")
        assert gateway.get("/listing").json()["favourites"] == ["north_merge_photo", "south_rename_song"]
        assert "south_rename_song" in whole(gateway)
