"""What a listing costs in each mode: tokens, the cost of finding what is not shown, time and memory.

The tools are those of the real servers in tests/data/catalogs.jsonl.xz.
"""

from bench.listing.section import run

__all__ = ["run"]
