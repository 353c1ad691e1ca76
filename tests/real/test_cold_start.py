"""A gateway that has never met its servers: tools/list waits for those that start, initialize never does."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import changing_listing_command, stdio_entry, tool, write_listing
from tests.real.delayed_servers import Errand

START_SECONDS = 60.0
# Far less than any wait for a server here, and enough for an answer on a busy machine.
AT_ONCE_SECONDS = 4.0
# Longer than a test takes: only the server ends such a wait.
FOREVER = 300


class Village:
    """A server that is there at once, and one that starts when its file exists."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.start_file = place / "start"
        write_listing(place / "quick.json", [tool("run", "Run a race.")])
        write_listing(place / "slow.json", [tool("walk", "Walk a mile."), tool("rest", "Rest a while.")])

    @contextmanager
    def gateway(self, *, broken: bool = False, **settings: Any) -> Iterator[GatewayProcess]:
        servers = {
            "quick": stdio_entry(changing_listing_command("quick", self.place / "quick.json")),
            "slow": stdio_entry(changing_listing_command("slow", self.place / "slow.json", self.start_file)),
        }
        if broken:
            servers["broken"] = {"command": str(self.place / "no-such-program")}
        config = {"mcpServers": servers, "proxySettings": {"listResultTools": False} | settings}
        with running_gateway(config, self.place / "gateway", wait_for_servers=False) as gateway:
            gateway.wait_until_ready("quick", seconds=START_SECONDS)
            yield gateway


@pytest.fixture
def village(tmp_path: Path) -> Village:
    return Village(tmp_path)


def listed(client: Handshaker | Stateless) -> list[str]:
    return [one["name"] for one in client.ask("tools/list", {})["result"]["tools"]]


@pytest.mark.parametrize("listing", ["full", "auto"])
def test_a_listing_waits_for_a_server_that_starts_and_the_handshake_does_not(
    village: Village, listing: str
) -> None:
    with village.gateway(firstListingTimeout=FOREVER, listing=listing) as gateway:
        began = time.monotonic()
        ann = Handshaker(gateway.url)
        discovery = Stateless(gateway.url).ask("server/discover", {})["result"]
        assert time.monotonic() - began < AT_ONCE_SECONDS
        for said in (ann.welcome["instructions"], discovery["instructions"]):
            assert "The list of tools is incomplete. Still starting: slow." in said
            # What it becomes is not known yet.
            assert "(auto)" not in said

        under_way = Errand(lambda: ann.ask("tools/list", {}))
        assert gateway.servers()["slow"]["state"] == "starting"
        village.start_file.touch()
        names = [one["name"] for one in under_way.result()["result"]["tools"]]
        assert names == ["quick_run", "slow_walk", "slow_rest"]
        assert "incomplete" not in Handshaker(gateway.url).welcome.get("instructions", "")


def test_a_listing_waits_no_longer_than_the_setting_says(village: Village) -> None:
    with village.gateway(firstListingTimeout=0) as gateway:
        assert listed(Handshaker(gateway.url)) == ["quick_run"]
        assert "Still starting: slow." in Handshaker(gateway.url).welcome["instructions"]


def test_a_listing_does_not_wait_for_a_server_that_is_removed_meanwhile(village: Village) -> None:
    with village.gateway(firstListingTimeout=FOREVER) as gateway:
        under_way = Errand(lambda: Handshaker(gateway.url).ask("tools/list", {}))
        config = json.loads(gateway.config_path.read_text())
        del config["mcpServers"]["slow"]
        gateway.write_config(config)
        assert [one["name"] for one in under_way.result()["result"]["tools"]] == ["quick_run"]


def test_instructions_name_the_servers_that_could_not_be_reached(village: Village) -> None:
    village.start_file.touch()
    with village.gateway(broken=True) as gateway:
        gateway.wait_until_tried(START_SECONDS)
        said = Handshaker(gateway.url).welcome["instructions"]
        assert "The list of tools is incomplete. Not reachable: broken." in said
        assert listed(Handshaker(gateway.url)) == ["quick_run", "slow_walk", "slow_rest"]


def test_what_a_starting_server_may_have_is_declared_before_it_is_known(village: Village) -> None:
    with village.gateway() as gateway:
        # Declared once, and never again in that session.
        assert Handshaker(gateway.url).welcome["capabilities"] == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "completions": {},
            "logging": {},
        }
        village.start_file.touch()
        gateway.wait_until_ready(seconds=START_SECONDS)
        assert Handshaker(gateway.url).welcome["capabilities"] == {"tools": {"listChanged": True}}


async def test_an_sdk_client_that_lists_once_sees_every_tool_of_a_cold_start(village: Village) -> None:
    with village.gateway() as gateway:
        async with Client(gateway.url, mode="legacy") as client:
            # The server needs a moment more, as one that has to be installed does.
            village.start_file.touch()
            tools = (await client.list_tools()).tools
        assert [one.name for one in tools] == ["quick_run", "slow_walk", "slow_rest"]
