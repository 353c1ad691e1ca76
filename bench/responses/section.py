"""Section `responses`: what large results cost that stay outside of the conversation."""

from bench.options import Options
from bench.reporting import Run
from bench.responses.compact import compact
from bench.responses.conversations import definitions, talks, workloads
from bench.responses.end_to_end import carried, large_texts
from bench.responses.goals import goals
from bench.responses.large_result_gateway import gateway, serving
from bench.responses.measured import Measured
from bench.responses.small_results import passed
from bench.responses.speed import QUICK_SIZES, SIZES, speed
from bench.responses.tables import TABLES


def run(options: Options) -> dict[str, object]:
    """Measure, print the tables and return the figures; a quick run has smaller results."""
    ran = Run("responses")
    # What is timed comes first: what follows leaves more behind in memory.
    quick = options.quick
    timed = speed(QUICK_SIZES, 0.0) if quick else speed(SIZES)
    texts = workloads()
    with serving(texts | large_texts(quick=quick)) as address:
        with gateway(address, {}) as gateway_process:
            through, talked = carried(gateway_process, quick=quick), talks(gateway_process, texts)
        whole = passed(address, quick=quick)
    measured = Measured(
        talks=talked,
        definitions=definitions(),
        timed=timed,
        carried=through,
        passed=whole,
        compact=compact(),
    )
    tables = {title: make(measured) for title, make in TABLES.values()}
    return ran.told(measured, tables, goals(measured))
