"""The scenarios of the path and the rows measured in each."""

from dataclasses import dataclass
from typing import Final

from bench.candidates import UpstreamKind
from bench.load.plan import Era, Outcome, Plan


@dataclass(frozen=True, slots=True)
class Size:
    """A result size and the tool that answers with it."""

    label: str
    tool: str
    result_bytes: int


SMALL: Final = Size("200 B", "payload_200", 200)
MEDIUM: Final = Size("100 KB", "payload_100k", 100_000)
LARGE: Final = Size("10 MB", "payload_10m", 10_000_000)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table: which upstream, which size, how many calls in flight."""

    upstream: UpstreamKind
    size: Size
    connections: int

    @property
    def brief(self) -> bool:
        """Whether a quick run measures it."""
        return (self.size is SMALL) == (self.connections > 1)

    @property
    def samples(self) -> int:
        """How often it is measured in one round: goals rest on small results for many clients."""
        return 3 if self.upstream == "stdio" and self.size is SMALL and self.connections > 1 else 1

    @property
    def title(self) -> str:
        """How the table is headed."""
        plural = "connection" if self.connections == 1 else "connections"
        return f"HTTP -> {self.upstream} upstream, {self.size.label}, {self.connections} {plural}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: whom the load process talks to and whose CPU is counted."""

    key: str
    name: str
    pid: int = 0
    port: int = 0
    era: Era = "none"
    command: tuple[str, ...] = ()

    def plan(self, scenario: Scenario, *, seconds: float, give_up: bool = False) -> Plan:
        """The measurement of this row in the scenario."""
        return Plan(
            tool=scenario.size.tool,
            result_bytes=scenario.size.result_bytes,
            lanes=scenario.connections,
            seconds=seconds,
            # Large results are warm after one call; more would only take time from the measurement.
            warm_up_seconds=0.0 if give_up else (0.05 if scenario.size is LARGE else 0.2),
            give_up=give_up,
            port=self.port,
            era=self.era,
            pid=self.pid,
            command=list(self.command),
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One row in one scenario in one sample; samples of the same number were taken side by side."""

    scenario: Scenario
    row: Row
    sample: int
    outcome: Outcome


SCENARIOS: Final = tuple(
    Scenario(upstream, size, connections)
    for upstream in ("stdio", "http")
    for size in (SMALL, MEDIUM, LARGE)
    for connections in (1, 32)
)
