"""How the number of a page is written, so that no other number is taken for one."""

import re
from typing import Final, NamedTuple

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
# What is of more than three digits here is a year, as in 3/2024.
_NO_WORD: Final = rf"{_NUMBER}(?: ?{_OF} ?\d{{1,3}})?"
_WHOLE: Final = rf"{_WORD} ?{_NUMBER} ?{_OF} ?\d{{1,6}}"

_DASHES: Final = r"-\u2013\u2014"
_ORNAMENT: Final = rf"[{_DASHES}~*·•|<>()\[\]]+"
_SEPARATOR: Final = r" ?[|·•] ?"
# Beside a word that says what it is, any is enough.
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


class Numbered(NamedTuple):
    """What stands around the number of a page, and whether that tells nothing else."""

    before: str
    number: int
    behind: str
    is_alone: bool


def numbered(line: str) -> Numbered | None:
    """How the number of its page stands in a line without double blanks; None where no number can be that."""
    if not _DIGIT.search(line):
        return None
    for way in (*_ALONE, *_BESIDE):
        if found := way.fullmatch(line):
            start, end = found.span("number")
            return Numbered(line[:start], int(found["number"]), line[end:], is_alone=way in _ALONE)
    return None
