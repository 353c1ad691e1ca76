"""How a section that has goals tells what it has measured: on the terminal, and as figures to be kept."""

from collections.abc import Mapping, Sequence

import msgspec

from bench import machine
from bench.pages import Table
from bench.retrieval.goals import Goal
from bench.tables import table


class Run:
    """One run of a section, from before its first measurement."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._load_before = machine.load_average()

    def told(
        self, measured: msgspec.Struct, tables: Mapping[str, Table], goals: Sequence[Goal]
    ) -> dict[str, object]:
        """Print the tables by their titles, goals last, and return the figures."""
        print(report(self._section, tables, goals))
        figures: dict[str, object] = msgspec.to_builtins(measured)
        return figures | {
            "machine": machine.describe_python(),
            "load_before": self._load_before,
            "load_after": machine.load_average(),
            "goals": msgspec.to_builtins(goals),
        }


def report(section: str, tables: Mapping[str, Table], goals: Sequence[Goal]) -> str:
    """Every table that has rows, and the goals."""
    parts = [table(f"{section}, {title}", *one) for title, one in tables.items() if one[1]]
    judged = [(one.text, one.measured, "met" if one.met else "MISSED") for one in goals]
    return "\n".join([*parts, table(f"{section}, goals", ("goal", "measured", ""), judged)])
