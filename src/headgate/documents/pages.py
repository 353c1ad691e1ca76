"""The pages of a document as one reads on: without what stands on each of them, and with whole words."""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Final, NamedTuple

from headgate.documents.numbering import numbered
from headgate.documents.text import one_line

# What runs along stands among so many lines at the top or at the bottom of a page.
_EDGE_LINES: Final = 3
# Of fewer pages nobody can tell.
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


class _Line(NamedTuple):
    place: int
    # What is the same on all pages on which the line runs along: all of it, or all but the number.
    kinds: tuple[Hashable, ...]
    is_only_number: bool


class _Edges(NamedTuple):
    """The lines at both ends of a page, the outermost first, and how many lines the page has."""

    top: list[_Line]
    bottom: list[_Line]
    filled: int


def _edges(page: Sequence[str], number: int) -> _Edges:
    filled = [place for place, text in enumerate(page) if text.strip()]
    outermost = filled[:_EDGE_LINES], filled[: -_EDGE_LINES - 1 : -1]
    top, bottom = (
        [_line(edge, place, one_line(page[place]), number) for place in places]
        for edge, places in zip(("top", "bottom"), outermost, strict=True)
    )
    return _Edges(top, bottom, len(filled))


def _line(edge: str, place: int, text: str, page: int) -> _Line:
    found = numbered(text)
    if found is None or abs(found.number - page) > _FARTHEST:
        return _Line(place, ((edge, text),), is_only_number=False)
    counting = (edge, found.before, found.number - page, found.behind)
    return _Line(place, ((edge, text), counting), found.is_alone)


def _running(edges: Sequence[_Edges]) -> dict[Hashable, int]:
    """The kinds of lines that nearly all pages have, and the first page of each."""
    pages: dict[Hashable, list[int]] = defaultdict(list)
    for number, page in enumerate(edges):
        for kind in {kind for line in (*page.top, *page.bottom) for kind in line.kinds}:
            pages[kind].append(number)
    needed = max(_FEWEST_PAGES, math.ceil(len(edges) * _NEARLY_ALL))
    return {kind: there[0] for kind, there in pages.items() if len(there) >= needed}


def _taken_off(page: _Edges, number: int, running: Mapping[Hashable, int]) -> set[int]:
    """The places of lines that run along, from the outermost inwards and never most of what a page tells."""
    taken: set[int] = set()
    has_number, room = False, page.filled // 2
    for line in chain(_outer(page.top, running), _outer(page.bottom, running)):
        if min(running[kind] for kind in line.kinds if kind in running) == number or line.place in taken:
            continue
        # One number tells nothing; of several, which are a list rather, the others do.
        if line.is_only_number and not has_number:
            has_number = True
        elif room:
            room -= 1
        else:
            continue
        taken.add(line.place)
    return taken


def _outer(edge: Sequence[_Line], running: Mapping[Hashable, int]) -> Iterator[_Line]:
    """The lines up to the first that belongs to the page: what is inside of that does so too."""
    return takewhile(lambda line: any(kind in running for kind in line.kinds), edge)


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
