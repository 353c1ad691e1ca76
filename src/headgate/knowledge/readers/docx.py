"""Reads DOCX: headings, paragraphs, lists and tables, without deleted and hidden text."""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import docx
from docx.document import Document
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import OpcError
from docx.oxml.ns import qn
from docx.text.paragraph import Paragraph

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.limits import MIB, MOST_PARTS, MOST_STYLES, MOST_UNPACKED_BYTES
from headgate.knowledge.readers.section_builder import SectionBuilder
from headgate.knowledge.readers.text import clean, one_line

_RUN: Final = qn("w:r")
_HIDDEN: Final = qn("w:hidden")
_VANISH: Final = qn("w:vanish")
_OWN_VANISH: Final = f"{qn('w:rPr')}/{_VANISH}"
_VALUE: Final = qn("w:val")
_OFF: Final = frozenset(["0", "false", "off"])


def _hidden(body: Any, hiding: Mapping[str | None, bool]) -> Iterator[Any]:
    for mark in body.iter(_HIDDEN):
        row = mark.getparent().getparent()
        if row.tag == _ROW and _is_on(mark):
            yield row
    if any(hiding.values()):
        yield from (run for run in body.iter(_RUN) if _is_hidden(run, hiding))
    else:
        # Most documents: to ask each of their runs would take longer than to read them.
        runs = (mark.getparent().getparent() for mark in body.iter(_VANISH) if _is_on(mark))
        yield from (run for run in runs if run.tag == _RUN)


def _hiding_styles(document: Document) -> dict[str | None, bool]:
    """Whether each style hides text; None is the default style."""
    styles = {style.get(qn("w:styleId")): style for style in document.styles.element.iter(qn("w:style"))}
    hiding: dict[str | None, bool] = {name: _hides(style, styles) for name, style in styles.items()}
    for name, style in styles.items():
        if style.get(qn("w:type")) == "paragraph" and style.get(qn("w:default")) not in (None, *_OFF):
            hiding[None] = hiding[name]
    return hiding


def _hides(style: Any, styles: Mapping[str | None, Any]) -> bool:
    """By itself, or else as the one that it is made from."""
    for _ in range(MOST_STYLES):
        if style is None:
            break
        hidden = _vanishes(style)
        if hidden is not None:
            return hidden
        style = styles.get(_named(style, "w:basedOn"))
    return False


def _is_hidden(run: Any, hiding: Mapping[str | None, bool]) -> bool:
    hidden = _vanishes(run)
    if hidden is not None:
        return hidden
    paragraph = next(run.iterancestors(_PARAGRAPH), None)
    outer = hiding.get(_named(paragraph, "w:pPr", "w:pStyle"), False)
    inner = _named(run, "w:rPr", "w:rStyle")
    # A style inside of another that hides too shows the text again: this is how Word reads it.
    return outer != (inner is not None and hiding.get(inner, False))


def _vanishes(element: Any) -> bool | None:
    """Whether the element is set to be hidden, or not to be; None where it is not set."""
    found = element.find(_OWN_VANISH)
    return None if found is None else _is_on(found)


def _is_on(mark: Any) -> bool:
    return mark.get(_VALUE) not in _OFF


def _named(element: Any, *path: str) -> str | None:
    found = None if element is None else element.find("/".join(map(qn, path)))
    return None if found is None else found.get(_VALUE)


_HEADING: Final = re.compile(r"(?i:heading ([1-9]))|Title\Z")
_PARAGRAPH: Final = qn("w:p")
_TABLE: Final = qn("w:tbl")
_ROW: Final = qn("w:tr")
_CELL: Final = qn("w:tc")
_TEXT: Final = qn("w:t")
_BOX: Final = qn("w:txbxContent")
_MARKS: Final = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
# The same once more, for programs that know less.
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# Deleted and moved text, formatting, and data for programs.
_LEFT_OUT: Final = frozenset(
    [*(qn(f"w:{name}") for name in ("del", "moveFrom", "pPr", "rPr", "sdtPr", "sectPr")), _FALLBACK]
)
# Errors of the archive, its parts (lxml raises SyntaxError), and their relations.
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError),
    *(SyntaxError, OpcError, KeyError, ValueError),
)
# How Word 97 begins, and also a document with a password.
_COMPOUND: Final = b"\xd0\xcf\x11\xe0"


