"""How long each candidate needs from the start of its process until it answers."""

import sys
import time
from statistics import median

import msgspec

from bench.candidates import CANDIDATES, HEADGATE, HEADGATE_MODERN, Candidate, started, stdio_upstream
from bench.options import Options
from bench.readiness import wait_for_call, wait_for_health, wait_for_initialize
from testkit.procfs import resident_bytes


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since the process was spawned, medians over the rounds, and memory at rest after one call."""

    key: str
    name: str
    # Headgate alone has a health address, and it answers while upstreams still start.
    health_seconds: float | None
    initialize_seconds: float
    call_seconds: float
    resident_bytes: int


def measure(rounds: int, options: Options) -> list[Start]:
    """Each chosen candidate started `rounds` times in front of one stdio upstream, in turns."""
    chosen = [one for one in CANDIDATES if one.key in options.candidates and one is not HEADGATE_MODERN]
    found: dict[str, list[Start]] = {candidate.key: [] for candidate in chosen}
    for turn in range(rounds):
        print(f"bench: start-up, round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        for candidate in chosen:
            found[candidate.key].append(_start(candidate))
    return [_median(starts) for starts in found.values()]


def _start(candidate: Candidate) -> Start:
    target = stdio_upstream()
    began = time.perf_counter()
    with started(candidate, target) as gateway:
        health = wait_for_health(gateway) - began if candidate is HEADGATE else None
        return Start(
            key=candidate.key,
            name=candidate.name,
            health_seconds=health,
            initialize_seconds=wait_for_initialize(gateway) - began,
            call_seconds=wait_for_call(gateway) - began,
            resident_bytes=resident_bytes(gateway.pid),
        )


def _median(starts: list[Start]) -> Start:
    health = [start.health_seconds for start in starts if start.health_seconds is not None]
    return Start(
        key=starts[0].key,
        name=starts[0].name,
        health_seconds=median(health) if health else None,
        initialize_seconds=median(start.initialize_seconds for start in starts),
        call_seconds=median(start.call_seconds for start in starts),
        resident_bytes=int(median(start.resident_bytes for start in starts)),
    )
