"""PDF: page texts by PDFium, form values and outline by pypdf."""

import io
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, TypeVar

import pypdfium2  # type: ignore[import-untyped]
from pypdf import PageObject, PasswordType, PdfReader
from pypdf.constants import FieldDictionaryAttributes as Key
from pypdf.errors import DependencyError, PyPdfError
from pypdf.generic import Destination, DictionaryObject
from pypdfium2 import PdfiumError, raw

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MOST_DEPTH, MOST_PAGES
from headgate.knowledge.readers.running_headers import with_whole_words, without_running_lines
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import clean, day_of, one_line

# PDFium's marks for a hyphen at the end of a line, and for the end of that line.
_CUT_WORD: Final = "\ufffe"
# A picture may stand in a form that is drawn by another one; a hostile file nests them without end.
_MOST_NESTED: Final = 5


class PdfiumPages:
    def __init__(self, document: pypdfium2.PdfDocument | tuple[()]) -> None:
        self._document = document

    def text(self, number: int) -> str:
        """The text of a page in reading order; empty where PDFium reads none or cannot load the page."""
        if number >= len(self._document):
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
        if number >= len(self._document):
            return False
        try:
            with closing(self._document[number]) as page:
                pictures = page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=_MOST_NESTED)
                return next(iter(pictures), None) is not None
        except PdfiumError:
            return False


@contextmanager
def open_pages(content: bytes) -> Iterator[PdfiumPages]:
    """The pages while the block lasts; all of them are empty where PDFium cannot open the file."""
    try:
        document = pypdfium2.PdfDocument(content)
    except PdfiumError:
        yield PdfiumPages(())
        return
    with closing(document):
        yield PdfiumPages(document)


log = logging.getLogger("headgate.knowledge.readers")

T = TypeVar("T")


def _attempt(failure: str, work: Callable[..., T], *arguments: object) -> T | None:
    """The result, or None after an error: the text of the other parts is there all the same."""
    try:
        return work(*arguments)
    except Exception as error:  # noqa: BLE001 (any error of a parser)
        log.warning("%s (%s)", failure, type(error).__name__)
        return None


# Bits of a field's flags: a value that is typed unseen, and a button that only starts something.
_PASSWORD: Final = 1 << 13
_PUSH_BUTTON: Final = 1 << 16
_OFF: Final = "/Off"


def form_values(reader: PdfReader) -> dict[int, list[str]]:
    """The fields that have a value as lines of `name: value`, by the number of their page from 0."""
    if "/AcroForm" not in reader.root_object:
        return {}
    seen: set[str] = set()
    return {
        number: lines
        for number, page in enumerate(reader.pages)
        if (lines := list(_lines_of(number, page, seen)))
    }


def _lines_of(number: int, page: PageObject, seen: set[str]) -> Iterator[str]:
    """The fields of a form; one in several places, as a radio button, counts at the first."""
    try:
        for annotation in page.get("/Annots") or ():
            line = _line(_inherited(annotation.get_object()))
            if line and line not in seen:
                seen.add(line)
                yield line
    except Exception as error:  # noqa: BLE001 (the text of the page is there all the same)
        log.warning("the form on page %d cannot be read (%s)", number + 1, type(error).__name__)


def _inherited(widget: Any) -> dict[str, Any]:
    """The attributes of a widget and of its parents; the nearest wins, and the names are joined."""
    inherited: dict[str, Any] = {}
    names: list[str] = []
    field = widget
    for _ in range(MOST_DEPTH):
        if field.get(Key.T):
            names.insert(0, str(field[Key.T]))
        for key in ("/Subtype", Key.FT, Key.Ff, Key.V, Key.TU):
            if key in field and key not in inherited:
                inherited[key] = field[key]
        parent = field.get(Key.Parent)
        if parent is None:
            break
        field = parent.get_object()
    return inherited | {Key.T: ".".join(names)}


def _line(field: dict[str, Any]) -> str:
    """Empty for what is no field, has no value, or has one that is not for reading."""
    if field.get("/Subtype") != "/Widget":
        return ""
    kind, flags = field.get(Key.FT), int(field.get(Key.Ff, 0))
    hidden = (kind == "/Tx" and flags & _PASSWORD) or (kind == "/Btn" and flags & _PUSH_BUTTON)
    if kind not in ("/Tx", "/Ch", "/Btn") or hidden:
        return ""
    value = _value(field.get(Key.V), is_button=kind == "/Btn")
    name = one_line(clean(str(field.get(Key.TU) or field[Key.T])))
    return f"{name}: {value}" if name and value else value


