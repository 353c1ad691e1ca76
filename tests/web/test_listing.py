"""What an operator can see of what clients see."""

from collections.abc import Iterator
from typing import Any

import pytest

from testkit.clients.plain_http import EXAMPLE, Session, modern, modern_call, send
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.waiting import wait_until
from tests.web.prometheus import parse

WAIT_SECONDS = 5.0
CONFIG: dict[str, Any] = {
    "mcpServers": {"example": {**EXAMPLE, "pin": ["time"]}},
    "proxySettings": {"listing": "slim", "listingBudgetTokens": 700, "listResultTools": True},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway whose tools have been listed."""
    with running_gateway(CONFIG, tmp_path_factory.mktemp("listing") / "gateway") as gateway:
        gateway.wait_until_ready("example")
        modern(gateway, "tools/list")
        Session(gateway).ask("tools/list")
        yield gateway


def listings(gateway: GatewayProcess) -> dict[str, dict[str, Any]]:
    return {one["listing"]: one for one in gateway.get("/listing").json()["listings"]}


def test_the_page_tells_what_is_listed_by_default_and_how_much_it_costs(gateway: GatewayProcess) -> None:
    answer = gateway.get("/listing")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    page = answer.json()
    assert (page["default"], page["budget_tokens"], page["tools"]) == ("slim", 700, 6)
    assert (page["favourites"], page["changes"]) == ([], 0)


def test_each_listing_tells_its_mode_its_tools_and_what_is_said_of_them(gateway: GatewayProcess) -> None:
    told = listings(gateway)
    assert set(told) >= {"slim handshake", "slim stateless"}
    slim = told["slim stateless"]
    assert (slim["mode"], slim["tools"], slim["changes"], slim["last_change"]) == ("slim", 12, 0, None)
    assert slim["levels"]["whole"] >= 1
    assert sum(slim["levels"].values()) == 6
    assert slim["bytes"] > 0
    assert slim["digest"]
    assert (slim["pins_left"], slim["adapted"]) == ([], {})


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_the_page_can_only_be_read(gateway: GatewayProcess, method: str) -> None:
    assert send(gateway, method, "/listing", {}).status == 405


def test_expansions_and_changes_are_counted_for_whoever_watches(gateway: GatewayProcess) -> None:
    name = "headgate_expand_schema_requests_total"
    before = parse(gateway.get("/metrics").body.decode())
    assert before[name].kind == "counter"
    modern_call(gateway, "expandSchema", {"toolName": "example_time"})
    families = parse(gateway.get("/metrics").body.decode())
    assert families[name].value(name) == before[name].value(name) + 1
    changes = families["headgate_listing_changes_total"]
    assert changes.kind == "counter"
    assert changes.value("headgate_listing_changes_total", listing="slim stateless") == 0


def test_a_change_of_the_file_is_counted_and_named_and_what_runs_keeps_running(
    gateway: GatewayProcess,
) -> None:
    before = gateway.servers()["example"]
    gateway.write_config({**CONFIG, "mcpServers": {"example": {**EXAMPLE, "hide": ["time"]}}})

    def listed() -> list[str]:
        return [tool["name"] for tool in modern(gateway, "tools/list").json()["result"]["tools"]]

    wait_until(lambda: "example_time" not in listed(), WAIT_SECONDS, "it is hidden")
    slim = listings(gateway)["slim stateless"]
    assert slim["changes"] == 1
    assert slim["last_change"]["removed"] == ["example_time"]
    assert gateway.get("/listing").json()["changes"] >= 1
    families = parse(gateway.get("/metrics").body.decode())
    name = "headgate_listing_changes_total"
    assert families[name].value(name, listing="slim stateless") == 1
    assert gateway.servers()["example"].get("restarts", 0) == before.get("restarts", 0)
