"""A search query: its strategy, quoted phrases and filters, the choice of a strategy, and its ranking."""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from headgate.knowledge.data_model import NO_FILTERS, DocumentFilters
from headgate.search.text_analysis import terms, words

LONGEST_QUERY = 500


class SearchStrategy(StrEnum):
    HYBRID = "hybrid"
    VECTOR = "vector"
    BM25 = "bm25"
    # The query decides.
    AUTO = "auto"


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One search; equal ones have equal answers as long as the store does not change."""

    text: str
    strategy: SearchStrategy = SearchStrategy.HYBRID
    filters: DocumentFilters = NO_FILTERS
    # Of the final score; 0 passes everything.
    min_score: float = 0.0
    boosted: bool = False
    explain: bool = False


class SearchNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the caller should know, and what to do about it."""

    level: Literal["info", "warning"]
    code: str
    message: str
    suggestion: str


# Hundreds of thousands of them are kept, and none leads back to itself.
class RankedChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    chunk_id: int
    # From 1.
    rank: int
    # What it is ranked by, from 0 to 1: the fused score, or of one list alone the cosine, or its BM25 score
    # as a share of the best one.
    score: float
    # None where that list does not have it.
    similarity: float | None = None
    bm25: float | None = None


class ChunkRanking(msgspec.Struct, frozen=True, kw_only=True):
    """All results, best first."""

    found: tuple[RankedChunk, ...] = ()
    # Never auto.
    strategy: SearchStrategy = SearchStrategy.HYBRID
    # The revision of the store.
    revision: int = 0
    warnings: tuple[SearchNotice, ...] = ()
    # Explains the score of one result; None unless requested. Hundreds are found and
    # a few are returned, so each is explained on demand.
    explain: Callable[[RankedChunk], dict[str, object]] | None = None


# A quote within a word, as that of inches is, opens and closes nothing. What closes in German opens in
# English, so German comes first; its angled ones are the French ones turned round.
_QUOTED: Final = re.compile(
    r'(?<!\w)"([^"]*)"(?!\w)'
    r"|\u201e([^\u201c\u201d\u201e]+)[\u201c\u201d]"
    r"|\u201c([^\u201c\u201d]+)\u201d"
    r"|\u00bb([^\u00ab\u00bb]+)\u00ab"
    r"|\u00ab([^\u00ab\u00bb]+)\u00bb"
)


def phrases_of(text: str) -> tuple[tuple[str, ...], ...]:
    """Each quoted part in words, as `Filters.phrases` has them; a quote without its other half is text."""
    quoted = (tuple(words(match[match.lastindex or 0])) for match in _QUOTED.finditer(text))
    return tuple(dict.fromkeys(phrase for phrase in quoted if phrase))


def with_phrases(query: SearchQuery) -> SearchQuery:
    """The query whose filters ask for its quoted parts too; its text stays as it is, to rank by."""
    phrases = tuple(dict.fromkeys(query.filters.phrases + phrases_of(query.text)))
    if phrases == query.filters.phrases:
        return query
    filters = msgspec.structs.replace(query.filters, phrases=phrases)
    return msgspec.structs.replace(query, filters=filters)


def phrases_notice(phrases: Sequence[Sequence[str]], *, ignored: bool) -> SearchNotice:
    """The notice when no chunk has the quoted phrases, and whether they were ignored then."""
    quoted = ", ".join(f'"{" ".join(phrase)}"' for phrase in phrases)
    done = "; searched without the quotes" if ignored else ""
    advice = "Quote" if ignored else "Leave out the quotes, or quote"
    return SearchNotice(
        level="warning",
        code="PHRASE_NOT_FOUND",
        message=f"No passage has {quoted} word for word{done}.",
        suggestion=f"{advice} only what stands in the documents as it is.",
    )


# A query of so many words is a question, whatever else is in it.
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


class RoutedStrategy(NamedTuple):
    strategy: SearchStrategy
    reason: str

    @property
    def notice(self) -> SearchNotice:
        return SearchNotice(
            level="info",
            code="STRATEGY_CHOSEN",
            message=f"Strategy '{self.strategy}' was chosen for the query: {self.reason}.",
            suggestion="Give a strategy other than 'auto' to choose it yourself.",
        )


def route_query(text: str) -> RoutedStrategy:
    """The strategy for a query; hybrid unless there is a reason for another."""
    if not terms(text):
        return RoutedStrategy(SearchStrategy.HYBRID, "it has no word that tells texts apart")
    if _LIKENESS.search(text):
        return RoutedStrategy(SearchStrategy.VECTOR, "it asks for what is similar")
    if phrases_of(text):
        return RoutedStrategy(SearchStrategy.BM25, "it quotes a phrase")
    if len(text.split()) >= _LONG_WORDS:
        return RoutedStrategy(SearchStrategy.HYBRID, "it is a question in many words")
    if _CODE.search(text):
        return RoutedStrategy(SearchStrategy.BM25, "it has an identifier or code in it")
    if _NUMBER.search(text):
        return RoutedStrategy(SearchStrategy.BM25, "it has the number of something in it")
    if len(words(text)) == 1 and _NAME.search(text):
        # Whether a word is rare is not known here; what is written like a name mostly is.
        return RoutedStrategy(SearchStrategy.BM25, "it is a single name")
    return RoutedStrategy(SearchStrategy.HYBRID, "neither its words nor its meaning decide alone")
