"""The report of `headgate eval`, as values for JSON and as text for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.evaluation.labelled_set import (
    LabelledSet,
    QueryLatency,
    QueryRun,
    RetrievalMetrics,
    measure,
    measure_latency,
)
from headgate.catalog.evaluation.searchability import (
    Confusion,
    HardToFindTool,
    ServerRecall,
    SyntheticQuery,
    check_searchability,
)
from headgate.catalog.search.tool_document import ToolDocument
from headgate.domain.terminal import printable, table_lines, wrap_text

# Found tools that are reported for a query that missed.
_MOST_FOUND_LISTED: Final = 5


class MissedLabelledQuery(msgspec.Struct, frozen=True):
    """A query that did not find all of its tools among the first five."""

    request: str
    # One tool of each group is expected.
    wanted: tuple[tuple[str, ...], ...]
    # The groups of which none was found.
    missing: tuple[tuple[str, ...], ...]
    found: tuple[str, ...]


class UnreachedServer(msgspec.Struct, frozen=True):
    """A server whose tools are unknown, and why."""

    name: str
    reason: str


class LabelledSetReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="set"):
    """The result for a labelled set."""

    version: str
    set: str
    # None for search by words alone.
    model: str | None
    tools: int
    metrics: RetrievalMetrics
    # The number of queries without any result.
    unanswered: int
    # The number of queries answered by words alone although there is a model.
    without_model: int
    time: QueryLatency
    # Held out by the set and not run.
    left_out: int
    misses: tuple[MissedLabelledQuery, ...]


class SearchabilityReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="catalog"):
    """The result for the tools of the operator's own servers."""

    version: str
    model: str | None
    tools: int
    metrics: RetrievalMetrics
    unanswered: int
    without_model: int
    time: QueryLatency
    servers: tuple[ServerRecall, ...]
    unreached: tuple[UnreachedServer, ...]
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[HardToFindTool, ...]


EvaluationReport = LabelledSetReport | SearchabilityReport


def report_on_set(
    name: str, labelled: LabelledSet, answers: Sequence[QueryRun], *, version: str, model: str | None
) -> LabelledSetReport:
    found = [[labelled.identifiers[key] for key in answer.keys] for answer in answers]
    groups = [question.groups for question in labelled.questions]
    misses: list[MissedLabelledQuery] = []
    for question, one in zip(labelled.questions, found, strict=True):
        first = tuple(one[:_MOST_FOUND_LISTED])
        wanted = tuple(tuple(sorted(group)) for group in question.groups)
        missing = tuple(group for group in wanted if not set(group) & set(first))
        if missing:
            misses.append(MissedLabelledQuery(question.text, wanted, missing, first))
    return LabelledSetReport(
        version=version,
        set=name,
        model=model,
        tools=len(labelled.items),
        metrics=measure(list(zip(groups, found, strict=True))),
        **_answer_figures(answers, model),
        left_out=labelled.left_out,
        misses=tuple(sorted(misses, key=lambda one: -len(one.missing) / len(one.wanted))),
    )


def report_on_catalog(
    documents: Sequence[ToolDocument],
    queries: Sequence[SyntheticQuery],
    answers: Sequence[QueryRun],
    unreached: Sequence[UnreachedServer],
    *,
    version: str,
    model: str | None,
) -> SearchabilityReport:
    checked = check_searchability(documents, queries, [answer.keys for answer in answers])
    return SearchabilityReport(
        version=version,
        model=model,
        tools=len(documents),
        metrics=checked.metrics,
        **_answer_figures(answers, model),
        servers=checked.servers,
        unreached=tuple(unreached),
        confusions=checked.confusions,
        weaknesses=checked.weaknesses,
    )


def limit_rows(report: EvaluationReport, rows: int) -> EvaluationReport:
    """The report with at most `rows` rows in each list of findings, worst first."""
    if isinstance(report, LabelledSetReport):
        return msgspec.structs.replace(report, misses=report.misses[:rows])
    return msgspec.structs.replace(
        report, confusions=report.confusions[:rows], weaknesses=report.weaknesses[:rows]
    )


def _answer_figures(answers: Sequence[QueryRun], model: str | None) -> dict[str, Any]:
    # An empty result does not show which engine gave it.
    by_words = sum(bool(answer.keys) and not answer.by_meaning for answer in answers)
    return {
        "unanswered": sum(not answer.keys for answer in answers),
        "without_model": by_words if model else 0,
        "time": measure_latency(answers),
    }


_NARROWEST: Final = 60


def format_report(report: EvaluationReport, width: int, rows: int) -> str:
    """The report as text within the width of the terminal, each list with at most `rows` rows."""
    page = _ReportFormatter(max(width, _NARROWEST), rows)
    lines = page.labelled_set(report) if isinstance(report, LabelledSetReport) else page.searchability(report)
    return "\n".join(lines)


class _ReportFormatter(msgspec.Struct, frozen=True):
    width: int
    rows: int

    def labelled_set(self, report: LabelledSetReport) -> Iterator[str]:
        count = _count(report.metrics.questions, "labelled request")
        yield from self._paragraph(f"{report.set}: {count} over {_count(report.tools, 'tool')}")
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
                (", ".join(map(" or ".join, one.missing)), (*one.found, "nothing")[0], one.request)
                for one in report.misses
            ],
        )

    def searchability(self, report: SearchabilityReport) -> Iterator[str]:
        count = _count(report.metrics.questions, "request")
        servers = _count(len(report.servers), "server")
        made = "made up from what the tools say of themselves, without the words of their names"
        yield from self._paragraph(f"{_count(report.tools, 'tool')} of {servers}, {count} {made}")
        for one in report.unreached:
            yield from self._paragraph(f"Not checked: {one.reason}")
        yield from self._figures(report)
        yield from self._table(
            "Servers",
            ("server", "tools", "requests", "R@1", "R@5"),
            [
                (one.name, str(one.tools), str(one.requests))
                + ((_share(one.recall_at_1), _share(one.recall_at_5)) if one.requests else ("-", "-"))
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

    def _figures(self, report: EvaluationReport) -> Iterator[str]:
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
        limited = rows if every else rows[: self.rows]
        more = f" ({len(limited)} of {len(rows)}; --limit shows more)" if len(limited) < len(rows) else ""
        yield ""
        yield from self._paragraph(title + more)
        yield from table_lines(head, limited, self.width)

    def _paragraph(self, text: str) -> list[str]:
        return wrap_text(printable(text), self.width)


def _share(value: float) -> str:
    return f"{value:.3f}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
