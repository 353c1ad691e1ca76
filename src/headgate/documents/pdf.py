"""PDF: the text of each page, under the titles of the outline where there is one."""

import io
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination

from headgate.documents.dates import day_of
from headgate.documents.draft import Draft
from headgate.documents.limits import MOST_DEPTH, MOST_PAGES
from headgate.documents.pages import with_whole_words, without_running_lines
from headgate.documents.text import clean, one_line
from headgate.knowledge.reading import Parsed, Unreadable

log = logging.getLogger("headgate.documents")


def parse(content: bytes) -> Parsed:
    """The pages; raises Unreadable for one that is encrypted, has no text, or is no PDF at all."""
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
    texts = list(_texts(reader))
    if not any(text and text.strip() for text in texts):
        raise Unreadable(_why_empty(reader, texts))
    draft = Draft()
    _add_pages(reader, with_whole_words(without_running_lines([text or "" for text in texts])), draft)
    title, date = _said(reader)
    return Parsed(sections=draft.sections(), doc_type="pdf", title=title, date=date)


def _texts(reader: PdfReader) -> Iterator[str | None]:
    """What stands on each page, and None for one that cannot be read."""
    for number, page in enumerate(reader.pages):
        try:
            text = clean(page.extract_text())
        except Exception as error:  # noqa: BLE001 (one page that is broken does not take the others with it)
            log.warning("page %d cannot be read (%s)", number + 1, type(error).__name__)
            yield None
        else:
            yield text


def _why_empty(reader: PdfReader, texts: Sequence[str | None]) -> str:
    try:
        has_pictures = any(page.images.keys() for page in reader.pages)
        is_broken = None in texts
    except Exception as error:  # noqa: BLE001 (that something is broken is told)
        log.warning("the pictures cannot be looked for (%s)", type(error).__name__)
        has_pictures, is_broken = False, True
    if is_broken:
        return "has pages that are broken, and no text on the others; save it again"
    if has_pictures:
        return "has no text, only pictures of it; run text recognition (OCR) over it"
    return "has no text: its pages are empty, or only drawn on; save it again with its text"


def _add_pages(reader: PdfReader, texts: Sequence[str], draft: Draft) -> None:
    chapters, labels = _chapters(reader), _labels(reader)
    chapter: tuple[str, ...] = ()
    for number, text in enumerate(texts):
        begun = chapters.get(number, [])
        label = labels[number] if number < len(labels) else str(number + 1)
        draft.section((*(_first(begun) or chapter), f"Page {label}"))
        draft.paragraph(text)
        chapter = begun[-1] if begun else chapter


def _first(begun: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Of the titles that begin on a page the first, with those that begin right below it."""
    path: tuple[str, ...] = ()
    for title in begun:
        if path and title[:-1] != path:
            break
        path = title
    return path


def _labels(reader: PdfReader) -> list[str]:
    try:
        return [one_line(clean(label)) for label in reader.page_labels]
    except Exception as error:  # noqa: BLE001 (the text is there all the same)
        log.warning("the page labels cannot be read (%s)", type(error).__name__)
        return []


def _chapters(reader: PdfReader) -> dict[int, list[tuple[str, ...]]]:
    """The titles that begin on each page, with those above them, by its number from 0."""
    begun: defaultdict[int, list[tuple[str, ...]]] = defaultdict(list)
    try:
        for number, path in _entries(reader, reader.outline, ()):
            begun[number].append(path)
    except Exception as error:  # noqa: BLE001 (the text is there all the same)
        log.warning("the outline cannot be read (%s)", type(error).__name__)
        return {}
    return begun


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
    except Exception as error:  # noqa: BLE001 (the text is there all the same)
        log.warning("the properties cannot be read (%s)", type(error).__name__)
        return "", ""
