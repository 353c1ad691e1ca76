"""Section `retrieval-questions`: what the decision records on search rest on."""

import msgspec

from bench import machine
from bench.options import Options
from bench.retrieval.batching import batching, print_batching
from bench.retrieval.sets import data_directory, read_sets
from bench.retrieval.synthetic import print_synthetic, synthetic
from bench.retrieval.top_k import print_top_k, top_k

_QUICK_QUESTIONS = 40


def run(options: Options) -> dict[str, object]:
    """Answer the three questions, print their tables and return the figures."""
    load_before = machine.load_average()
    most = _QUICK_QUESTIONS if options.quick else None
    sets = [one for one in read_sets(data_directory(), most) if one.questions]
    shown = top_k(sets)
    print(print_top_k(shown))
    asked = synthetic(sets)
    print(print_synthetic(asked))
    # Counting tokens needs a package of its own.
    batches = [] if options.quick else batching()
    print(print_batching(batches))
    return {
        "machine": machine.describe_python(),
        "load_before": load_before,
        "load_after": machine.load_average(),
        "top_k": msgspec.to_builtins(shown),
        "synthetic": msgspec.to_builtins(asked),
        "batching": msgspec.to_builtins(batches),
    }
