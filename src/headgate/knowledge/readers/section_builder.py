"""Builds the sections of a document from headings, paragraphs, list items and records."""

import re
from typing import Final

from headgate.knowledge.ingestion.document_source import DocumentSection, DocumentUnreadable
from headgate.knowledge.readers.limits import MIB, MOST_TEXT_CHARACTERS
from headgate.knowledge.readers.text import clean, one_line


class HeadingStack:
    """The headings that are open; a level that was left out does not matter."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, heading: str) -> tuple[str, ...]:
        """A heading of that level begins, which ends all of the same and of deeper levels."""
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        if line := one_line(heading):
            self._open.append((level, line))
        return tuple(heading for _, heading in self._open)


_BLANK_LINES: Final = re.compile(r"\n\s*\n")


class SectionBuilder:
    """Collects the sections of a document; raises DocumentUnreadable when it becomes too long."""

    def __init__(self) -> None:
        self._outline = HeadingStack()
        self._sections: list[DocumentSection] = []
        self._texts: list[str] = []
        self._path: tuple[str, ...] = ()
        self._is_apart = False
        self._ends_with_item = False
        self._has_records = False
        self._length = 0

    def add_heading(self, level: int, text: str) -> None:
        """A section begins; its heading is part of its text. The level of a title is 0."""
        line = one_line(clean(text))
        if line:
            self.begin_section(self._outline.enter(level, line), apart=False)
            self._add(f"{'#' * max(1, level)} {line}")

    def begin_section(self, path: tuple[str, ...], *, apart: bool = True) -> None:
        """A section begins that has this path and no heading of its own."""
        self._close()
        self._path, self._is_apart = path, apart

    def add_paragraph(self, text: str) -> None:
        self._add(clean(text))

    def add_item(self, text: str) -> None:
        """An item of a list; nothing separates it from the one before it."""
        if self._texts and self._ends_with_item:
            self._texts[-1] = self._texts[-1].removesuffix("\n")
        self.add_paragraph(text)
        self._ends_with_item = True

    def add_record(self, text: str) -> None:
        """Add a record as one paragraph; all paragraphs of this section count as records."""
        self._add(_BLANK_LINES.sub("\n", clean(text)))
        self._has_records = True

    def sections(self) -> tuple[DocumentSection, ...]:
        self._close()
        return tuple(self._sections)

    def _add(self, text: str) -> None:
        text = text.strip("\n").rstrip()
        if not text:
            return
        self._texts.append(f"{text}\n\n")
        self._ends_with_item = False
        self._length += len(text) + len("\n\n")
        if self._length > MOST_TEXT_CHARACTERS:
            raise DocumentUnreadable(
                f"has more than {MOST_TEXT_CHARACTERS // MIB} Mi characters of text; split it"
            )

    def _close(self) -> None:
        if self._texts:
            text, self._texts = "".join(self._texts), []
            section = DocumentSection(self._path, text, records=self._has_records, apart=self._is_apart)
            self._sections.append(section)
        self._has_records = False
