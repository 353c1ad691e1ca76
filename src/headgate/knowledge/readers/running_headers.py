"""Removes running headers, footers and page numbers, and rejoins words that line ends had hyphenated."""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, takewhile
from typing import Final, NamedTuple

from headgate.knowledge.readers.text import one_line

# `S 3` and `P 1` are sizes and priorities, so that the shortest have to end with a point.
_WORD: Final = (
    r"(?:p\.|pp\.|s\.|\u0441\.|(?:page|pg|seite|página|pagina|pág|pag|bladzijde|blz|strona|strana|stránka|stranica"
    r"|str|sida|side|sivu|lk|sayfa|trang|halaman|страница|стр|сторінка|стор|σελίδα|σελ|صفحة)\.?)"
)
_OF: Final = r"(?:of|von|de|di|du|sur|van|av|af|z|ze|iz|из|із|από|/)"
_NUMBER: Final = r"(?P<number>\d{1,6})"
_WORD_BEFORE: Final = rf"{_WORD} ?{_NUMBER}(?: ?{_OF} ?\d{{1,6}})?"
_WORD_BEHIND: Final = (
    rf"第? ?{_NUMBER} ?(?:页|頁|ページ|쪽|페이지|\. ?oldal)(?: ?[/,\uff0c]? ?共 ?\d{{1,6}} ?[页頁])?"
)
# More than three digits here are a year, as in 3/2024.
_NO_WORD: Final = rf"{_NUMBER}(?: ?{_OF} ?\d{{1,3}})?"
_WHOLE: Final = rf"{_WORD} ?{_NUMBER} ?{_OF} ?\d{{1,6}}"

_DASHES: Final = r"-\u2013\u2014"
_ORNAMENT: Final = rf"[{_DASHES}~*·•|<>()\[\]]+"
_SEPARATOR: Final = r" ?[|·•] ?"
# Beside a word such as `page`, any number is enough.
_ANY_SEPARATOR: Final = rf"(?:{_SEPARATOR}| [{_DASHES}] |, )"

_ALONE: Final = tuple(
    re.compile(rf"(?P<ornament>{_ORNAMENT} ?)?{number}(?(ornament) ?{_ORNAMENT})", re.IGNORECASE)
    for number in (_NO_WORD, _WORD_BEFORE, _WORD_BEHIND)
)
_BESIDE: Final = tuple(
    re.compile(way, re.IGNORECASE)
    for number, separator in (
        (_NO_WORD, _SEPARATOR),
        (_WORD_BEFORE, _ANY_SEPARATOR),
        (_WORD_BEHIND, _ANY_SEPARATOR),
        # Nothing else is written like this, so that a blank is enough.
        (_WHOLE, " "),
    )
    for way in (rf".+{separator}{number}", rf"{number}{separator}.+")
)
_DIGIT: Final = re.compile(r"\d")


# Running headers are among so many lines at the top or bottom of a page.
_EDGE_LINES: Final = 3
# Fewer pages give no evidence.
_FEWEST_PAGES: Final = 3
# A cover and the first page of a chapter often go without.
_NEARLY_ALL: Final = 0.75
# How far the number of a page may be from its place; one that is farther away is of something else.
_FARTHEST: Final = 1_000

_LETTERS: Final = r"[^\W\d_]+"
_COMPOUND: Final = re.compile(rf"(?<![\w-]){_LETTERS}(?:-{_LETTERS})+")
_SOFT_HYPHEN: Final = "\u00ad"
# A word that goes on in the next line: what is before its last hyphen, what is cut, and how it goes on.
_CUT: Final = re.compile(
    rf"(?<![\w-])((?:{_LETTERS}-)*)({_LETTERS})([-\u2010{_SOFT_HYPHEN}])[ \t]*\n[ \t]*(?=({_LETTERS}))"
)
# As in "import- and export": here the hyphen stands for a word that comes later.
_SHARED: Final = frozenset(["and", "or", "to", "und", "oder", "bis", "bzw", "sowie", "et", "ou"])
# Also one that goes on in the next line behind a hyphen, which is part of it.
_ADDRESS: Final = re.compile(r"(?:://|www\.|@)(?:\S|(?<=-)[ \t]*\n[ \t]*(?=[a-z0-9]))+")
_LINE_END: Final = re.compile(r"[ \t]*\n[ \t]*")


