"""The text of the pages of a PDF, read by PDFium, and whether a page shows pictures.

PDFium places words by their coordinates. pypdf reads the text operators, and loses the spaces of PDFs in
which only a shift separates two words, as TeX writes them: see docs/decisions/0061-pdfium-reads-pdf-text.md.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import pypdfium2  # type: ignore[import-untyped]
from pypdfium2 import PdfiumError, raw

# What PDFium writes in place of a hyphen at the end of a line, and of the end of that line.
_CUT_WORD: Final = "\ufffe"
# A picture may stand in a form that is drawn by another one; a hostile file nests them without end.
_MOST_NESTED: Final = 5


class PdfiumPages:
    """The pages of one PDF by their number from 0."""

    def __init__(self, document: pypdfium2.PdfDocument) -> None:
        self._document = document
        self._count = len(document)

    def text(self, number: int) -> str:
        """The text of a page in reading order; empty where PDFium reads none or cannot load the page."""
        if number >= self._count:
            return ""
        try:
            with closing(self._document[number]) as page, closing(page.get_textpage()) as text_page:
                text: str = text_page.get_text_range()
                return text.replace(_CUT_WORD, "-\n")
        except (PdfiumError, RecursionError):
            # pypdfium2 looks for the first character that can be seen one call deeper for each that cannot.
            return ""

    def has_picture(self, number: int) -> bool:
        """Whether the page shows a picture; no picture is decoded."""
        if number >= self._count:
            return False
        try:
            with closing(self._document[number]) as page:
                pictures = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=_MOST_NESTED)
                return next(iter(pictures), None) is not None
        except PdfiumError:
            return False


class _NoPages(PdfiumPages):
    """Stands for a file that PDFium cannot open."""

    def __init__(self) -> None:
        self._count = 0


@contextmanager
def open_pages(content: bytes) -> Iterator[PdfiumPages]:
    """The pages while the block lasts; all of them are empty where PDFium cannot open the file."""
    try:
        document = pypdfium2.PdfDocument(content)
    except PdfiumError:
        yield _NoPages()
        return
    with closing(document):
        yield PdfiumPages(document)
