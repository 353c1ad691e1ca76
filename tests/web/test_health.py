"""Whether the gateway is alive, whether clients should be sent to it, and why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate import __version__
from testkit.clients.plain_http import EXAMPLE, modern, modern_call, scripted, send
from testkit.gateway_process import GatewayProcess
from testkit.waiting import wait_until

WAIT_SECONDS = 5.0
Start = Callable[..., GatewayProcess]
DEAD = {"command": "no-such-command-anywhere"}


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/listing", "/"])
def test_a_page_has_the_same_head_with_and_without_its_body(start_gateway: Start, path: str) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE}})
    page, head = gateway.get(path), send(gateway, "HEAD", path, {})
    assert head.status == page.status == 200
    assert head.body == b""
    assert head.headers["content-type"] == page.headers["content-type"]


def test_health_says_that_the_gateway_is_alive_and_which_it_is(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"dead": DEAD}})
    answer = gateway.get("/health")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"status": "ok", "version": __version__}


def test_the_gateway_is_ready_once_every_server_was_tried(start_gateway: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    servers = {"example": EXAMPLE, "slow": scripted(tmp_path / "journal", WAIT_FOR=str(go))}
    gateway = start_gateway({"mcpServers": servers}, wait_for_servers=False)
    before = gateway.get("/ready")
    assert before.status == 503
    assert before.json()["ready"] is False
    assert {server["name"]: server["state"] for server in before.json()["servers"]}["slow"] == "starting"
    # There is no wait for the slow one.
    assert modern_call(gateway, "example_time")["content"]
    go.touch()
    wait_until(lambda: gateway.get("/ready").status == 200, WAIT_SECONDS, "it is ready")
    after = gateway.get("/ready").json()
    assert after["ready"] is True
    assert [server["state"] for server in after["servers"]] == ["ready", "ready"]


def test_each_server_says_how_it_is(start_gateway: Start, tmp_path: Path) -> None:
    off: dict[str, Any] = {**EXAMPLE, "enabled": False}
    servers = {"example": EXAMPLE, "own": scripted(tmp_path / "journal"), "dead": DEAD, "off": off}
    gateway = start_gateway({"mcpServers": servers})
    gateway.wait_until_ready("example", "own")
    modern_call(gateway, "own_echo")
    modern(gateway, "tools/call", {"name": "own_say", "arguments": {"line": '{"jsonrpc":"2.0","id":ID}'}})
    answer = gateway.get("/ready")
    assert answer.status == 200, "one server that is down does not keep clients away from the others"
    told = {server["name"]: server for server in answer.json()["servers"]}
    assert list(told) == ["example", "own", "dead", "off"]
    assert told["example"] == {
        "name": "example",
        "transport": "builtin",
        "state": "ready",
        "protocol_version": "2026-07-28",
        "tools": 6,
    }
    own = told["own"]
    assert (own["transport"], own["state"], own["protocol_version"]) == ("stdio", "ready", "2025-06-18")
    assert own["tools"] == 12
    assert own["calls"] == 2
    assert own["errors"] == 1
    assert own["pid"] > 0
    assert "restarts" not in own
    dead = told["dead"]
    assert dead["state"] in ("backoff", "starting")
    assert "no-such-command-anywhere" in dead["last_error"]
    reason = "its entry in the configuration says so (enabled or disabled)"
    assert told["off"] == {"name": "off", "transport": "builtin", "state": "disabled", "reason": reason}


def test_a_gateway_none_of_whose_servers_works_is_not_ready(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"dead": DEAD}})
    assert gateway.get("/ready").status == 503
    assert gateway.get("/health").status == 200


@pytest.mark.parametrize("servers", [{}, {"off": {**EXAMPLE, "enabled": False}}])
def test_a_gateway_without_servers_is_ready_for_some(start_gateway: Start, servers: dict[str, Any]) -> None:
    gateway = start_gateway({"mcpServers": servers})
    assert gateway.get("/ready").status == 200
    assert modern(gateway, "tools/list").json()["result"]["tools"] == []


def test_the_front_page_shows_the_servers(start_gateway: Start) -> None:
    gateway = start_gateway({"mcpServers": {"example": EXAMPLE, "dead": DEAD}})
    page = gateway.get("/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/")
    text = page.body.decode()
    assert __version__ in text
    assert "/mcp" in text
    for name in ("example", "dead"):
        assert name in text
