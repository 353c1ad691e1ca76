"""Says how well search finds the tools of a catalog: on labelled requests, or by a check of its own."""

from headgate.catalog.evaluation.check import Check, Confusion, Weakness, check
from headgate.catalog.evaluation.labelled import Question, read_questions, read_tools
from headgate.catalog.evaluation.metrics import Metrics, Search, evaluate, measure

__all__ = [
    "Check",
    "Confusion",
    "Metrics",
    "Question",
    "Search",
    "Weakness",
    "check",
    "evaluate",
    "measure",
    "read_questions",
    "read_tools",
]
