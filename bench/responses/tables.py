"""The tables of the section as rows of text, for the terminal and for the documentation."""

from collections.abc import Callable
from typing import Final

from bench.pages import Table
from bench.responses.measured import Measured
from bench.responses.speed import Timed, growth
from bench.tables import figure

CONTENTS: Final = {
    "log": "1 MB of log, 200 ERROR lines",
    "rows": "100 rows x 15 columns",
    "deep": "a deep API reply",
}


def talks(measured: Measured) -> Table:
    """Tokens that an agent reads, beside the whole."""
    header = ("result", "looked at by", "whole", "read", "saved", "target")
    rows = [
        (
            CONTENTS[one.workload],
            one.way,
            f"{one.whole:,}",
            f"{one.shown:,}",
            f"{one.saved:.1%}",
            "-" if one.claimed is None else f"{one.claimed:.1%}",
        )
        for one in measured.talks
    ]
    return header, rows


def net(measured: Measured) -> Table:
    """The same less what it costs to ask."""
    stubs, whole = measured.definitions["stubs"], measured.definitions["whole"]
    header = (
        *("result", "looked at by", "tokens asked", "saved net of these"),
        *(f"and of tools as stubs ({stubs:,})", f"and of tools in full ({whole:,})"),
    )
    rows = [
        (
            CONTENTS[one.workload],
            one.way,
            f"{one.asked:,}",
            *(f"{one.saved_net(more):.1%}" for more in (0, stubs, whole)),
        )
        for one in measured.talks
    ]
    return header, rows


def steps(measured: Measured) -> Table:
    """Every call of every talk."""
    header = ("result", "call", "tokens asked", "tokens answered")
    rows = [
        (f"{CONTENTS[one.workload]}: {one.way}", step.tool, f"{step.asked:,}", f"{step.answered:,}")
        for one in measured.talks
        for step in one.steps
    ]
    return header, rows


def times(measured: Measured) -> Table:
    """Milliseconds by size, beside the standard library."""
    sizes = sorted({one.size for one in measured.timed})
    header = ["operation", "of"]
    for size in sizes:
        header += [f"{megabytes(size)}, ms", "plain, ms", "x"]
    rows = []
    for operation, kind in dict.fromkeys((one.operation, one.kind) for one in measured.timed):
        own = {one.size: one for one in measured.timed if (one.operation, one.kind) == (operation, kind)}
        cells = [cell for size in sizes for cell in _cells(own[size])]
        rows.append([operation, kind, *cells, f"{growth(measured.timed, operation, kind):.2f}"])
    return [*header, "growth"], rows


def _cells(one: Timed) -> tuple[str, str, str]:
    ratio = f"{one.ratio:.1f}" if one.ratio >= 1 else f"**{one.ratio:.2f}**"
    return figure(one.ms), figure(one.plain_ms), ratio


def rounds(measured: Measured) -> str:
    """How often everything was done."""
    ours = [one.rounds for one in measured.timed]
    plain = [one.plain_rounds for one in measured.timed]
    return f"{min(ours)} to {max(ours)} rounds, the plain version {min(plain)} to {max(plain)}"


def megabytes(size: int) -> str:
    """A size as people say it."""
    return f"{size // 1000:,} KB" if size < 1_000_000 else f"{size / 1e6:g} MB"


def through(measured: Measured) -> Table:
    """Milliseconds through a gateway."""
    header = ("operation", "of", "size", "first time, ms", "p50, ms")
    rows = [
        (one.operation, one.kind, megabytes(one.size), figure(one.first_ms), figure(one.ms))
        for one in measured.carried
    ]
    return header, rows


def passing(measured: Measured) -> Table:
    """Results that are shown whole."""
    header = ("result", "setting", "rounds", "CPU per call, ms", "p50, ms", "x CPU", "least", "most")
    rows = [
        (
            *(one.size, one.way, str(one.rounds), figure(one.cpu_ms), figure(one.p50_ms)),
            *(f"{ratio:.2f}" for ratio in (one.ratio, one.ratio_least, one.ratio_most)),
        )
        for one in measured.passed
    ]
    return header, rows


def compact(measured: Measured) -> Table:
    """Tables with their columns named once."""
    header = ("content", "tokens", "without spaces", "columns named once", "saved")
    rows = [
        (
            one.content,
            f"{one.tokens:,}",
            "-" if one.tight is None else f"{one.tight:,}",
            "left as it is" if one.compact is None else f"{one.compact:,}",
            "-" if one.compact is None else f"{one.saved:.1%}",
        )
        for one in measured.compact
    ]
    return header, rows


# Every table by the name that the documentation has for it, with its title.
TABLES: Final[dict[str, tuple[str, Callable[[Measured], Table]]]] = {
    "tokens": ("tokens read, beside the whole", talks),
    "net": ("the same, net", net),
    "steps": ("every call, in tokens", steps),
    "times": ("ms of CPU by size, beside the standard library", times),
    "gateway": ("ms through a gateway", through),
    "passing": ("results that are shown whole", passing),
    "compact": ("tables with their columns named once, in tokens", compact),
}
