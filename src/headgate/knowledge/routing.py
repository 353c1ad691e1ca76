"""Which strategy fits a query whose caller leaves that to us."""

import re
from typing import Final, NamedTuple

from headgate.knowledge.phrases import phrases_of
from headgate.knowledge.query import Strategy
from headgate.knowledge.query import Warning as Notice
from headgate.search.text_analysis import terms, words

# From so many words on a query is a question of somebody, whatever else stands in it.
_LONG_WORDS: Final = 8
_LIKENESS: Final = re.compile(
    r"\b(?:(?:similar|comparable|akin|close) to|resembl(?:e|es|ing)|in the spirit of|like th(?:is|ese|at)"
    r"|(?:something|anything|things?|more|ones?|documents?|passages?|texts?|clauses?|contracts?) like)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"\w_\w"  # snake_case
    r"|[a-z][A-Z]"  # camelCase
    r"|\w::\w|\w\(\)|->|=>|[{}<>=;$\\]"  # operators and calls
    r"|(?<!\S)--?[a-z][\w-]*"  # --flags
    r"|\w@\w|://|(?<!\w)/\w|\w/\w+/"  # addresses and paths
    r"|\b0x[0-9a-fA-F]+\b"  # numbers of errors as programs write them
    r"|\w{2,}\.\w*[a-z_]\w*",  # dotted names and files, but no numbers
    re.ASCII,
)
_NUMBER: Final = re.compile(
    r"\b(?:[A-Za-z]+[-_/#.]?\d[\w-]*"  # INV-2026-001, RFC9110
    r"|\d+[-_/][\w-]*\d"  # 2026-001
    r"|(?!(?:19|20)\d\d\b)\d{4,}"  # a number of four digits, unless it is a year
    r"|[0-9a-f]*\d[0-9a-f]{6,}"  # a digest
    r"|\d+(?:\.\d+){2,})\b"  # 2.3.1, a version or a section
    r"|\A\d+(?:\.\d+)+\Z"  # 4.2, unless something is counted by it
    r"|\u00a7 ?\d"  # a section
    r"|(?i:\b(?:form|section|article|chapter|clause|part|table|figure|appendix|version|release|error|code|errno"
    r"|status|ticket|issue|bug|invoice|order|rule|item|rfc|iso|no\.?|nr\.?|number) ?[#.]? ?\d)"
)
_NAME: Final = re.compile(r"[A-Z\d]")


class Route(NamedTuple):
    """A strategy, and why."""

    strategy: Strategy
    reason: str

    @property
    def told(self) -> Notice:
        """For a caller who wants to know."""
        return Notice(
            level="info",
            code="STRATEGY_CHOSEN",
            message=f"Strategy '{self.strategy}' was chosen for the query: {self.reason}.",
            suggestion="Give a strategy other than 'auto' to choose it yourself.",
        )


def route(text: str) -> Route:
    """The strategy for a query; hybrid unless there is a reason for another."""
    if not terms(text):
        return Route(Strategy.HYBRID, "it has no word that tells texts apart")
    if _LIKENESS.search(text):
        return Route(Strategy.VECTOR, "it asks for what is similar")
    if phrases_of(text):
        return Route(Strategy.BM25, "it quotes a phrase")
    count = len(words(text))
    if len(text.split()) >= _LONG_WORDS:
        return Route(Strategy.HYBRID, "it is a question in many words")
    if _CODE.search(text):
        return Route(Strategy.BM25, "it has an identifier or code in it")
    if _NUMBER.search(text):
        return Route(Strategy.BM25, "it has the number of something in it")
    if count == 1 and _NAME.search(text):
        # Whether a word is rare is not known here; what is written like a name mostly is.
        return Route(Strategy.BM25, "it is a single name")
    return Route(Strategy.HYBRID, "neither its words nor its meaning decide alone")
