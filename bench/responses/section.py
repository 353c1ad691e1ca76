"""Section `responses`: what large results cost that stay outside of the conversation."""

import msgspec

from bench import machine
from bench.options import Options
from bench.responses.carried import carried, large_texts
from bench.responses.compact import compact
from bench.responses.desk import gateway, serving
from bench.responses.goals import goals
from bench.responses.measured import Measured
from bench.responses.passing import passed
from bench.responses.report import report
from bench.responses.speed import QUICK_SIZES, SIZES, speed
from bench.responses.talks import definitions, talks, workloads


def run(options: Options) -> dict[str, object]:
    """Measure, print the tables and return the figures; a quick run has smaller results."""
    load_before = machine.load_average()
    # What is timed comes first: what follows leaves more behind in memory.
    quick = options.quick
    timed = speed(QUICK_SIZES, 0.0) if quick else speed(SIZES)
    texts = workloads()
    with serving(texts | large_texts(quick=quick)) as address:
        with gateway(address, {}) as house:
            through, talked = carried(house, quick=quick), talks(house, texts)
        whole = passed(address, quick=quick)
    measured = Measured(
        talks=talked,
        definitions=definitions(),
        timed=timed,
        carried=through,
        passed=whole,
        compact=compact(),
    )
    judged = goals(measured)
    print(report(measured, judged))
    figures: dict[str, object] = msgspec.to_builtins(measured)
    return figures | {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "goals": msgspec.to_builtins(judged),
    }