def _value(value: Any, *, is_button: bool) -> str:
    """A text, a choice, several choices, or the state of a button."""
    value = value.get_object() if hasattr(value, "get_object") else value
    if value is None or (is_button and value == _OFF):
        return ""
    if isinstance(value, list):
        return ", ".join(filter(None, (_value(one, is_button=False) for one in value)))
    if hasattr(value, "get_data"):
        value = value.get_data().decode("utf-8", "replace")
    text = clean(str(value)).strip()
    return text.removeprefix("/") if is_button else text


def parse(content: bytes) -> ParsedDocument:
    """The pages; raises DocumentUnreadable for a file that is encrypted, has no text, or is no PDF."""
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise DocumentUnreadable("is encrypted; save it without a password")
        count = len(reader.pages)
    except DependencyError as error:
        raise DocumentUnreadable(
            "is encrypted in a way that cannot be read; save it without a password"
        ) from error
    except PyPdfError as error:
        raise DocumentUnreadable("is no PDF that can be read; save it again") from error
    if count > MOST_PAGES:
        raise DocumentUnreadable(f"has more than {MOST_PAGES} pages; split it")
    with open_pages(content) as pages:
        texts = list(_texts(reader, pages))
        filled = form_values(reader)
        pictured = [
            number
            for number, text in enumerate(texts)
            if not text
            and (
                pages.has_picture(number)
                or _attempt("the pictures cannot be looked for", _has_picture, reader.pages[number])
            )
        ]
    if not filled and not any(texts):
        if None in texts:
            raise DocumentUnreadable("has pages that are broken, and no text on the others; save it again")
        if pictured:
            raise DocumentUnreadable("has no text, only pictures of it; run text recognition (OCR) over it")
        raise DocumentUnreadable(
            "has no text: its pages are empty, or only drawn on; save it again with its text"
        )
    if pictured:
        log.warning("%d of %d pages have no text, only pictures of it", len(pictured), len(texts))
    builder = SectionBuilder()
    whole = with_whole_words(without_running_lines([text or "" for text in texts]))
    _add_pages(reader, whole, filled, builder)
    title, date = _attempt("the properties cannot be read", _title_and_date, reader) or ("", "")
    return ParsedDocument(sections=builder.sections(), doc_type="pdf", title=title, date=date)


def _texts(reader: PdfReader, pages: PdfiumPages) -> Iterator[str | None]:
    """The text of each page, empty for a blank one, and None for an unreadable one.

    pypdf reads what PDFium does not: files that break the rules in ways which only pypdf forgives.
    """
    for number, page in enumerate(reader.pages):
        text: str | None = clean(pages.text(number))
        if not text or text.isspace():
            text = _attempt(f"page {number + 1} cannot be read", lambda one: clean(one.extract_text()), page)
        yield "" if text and text.isspace() else text


def _has_picture(page: PageObject) -> bool:
    """Whether pypdf finds a picture among what the page uses; it decodes none, which would need Pillow."""
    kept = page.get("/Resources", DictionaryObject()).get_object().get("/XObject", DictionaryObject())
    return any(one.get_object().get("/Subtype") == "/Image" for one in kept.get_object().values())


def _add_pages(
    reader: PdfReader, texts: Sequence[str], filled: Mapping[int, Sequence[str]], builder: SectionBuilder
) -> None:
    chapters: defaultdict[int, list[tuple[str, ...]]] = defaultdict(list)
    entries = _attempt("the outline cannot be read", lambda: list(_entries(reader, reader.outline, ())))
    for number, path in entries or ():
        chapters[number].append(path)
    labels = _attempt("the page labels cannot be read", lambda: list(reader.page_labels)) or []
    chapter: tuple[str, ...] = ()
    for number, text in enumerate(texts):
        begun = chapters[number]
        label = one_line(clean(labels[number])) if number < len(labels) else str(number + 1)
        builder.begin_section((*(_first(begun) or chapter), f"Page {label}"))
        builder.add_paragraph(text)
        builder.add_paragraph("\n".join(filled.get(number, ())))
        chapter = begun[-1] if begun else chapter


def _first(begun: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The first outline title of a page, with its nested titles on the same page."""
    path: tuple[str, ...] = ()
    for title in begun:
        if path and title[:-1] != path:
            break
        path = title
    return path


def _entries(
    reader: PdfReader, items: Sequence[Any], above: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The titles of the outline, each with those above it, by the number of its page from 0."""
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


def _title_and_date(reader: PdfReader) -> tuple[str, str]:
    metadata = reader.metadata
    if metadata is None:
        return "", ""
    raw = metadata.get("/ModDate") or metadata.get("/CreationDate") or ""
    return one_line(clean(str(metadata.title or ""))), day_of(str(raw))
