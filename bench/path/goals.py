"""The goals that the project set itself for the path, judged from the tables of one run."""

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import msgspec

from bench.candidates import PEERS
from bench.path.summary import Figure, Line, Table
from testkit.servers.prepared_answers import payload_result

# Fewer samples than this say whether everything runs, not whether a goal is met.
_ENOUGH_SAMPLES: Final = 3


class Verdict(msgspec.Struct, frozen=True):
    """One goal and what was measured; `met` is None when a side of it was not measured."""

    goal: str
    measured: str
    met: bool | None
    caveat: str = ""


def judge(tables: list[Table], parse_cpu_us: float) -> list[Verdict]:
    """Every goal, for the stdio upstream with 32 connections unless it says otherwise."""
    small = _find(tables, "200 B", 32)
    large = _find(tables, "10 MB", 1)
    verdicts = [_beside_forwarder(small, key) for key in ("h", "m")]
    verdicts.append(_beside_fastmcp(small))
    verdicts += [_beside_peer(small, peer.key, peer.name) for peer in PEERS]
    verdicts.append(_unparsed(large, parse_cpu_us))
    return verdicts


def parsing_cpu_us(repeats: int = 5) -> float:
    """CPU that a plain json.loads and json.dumps of one 10 MB message takes, in microseconds."""
    message = b'{"jsonrpc":"2.0","id":1,"result":' + payload_result(10_000_000) + b"}"
    took = []
    for _ in range(repeats):
        began = time.process_time()
        json.dumps(json.loads(message))
        took.append(time.process_time() - began)
    return median(took) * 1e6


def _find(tables: list[Table], size: str, connections: int) -> Table | None:
    wanted = ("stdio", size, connections)
    return next((one for one in tables if (one.upstream, one.size, one.connections) == wanted), None)


def _beside_forwarder(table: Table | None, key: str) -> Verdict:
    who = "a legacy client" if key == "h" else "a modern client"
    goal = f"at most 2x the CPU of the bare forwarder, 200 B, {who}"
    line = table.line(key) if table else None
    return _verdict(goal, line, line.cpu_to_forwarder if line else None, lambda ratio: ratio <= 2.0)


def _beside_fastmcp(table: Table | None) -> Verdict:
    goal = "at least 20x less CPU than FastMCP's proxy, 200 B"
    line = table.line("c") if table else None
    ours = table.line("h") if table else None
    return _verdict(goal, ours, line.cpu_to_headgate if line else None, lambda ratio: ratio >= 20.0)


def _beside_peer(table: Table | None, key: str, name: str) -> Verdict:
    goal = f"more than 10x the calls/s of {name}, 200 B"
    line = table.line(key) if table else None
    ours = table.line("h") if table else None
    ratio = line.rate_to_headgate if line else None
    times = Figure(1 / ratio.median, 1 / ratio.high, 1 / ratio.low) if ratio else None
    return _verdict(goal, ours, times, lambda ratio: ratio > 10.0)


def _unparsed(table: Table | None, parse_cpu_us: float) -> Verdict:
    goal = "a 10 MB result is not parsed: less CPU for the whole call than json.loads and json.dumps take"
    line = table.line("h") if table else None
    cpu = line.cpu_us if line else None
    share = None
    if cpu is not None:
        share = Figure(cpu.median / parse_cpu_us, cpu.low / parse_cpu_us, cpu.high / parse_cpu_us)
    return _verdict(goal, line, share, lambda ratio: ratio < 1.0)


def _verdict(goal: str, ours: Line | None, ratio: Figure | None, holds: Callable[[float], bool]) -> Verdict:
    """Judged on the median; the caveat says when the samples do not agree or are too few."""
    if ours is not None and ours.errors:
        return Verdict(goal, "-", met=False, caveat=f"{ours.errors} of Headgate's calls failed")
    if ours is None or ratio is None:
        return Verdict(goal, "-", met=None)
    met = holds(ratio.median)
    caveat = ""
    if ours.rounds < _ENOUGH_SAMPLES:
        caveat = "too few samples to judge"
    elif holds(ratio.low) != holds(ratio.high):
        caveat = "not in every sample"
    return Verdict(goal, f"{ratio.median:.2f}x ({ratio.low:.2f}..{ratio.high:.2f})", met, caveat)
