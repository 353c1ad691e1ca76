"""Waiting for a gateway: until it is healthy, until it introduces itself, until its upstreams are there."""

import http.client
from typing import Any, Final

from bench.candidates import Gateway
from bench.load.client import Client, Refused
from bench.process import wait_until
from testkit.gateway_process import http_get

_TIMEOUT_SECONDS: Final = 10.0


def wait_for_initialize(gateway: Gateway) -> float:
    """The moment at which a client was first let in. Raises StartFailed."""
    return wait_until(lambda: _lets_in(gateway), gateway.pid, gateway.candidate.name)


def wait_for_call(gateway: Gateway) -> float:
    """The moment at which a tool call was first answered. Raises StartFailed."""
    return wait_until(lambda: _answers(gateway), gateway.pid, gateway.candidate.name)


def wait_for_health(gateway: Gateway) -> float:
    """The moment at which /health first said 200. Raises StartFailed."""
    return wait_until(lambda: _get(gateway.port, "/health")[0] == 200, gateway.pid, gateway.candidate.name)


def wait_for_servers(gateway: Gateway, count: int) -> float:
    """The moment at which /ready first showed `count` upstreams ready. Raises StartFailed."""

    def all_ready() -> bool:
        servers = _get(gateway.port, "/ready")[1].get("servers", [])
        return len([server for server in servers if server.get("state") == "ready"]) == count

    return wait_until(all_ready, gateway.pid, gateway.candidate.name)


def wait_for_port(port: int, pid: int, what: str) -> None:
    """Return once the port answers. Raises StartFailed."""
    wait_until(lambda: _get(port, "/")[0] > 0, pid, what)


def _lets_in(gateway: Gateway) -> bool:
    client = Client(gateway.port, "legacy")
    try:
        client.introduce()
    except (OSError, Refused, http.client.HTTPException):
        return False
    finally:
        client.leave()
    return True


def _answers(gateway: Gateway) -> bool:
    client = Client(gateway.port, gateway.candidate.era)
    try:
        client.introduce()
        result = client.request("tools/call", {"name": client.public_name("payload_200"), "arguments": {}})
    except (OSError, Refused, http.client.HTTPException):
        return False
    finally:
        client.leave()
    return not result.get("isError")


def _get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        response = http_get(port, path, seconds=_TIMEOUT_SECONDS)
    except (OSError, http.client.HTTPException):
        return 0, {}
    try:
        answer = response.json()
    except ValueError:
        return response.status, {}
    return response.status, answer if isinstance(answer, dict) else {}
