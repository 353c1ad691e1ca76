"""What keeping large results outside of the conversation saves in tokens, and what it costs in time.

The results are made by `workloads.py`, always the same.
"""

from bench.responses.section import run

__all__ = ["run"]
