"""What the load process is asked to do and what it reports, as values that cross the pipe as JSON."""

from typing import Literal

import msgspec

from bench.load.delivery_options import PLAIN, Ticket

Era = Literal["none", "legacy", "modern"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: `lanes` calls in flight for `seconds` or until `calls` have been answered."""

    tool: str
    result_bytes: int
    lanes: int
    seconds: float
    calls: int = 1_000_000
    warm_up_seconds: float = 0.2
    # Calls in flight when the time is over are waited for, or given up uncounted.
    give_up: bool = False
    # Over HTTP: where to, how the client introduces itself, and whose CPU is counted.
    port: int = 0
    path: str = "/mcp"
    era: Era = "legacy"
    delivery_request: Ticket = PLAIN
    pid: int = 0
    # Over stdio: the command to start, whose own CPU is counted.
    command: list[str] = []


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement found; times in seconds."""

    calls: int
    errors: int
    given_up: int
    first_error: str
    elapsed: float
    cpu: float
    generator_cpu: float
    p50: float
    p99: float

    @property
    def cpu_per_call(self) -> float:
        """Seconds of CPU that the measured process spent on one call."""
        return self.cpu / self.calls if self.calls else 0.0

    @property
    def calls_per_second(self) -> float:
        """Calls answered per second of wall clock."""
        return self.calls / self.elapsed if self.elapsed else 0.0


class Ready(msgspec.Struct, frozen=True):
    """The first line of the load process: it listens."""

    ready: bool = True