def parse(content: bytes) -> ParsedDocument:
    """The text by its headings; raises DocumentUnreadable for an encrypted file, a zip bomb, or no DOCX."""
    if content.startswith(_COMPOUND):
        raise DocumentUnreadable("is encrypted, or of an old Word; save it as DOCX without a password")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
        # The archive never yields more bytes for a part than its directory lists.
        if len(parts) > MOST_PARTS or sum(part.file_size for part in parts) > MOST_UNPACKED_BYTES:
            raise DocumentUnreadable(
                f"has more than {MOST_UNPACKED_BYTES // MIB} MiB when it is unpacked; split it"
            )
        document = docx.Document(io.BytesIO(content))
    except _BROKEN as error:
        raise DocumentUnreadable("is no DOCX that can be read; save it again") from error
    if document.element.getroottree().docinfo.doctype:
        # The format forbids it, and what entities that it declares stand for is not looked up.
        raise DocumentUnreadable("has a document type declaration, which no DOCX may have; save it again")
    # Each once: a document may mark a run as hidden twice.
    for hidden in dict.fromkeys(_hidden(document.element.body, _hiding_styles(document))):
        hidden.getparent().remove(hidden)
    builder = SectionBuilder()
    styles: dict[str | None, str] = {}
    for block in _blocks(document.element.body):
        if block.tag == _TABLE:
            builder.add_paragraph("\n".join(_rows(block)))
        else:
            # Each is looked for once: that takes longer than all the rest.
            if block.style not in styles:
                styles[block.style] = _style(Paragraph(block, document).style)
            _add_paragraph(block, styles[block.style], builder)
    title, date = _title_and_date(document)
    sections = builder.sections()
    top = next((section.path[0] for section in sections if section.path), "")
    return ParsedDocument(sections=sections, doc_type="docx", title=title or top, date=date)


def _blocks(parent: Any) -> Iterator[Any]:
    """The paragraphs and tables, also those in forms and in proposed insertions."""
    for child in parent:
        if child.tag in (_PARAGRAPH, _TABLE):
            yield child
        elif child.tag not in _LEFT_OUT:
            yield from _blocks(child)


def _style(own: Any) -> str:
    """The name of the style, or that of the heading which it is made from: templates have their own."""
    style = own
    for _ in range(MOST_STYLES):
        if style is None:
            break
        if _HEADING.match(style.name or ""):
            return str(style.name)
        style = style.base_style
    return (own.name if own is not None else None) or ""


def _add_paragraph(paragraph: Any, style: str, builder: SectionBuilder) -> None:
    text = "".join(_texts(paragraph))
    if heading := _HEADING.match(style):
        builder.add_heading(int(heading[1] or 0), text)
    elif style.startswith("List") and text.strip():
        builder.add_item(f"- {text}")
    else:
        builder.add_paragraph(text)
    for line in _in_boxes(paragraph):
        builder.add_paragraph(line)


def _in_boxes(paragraph: Any) -> Iterator[str]:
    """The text boxes of a paragraph; a nested box comes after its parent."""
    for box in paragraph.iter(_BOX):
        if not any(above.tag == _FALLBACK for above in box.iterancestors()):
            yield from _lines(box)


def _texts(parent: Any) -> Iterator[str]:
    """The visible text of a paragraph, with proposed insertions and without proposed deletions."""
    for child in parent:
        if child.tag == _TEXT:
            yield child.text or ""
        elif child.tag in _MARKS:
            yield _MARKS[child.tag]
        elif child.tag not in _LEFT_OUT and child.tag != _BOX:
            yield from _texts(child)


def _rows(table: Any) -> Iterator[str]:
    for row in table.iter(_ROW):
        # A nested table belongs to its cell.
        if next(row.iterancestors(_TABLE)) is table:
            own = (cell for cell in row.iter(_CELL) if next(cell.iterancestors(_ROW)) is row)
            cells = [one_line(" ".join((*_lines(cell), *_in_boxes(cell)))) for cell in own]
            if any(cells):
                yield " | ".join(cells)


def _lines(parent: Any) -> Iterator[str]:
    for block in _blocks(parent):
        if block.tag == _TABLE:
            yield from _rows(block)
        else:
            yield "".join(_texts(block))


def _title_and_date(document: Document) -> tuple[str, str]:
    try:
        document.part.package.part_related_by(RELATIONSHIP_TYPE.CORE_PROPERTIES)
    except KeyError:
        # Not every program writes properties, and those that would be made up here are of today.
        return "", ""
    properties = document.core_properties
    day = properties.modified or properties.created
    return one_line(clean(properties.title or "")), day.date().isoformat() if day is not None else ""
