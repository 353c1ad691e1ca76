"""Made-up figures of section `delivery`, to test its tables and goals."""

from typing import Final

from bench.delivery import keyed, library, transactions
from bench.delivery.disk import Disk
from bench.delivery.keyed import Keyed
from bench.delivery.library import Library, Weight, Wrapped
from bench.delivery.measured import Measured
from bench.delivery.plain import AGAIN, BEFORE, NOW, Beside
from bench.delivery.recovery import Recovered
from bench.delivery.transactions import Grouped
from bench.path.summary import Figure

FIGURE: Final = Figure(1.0, 1.0, 1.0)


def _beside(code: str) -> Beside:
    return Beside(
        code=code,
        era="legacy",
        connections=50,
        calls=10,
        errors=0,
        cpu_us=FIGURE,
        p50_ms=FIGURE,
        p99_ms=FIGURE,
        cpu_ratio=FIGURE,
        p50_ratio=FIGURE,
    )


def _keyed(way: str, connections: int) -> Keyed:
    return Keyed(
        way=way,
        connections=connections,
        rounds=1,
        calls=10,
        errors=0,
        first_error="",
        p50_ms=FIGURE,
        p99_ms=FIGURE,
        calls_per_second=FIGURE,
        cpu_us=FIGURE,
        p50_ratio=FIGURE,
        p99_ratio=FIGURE,
        rate_ratio=FIGURE,
        cpu_ratio=FIGURE,
        added_p50_ms=FIGURE,
        added_p99_ms=FIGURE,
        commits_per_call=FIGURE,
    )


def _recovered(rows: int, left_open: int) -> Recovered:
    return Recovered(
        rows=rows,
        open=left_open,
        rounds=1,
        ready_seconds=FIGURE,
        settled_seconds=FIGURE,
        answered=left_open,
        in_doubt=0,
        bytes=rows,
    )


def _grouped(way: str) -> Grouped:
    return Grouped(
        way=way, requests=3, rounds=1, p50_ms=FIGURE, p99_ms=FIGURE, p50_ratio=FIGURE, commits=FIGURE
    )


def _wrapped(peer: str, way: str) -> Wrapped:
    return Wrapped(
        peer=peer,
        way=way,
        rounds=1,
        p50_us=FIGURE,
        p99_us=FIGURE,
        p50_ratio=FIGURE,
        p99_ratio=FIGURE,
        added_p50_us=FIGURE,
        added_p99_us=FIGURE,
        cpu_us=FIGURE,
        added_cpu_us=FIGURE,
    )


MEASURED: Final = Measured(
    disk=Disk(p50_ms=1.0, p99_ms=2.0),
    plain=[_beside(code) for code in (BEFORE, AGAIN, NOW)],
    keyed=[_keyed(way, connections) for connections in keyed.CONNECTIONS for way in keyed.WAYS],
    recovered=[_recovered(0, 0), _recovered(1000, 10)],
    grouped=[_grouped(way) for way in (transactions.PLAIN, transactions.KEYED, transactions.GROUPED)],
    library=Library(
        calls=[
            _wrapped(peer, way)
            for peer in (library.MEMORY, library.HTTP)
            for way in (library.BARE, library.PLAIN, library.KEYED)
        ],
        weight=Weight(session=1000, key=500),
    ),
)
