"""The snippet of a chunk that matches a query, and the headings above it."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.knowledge.data_model import ChunkRecord
from headgate.knowledge.ingestion.chunker import short_heading
from headgate.knowledge.search.analyzer import codes
from headgate.search.text_analysis import stem, terms

LENGTH: Final = 200
_DOTS: Final = "..."
# Characters before the first match that show what it is about.
_BEFORE: Final = 40
# A chunk that is nothing but one word has no best place.
_MOST_MATCHES: Final = 100
_WORD: Final = re.compile(r"[^\W_]+")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
# A line of text that is underlined is a heading too; one of a list, a quotation or a table is none.
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_UNDERLINED: Final = re.compile(r" {0,3}[^\s>|+*#-]")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
# Marks within a heading, which its reader does not see.
_MARKS: Final = re.compile(r"[*`]+|!?\[([^\]]*)\]\([^)]*\)")
# Kinds of documents in which a line that begins with # is no heading.
_WITHOUT_HEADINGS: Final = frozenset(["text", "pdf", "csv", "json"])


class HighlightedPassage(NamedTuple):
    """A snippet of a chunk's text, and the headings above it."""

    snippet: str
    header: str


def highlight(chunk: ChunkRecord, query: str) -> HighlightedPassage:
    """At most 200 characters around what the query matches, and of a chunk without a match its beginning."""
    text, match, start = chunk.text, _best_match(chunk.text, query), 0
    if match is not None and match >= _BEFORE and len(text) > LENGTH:
        # From a word on, and with all of the text where little is left of it.
        gap = text.find(" ", match - _BEFORE, match)
        start = min(gap + 1 if gap >= 0 else match, len(text) - LENGTH)
    end = start + LENGTH
    before, behind = _DOTS if start else "", _DOTS if end < len(text) else ""
    return HighlightedPassage(f"{before}{text[start:end]}{behind}", _header(chunk, match))


def _best_match(text: str, query: str) -> int | None:
    """The start of the passage with most terms of the query; None where the text has none."""
    # Codes as they are written, and words with the same stem.
    query_terms = set(terms(query))
    found = [(match.start(), stem(match[0].lower())) for match in _WORD.finditer(text)]
    places = [(place, word) for place, word in found if word in query_terms]
    lowered = text.lower()
    for code in codes(query):
        at = lowered.find(code.replace("#", " "))
        # A code counts for more than the words that it is made of.
        places += [(at, f"{code} {part}") for part in range(3)] if at >= 0 else []
    matches = sorted(places)[:_MOST_MATCHES]
    passages = [
        [other for other in matches[place:] if other[0] < start + LENGTH - _BEFORE]
        for place, (start, _) in enumerate(matches)
    ]
    if not passages:
        return None
    # The first of the best.
    passage = max(passages, key=lambda passage: len({word for _, word in passage}))
    # Words that stand there once more lie nearer to the others.
    while len({word for _, word in passage[1:]}) == len({word for _, word in passage}):
        passage.pop(0)
    return passage[0][0]


def _header(chunk: ChunkRecord, match: int | None) -> str:
    """The chunk's own header, with the headings that follow in its text up to the match."""
    if chunk.doc_type in _WITHOUT_HEADINGS or match is None:
        return chunk.header
    file, *path = chunk.header.split(" > ")
    open_headings = list(enumerate(path, 1))
    for level, heading in _headings(chunk.text, match):
        if open_headings and open_headings[-1][1] == heading:
            # The chunk begins with it, which gives the levels of those above.
            shift = level - open_headings[-1][0]
            open_headings = [(own + shift, one) for own, one in open_headings]
            continue
        while open_headings and open_headings[-1][0] >= level:
            open_headings.pop()
        open_headings.append((level, heading))
    return " > ".join((file, *(heading for _, heading in open_headings)))


def _headings(text: str, match: int) -> Iterator[tuple[int, str]]:
    """The headings that begin before the match, or have it, with their levels; none in a block of code."""
    end, fence, above = 0, "", ""
    for line in text.splitlines(keepends=True):
        begin, end = end, end + len(line)
        marked = _FENCE.match(line)
        if marked and (not fence or marked[1].startswith(fence)):
            fence, above = "" if fence else marked[1], ""
            continue
        if not fence and (found := _heading(line, above)):
            # The underline follows the heading.
            if begin - (len(above) if _UNDERLINE.match(line) else 0) > match:
                return
            yield found
        above = line
        if begin > match:
            return


def _heading(line: str, above: str) -> tuple[int, str] | None:
    """The level and the words of a heading that the line is, or underlines."""
    if found := _HEADING.match(line.rstrip("\n")):
        level, words = len(found[1]), found[2]
    elif (found := _UNDERLINE.match(line.rstrip("\n"))) and _UNDERLINED.match(above):
        level, words = 1 if found[1][0] == "=" else 2, above
    else:
        return None
    plain = " ".join(_MARKS.sub(r"\1", words).split())
    return (level, short_heading(plain)) if plain else None
