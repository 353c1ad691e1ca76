"""The pages of a document as one reads on: without what stands on each of them, and with whole words."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headgate.documents.text import one_line

# What runs along stands among so many lines at the top or at the bottom of a page.
_EDGE_LINES: Final = 3
# Of fewer pages nobody can tell.
_FEWEST_PAGES: Final = 3
# A cover and the first page of a chapter often go without.
_NEARLY_ALL: Final = 0.75
# How far the number of a page may be from its place; one that is farther away is of something else.
_FARTHEST: Final = 1_000
_MOST_DIGITS: Final = 6

_NUMBER: Final = re.compile(r"\d+")
_LETTERS: Final = r"[^\W\d_]+"
_COMPOUND: Final = re.compile(rf"(?<![\w-]){_LETTERS}(?:-{_LETTERS})+")
_SOFT_HYPHEN: Final = "\u00ad"
# A word that goes on in the next line: what is before its last hyphen, what is cut, and how it goes on.
_CUT: Final = re.compile(
    rf"(?<![\w-])((?:{_LETTERS}-)*)({_LETTERS})([-\u2010{_SOFT_HYPHEN}])[ \t]*\n[ \t]*(?=({_LETTERS}))"
)
# As in "import- and export": here the hyphen stands for a word that comes later.
_SHARED: Final = frozenset(["and", "or", "to", "und", "oder", "bis", "bzw", "sowie", "et", "ou"])


def without_running_lines(pages: Sequence[str]) -> list[str]:
    """The pages without the lines at the edges of nearly all of them that differ only in the page's number.

    On the first of these pages they stay: the name of a company or of the document may stand nowhere else.
    """
    lines = [page.split("\n") for page in pages]
    running = {
        (line.page, line.place)
        for alike in _alike_at_edges(lines)
        if _runs_along(alike, len(pages))
        for line in alike
        if line.page != alike[0].page
    }
    return [
        "\n".join(text for place, text in enumerate(page) if (number, place) not in running)
        for number, page in enumerate(lines)
    ]


class _Line(NamedTuple):
    page: int
    place: int
    numbers: list[str]


def _alike_at_edges(pages: Sequence[Sequence[str]]) -> Iterator[list[_Line]]:
    """Lines that are the same but for their numbers, in the order of the pages."""
    alike: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for number, page in enumerate(pages):
        filled = [place for place, text in enumerate(page) if text.strip()]
        for edge, places in (("top", filled[:_EDGE_LINES]), ("bottom", filled[-_EDGE_LINES:])):
            for place in places:
                text = one_line(page[place])
                line = _Line(number, place, _NUMBER.findall(text))
                alike[edge, _NUMBER.sub("0", text)].append(line)
    yield from alike.values()


def _runs_along(alike: Sequence[_Line], pages: int) -> bool:
    needed = max(_FEWEST_PAGES, math.ceil(pages * _NEARLY_ALL))
    if len({line.page for line in alike}) < needed:
        return False
    return all(_tells_page(alike, place) for place in range(len(alike[0].numbers)))


def _tells_page(alike: Sequence[_Line], place: int) -> bool:
    """Whether a number is that of the page or the same everywhere, and not one of an invoice or an amount."""
    numbers = [line.numbers[place] for line in alike]
    if len(set(numbers)) == 1:
        return True
    if max(map(len, numbers)) > _MOST_DIGITS:
        return False
    ahead = {int(number) - line.page for number, line in zip(numbers, alike, strict=True)}
    return len(ahead) == 1 and abs(ahead.pop()) <= _FARTHEST


def with_whole_words(pages: Sequence[str]) -> list[str]:
    """The pages with words that a line end had cut put together again.

    A hyphen stays where the same word has it elsewhere in the document.
    """
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
