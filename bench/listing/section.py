"""Section `listing`: what tools/list costs in each mode, and what it costs to reach what it hides."""

from bench.listing.callable_tools import reached
from bench.listing.catalogs import every_catalogue, small, without_second_mode
from bench.listing.counter import counted
from bench.listing.goals import goals
from bench.listing.measured import Measured
from bench.listing.memory import kept
from bench.listing.slim_search import compared
from bench.listing.speed import QUICK_SIZES, SIZES, speed
from bench.listing.tables import TABLES
from bench.listing.tokens import ALL, alone, listed
from bench.listing.uses import FEW, discovery
from bench.options import Options
from bench.reporting import Run


def run(options: Options) -> dict[str, object]:
    """Measure, print the tables and return the figures.

    A quick run has a few servers and leaves out what takes long or needs packages of its own.
    """
    ran = Run("listing")
    quick = options.quick
    every = small(every_catalogue()) if quick else every_catalogue()
    # What is timed comes first: what follows leaves more behind in memory.
    times = speed(every, QUICK_SIZES if quick else SIZES)
    talks = [discovery(FEW, small(every), quick=quick)]
    if not quick:
        talks.append(discovery(ALL, without_second_mode(every), quick=False))
    measured = Measured(
        listed=listed(every, quick=quick),
        alone=alone(every),
        reached=reached(every),
        spent=[one for talk in talks for one in talk.spent],
        found=[one for talk in talks for one in talk.found],
        timed=times.timed,
        sized=times.sized,
        kept=[] if quick else kept(),
        compared=compared(quick=quick),
        counted=None if quick else counted(),
    )
    tables = {title: make(measured) for title, make in TABLES.values()}
    return ran.told(measured, tables, goals(measured))
