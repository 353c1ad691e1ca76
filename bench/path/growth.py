"""How Headgate grows with the number of tools and of upstreams."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.candidates import (
    HEADGATE,
    Gateway,
    Target,
    headgate_command,
    headgate_config,
    stdio_upstream,
)
from bench.load.client import Client
from bench.load.generator import Generator
from bench.path.scenario import SMALL, Row, Scenario
from bench.process import running
from bench.readiness import wait_for_servers
from testkit.gateway_process import free_port
from testkit.procfs import resident_bytes

_TOOLS: Final = (10, 100, 1000)
_UPSTREAMS: Final = (1, 10, 50)
_LISTINGS: Final = 20


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Headgate in front of `upstreams` servers with `tools` tools each."""

    upstreams: int
    tools: int
    ready_seconds: float
    resident_bytes: int
    listed_tools: int
    list_pages: int
    list_bytes: int
    list_ms: float
    cpu_us: float
    calls_per_second: float
    errors: int


def measure(load: Generator, seconds: float, *, rounds: int, sizes: int) -> list[Growth]:
    """The smallest `sizes` steps of each kind; calls are medians over the rounds."""
    steps = [(1, tools) for tools in _TOOLS[:sizes]] + [(upstreams, 10) for upstreams in _UPSTREAMS[1:sizes]]
    found = []
    for upstreams, tools in steps:
        print(f"bench: growth: {upstreams} upstreams of {tools} tools", file=sys.stderr, flush=True)
        found.append(_step(load, upstreams, tools, seconds, rounds))
    return found


def _step(load: Generator, upstreams: int, tools: int, seconds: float, rounds: int) -> Growth:
    targets = {f"up{number:02d}": stdio_upstream(tools) for number in range(upstreams)}
    began = time.perf_counter()
    with _headgate(targets) as gateway:
        ready = wait_for_servers(gateway, upstreams) - began
        resident = resident_bytes(gateway.pid)
        listed, pages, received, list_ms = _list(gateway)
        row = Row("h", HEADGATE.name, pid=gateway.pid, port=gateway.port, era="legacy")
        plan = row.plan(Scenario("stdio", SMALL, 32), seconds=seconds)
        # A tool of the last upstream: a routing that searches would pay for all before it.
        plan = msgspec.structs.replace(plan, tool=f"{max(targets)}_{plan.tool}")
        outcomes = [load.run(plan) for _ in range(rounds)]
        return Growth(
            upstreams=upstreams,
            tools=tools,
            ready_seconds=ready,
            resident_bytes=resident,
            listed_tools=listed,
            list_pages=pages,
            list_bytes=received,
            list_ms=list_ms,
            cpu_us=median(one.cpu_per_call for one in outcomes) * 1e6,
            calls_per_second=median(one.calls_per_second for one in outcomes),
            errors=sum(one.errors for one in outcomes),
        )


@contextmanager
def _headgate(targets: dict[str, Target]) -> Iterator[Gateway]:
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as home,
        running(headgate_command(headgate_config(targets), port, Path(home))) as pid,
    ):
        yield Gateway(HEADGATE, pid, port)


def _list(gateway: Gateway) -> tuple[int, int, int, float]:
    client = Client(gateway.port, "legacy")
    try:
        client.introduce()
        took = []
        for _ in range(_LISTINGS):
            began = time.perf_counter()
            tools, pages, received = client.listing()
            took.append(time.perf_counter() - began)
        return tools, pages, received, median(took) * 1e3
    finally:
        client.leave()
