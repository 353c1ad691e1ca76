"""How long the disk takes until it has what was written, on which every figure with a record rests."""

import os
import tempfile
import time
from typing import Final

import msgspec

from bench.load.closed_loop import percentile

_WRITES: Final = 200
_BYTES: Final = 4096


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """Of one page written and asked to be durable, where the ledgers of these measurements are."""

    p50_ms: float
    p99_ms: float


def disk() -> Disk:
    """Pages at the end of a file, one after the other."""
    times = []
    with tempfile.TemporaryFile(prefix="headgate-bench-", buffering=0) as file:
        for _ in range(_WRITES):
            file.write(bytes(_BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return Disk(p50_ms=percentile(times, 0.50), p99_ms=percentile(times, 0.99))
