"""Says in plain text what a report has found out."""

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.catalog.evaluation.columns import columns, printable, wrapped
from headgate.catalog.evaluation.report import CatalogReport, Report, SetReport

_NARROWEST: Final = 60


def worded(report: Report, width: int, rows: int) -> str:
    """The report as text no wider than the terminal, each list of findings with at most so many rows."""
    page = _Page(max(width, _NARROWEST), rows)
    lines = page.of_set(report) if isinstance(report, SetReport) else page.of_catalog(report)
    return "\n".join(lines)


class _Page:
    def __init__(self, width: int, rows: int) -> None:
        self._width = width
        self._rows = rows

    def of_set(self, report: SetReport) -> Iterator[str]:
        asked = _count(report.metrics.questions, "labelled request")
        yield from self._paragraph(f"{report.set}: {asked} over {_count(report.tools, 'tool')}")
        if report.left_out:
            kept = _count(report.left_out, "request")
            yield from self._paragraph(
                f"{kept} of the split 'test' left out, as the set keeps them for the end."
            )
        yield from self._figures(report)
        yield from self._table(
            "Requests that did not find all they want among the first five",
            ("missing", "found first", "request"),
            [
                (_groups(one.missing), one.found[0] if one.found else "nothing", one.request)
                for one in report.misses
            ],
        )

    def of_catalog(self, report: CatalogReport) -> Iterator[str]:
        asked = _count(report.metrics.questions, "request")
        servers = _count(len(report.servers), "server")
        made = "made up from what the tools say of themselves, without the words of their names"
        yield from self._paragraph(f"{_count(report.tools, 'tool')} of {servers}, {asked} {made}")
        for one in report.unreached:
            yield from self._paragraph(f"Not checked: {one.reason}")
        yield from self._figures(report)
        yield from self._table(
            "Servers",
            ("server", "tools", "requests", "R@1", "R@5"),
            [
                (
                    one.name,
                    str(one.tools),
                    str(one.requests),
                    _share(one.recall_at_1),
                    _share(one.recall_at_5),
                )
                if one.requests
                else (one.name, str(one.tools), "0", "-", "-")
                for one in report.servers
            ],
            every=True,
        )
        yield from self._table(
            "Confused: who asks for the first finds the second",
            ("wanted", "found first", "times"),
            [(str(one.wanted), str(one.found), str(one.times)) for one in report.confusions],
        )
        yield from self._table(
            "What to improve",
            ("tool", "found", "how"),
            [
                (str(one.name), f"{one.found} of {one.requests}", "; ".join(one.advice))
                for one in report.weaknesses
            ],
        )

    def _figures(self, report: Report) -> Iterator[str]:
        metrics = report.metrics
        search = f"words and {report.model}" if report.model else "words alone"
        figures = [
            ("search by", search),
            ("R@1", f"{_share(metrics.recall_at_1)}  the right tool is found first"),
            ("R@5", f"{_share(metrics.recall_at_5)}  it is among the first five"),
            ("NDCG@10", f"{_share(metrics.ndcg_at_10)}  how far up it stands"),
            ("nothing found", f"{report.unanswered} of {metrics.questions}"),
            ("time per request", f"p50 {report.time.p50_ms:.2f} ms, p99 {report.time.p99_ms:.2f} ms"),
        ]
        if report.without_model:
            figures.append(("without the model", f"{report.without_model} of {metrics.questions}"))
        yield ""
        yield from (f"  {name:17}  {printable(figure)}" for name, figure in figures)

    def _table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, every: bool = False
    ) -> Iterator[str]:
        if not rows:
            return
        shown = rows if every else rows[: self._rows]
        more = f" ({len(shown)} of {len(rows)}; --limit shows more)" if len(shown) < len(rows) else ""
        yield ""
        yield from self._paragraph(title + more)
        yield from columns(head, shown, self._width)

    def _paragraph(self, text: str) -> list[str]:
        return wrapped(printable(text), self._width)


def _groups(groups: Sequence[Sequence[str]]) -> str:
    return ", ".join(" or ".join(group) for group in groups)


def _share(value: float) -> str:
    return f"{value:.3f}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
