"""What 10 KB cost the gateway in every public operation, beside what they cost in a plain call (A38)."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from campaign import stored_results
from campaign.own_tools import ALL_LISTED, filled, own_tools
from campaign.trial import MEBIBYTE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, Client, client
from testkit.misbehaving_upstreams import load

_BYTES = 10_000
# Ordinary words; what is made to be dear is tried in A01 to A06, B02 and B08.
_TEXT = ("the quick brown fox reads stored results of 17 servers " * 200)[:_BYTES]
_MOST_TIMES = 100
# What is opened or cached with the first of a kind is not what a request costs.
_WARM_ROUNDS = 30
_REQUESTS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": {"y": _TEXT}}},
                   "clientInfo": {"name": "campaign", "version": _TEXT}},
    "ping": {"text": _TEXT},
    "tools/list": {"cursor": _TEXT},
    "prompts/list": {"cursor": _TEXT},
    "prompts/get": {"name": _TEXT, "arguments": {"text": _TEXT}},
    "resources/list": {"cursor": _TEXT},
    "resources/read": {"uri": f"load://{_TEXT}"},
    "resources/templates/list": {"cursor": _TEXT},
    "resources/subscribe": {"uri": f"load://{_TEXT}"},
    "resources/unsubscribe": {"uri": f"load://{_TEXT}"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": _TEXT},
                            "argument": {"name": "a", "value": _TEXT}},
    "logging/setLevel": {"level": _TEXT},
    "tools/call": {"name": _TEXT, "arguments": {}},
    "tasks/get": {"taskId": _TEXT},
    "rmcp/chunk": {"transfer": _TEXT},
    "no/such/method": {"text": _TEXT},
}  # fmt: skip

Operation = Callable[[], Awaitable[object]]


@case(
    "A38",
    "10 KB of text in every argument of every method, own tool and HTTP route, with 175 tools listed",
    "at most 100 times the CPU of a plain call with 10 KB, and 100 times 10 KB of memory and of answer",
    quick_seconds=90,
    full_seconds=240,
)
async def amplification(trial: Trial) -> None:
    """A short request does not make the gateway work much."""
    rounds = trial.size(quick=3, full=20)
    servers = {f"load{number}": load() for number in range(25)}
    async with (
        trial.gateway(servers, settings=ALL_LISTED, spare_files=8) as gateway,
        client(gateway.port) as caller,
    ):
        stored = stored_results.id_of(await caller.call("load0_report", {"text": "a38", "size": 100_000}))
        operations = await _operations(gateway, caller, list(servers), stored)

        async def plain() -> object:
            return await caller.call("load0_echo", {"text": _TEXT[:7_000]})

        base, _, _ = await _cost(gateway, plain, 10 * rounds)
        costs = {name: await _cost(gateway, run, rounds) for name, run in operations.items()}
        _judge(trial, base, costs)


async def _operations(
    gateway: AsyncGatewayProcess, caller: Client, servers: list[str], stored: str
) -> dict[str, Operation]:
    operations: dict[str, Operation] = {}
    for method, params in _REQUESTS.items():
        operations[method] = _bound(caller.request, method, params)
    for name, definition in (await own_tools(gateway, servers)).items():
        arguments = filled(definition, _TEXT)
        if "cache_id" in arguments:
            # Of a result that exists, with one large argument at a time, which the others would hide.
            for key in set(arguments) - {"cache_id"}:
                one = {"cache_id": stored, **_NEEDED.get(name, {}), key: arguments[key]}
                operations[f"{name}.{key}"] = _bound(caller.call, name, one)
        operations[name] = _bound(caller.call, name, arguments)
    head = {"Content-Type": "application/json", "Accept": ACCEPT, "Connection": "close"}
    for path in ("/mcp", "/messages", "/health", "/ready", "/metrics", "/listing", "/", "/none"):
        for verb in ("GET", "POST"):
            body = _TEXT.encode() if verb == "POST" else None
            request = http1.request(gateway.port, verb, f"{path}?q={'q' * 9_000}", head, body)
            operations[f"{verb} {path}"] = _bound(_exchange, gateway.port, request)
    return operations


_NEEDED: dict[str, dict[str, Any]] = {
    "proxy_search": {"pattern": "fox"},
    "proxy_filter": {"fields": ["a"]},
    "proxy_query": {"sql": "SELECT count(*) FROM rows"},
}


def _bound(run: Callable[..., Awaitable[object]], *arguments: Any) -> Operation:
    return lambda: run(*arguments)


async def _exchange(port: int, request: bytes) -> http1.Heard:
    return await http1.converse(port, request, quiet_seconds=0.05, limit_seconds=5)


async def _cost(gateway: AsyncGatewayProcess, run: Operation, rounds: int) -> tuple[float, float, int]:
    """CPU seconds of the gateway and its processes for one call, growth of memory, and bytes of an answer."""
    for _ in range(_WARM_ROUNDS):
        answer = await run()
    usage, workers = Usage(gateway), stored_results.WorkerMemory(gateway)
    before, held = _cpu_seconds(gateway), workers.peak_mib
    for _ in range(rounds):
        answer = await run()
    cpu = (_cpu_seconds(gateway) - before) / rounds
    size = len(answer.data if isinstance(answer, http1.Heard) else getattr(answer, "raw", b""))
    return cpu, usage.peak_growth_mib + max(0.0, workers.peak_mib - held), size


def _cpu_seconds(gateway: AsyncGatewayProcess) -> float:
    """Of all threads of the gateway and its processes for large results, to the nanosecond."""
    return sum(_run_nanoseconds(pid) for pid in (gateway.pid, *gateway.workers())) / 1e9


def _run_nanoseconds(pid: int) -> int:
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except OSError:
            continue
    return total


def _judge(trial: Trial, base: float, costs: dict[str, tuple[float, float, int]]) -> None:
    by_cpu = max(costs, key=lambda name: costs[name][0])
    by_memory = max(costs, key=lambda name: costs[name][1])
    by_bytes = max(costs, key=lambda name: costs[name][2])
    trial.measure("operations", len(costs))
    trial.measure("a plain call", base * 1e6, "us")
    trial.measure("worst CPU", f"{costs[by_cpu][0] / base:.1f} x ({by_cpu}, {costs[by_cpu][0] * 1e3:.2f} ms)")
    trial.measure("worst memory", f"{costs[by_memory][1] * MEBIBYTE / _BYTES:.1f} x ({by_memory})")
    trial.measure("worst answer", f"{costs[by_bytes][2] / _BYTES:.1f} x ({by_bytes})")
    slow = {name: f"{cost[0] / base:.0f} x" for name, cost in costs.items() if cost[0] >= _MOST_TIMES * base}
    large = {
        name: f"{cost[1]:.2f} MB"
        for name, cost in costs.items()
        if cost[1] * MEBIBYTE >= _MOST_TIMES * _BYTES
    }
    long = {name: cost[2] for name, cost in costs.items() if cost[2] >= _MOST_TIMES * _BYTES}
    trial.check("there were operations", len(costs) >= 40, len(costs))
    trial.check("CPU below 100 times", not slow, slow)
    trial.check("memory below 100 times", not large, large)
    trial.check("answers below 100 times", not long, long)
