"""Cuts a document into chunks along its headings, paragraphs, sentences and words, in this order."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from headgate.knowledge.data_model import NewChunk
from headgate.knowledge.ingestion.document_source import DocumentSection

# Changes when the same sections would give other chunks.
CHUNKER_VERSION: Final = "2"
CHUNK_TOKENS: Final = 512
OVERLAP_TOKENS: Final = 50
# A heading is for orientation: one of a page's length would fill the chunk.
_LONGEST_HEADING: Final = 120
# A text with more characters than this for each token that fits is cut before it is counted.
_CHARACTERS: Final = 6

_BLANK_LINES_FIRST: Final = re.compile(r"\A(?:[ \t]*\n)+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
# Possible ends of a sentence; a line of a table or of code counts as one.
_SENTENCE_END: Final = re.compile(r"[.!?\u2026]['\")\]\u201d\u2019\u00bb]*[ \t]+|[\u3002\uff01\uff1f]|\n")
_SPACE: Final = re.compile(r"\s")
_WORD: Final = re.compile(r"\S+\s*|\s+")

CountTokens = Callable[[str], int]


class ChunkSlice(NamedTuple):
    """A chunk of a text: `overlap` characters of the one before it, then its own."""

    path: tuple[str, ...]
    text: str
    overlap: int
    tokens: int


def chunk_document(
    file: str,
    sections: Sequence[DocumentSection],
    count: CountTokens,
    *,
    size: int = CHUNK_TOKENS,
    overlap: int = OVERLAP_TOKENS,
) -> tuple[NewChunk, ...]:
    """The chunks of a document, ready to be stored; `count` gives the tokens of a text."""
    chunks = []
    for piece in slice_sections(sections, count, size=size, overlap=overlap):
        # White space alone has no content.
        if piece.text[piece.overlap :].isspace():
            continue
        header = " > ".join((file, *map(short_heading, piece.path)))
        # The first line keeps its indentation: it may be of a program.
        text = _BLANK_LINES_FIRST.sub("", piece.text).rstrip()
        digest = hashlib.sha256(f"{header}\n{text}".encode(errors="replace")).hexdigest()
        chunks.append(NewChunk(text=text, header=header, tokens=piece.tokens, digest=digest))
    return tuple(chunks)


def short_heading(heading: str) -> str:
    """The heading as it stands in a header."""
    line = " ".join(heading.split())
    return line if len(line) <= _LONGEST_HEADING else f"{line[: _LONGEST_HEADING - 1]}…"


def slice_sections(
    sections: Sequence[DocumentSection],
    count: CountTokens,
    *,
    size: int = CHUNK_TOKENS,
    overlap: int = OVERLAP_TOKENS,
) -> Iterator[ChunkSlice]:
    """The text of all sections in pieces of at most `size` tokens; without overlaps they are that text.

    Sections share a piece as far as they fit whole. Its path has the headings that its beginning stands
    under; those that follow are in its text. A piece that goes on in the middle of a section begins with the
    end of the one before it; between two records, that is as many whole ones as fit.
    """
    cutter = _TextSplitter(count, size - overlap)
    piece = _OpenChunk()
    for group, with_text in _section_groups(sections):
        apart = any(section.apart or section.records for section in group)
        units = ((section, unit) for section in group for unit in cutter.units(section))
        ahead, fits = _take_while_fitting(units, size - piece.tokens)
        joins = fits and bool(piece.units) and not (piece.stands_apart or apart)
        if joins:
            piece.path = piece.begins
        else:
            if piece.units:
                yield piece.closed()
            piece = _OpenChunk(group[0].path, stands_apart=apart)
        for section, unit in chain(ahead, units):
            if piece.units and piece.tokens + unit.tokens > size:
                yield piece.closed()
                repeated = cutter.repeated(piece.units, unit, overlap)
                piece = _OpenChunk(section.path, *repeated, stands_apart=apart)
            if section is with_text and not joins:
                piece.path = section.path
            piece.units.append(unit)
            piece.tokens += unit.tokens
    if piece.units:
        yield piece.closed()


def _section_groups(
    sections: Iterable[DocumentSection],
) -> Iterator[tuple[list[DocumentSection], DocumentSection | None]]:
    """Each section with text, and the headings without one before it; headings at the end have no text."""
    group: list[DocumentSection] = []
    for section in sections:
        group.append(section)
        if section.apart or not _is_heading(section):
            yield group, section
            group = []
    if group:
        yield group, None


def _take_while_fitting(units: Iterator["_UnitOfSection"], room: int) -> tuple[list["_UnitOfSection"], bool]:
    """The first units, until they take more than the room, and whether all of them fit."""
    ahead = []
    for section, unit in units:
        ahead.append((section, unit))
        room -= unit.tokens
        if room < 0:
            return ahead, False
    return ahead, True


class _TextUnit(NamedTuple):
    text: str
    tokens: int
    begins_record: bool = False


_UnitOfSection = tuple[DocumentSection, _TextUnit]


class _OpenChunk:
    """A piece that is being filled; `before` is what it repeats of the one before it."""

    def __init__(
        self, begins: tuple[str, ...] = (), before: str = "", tokens: int = 0, *, stands_apart: bool = False
    ) -> None:
        # The headings above its first character; where headings are all that comes before a text, its path
        # has those of the text, for as long as no other section follows.
        self.begins = begins
        self.path = begins
        self.before = before
        self.tokens = tokens
        self.units: list[_TextUnit] = []
        # Whether no other section may follow: its path has information that would get lost.
        self.stands_apart = stands_apart

    def closed(self) -> ChunkSlice:
        text = "".join((self.before, *(unit.text for unit in self.units)))
        return ChunkSlice(self.path, text, len(self.before), self.tokens)


def _is_heading(section: DocumentSection) -> bool:
    """Whether there is nothing but its headings, however they are marked; or nothing at all."""
    headings = {" ".join(heading.split()) for heading in section.path}
    lines = (" ".join(line.strip("#=-~* \t").split()) for line in section.text.split("\n"))
    return all(line in headings for line in lines if line)


class _TextSplitter:
    """Cuts texts into units that fit a piece; each text is counted once, or twice where it is long."""

    def __init__(self, count: CountTokens, most: int) -> None:
        self._count = count
        self._most = max(1, most)

    def units(self, section: DocumentSection) -> Iterator[_TextUnit]:
        """The paragraphs, and of those that are too long the sentences."""
        for block in _blocks(section.text, has_fences=not section.records):
            units = self._fitting(block, self._sentences)
            if section.records:
                first = next(units)
                yield _TextUnit(first.text, first.tokens, begins_record=True)
            yield from units

    def repeated(self, units: Sequence[_TextUnit], following: _TextUnit, most: int) -> tuple[str, int]:
        """The overlap with the next piece: whole units from the end as far as they fit, or else words."""
        taken: list[_TextUnit] = []
        tokens = 0
        for unit in reversed(units):
            if tokens + unit.tokens > most:
                break
            taken.append(unit)
            tokens += unit.tokens
            # A continued record is unrelated to the record before it.
            if unit.begins_record and not following.begins_record:
                break
        if following.begins_record:
            # A part of one would read as if it were all of it.
            while taken and not taken[-1].begins_record:
                tokens -= taken.pop().tokens
        elif not taken and most > 0:
            return self._last_words(units[-1], most)
        return "".join(unit.text for unit in reversed(taken)), tokens

    def _last_words(self, unit: _TextUnit, most: int) -> tuple[str, int]:
        room = len(unit.text) * most // unit.tokens
        gap = _SPACE.search(unit.text, len(unit.text) - room)
        # Half a word is no help.
        words = unit.text[gap.end() :] if gap else ""
        tokens = self._count(words) if words else 0
        return (words, tokens) if tokens <= most else ("", 0)

    def _fitting(self, text: str, cut: Callable[[str], Iterator[_TextUnit]]) -> Iterator[_TextUnit]:
        if len(text) <= self._most * _CHARACTERS:
            tokens = self._count(text)
            if tokens <= self._most:
                yield _TextUnit(text, tokens)
                return
        yield from cut(text)

    def _sentences(self, text: str) -> Iterator[_TextUnit]:
        ends = [found.end() for found in _SENTENCE_END.finditer(text)]
        for start, end in pairwise(dict.fromkeys((0, *ends, len(text)))):
            yield from self._fitting(text[start:end], self._words)

    def _words(self, text: str) -> Iterator[_TextUnit]:
        """Cut between words, and inside of one only when it does not fit by itself."""
        return self._in_groups(_WORD.findall(text), self._most, self._letters)

    def _letters(self, word: str) -> Iterator[_TextUnit]:
        return self._in_groups(word, self._most * _CHARACTERS, None)

    def _in_groups(
        self, parts: Sequence[str], most_parts: int, cut: Callable[[str], Iterator[_TextUnit]] | None
    ) -> Iterator[_TextUnit]:
        """As many parts at a time as fit; `cut` is for one that does not fit by itself."""
        at, many = 0, most_parts
        while at < len(parts):
            group = parts[at : at + many]
            text = "".join(group)
            tokens = self._count(text)
            if tokens > self._most and len(group) > 1:
                # By their share, and a little less, so that the next count most likely fits.
                many = max(1, min(len(group) - 1, len(group) * self._most * 9 // (tokens * 10)))
                continue
            if tokens > self._most and cut is not None:
                yield from cut(text)
                many = most_parts
            else:
                yield _TextUnit(text, tokens)
            at += len(group)


def _blocks(text: str, *, has_fences: bool) -> Iterator[str]:
    """Paragraphs with the blank lines behind them; a fence and what it encloses is one, if there are any."""
    start = place = 0
    fence = ""
    blank = False
    while place < len(text):
        end = text.find("\n", place) + 1 or len(text)
        line = text[place:end]
        if not fence and line.isspace():
            blank = True
        else:
            if blank and not fence and place > start:
                yield text[start:place]
                start = place
            blank = False
            fence = _fence_after_line(fence, line) if has_fences else ""
        place = end
    if start < len(text):
        yield text[start:]


def _fence_after_line(fence: str, line: str) -> str:
    """The fence that is open behind this line."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark = found[1]
    if not fence:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not line[found.end() :].strip()
    return "" if closes else fence