def without_running_lines(pages: Sequence[str]) -> list[str]:
    """The pages without the lines at the edges of nearly all of them that differ only in the page's number.

    On the first of these pages they stay: the name of a company or of the document may stand nowhere else.
    """
    lines = [page.split("\n") for page in pages]
    edges = [_edges(page, number) for number, page in enumerate(lines)]
    running = _running(edges)
    left_out = [_taken_off(page, number, running) for number, page in enumerate(edges)]
    return [
        "\n".join(text for place, text in enumerate(page) if place not in left_out[number])
        for number, page in enumerate(lines)
    ]


class _EdgeLine(NamedTuple):
    place: int
    # The constant part of a running line: all of it, or all but the number.
    kinds: tuple[Hashable, ...]
    is_only_number: bool


class _PageEdges(NamedTuple):
    """The lines at both ends of a page, the outermost first, and how many lines the page has."""

    top: list[_EdgeLine]
    bottom: list[_EdgeLine]
    filled: int


def _edges(page: Sequence[str], number: int) -> _PageEdges:
    filled = [place for place, text in enumerate(page) if text.strip()]
    top = [_edge_line("top", place, one_line(page[place]), number) for place in filled[:_EDGE_LINES]]
    last = filled[: -_EDGE_LINES - 1 : -1]
    bottom = [_edge_line("bottom", place, one_line(page[place]), number) for place in last]
    return _PageEdges(top, bottom, len(filled))


def _edge_line(edge: str, place: int, text: str, page: int) -> _EdgeLine:
    ways = (*_ALONE, *_BESIDE) if _DIGIT.search(text) else ()
    way, found = next(((way, found) for way in ways if (found := way.fullmatch(text))), (None, None))
    if found is None or abs(shift := int(found["number"]) - page) > _FARTHEST:
        return _EdgeLine(place, ((edge, text),), is_only_number=False)
    start, end = found.span("number")
    counting = (edge, text[:start], shift, text[end:])
    return _EdgeLine(place, ((edge, text), counting), is_only_number=way in _ALONE)


def _running(edges: Sequence[_PageEdges]) -> dict[Hashable, int]:
    """The kinds of lines that nearly all pages have, and the first page of each."""
    pages: dict[Hashable, list[int]] = defaultdict(list)
    for number, page in enumerate(edges):
        for kind in {kind for line in (*page.top, *page.bottom) for kind in line.kinds}:
            pages[kind].append(number)
    needed = max(_FEWEST_PAGES, math.ceil(len(edges) * _NEARLY_ALL))
    return {kind: there[0] for kind, there in pages.items() if len(there) >= needed}


def _taken_off(page: _PageEdges, number: int, running: Mapping[Hashable, int]) -> set[int]:
    """The positions of running lines, from the outermost inwards, and never most of a page."""
    taken: set[int] = set()
    has_number, room = False, page.filled // 2
    # From the outside up to the first line that belongs to the page: what is inside of that does so too.
    edges = (takewhile(lambda line: not running.keys().isdisjoint(line.kinds), edge) for edge in page[:2])
    for line in chain.from_iterable(edges):
        if min(running[kind] for kind in line.kinds if kind in running) == number or line.place in taken:
            continue
        # One number is no evidence; several are rather a list.
        if line.is_only_number and not has_number:
            has_number = True
        elif room:
            room -= 1
        else:
            continue
        taken.add(line.place)
    return taken


def with_whole_words(pages: Sequence[str]) -> list[str]:
    """The pages with words that a line end had cut put together again.

    A hyphen stays where the same word has it elsewhere in the document.
    """
    pages = [_ADDRESS.sub(lambda address: _LINE_END.sub("", address[0]), page) for page in pages]
    compounds = {found[0].lower() for page in pages for found in _COMPOUND.finditer(page)}
    return [_CUT.sub(lambda cut: _joined(cut, compounds), page) for page in pages]


def _joined(cut: re.Match[str], compounds: set[str]) -> str:
    before, left, hyphen, right = cut.groups()
    if hyphen == _SOFT_HYPHEN:
        return f"{before}{left}"
    if not right[0].islower() or right in _SHARED:
        return cut[0]
    # `e-mail`, `EU-wide` and `state-of-the-art` are cut where they have a hyphen anyway.
    is_compound = len(left) == 1 or left.isupper() or (before and left.islower())
    if is_compound or f"{before}{left}-{right}".lower() in compounds:
        return f"{before}{left}-"
    return f"{before}{left}"
