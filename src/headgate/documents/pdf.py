"""PDF: the text of each page and what was filled into its form, under the titles of the outline."""

import io
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination, DictionaryObject

from headgate.documents.dates import day_of
from headgate.documents.draft import Draft
from headgate.documents.limits import MOST_DEPTH, MOST_PAGES
from headgate.documents.pages import with_whole_words, without_running_lines
from headgate.documents.pdf_form import form_values
from headgate.documents.pdf_text import PdfiumPages, open_pages
from headgate.documents.text import clean, one_line
from headgate.knowledge.reading import Parsed, Unreadable

log = logging.getLogger("headgate.documents")


def parse(content: bytes) -> Parsed:
    """The pages; raises Unreadable for one that is encrypted, has no text, or is no PDF at all."""
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise Unreadable("is encrypted; save it without a password")
        count = len(reader.pages)
    except DependencyError as error:
        raise Unreadable("is encrypted in a way that cannot be read; save it without a password") from error
    except PyPdfError as error:
        raise Unreadable("is no PDF that can be read; save it again") from error
    if count > MOST_PAGES:
        raise Unreadable(f"has more than {MOST_PAGES} pages; split it")
    with open_pages(content) as pages:
        texts = list(_texts(reader, pages))
        filled = form_values(reader)
        pictured = [
            number
            for number, text in enumerate(texts)
            if not text and (pages.has_picture(number) or _has_picture(reader.pages[number]))
        ]
    if not filled and not any(texts):
        raise Unreadable(_why_empty(texts, has_pictures=bool(pictured)))
    if pictured:
        log.warning("%d of %d pages have no text, only pictures of it", len(pictured), len(texts))
    draft = Draft()
    whole = with_whole_words(without_running_lines([text or "" for text in texts]))
    _add_pages(reader, whole, filled, draft)
    title, date = _said(reader)
    return Parsed(sections=draft.sections(), doc_type="pdf", title=title, date=date)


def _texts(reader: PdfReader, pages: PdfiumPages) -> Iterator[str | None]:
    """What stands on each page, empty where that is nothing, and None for one that cannot be read.

    pypdf reads what PDFium does not: files that break the rules in ways which only pypdf forgives.
    """
    for number, page in enumerate(reader.pages):
        text: str | None = _filled_text(pages.text(number))
        if not text:
            try:
                text = _filled_text(page.extract_text())
            except Exception as error:  # noqa: BLE001 (one broken page does not take the others with it)
                log.warning("page %d cannot be read (%s)", number + 1, type(error).__name__)
                text = None
        yield text


def _filled_text(text: str) -> str:
    text = clean(text)
    return "" if text.isspace() else text


def _has_picture(page: PageObject) -> bool:
    """Whether pypdf finds a picture among what the page uses; it decodes none, which would need Pillow."""
    try:
        kept = page.get("/Resources", DictionaryObject()).get_object().get("/XObject", DictionaryObject())
        return any(one.get_object().get("/Subtype") == "/Image" for one in kept.get_object().values())
    except Exception as error:  # noqa: BLE001 (what is broken shows no picture)
        log.warning("the pictures cannot be looked for (%s)", type(error).__name__)
        return False


def _why_empty(texts: Sequence[str | None], *, has_pictures: bool) -> str:
    if None in texts:
        return "has pages that are broken, and no text on the others; save it again"
    if has_pictures:
        return "has no text, only pictures of it; run text recognition (OCR) over it"
    return "has no text: its pages are empty, or only drawn on; save it again with its text"


def _add_pages(
    reader: PdfReader, texts: Sequence[str], filled: Mapping[int, Sequence[str]], draft: Draft
) -> None:
    chapters, labels = _chapters(reader), _labels(reader)
    chapter: tuple[str, ...] = ()
    for number, text in enumerate(texts):
        begun = chapters.get(number, [])
        label = labels[number] if number < len(labels) else str(number + 1)
        draft.section((*(_first(begun) or chapter), f"Page {label}"))
        draft.paragraph(text)
        draft.paragraph("\n".join(filled.get(number, ())))
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
