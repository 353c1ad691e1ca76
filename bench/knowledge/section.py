"""Section `knowledge`: how well and how soon the team's documents are found, and what an answer takes."""

from typing import Final

from bench.knowledge import latency, quality
from bench.knowledge.goals import goals
from bench.knowledge.ingestion_rate import ingested
from bench.knowledge.measured import Measured
from bench.knowledge.scenario import spent
from bench.knowledge.server import running
from bench.knowledge.sets import MANUAL, NAMES, of_tools, read
from bench.knowledge.tables import TABLES
from bench.options import Options
from bench.reporting import Run
from bench.retrieval.sets import data_directory, read_sets

# Of the sets of tools: larger ones would take most of the time, and say the same.
_MOST_TOOLS: Final = 700


def run(options: Options) -> dict[str, object]:
    """Measure, print the tables and return the figures; a quick run is of the small sets and few chunks."""
    ran = Run("knowledge")
    quick = options.quick
    names = [name for name in NAMES if not (quick and name == MANUAL)]
    with running() as url:
        judged = [quality.measure(read(name), url) for name in names]
    # What is timed comes before what only counts.
    times = latency.latency(latency.QUICK_SIZES if quick else latency.SIZES)
    taken = ingested(quick=quick)
    measured = Measured(
        lines=[line for one in judged for line in one.lines],
        fused=[fused for one in judged for fused in one.fused],
        tools=[] if quick else [line for one in _tools() for line in one.lines],
        needles=[needle for one in judged for needle in one.needles],
        timed=times.timed,
        filled=times.filled,
        ingested=taken,
        spent=[] if quick else spent(),
    )
    tables = {title: make(measured) for title, make in TABLES.values()}
    return ran.told(measured, tables, goals(measured))


def _tools() -> list[quality.Judged]:
    sets = [one for one in read_sets(data_directory()) if one.questions]
    return [quality.measure(of_tools(one), None) for one in sets if len(one.documents) <= _MOST_TOOLS]
