"""What a query has in quotes: it is to be found word for word."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.knowledge.query import Query
from headgate.knowledge.query import Warning as Notice
from headgate.search.text_analysis import words

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


def with_phrases(query: Query) -> Query:
    """The query whose filters ask for its quoted parts too; its text stays as it is, to rank by."""
    phrases = tuple(dict.fromkeys(query.filters.phrases + phrases_of(query.text)))
    if phrases == query.filters.phrases:
        return query
    filters = msgspec.structs.replace(query.filters, phrases=phrases)
    return msgspec.structs.replace(query, filters=filters)


def unquoted(phrases: Sequence[Sequence[str]]) -> Notice:
    """What to tell where no chunk has what the query quotes, and it was searched for without quotes."""
    return _notice(phrases, "; searched without the quotes", "Quote")


def unfound(phrases: Sequence[Sequence[str]]) -> Notice:
    """What to tell where no chunk has what the query quotes."""
    return _notice(phrases, "", "Leave out the quotes, or quote")


def _notice(phrases: Sequence[Sequence[str]], done: str, advice: str) -> Notice:
    quoted = ", ".join(f'"{" ".join(phrase)}"' for phrase in phrases)
    return Notice(
        level="warning",
        code="PHRASE_NOT_FOUND",
        message=f"No passage has {quoted} word for word{done}.",
        suggestion=f"{advice} only what stands in the documents as it is.",
    )
