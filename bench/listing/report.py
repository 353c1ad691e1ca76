"""Prints the tables of section `listing`."""

from collections.abc import Sequence

from bench.listing.measured import Measured
from bench.listing.tables import TABLES
from bench.retrieval.goals import Goal
from bench.tables import table


def report(measured: Measured, goals: Sequence[Goal]) -> str:
    """Everything that was measured, goals last."""
    parts = []
    for title, make in TABLES.values():
        header, rows = make(measured)
        if rows:
            parts.append(table(f"listing, {title}", header, rows))
    judged = [(one.text, one.measured, "met" if one.met else "MISSED") for one in goals]
    return "\n".join([*parts, table("listing, goals", ("goal", "measured", ""), judged)])
