"""Says how well search finds the tools of a catalog: on labelled requests, or by a check of its own."""

from headgate.catalog.evaluation.asking import Answer, Pace, ask, pace
from headgate.catalog.evaluation.check import Asked, Check, Confusion, Weakness, check, requests_for
from headgate.catalog.evaluation.labelled import (
    BadSet,
    LabelledSet,
    Question,
    read_questions,
    read_set,
    read_tools,
)
from headgate.catalog.evaluation.metrics import Metrics, measure
from headgate.catalog.evaluation.report import (
    CatalogReport,
    Report,
    SetReport,
    Unreached,
    at_most,
    report_on_catalog,
    report_on_set,
)
from headgate.catalog.evaluation.wording import worded

__all__ = [
    "Answer",
    "Asked",
    "BadSet",
    "CatalogReport",
    "Check",
    "Confusion",
    "LabelledSet",
    "Metrics",
    "Pace",
    "Question",
    "Report",
    "SetReport",
    "Unreached",
    "Weakness",
    "ask",
    "at_most",
    "check",
    "measure",
    "pace",
    "read_questions",
    "read_set",
    "read_tools",
    "report_on_catalog",
    "report_on_set",
    "requests_for",
    "worded",
]
