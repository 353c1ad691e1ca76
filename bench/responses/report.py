"""Prints the tables of section `responses`."""

from collections.abc import Sequence

from bench.responses.measured import Measured
from bench.responses.tables import TABLES
from bench.retrieval.goals import Goal
from bench.tables import table


def report(measured: Measured, goals: Sequence[Goal]) -> str:
    """Everything that was measured, goals last."""
    parts = []
    for title, make in TABLES.values():
        header, rows = make(measured)
        parts.append(table(f"responses, {title}", header, rows))
    judged = [(one.text, one.measured, "met" if one.met else "MISSED") for one in goals]
    return "\n".join([*parts, table("responses, goals", ("goal", "measured", ""), judged)])
