"""Section `start`: what a start costs: imports in fresh processes, and the gateway until it is healthy."""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench import machine
from bench.candidates import Candidate, Target, headgate_command, started
from bench.options import Options
from bench.peers.install import python_of
from bench.process import ROOT, StartFailed
from bench.readiness import wait_for_health, wait_for_servers
from bench.tables import figure, table
from testkit.procfs import cpu_seconds, peak_resident_bytes, resident_bytes

_ROUNDS: Final = 10
_OURS: Final = ("", "headgate.app", "headgate.cli.commands", "msgspec, click")
_OTHERS: Final = (
    "",
    "pydantic_settings",
    "typer",
    "pydantic_settings, typer",
    "aiohttp",
    "uvicorn",
    # The package imports nothing by itself; an application needs the second.
    "starlette",
    "starlette.applications",
)
# An import takes well under a second.
_IMPORT_SECONDS: Final = 30.0
# Not ru_maxrss: Linux hands that down to a new program from the process that started it, here the harness.
# Nothing is imported for the telling that would count as well.
_TELL: Final = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print((used.ru_utime + used.ru_stime) * 1e3, int(peak) * 1024)
"""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One process, medians over the rounds."""

    what: str
    cpu_ms: float
    peak_bytes: int
    # Of the gateway alone: an import ends, it does not rest.
    idle_bytes: int | None = None
    health_seconds: float | None = None


def run(options: Options) -> dict[str, object]:
    """Measure imports and the gateway in turns, print one table and return its figures."""
    rounds = 1 if options.quick else _ROUNDS
    load_before = machine.load_average()
    lines = _measure(rounds)
    print(_report(lines))
    return {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "rounds": rounds,
        "lines": msgspec.to_builtins(lines),
    }


def import_in_a_fresh_process(python: Path, modules: str, environment: str) -> Line:
    """What a process spends that imports the modules, or nothing, and ends. Raises StartFailed."""
    code = f"import {modules}{_TELL}" if modules else _TELL
    done = subprocess.run(
        [str(python), "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_IMPORT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise StartFailed(f"import {modules} failed:\n{done.stderr[-3000:]}")
    cpu_ms, peak_bytes = done.stdout.split()
    what = f"import {modules}" if modules else f"nothing imported, {environment}"
    return Line(what=what, cpu_ms=float(cpu_ms), peak_bytes=int(peak_bytes))


def serve() -> Line:
    """One start of the gateway with the example configuration, until all is ready. Raises StartFailed."""
    began = time.perf_counter()
    with started(_EXAMPLE, Target("stdio")) as gateway:
        health = wait_for_health(gateway) - began
        wait_for_servers(gateway, 1)
        # Before the peak, which may still rise between the two readings.
        idle = resident_bytes(gateway.pid)
        return Line(
            what=_EXAMPLE.name,
            cpu_ms=cpu_seconds(gateway.pid) * 1e3,
            peak_bytes=peak_resident_bytes(gateway.pid),
            idle_bytes=idle,
            health_seconds=health,
        )


def _example(target: Target, port: int, home: Path) -> list[str]:
    return headgate_command((ROOT / "examples" / "headgate.json").read_text(), port, home)


_EXAMPLE: Final = Candidate("h", "headgate serve, example server", _example, "legacy", ("stdio",))


def _measure(rounds: int) -> list[Line]:
    ours, others = Path(sys.executable), python_of("clients")
    found: dict[str, list[Line]] = {}
    # The first round is discarded: it writes what Python compiles, and fills the caches of the disk.
    for turn in range(rounds + 1):
        print(f"bench: start, round {turn} of {rounds}", file=sys.stderr, flush=True)
        lines = [import_in_a_fresh_process(ours, modules, "our environment") for modules in _OURS]
        lines += [import_in_a_fresh_process(others, modules, "theirs") for modules in _OTHERS]
        for line in (*lines, serve()):
            if turn:
                found.setdefault(line.what, []).append(line)
    return [_median(lines) for lines in found.values()]


def _median(lines: list[Line]) -> Line:
    idle = [line.idle_bytes for line in lines if line.idle_bytes is not None]
    health = [line.health_seconds for line in lines if line.health_seconds is not None]
    return Line(
        what=lines[0].what,
        cpu_ms=median(line.cpu_ms for line in lines),
        peak_bytes=int(median(line.peak_bytes for line in lines)),
        idle_bytes=int(median(idle)) if idle else None,
        health_seconds=median(health) if health else None,
    )


def _report(lines: list[Line]) -> str:
    header = ("process", "CPU ms", "peak RSS MB", "idle RSS MB", "/health s")
    rows = [
        [
            one.what,
            figure(one.cpu_ms),
            figure(one.peak_bytes / 1e6),
            figure(one.idle_bytes / 1e6 if one.idle_bytes else None),
            figure(one.health_seconds),
        ]
        for one in lines
    ]
    return table("start: imports in fresh processes, and the gateway until it is ready", header, rows)
