"""A chunk as prose: language, sentences and headings, with code and addresses blanked out in place."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.knowledge.extraction import lexicon

_GERMAN_WORD: Final = re.compile(r"[^\W\d_]+")
# One in so many words is a frequent one, and there are at least so many of them.
_ONE_OF: Final = 12
_FEWEST: Final = 3
# Before the name of a company.
GERMAN_COMPANY_NOUNS: Final = frozenset({"Firma", "Gesellschaft", "Fa"})
_STREET: Final = re.compile(r"(?:stra(?:ß|ss)e|str|gasse|allee|platz|weg|ufer)\Z")


def is_german(texts: Iterable[str]) -> bool:
    """Whether the texts are German, where all nouns have capitals and a number after one is weak evidence."""
    spoken = [word for text in texts for word in _GERMAN_WORD.findall(text)]
    frequent = sum(word in lexicon.GERMAN_FREQUENT_WORDS for word in spoken)
    return frequent >= max(_FEWEST, len(spoken) / _ONE_OF)


def is_numbered(word: str) -> bool:
    """Whether a number after the word is a count or a street number."""
    lower = word.lower()
    return lower in lexicon.GERMAN_NUMBERED_NOUNS or _STREET.search(lower) is not None


# No letter of a name, no space between two words: nothing is found in it or across it.
_FILL: Final = "\x1f"
_FENCE: Final = re.compile(r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`[^`\n]+`|</?[A-Za-z][^<>\n]*>")
_ADDRESS: Final = re.compile(r"https?://[^\s)>\]]+|www\.[^\s)>\]]+")
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+")
# A long line was wrapped: what follows belongs to the same sentence.
_WRAP: Final = re.compile(r"\n(?<=[^\n|]{50}\n)(?<![.:]\n)(?=[^\W_]|\()")
_END: Final = re.compile(r"[.!?:][\"'”\u2019)*_]*[ \t\x1f]+(?=[\"'“\u2018(*_\[]*[^\W\d_a-z])|\n+")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:Dr|Mr|Mrs|Ms|Prof|St|Rev|Sr|Jr|vs|No|Art|Fig|Sp|e\.g|i\.e|cf|approx|Gen|Col|Sen)|\b[^\W\d_a-z])\Z"
)
_LEGAL_END: Final = re.compile(r"\b(?:Inc|Corp|Ltd|Co|Bros|Pty|Pvt|Pte|Kft|[A-Za-z]\.[A-Za-z]|p\.A|o\.o)\Z")
_WORD: Final = re.compile(r"[\"'“\u2018(*_\[]*([^\W_]+)")
_HEADING: Final = re.compile(r"[ ]{0,3}#{1,6}\s")
_WORDS: Final = re.compile(r"[^\W\d_]+")
# With fewer words a line in title case is a label or a name, with more it is a title.
_TITLE_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class ProseText:
    """The prose of a chunk; offsets are those of the chunk's text."""

    text: str
    # The starts of sentences.
    sentences: list[int]
    # Begin and end of the lines that are headings.
    headings: list[tuple[int, int]]
    # Whether every noun has a capital here.
    german: bool = False

    def sentence_of(self, place: int) -> int:
        return bisect_right(self.sentences, place) - 1

    def bounds(self, sentence: int) -> tuple[int, int]:
        following = self.sentences[sentence + 1 : sentence + 2]
        return self.sentences[sentence], following[0] if following else len(self.text)

    def in_heading(self, place: int) -> bool:
        """Whether a character stands in a heading, where every word may be capitalised."""
        line = bisect_right(self.headings, (place, len(self.text))) - 1
        return line >= 0 and place < self.headings[line][1]


def read_prose(text: str, *, german: bool = False) -> ProseText:
    """The text as prose; `german` is the language of its document."""
    if "`" in text or "~~~" in text:
        text = _FENCE.sub(_filled, text)
    if "`" in text or "<" in text:
        text = _INLINE.sub(_filled, text)
    if "://" in text or "www." in text:
        text = _ADDRESS.sub(_filled, text)
    if "@" in text:
        text = _MAIL.sub(_filled, text)
    headings = _headings(text)
    prose = _WRAP.sub(" ", text)
    return ProseText(prose, _sentences(prose), headings, german)


def _filled(match: re.Match[str]) -> str:
    return _FILL * (match.end() - match.start())


def _sentences(text: str) -> list[int]:
    ends = (
        found.end()
        for found in _END.finditer(text)
        if text[found.start()] != "." or _ends(text, found.start(), found.end())
    )
    return [0, *ends]


def _ends(text: str, stop: int, following: int) -> bool:
    """Whether the full stop ends a sentence; after `Inc.` it does unless a name continues."""
    before = text[max(0, stop - 8) : stop]
    if _LEGAL_END.search(before):
        word = _WORD.match(text, following)
        return word is not None and word.group(1).lower() in lexicon.FUNCTION_WORDS
    return not _ABBREVIATION.search(before)


def _headings(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    place = 0
    for line in text.split("\n"):
        if line and (_HEADING.match(line) or _is_title(line)):
            found.append((place, place + len(line)))
        place += len(line) + 1
    return found


def _is_title(line: str) -> bool:
    """Whether a short line has nothing but capitalised words, as titles have."""
    if len(line) > 80 or line[-1:] in ".,;|":
        return False
    words = [word for word in _WORDS.findall(line) if len(word) > 3]
    return len(words) > _TITLE_WORDS and all(word[0].isupper() for word in words)
