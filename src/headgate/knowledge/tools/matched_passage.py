"""The passage of a chunk that a query matched, and the section that it stands in."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.domain.stems import stem
from headgate.domain.words import terms
from headgate.knowledge.index_terms import codes
from headgate.knowledge.values import Chunk

LENGTH: Final = 200
_DOTS: Final = "..."
# Characters before the first match that show what it is about.
_BEFORE: Final = 40
# A chunk that is nothing but one word has no best place.
_MOST_MATCHES: Final = 100
_WORD: Final = re.compile(r"[^\W_]+")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$")
_FENCE: Final = re.compile(r" {0,3}(?:`{3}|~{3})")
# Kinds of documents in which a line that begins with # is no heading.
_WITHOUT_HEADINGS: Final = frozenset(["text", "pdf", "csv", "json"])


class Passage(NamedTuple):
    """A part of a chunk's text as it is shown, and the headings above it."""

    snippet: str
    header: str


def matched_passage(chunk: Chunk, query: str) -> Passage:
    """At most 200 characters around what the query matches, and of a chunk without a match its beginning."""
    start = _start(chunk.text, query)
    return Passage(_shown(chunk.text, start), _header(chunk, start))


def _shown(text: str, start: int) -> str:
    end = start + LENGTH
    before, behind = _DOTS if start else "", _DOTS if end < len(text) else ""
    return f"{before}{text[start:end]}{behind}"


def _start(text: str, query: str) -> int:
    """Where the window begins that has the most of the query; of equal ones the first."""
    if len(text) <= LENGTH:
        return 0
    matches = list(_matches(text, query))[:_MOST_MATCHES]
    if not matches:
        return 0
    best = max(range(len(matches)), key=lambda place: (_weight(matches[place:]), -place))
    first = matches[best][0]
    if first < _BEFORE:
        return 0
    # From a word on, and with all of the text where little is left of it.
    gap = text.find(" ", first - _BEFORE, first)
    start = gap + 1 if gap >= 0 else first
    return min(start, len(text) - LENGTH)


def _matches(text: str, query: str) -> Iterator[tuple[int, str]]:
    """The places of what the query has: codes as they are written, and words with the same stem."""
    wanted = set(terms(query))
    found = [(match.start(), stem(match[0].lower())) for match in _WORD.finditer(text)]
    places = [(place, word) for place, word in found if word in wanted]
    lowered = text.lower()
    # A code counts for more than the words that it is made of.
    for code in codes(query):
        at = lowered.find(code.replace("#", " "))
        places += [(at, f"{code} {part}") for part in range(3)] if at >= 0 else []
    return iter(sorted(places))


def _weight(following: list[tuple[int, str]]) -> int:
    last = following[0][0] + LENGTH - _BEFORE
    return len({word for place, word in following if place < last})


def _header(chunk: Chunk, start: int) -> str:
    """The chunk's own header, with the headings that follow in its text up to the passage."""
    if chunk.doc_type in _WITHOUT_HEADINGS or start == 0:
        return chunk.header
    file, *path = chunk.header.split(" > ")
    open_headings = list(enumerate(path, 1))
    for level, heading in _headings(chunk.text, start + _BEFORE):
        if open_headings and open_headings[-1][1] == heading:
            # The chunk begins with it, which tells the levels of those above.
            shift = level - open_headings[-1][0]
            open_headings = [(own + shift, one) for own, one in open_headings]
            continue
        while open_headings and open_headings[-1][0] >= level:
            open_headings.pop()
        open_headings.append((level, heading))
    return " > ".join((file, *(heading for _, heading in open_headings)))


def _headings(text: str, end: int) -> Iterator[tuple[int, str]]:
    """The headings that begin before this place, with their levels; none in a block of code."""
    place, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if place >= end:
            return
        place += len(line)
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (found := _HEADING.match(line.rstrip("\n"))) and found[2]:
            yield len(found[1]), " ".join(found[2].split())
