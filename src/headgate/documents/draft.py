"""A document that is being put together, heading by heading and paragraph by paragraph."""

import re
from typing import Final

from headgate.documents.limits import MIB, MOST_TEXT_CHARACTERS
from headgate.documents.outline import Outline
from headgate.documents.text import clean, one_line
from headgate.knowledge.reading import Section, Unreadable

_BLANK_LINES: Final = re.compile(r"\n\s*\n")


class Draft:
    """Collects the sections of a document; what becomes too long raises Unreadable."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._sections: list[Section] = []
        self._texts: list[str] = []
        self._path: tuple[str, ...] = ()
        self._is_apart = False
        self._ends_with_item = False
        self._has_records = False
        self._length = 0

    def heading(self, level: int, text: str) -> None:
        """A section begins; its heading is part of its text. The level of a title is 0."""
        line = one_line(clean(text))
        if line:
            self._begin(self._outline.enter(level, line), apart=False)
            self._add(f"{'#' * max(1, level)} {line}\n\n")

    def section(self, path: tuple[str, ...]) -> None:
        """A section begins that has this path and no heading of its own."""
        self._begin(path, apart=True)

    def paragraph(self, text: str) -> None:
        """What stands by itself; nothing where there is only white space."""
        self._put(clean(text))

    def item(self, text: str) -> None:
        """An item of a list; nothing separates it from the one before it."""
        if self._texts and self._ends_with_item:
            self._texts[-1] = self._texts[-1].removesuffix("\n")
        self.paragraph(text)
        self._ends_with_item = True

    def record(self, text: str) -> None:
        """What belongs together, as one paragraph; all others of this section are taken for records too."""
        self._put(_BLANK_LINES.sub("\n", clean(text)))
        self._has_records = True

    def sections(self) -> tuple[Section, ...]:
        """All of them, once the document is at its end."""
        self._close()
        return tuple(self._sections)

    def _begin(self, path: tuple[str, ...], *, apart: bool) -> None:
        self._close()
        self._path, self._is_apart = path, apart

    def _put(self, text: str) -> None:
        text = text.strip("\n").rstrip()
        if text:
            self._add(f"{text}\n\n")

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._ends_with_item = False
        self._length += len(text)
        if self._length > MOST_TEXT_CHARACTERS:
            raise Unreadable(f"has more than {MOST_TEXT_CHARACTERS // MIB} Mi characters of text; split it")

    def _close(self) -> None:
        if self._texts:
            self._sections.append(
                Section(self._path, "".join(self._texts), records=self._has_records, apart=self._is_apart)
            )
            self._texts = []
        self._has_records = False
