"""The tables of the section as rows of text, for the terminal and for the documentation."""

from collections.abc import Callable
from typing import Final

from bench.delivery.keyed import PLAIN
from bench.delivery.library import BARE
from bench.delivery.measured import Measured
from bench.pages import Table
from bench.path.summary import Figure
from bench.tables import figure


def plain(measured: Measured) -> Table:
    """Plain calls, beside the code of before."""
    header = (
        *("client", "connections", "code", "CPU/call us", "p50 ms", "p99 ms"),
        *("CPU to before", "p50 to before"),
    )
    rows = [
        (
            one.era,
            str(one.connections),
            one.code,
            figure(one.cpu_us.median),
            figure(one.p50_ms.median),
            figure(one.p99_ms.median),
            ranged(one.cpu_ratio),
            ranged(one.p50_ratio),
        )
        for one in measured.plain
    ]
    return header, rows


def keyed(measured: Measured) -> Table:
    """Calls that leave a record, beside plain ones."""
    header = (
        *("connections", "way", "p50 ms", "p99 ms", "calls/s", "CPU/call us", "p50 to plain"),
        *("added p50 ms", "commits per call"),
    )
    rows = [
        (
            str(one.connections),
            one.way,
            figure(one.p50_ms.median),
            figure(one.p99_ms.median),
            figure(one.calls_per_second.median),
            figure(one.cpu_us.median),
            ranged(one.p50_ratio),
            "-" if one.way == PLAIN else figure(one.added_p50_ms.median),
            "-" if one.commits_per_call is None else f"{one.commits_per_call.median:.2f}",
        )
        for one in measured.keyed
    ]
    return header, rows


def recovered(measured: Measured) -> Table:
    """Starts after a kill."""
    header = (
        *("rows in the ledger", "under way", "file MB", "ready s", "settled s", "made again", "in doubt"),
        "starts",
    )
    rows = [
        (
            f"{one.rows:,}",
            f"{one.open:,}",
            f"{one.bytes / 1e6:.1f}",
            ranged(one.ready_seconds),
            ranged(one.settled_seconds),
            f"{one.answered:,}",
            f"{one.in_doubt:,}",
            str(one.rounds),
        )
        for one in measured.recovered
    ]
    return header, rows


def grouped(measured: Measured) -> Table:
    """Transactions."""
    header = ("one after the other", "requests", "p50 ms", "p99 ms", "p50 to three keyed calls", "commits")
    rows = [
        (
            one.way,
            str(one.requests),
            figure(one.p50_ms.median),
            figure(one.p99_ms.median),
            ranged(one.p50_ratio),
            f"{one.commits.median:.0f}",
        )
        for one in measured.grouped
    ]
    return header, rows


def library(measured: Measured) -> Table:
    """The client library, beside the session that it wraps."""
    header = (
        *("peer", "call", "p50 us", "p99 us", "CPU us", "p50 to the SDK", "p99 to the SDK"),
        *("added CPU us", "added request bytes", "added answer bytes"),
    )
    bare = {one.peer: one for one in measured.library.calls if one.way == BARE}
    rows = [
        (
            one.peer,
            one.way,
            figure(one.p50_us.median),
            figure(one.p99_us.median),
            figure(one.cpu_us.median),
            ranged(one.p50_ratio),
            ranged(one.p99_ratio),
            "-" if one.way == BARE else figure(one.added_cpu_us.median),
            *(
                f"{more:,}" if more else "-"
                for more in (
                    one.request_bytes - bare[one.peer].request_bytes,
                    one.answer_bytes - bare[one.peer].answer_bytes,
                )
            ),
        )
        for one in measured.library.calls
    ]
    return header, rows


def ranged(value: Figure) -> str:
    """The median and the extremes."""
    return f"{value.median:.2f} ({value.low:.2f}..{value.high:.2f})"


TABLES: Final[dict[str, tuple[str, Callable[[Measured], Table]]]] = {
    "plain": ("a plain call, beside the code that recorded none", plain),
    "keyed": ("a call with a record, beside a plain one", keyed),
    "recovery": ("a start after a kill", recovered),
    "transaction": ("a transaction", grouped),
    "library": ("the client library", library),
}
