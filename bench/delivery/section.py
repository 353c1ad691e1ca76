"""Section `delivery`: what it costs to carry out each call once."""

from bench.delivery.disk import disk
from bench.delivery.goals import goals
from bench.delivery.keyed import keyed
from bench.delivery.library import library
from bench.delivery.measured import Measured
from bench.delivery.plain import plain
from bench.delivery.recovery import recovery
from bench.delivery.tables import TABLES
from bench.delivery.transactions import groups
from bench.load.generator import generator
from bench.options import Options
from bench.reporting import Run


def run(options: Options) -> dict[str, object]:
    """Measure, print the tables and return the figures; a quick run has fewer rounds and rows."""
    ran, quick = Run("delivery"), options.quick
    with generator() as load:
        without, with_records = plain(load, quick=quick), keyed(load, quick=quick)
    measured = Measured(
        disk=disk(),
        plain=without,
        keyed=with_records,
        recovered=recovery(quick=quick),
        grouped=groups(quick=quick),
        library=library(quick=quick),
    )
    tables = {title: make(measured) for title, make in TABLES.values()}
    return ran.told(measured, tables, goals(measured))
