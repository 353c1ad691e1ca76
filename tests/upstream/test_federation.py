"""No listing comes back to the gateway that it began at."""

import json
from typing import Any

import pytest

from headgate.domain.errors import GatewayLoop
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerState
from headgate.upstream.fleet import GatewayFederation
from testkit.virtual_time import virtual_time
from tests.upstream.scripted_server import ScriptedFleet, soon

OWN, B, C = "0" * 16, "b" * 16, "c" * 16


def told(federation: GatewayFederation) -> list[str]:
    found: list[str] = json.loads(b"{" + federation.member + b"}")["io.headgate/gateways"]
    return found


def test_a_gateway_tells_of_itself_and_of_all_behind_it() -> None:
    federation = GatewayFederation(OWN)
    assert told(federation) == [OWN]
    federation.record_gateways("b", frozenset({B, C}))
    federation.record_gateways("c", frozenset({C}))
    assert told(federation) == [OWN, B, C]
    federation.retain_servers(["c"])
    assert told(federation) == [OWN, C]
    federation.record_gateways("c", frozenset())
    assert told(federation) == [OWN]


@pytest.mark.parametrize(
    ("gateways", "words"), [({OWN}, "is this gateway itself"), ({OWN, B}, "leads back to this gateway")]
)
def test_a_way_back_is_refused_and_told_no_further(gateways: set[str], words: str) -> None:
    federation = GatewayFederation(OWN)
    federation.record_gateways("b", frozenset({B}))
    with pytest.raises(GatewayLoop, match=words) as loop:
        federation.record_gateways("b", frozenset(gateways))
    assert "'b'" in loop.value.reason
    assert "remove its entry" in loop.value.reason
    assert not loop.value.retryable
    assert told(federation) == [OWN]


def test_a_gateway_that_its_client_starts_tells_its_configuration_too() -> None:
    assert told(GatewayFederation(B, C, is_child=True)) == [B, C]
    # Two gateways on HTTP may share a configuration: each has an address of its own.
    assert told(GatewayFederation(B, C)) == [B]
    with pytest.raises(GatewayLoop, match="leads back to this gateway"):
        GatewayFederation(OWN, C).record_gateways("b", frozenset({B, C}))


# On a connection that stands.


def listing(*gateways: str) -> McpResponse:
    result: dict[str, Any] = {"tools": [{"name": "pay", "inputSchema": {}}]}
    return McpResponse(json.dumps(result | {"_meta": {"io.headgate/gateways": gateways}}).encode())


@virtual_time
@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9/mcp"])
async def test_a_gateway_that_comes_to_lead_back_is_dropped_and_its_tools_with_it(url: str) -> None:
    harness = ScriptedFleet()
    harness.facts.instance = OWN
    harness.server.answers["tools/list"] = listing(B)
    async with harness.fleet(url=url) as fleet:
        assert harness.facts.behind == {"bank": frozenset({B})}
        harness.server.answers["tools/list"] = listing(B, OWN)
        harness.transports[0].say_changed()
        await soon(lambda: fleet.statuses()[0].state is ServerState.FAILED, 30.0)
        assert "leads back to this gateway" in (fleet.statuses()[0].last_error or "")
        assert harness.facts.offers()[-1] == []
        assert harness.transports[0].closed
        # A command is not started again by itself; another gateway may have been mended.
        harness.server.answers["tools/list"] = listing(B)
        if url:
            await soon(lambda: fleet.statuses()[0].state is ServerState.READY, 100.0)
        else:
            with pytest.raises(TimeoutError):
                await soon(lambda: len(harness.transports) > 1, 200.0)
        assert len(harness.transports) == (2 if url else 1)
