"""Section `clients`: what one small request costs our HTTP client, and what it costs the usual ones."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

import msgspec

from bench import machine
from bench.candidates import http_upstream_command
from bench.options import Options
from bench.path.summary import Figure
from bench.peers.install import python_of
from bench.peers.posting import CLIENTS, REQUEST_BYTES
from bench.process import ROOT, StartFailed, running
from bench.readiness import wait_for_port
from bench.tables import figure, table
from testkit.gateway_process import free_port

_OURS: Final = "headgate"
_REQUESTS: Final = 2_000
_ROUNDS: Final = 5
_STOP_SECONDS: Final = 5.0


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One client: medians over the rounds and extremes; the ratio is taken within each round."""

    client: str
    version: str
    cpu_us: Figure
    cpu_to_ours: Figure
    requests_per_second: Figure


class Poster:
    """The harness's end of one client's process."""

    def __init__(self, client: str, stdin: IO[str], stdout: IO[str]) -> None:
        self.client = client
        self._stdin, self._stdout = stdin, stdout
        self.version = str(self._answer()["version"])

    def round(self, requests: int) -> tuple[float, float]:
        """CPU and wall clock seconds per request. Raises StartFailed when the process has died."""
        self._stdin.write(json.dumps({"requests": requests}) + "\n")
        self._stdin.flush()
        answer = self._answer()
        return answer["cpu"] / requests, answer["seconds"] / requests

    def _answer(self) -> dict[str, Any]:
        line = self._stdout.readline()
        if not line:
            raise StartFailed(f"the process of {self.client} ended; see its message above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def run(options: Options) -> dict[str, object]:
    """Measure every client in turns, print one table and return its figures."""
    rounds, requests = (1, 200) if options.quick else (_ROUNDS, _REQUESTS)
    load_before = machine.load_average()
    with ExitStack() as stack:
        port = free_port()
        pid = stack.enter_context(running(http_upstream_command(port)))
        wait_for_port(port, pid, "the HTTP upstream")
        url = f"http://127.0.0.1:{port}/mcp"
        posters = [stack.enter_context(poster(_python(client), client, url)) for client in CLIENTS]
        lines = measure(posters, rounds, requests)
    print(_report(lines))
    return {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "rounds": rounds,
        "requests_per_round": requests,
        "clients": msgspec.to_builtins(lines),
    }


@contextmanager
def poster(python: Path, client: str, url: str) -> Iterator[Poster]:
    """A process with one client, ready to post. Raises StartFailed."""
    # A proxy of the machine's must not stand between a client and the loopback address.
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = subprocess.Popen(
        [str(python), "-m", "bench.peers.posting", client, url],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Poster(client, process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(posters: list[Poster], rounds: int, requests: int) -> list[Line]:
    """Each client in each round; another one begins each time."""
    cpu: dict[str, list[float]] = {one.client: [] for one in posters}
    seconds: dict[str, list[float]] = {one.client: [] for one in posters}
    for turn in range(rounds):
        print(f"bench: clients, round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        first = turn % len(posters)
        for one in (*posters[first:], *posters[:first]):
            spent, took = one.round(requests)
            cpu[one.client].append(spent)
            seconds[one.client].append(took)
    return [
        Line(
            client=one.client,
            version=one.version,
            cpu_us=_figure([spent * 1e6 for spent in cpu[one.client]]),
            cpu_to_ours=_figure(
                [theirs / ours for theirs, ours in zip(cpu[one.client], cpu[_OURS], strict=True)]
            ),
            requests_per_second=_figure([1 / took for took in seconds[one.client]]),
        )
        for one in posters
    ]


def _python(client: str) -> Path:
    return Path(sys.executable) if client == _OURS else python_of("clients")


def _figure(values: list[float]) -> Figure:
    return Figure(median(values), min(values), max(values))


def _report(lines: list[Line]) -> str:
    header = ("client", "CPU/request us", "low..high", "x headgate", "requests/s")
    rows = [
        [
            f"{one.client} {one.version}",
            figure(one.cpu_us.median),
            f"{figure(one.cpu_us.low)}..{figure(one.cpu_us.high)}",
            figure(one.cpu_to_ours.median),
            figure(one.requests_per_second.median),
        ]
        for one in lines
    ]
    return table(f"HTTP clients: POST of {REQUEST_BYTES} bytes, keep-alive, 16 in flight", header, rows)
