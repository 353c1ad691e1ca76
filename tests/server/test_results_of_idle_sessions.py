"""Results of a session that is idle stay for their time, however many sessions others open."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import Session, scripted, send, settle
from testkit.gateway_process import GatewayProcess

SESSIONS = 20
Start = Callable[..., GatewayProcess]


@pytest.fixture
def gateway(start_gateway: Start, tmp_path: Path) -> GatewayProcess:
    journal = tmp_path / "journal"
    gateway = start_gateway(
        {
            "mcpServers": {"own": scripted(journal)},
            "proxySettings": {"maxSessions": 5, "maxResponseSize": 1000},
        }
    )
    settle(gateway, "own")
    return gateway


def stored(session: Session) -> str:
    """The id of a result that was too large to be shown."""
    shown = str(session.call("own_echo", {"text": "needle " + "x" * 5000}))
    found = re.search(r"cache_id\W+([0-9a-f]{24})", shown)
    assert found is not None, shown
    return found[1]


def searched(session: Session, id: str) -> dict[str, Any]:
    return session.call("proxy_search", {"cache_id": id, "pattern": "needle"})


def test_many_sessions_that_store_nothing_take_no_results_away(gateway: GatewayProcess) -> None:
    idle = Session(gateway)
    id = stored(idle)
    for _ in range(SESSIONS):
        Session(gateway)
    assert "needle" in str(searched(idle, id)["content"])
    assert gateway.metrics()['headgate_sessions_revived_total{reason="idle"}'] == 1


def test_many_sessions_that_store_a_little_take_no_results_away(gateway: GatewayProcess) -> None:
    idle = Session(gateway)
    id = stored(idle)
    for _ in range(SESSIONS):
        stored(Session(gateway))
    assert "needle" in str(searched(idle, id)["content"])


def test_the_results_of_a_session_that_its_client_ends_go_with_it(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    stored(session)
    assert gateway.metrics()["headgate_results_stored"] == 1
    send(gateway, "DELETE", "/mcp", dict(session.headers))
    assert gateway.metrics()["headgate_results_stored"] == 0
