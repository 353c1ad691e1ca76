"""PDF: the text of each page, under the titles of the outline where there is one."""

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination

from headgate.documents.dates import day_of
from headgate.documents.draft import Draft
from headgate.documents.limits import MOST_DEPTH, MOST_PAGES
from headgate.documents.text import clean, one_line
from headgate.knowledge.reading import Parsed, Unreadable

log = logging.getLogger("headgate.documents")


def parse(content: bytes) -> Parsed:
    """The pages; raises Unreadable for one that is encrypted, has only pictures, or is no PDF at all."""
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise Unreadable("is encrypted; save it without a password")
        pages = len(reader.pages)
    except DependencyError as error:
        raise Unreadable("is encrypted in a way that cannot be read; save it without a password") from error
    except PyPdfError as error:
        raise Unreadable("is no PDF that can be read; save it again") from error
    if pages > MOST_PAGES:
        raise Unreadable(f"has more than {MOST_PAGES} pages; split it")
    draft = Draft()
    if not _add_pages(reader, draft):
        raise Unreadable("has no text, only pictures of it; run text recognition (OCR) over it")
    title, date = _said(reader)
    return Parsed(sections=draft.sections(), doc_type="pdf", title=title, date=date)


def _add_pages(reader: PdfReader, draft: Draft) -> bool:
    """Whether there was any text."""
    chapters, labels = _chapters(reader), _labels(reader)
    chapter: tuple[str, ...] = ()
    anything = False
    for number, page in enumerate(reader.pages):
        chapter = chapters.get(number, chapter)
        try:
            text = page.extract_text()
        except Exception:
            # One page that is broken does not take the others with it.
            log.exception("page %d cannot be read", number + 1)
            continue
        label = labels[number] if number < len(labels) else str(number + 1)
        draft.section((*chapter, f"Page {label}"))
        draft.paragraph(text)
        anything = anything or bool(clean(text).strip())
    return anything


def _labels(reader: PdfReader) -> list[str]:
    try:
        return [one_line(label) for label in reader.page_labels]
    except Exception:
        log.exception("the page labels cannot be read")
        return []


def _chapters(reader: PdfReader) -> dict[int, tuple[str, ...]]:
    """The titles above each page on which one of them begins, by its number from 0."""
    try:
        return dict(_entries(reader, reader.outline, ()))
    except Exception:
        log.exception("the outline cannot be read")
        return {}


def _entries(
    reader: PdfReader, items: Sequence[Any], above: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    path = above
    for item in items:
        if isinstance(item, list):
            if len(path) < MOST_DEPTH:
                yield from _entries(reader, item, path)
        elif isinstance(item, Destination):
            path = (*above, one_line(clean(str(item.title or ""))) or "Untitled")
            number = reader.get_destination_page_number(item)
            if number is not None:
                yield number, path


def _said(reader: PdfReader) -> tuple[str, str]:
    """Title and day, as far as they are there."""
    try:
        told = reader.metadata
        if told is None:
            return "", ""
        raw = told.get("/ModDate") or told.get("/CreationDate") or ""
        return one_line(clean(str(told.title or ""))), day_of(str(raw))
    except Exception:
        log.exception("the properties cannot be read")
        return "", ""
