"""What `headgate eval` has found out: one value for the table, and the same as JSON."""

from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.catalog.evaluation.asking import Answer, Pace, pace
from headgate.catalog.evaluation.check import Asked, Check, Confusion, ServerRecall, Weakness, check
from headgate.catalog.evaluation.labelled import LabelledSet, Question
from headgate.catalog.evaluation.metrics import Metrics, measure
from headgate.catalog.search.document import Document

# Of a request that missed, so many of the tools that it found are told.
_TOLD: Final = 5


class MissedQuestion(msgspec.Struct, frozen=True):
    """A request that did not find all that it wants among the first five."""

    request: str
    # Of each group one is wanted.
    wanted: tuple[tuple[str, ...], ...]
    # The groups of which none was found.
    missing: tuple[tuple[str, ...], ...]
    found: tuple[str, ...]


class Unreached(msgspec.Struct, frozen=True):
    """A server whose tools nobody knows, and why."""

    name: str
    reason: str


class SetReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="set"):
    """How well a labelled set is found."""

    version: str
    set: str
    # None is words alone.
    model: str | None
    tools: int
    metrics: Metrics
    # How many requests were answered with nothing.
    unanswered: int
    # How many were answered by words alone although there is a model.
    without_model: int
    time: Pace
    # Kept by the set for the end, and not asked.
    left_out: int
    misses: tuple[MissedQuestion, ...]


class CatalogReport(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="catalog"):
    """How well the tools of the operator's own servers are found."""

    version: str
    model: str | None
    tools: int
    metrics: Metrics
    unanswered: int
    without_model: int
    time: Pace
    servers: tuple[ServerRecall, ...]
    unreached: tuple[Unreached, ...]
    confusions: tuple[Confusion, ...]
    weaknesses: tuple[Weakness, ...]


Report = SetReport | CatalogReport


def report_on_set(
    name: str, labelled: LabelledSet, answers: Sequence[Answer], *, version: str, model: str | None
) -> SetReport:
    """Judge the answers to the questions of a set."""
    found = [[labelled.identifiers[key] for key in answer.keys] for answer in answers]
    groups = [question.groups for question in labelled.questions]
    misses = [
        miss
        for question, one in zip(labelled.questions, found, strict=True)
        if (miss := _missed(question, one[:_TOLD])).missing
    ]
    return SetReport(
        version=version,
        set=name,
        model=model,
        tools=len(labelled.items),
        metrics=measure(list(zip(groups, found, strict=True))),
        unanswered=_unanswered(answers),
        without_model=_without_model(answers, model),
        time=pace(answers),
        left_out=labelled.left_out,
        misses=tuple(sorted(misses, key=lambda one: -len(one.missing) / len(one.wanted))),
    )


def _missed(question: Question, found: Sequence[str]) -> MissedQuestion:
    wanted = [tuple(sorted(group)) for group in question.groups]
    missing = [group for group in wanted if not set(group) & set(found)]
    return MissedQuestion(question.text, tuple(wanted), tuple(missing), tuple(found))


def report_on_catalog(
    documents: Sequence[Document],
    asked: Sequence[Asked],
    answers: Sequence[Answer],
    unreached: Sequence[Unreached],
    *,
    version: str,
    model: str | None,
) -> CatalogReport:
    """Judge the answers to requests that were made up."""
    checked: Check = check(documents, asked, [answer.keys for answer in answers])
    return CatalogReport(
        version=version,
        model=model,
        tools=len(documents),
        metrics=checked.metrics,
        unanswered=_unanswered(answers),
        without_model=_without_model(answers, model),
        time=pace(answers),
        servers=checked.servers,
        unreached=tuple(unreached),
        confusions=checked.confusions,
        weaknesses=checked.weaknesses,
    )


def at_most(report: Report, rows: int) -> Report:
    """The report with so many rows of each list of findings, the worst first as they are."""
    if isinstance(report, SetReport):
        return msgspec.structs.replace(report, misses=report.misses[:rows])
    return msgspec.structs.replace(
        report, confusions=report.confusions[:rows], weaknesses=report.weaknesses[:rows]
    )


def _unanswered(answers: Sequence[Answer]) -> int:
    return sum(not answer.keys for answer in answers)


def _without_model(answers: Sequence[Answer], model: str | None) -> int:
    # An answer with nothing in it does not say who gave it.
    return sum(bool(answer.keys) and not answer.by_meaning for answer in answers) if model else 0
