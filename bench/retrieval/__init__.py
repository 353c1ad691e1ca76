"""How well search finds the right tool, and what it costs; which roads were tried.

The sets are directories with `tools.jsonl` and `queries.jsonl` below the one that HEADGATE_RETRIEVAL_DATA
names; without it there is the small set of the tests.
"""

from bench.retrieval.section import run

__all__ = ["run"]
