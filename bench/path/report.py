"""The tables of the path as text."""

from collections.abc import Iterator

from bench.path.goals import Verdict
from bench.path.growth import Growth
from bench.path.startup import Start
from bench.path.summary import Figure, Line, Table
from bench.tables import figure, table

_HEADER = (
    "candidate",
    "CPU/call us",
    "low..high",
    "x (b)",
    "x headgate",
    "calls/s",
    "low..high",
    "x headgate",
    "p50 ms",
    "p99 ms",
    "added p50",
    "added p99",
    "errors",
)


def scenario(one: Table) -> str:
    """One scenario with its ratios."""
    text = table(one.title, _HEADER, [_cells(line) for line in one.lines])
    return "\n".join([text, *_remarks(one)])


def _cells(line: Line) -> list[str]:
    return [
        f"({line.key}) {line.name}",
        _median(line.cpu_us),
        _spread(line.cpu_us),
        _median(line.cpu_to_forwarder),
        _median(line.cpu_to_headgate),
        _median(line.calls_per_second),
        _spread(line.calls_per_second),
        _median(line.rate_to_headgate),
        _median(line.p50_ms),
        _median(line.p99_ms),
        figure(line.added_p50_ms),
        figure(line.added_p99_ms),
        str(line.errors),
    ]


def _remarks(one: Table) -> Iterator[str]:
    for line in one.lines:
        if line.given_up:
            yield f"({line.key}) measured once: {line.calls} calls answered, {line.given_up} given up"
        if line.first_error:
            yield f"({line.key}) first error: {line.first_error}"


def starts(found: list[Start], idle: dict[str, int], loaded: dict[str, int]) -> str:
    """Start-up times and memory."""
    header = ("candidate", "/health s", "initialize s", "first call s", "RSS idle MB", "RSS after load MB")
    rows = [
        [
            f"({one.key}) {one.name}",
            figure(one.health_seconds),
            figure(one.initialize_seconds),
            figure(one.call_seconds),
            _megabytes(idle.get(one.key, one.resident_bytes)),
            _megabytes(loaded.get(one.key)),
        ]
        for one in found
    ]
    return table("start-up and memory, one stdio upstream", header, rows)


def growth(found: list[Growth]) -> str:
    """Headgate with more tools and more upstreams."""
    header = (
        "upstreams x tools",
        "all ready s",
        "RSS MB",
        "listed",
        "pages",
        "list bytes",
        "list ms",
        "CPU/call us",
        "calls/s",
        "errors",
    )
    rows = [
        [
            f"{one.upstreams} x {one.tools}",
            figure(one.ready_seconds),
            _megabytes(one.resident_bytes),
            str(one.listed_tools),
            str(one.list_pages),
            f"{one.list_bytes:,}",
            figure(one.list_ms),
            figure(one.cpu_us),
            figure(one.calls_per_second),
            str(one.errors),
        ]
        for one in found
    ]
    return table("growth of headgate, 200 B, 32 connections", header, rows)


def goals(verdicts: list[Verdict]) -> str:
    """Each goal, what was measured, whether it was met, and whether one would bet on it."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    rows = [[one.goal, one.measured, words[one.met], one.caveat] for one in verdicts]
    return table("goals", ("goal", "measured", "verdict", "caveat"), rows)


def _median(value: Figure | None) -> str:
    return figure(value.median if value else None)


def _spread(value: Figure | None) -> str:
    return f"{figure(value.low)}..{figure(value.high)}" if value else "-"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:.1f}"
