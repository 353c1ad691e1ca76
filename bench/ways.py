"""Section `ways`: each peer in each of its documented ways, to choose the fastest for section `path`."""

from contextlib import ExitStack
from statistics import median
from typing import Final

from bench.candidates import (
    Candidate,
    Gateway,
    Target,
    fastmcp,
    http_upstream_command,
    npm_mcp_proxy,
    pypi_mcp_proxy,
    started,
    stdio_upstream,
)
from bench.load.generator import Generator, generator
from bench.load.plan import Era, Outcome, Plan
from bench.options import Options
from bench.process import running
from bench.readiness import wait_for_initialize, wait_for_port
from bench.tables import figure, table
from testkit.gateway_process import free_port

Ways = tuple[tuple[tuple[str, ...], Era], ...]

_FASTMCP: Final[Ways] = (
    (("--way", "fresh"), "legacy"),
    (("--way", "fresh", "--json"), "legacy"),
    (("--way", "stateful", "--json"), "legacy"),
    (("--way", "connected"), "legacy"),
    (("--way", "connected", "--json"), "legacy"),
    (("--way", "connected", "--stateless", "--json"), "legacy"),
    (("--way", "connected", "--json"), "modern"),
)
_PYPI: Final[Ways] = (((), "legacy"), (("--stateless",), "legacy"))
_NPM: Final[Ways] = (
    ((), "legacy"),
    (("--no-eventStore",), "legacy"),
    (("--no-eventStore", "--stateless"), "legacy"),
    (("--no-eventStore",), "modern"),
)


def run(options: Options) -> dict[str, object]:
    """Print and return what one small call costs in every way."""
    pace = (1, 0.5) if options.quick else (3, 1.5)
    results: dict[str, object] = {}
    with generator() as load, ExitStack() as stack:
        port = free_port()
        pid = stack.enter_context(running(http_upstream_command(port)))
        wait_for_port(port, pid, "the HTTP upstream")
        for target in (stdio_upstream(), Target("http", url=f"http://127.0.0.1:{port}/mcp")):
            results[target.kind] = _compare(load, target, *pace)
    return {"rounds": pace[0], "ways": results}


def _compare(load: Generator, target: Target, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    with ExitStack() as stack:
        gateways = []
        for way in _ways():
            if target.kind in way.upstreams:
                gateways.append(stack.enter_context(started(way, target)))
                wait_for_initialize(gateways[-1])
                # Discarded: compilers and caches warm up.
                _measure(load, gateways[-1], seconds)
        found: dict[str, list[Outcome]] = {gateway.candidate.name: [] for gateway in gateways}
        for _ in range(rounds):
            for gateway in gateways:
                found[gateway.candidate.name].append(_measure(load, gateway, seconds))
    results = {name: _figures(outcomes) for name, outcomes in found.items()}
    header = ["way", "CPU/call us", "calls/s", "errors"]
    rows = [[name, *map(figure, one.values())] for name, one in results.items()]
    print(table(f"ways: 200 bytes from a {target.kind} upstream, 32 connections", header, rows))
    return results


def _figures(outcomes: list[Outcome]) -> dict[str, float]:
    return {
        "cpu_us": median(one.cpu_per_call * 1e6 for one in outcomes),
        "calls_per_second": median(one.calls_per_second for one in outcomes),
        "errors": sum(one.errors for one in outcomes),
    }


def _ways() -> list[Candidate]:
    return [
        *(
            Candidate("c", _title("FastMCP", way, era), fastmcp(*way), era, ("stdio", "http"))
            for way, era in _FASTMCP
        ),
        *(
            Candidate("d", _title("PyPI", way, era), pypi_mcp_proxy(*way), era, ("stdio",))
            for way, era in _PYPI
        ),
        *(Candidate("e", _title("npm", way, era), npm_mcp_proxy(*way), era, ("stdio",)) for way, era in _NPM),
    ]


def _title(peer: str, way: tuple[str, ...], era: Era) -> str:
    return f"{peer} {' '.join(way) or '(defaults)'}, {era} client"


def _measure(load: Generator, gateway: Gateway, seconds: float) -> Outcome:
    plan = Plan(
        tool="payload_200",
        result_bytes=200,
        lanes=32,
        seconds=seconds,
        port=gateway.port,
        era=gateway.candidate.era,
        pid=gateway.pid,
    )
    return load.run(plan)
