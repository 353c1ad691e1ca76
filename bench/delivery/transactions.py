"""What a transaction of three steps takes, beside three calls with a key and three plain ones."""

import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench.delivery.ledger_gateway import SERVER, TOOL, Tallied, gateway
from bench.listing.gateway_process import GatewayProcess
from bench.listing.mcp_client import McpClient, Unreadable
from bench.load.closed_loop import percentile
from bench.path.summary import Figure, spread
from bench.responses.large_result_gateway import visiting
from headgate.delivery.transactions.tool_definitions import BEGIN_TOOL, COMMIT_TOOL, STEP_TOOL

PLAIN: Final = "3 plain calls"
KEYED: Final = "3 calls with a key"
GROUPED: Final = "a transaction of 3 steps"
_STEPS: Final = 3
_ROUNDS: Final = 5
_EACH: Final = 40
_QUICK_EACH: Final = 10
_CALL: Final = {"name": f"{SERVER}_{TOOL}", "arguments": {"path": "reports/daily", "limit": 10}}


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """One way of making three calls, one after the other; ratios are to KEYED in the same round."""

    way: str
    requests: int
    rounds: int
    p50_ms: Figure
    p99_ms: Figure
    p50_ratio: Figure
    commits: Figure


class _Sample(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    commits: float


def groups(*, quick: bool) -> list[Grouped]:
    """All three ways, in turn. Raises StartFailed or Unreadable."""
    rounds, each = (1, _QUICK_EACH) if quick else (_ROUNDS, _EACH)
    ways: dict[str, Callable[[McpClient], None]] = {PLAIN: _plain, KEYED: _keyed, GROUPED: _grouped}
    print("bench: delivery, transactions", file=sys.stderr)
    with gateway({SERVER: {}}) as gateway_process, visiting(gateway_process) as mcp_client:
        for make in ways.values():
            make(mcp_client)
        found = [
            {way: _timed(gateway_process, mcp_client, make, each) for way, make in ways.items()}
            for _ in range(rounds)
        ]
    return [_summary(way, found) for way in ways]


def _summary(way: str, rounds: list[dict[str, _Sample]]) -> Grouped:
    return Grouped(
        way=way,
        requests=_STEPS + 2 if way == GROUPED else _STEPS,
        rounds=len(rounds),
        p50_ms=spread(one[way].p50 * 1e3 for one in rounds),
        p99_ms=spread(one[way].p99 * 1e3 for one in rounds),
        p50_ratio=spread(one[way].p50 / one[KEYED].p50 for one in rounds),
        commits=spread(one[way].commits for one in rounds),
    )


def _timed(
    gateway_process: GatewayProcess, mcp_client: McpClient, make: Callable[[McpClient], None], each: int
) -> _Sample:
    tallied, times = Tallied(gateway_process), []
    for _ in range(each):
        began = time.perf_counter()
        make(mcp_client)
        times.append(time.perf_counter() - began)
    times.sort()
    return _Sample(percentile(times, 0.50), percentile(times, 0.99), tallied.commits() / each)


def _plain(mcp_client: McpClient) -> None:
    for _ in range(_STEPS):
        _ask(mcp_client, _CALL)


def _keyed(mcp_client: McpClient) -> None:
    for _ in range(_STEPS):
        _ask(mcp_client, _CALL | {"_meta": {"io.headgate/idempotencyKey": secrets.token_hex(16)}})


def _grouped(mcp_client: McpClient) -> None:
    begun = _ask(mcp_client, {"name": BEGIN_TOOL, "arguments": {}})
    named = {"transaction_id": begun["structuredContent"]["transaction_id"]}
    undone = {"tool": _CALL["name"], "args": {"path": "$arguments.path"}}
    step = named | {"tool": _CALL["name"], "args": _CALL["arguments"], "compensate": undone}
    for number in range(_STEPS):
        _ask(mcp_client, {"name": STEP_TOOL, "arguments": step | {"sequence": number + 1}})
    _ask(mcp_client, {"name": COMMIT_TOOL, "arguments": named})


def _ask(mcp_client: McpClient, params: dict[str, Any]) -> dict[str, Any]:
    body = mcp_client.exchange(mcp_client.request("tools/call", params))[1]
    result: dict[str, Any] = msgspec.json.decode(body).get("result", {})
    if not result or result.get("isError"):
        raise Unreadable(f"{params['name']}: {body[:300]!r}")
    return result
