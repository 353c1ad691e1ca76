"""Small files of the kinds that people write with programs."""

import io
import zipfile

import docx
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, NumberObject

from headgate.knowledge.reading import Parsed


def text_of(parsed: Parsed) -> str:
    """All of it, one section after the other."""
    return "".join(section.text for section in parsed.sections)


def pdf(*pages: str, outline: dict[str, int] | None = None, title: str = "", password: str = "") -> bytes:
    """A PDF with lines of text on each page; an empty one has no text at all."""
    writer = PdfWriter()
    for text in pages:
        page = writer.add_blank_page(200, 200)
        if text:
            lines = " 0 -14 Td ".join(f"({line}) Tj" for line in text.split("\n"))
            content = DecodedStreamObject()
            content.set_data(f"BT /F1 12 Tf 10 180 Td {lines} ET".encode())
            page[NameObject("/Contents")] = content
            page[NameObject("/Resources")] = _font()
    for chapter, number in (outline or {}).items():
        writer.add_outline_item(chapter, number)
    if title:
        writer.add_metadata({"/Title": title, "/CreationDate": "D:20240506070809Z"})
    if password:
        writer.encrypt(password)
    return _written(writer)


def scan(*, is_broken: bool = False) -> bytes:
    """A PDF with nothing but a picture on its page; what shows it there may be packed as nobody packs."""
    writer = PdfWriter()
    picture, content = DecodedStreamObject(), DecodedStreamObject()
    picture.set_data(b"\xff")
    numbers = {"/Width": 1, "/Height": 1, "/BitsPerComponent": 8}
    names = {"/Type": "/XObject", "/Subtype": "/Image", "/ColorSpace": "/DeviceGray"}
    picture.update({NameObject(key): NumberObject(value) for key, value in numbers.items()})
    picture.update({NameObject(key): NameObject(value) for key, value in names.items()})
    content.set_data(b"q 200 0 0 200 0 0 cm /I0 Do Q")
    if is_broken:
        content[NameObject("/Filter")] = NameObject("/Nobody")
    page = writer.add_blank_page(200, 200)
    page[NameObject("/Contents")] = content
    pictures = DictionaryObject({NameObject("/I0"): picture})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/XObject"): pictures})
    return _written(writer)


def _font() -> DictionaryObject:
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    return DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})


def _written(writer: PdfWriter) -> bytes:
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def word(*paragraphs: tuple[str, str], table: list[list[str]] | None = None, title: str = "") -> bytes:
    """A DOCX with paragraphs as (style, text), and perhaps a table at its end."""
    document = docx.Document()
    for style, text in paragraphs:
        document.add_paragraph(text, style=style)
    if table:
        rows = document.add_table(len(table), len(table[0]))
        for row, texts in zip(rows.rows, table, strict=True):
            for cell, text in zip(row.cells, texts, strict=True):
                cell.text = text
    document.core_properties.title = title
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def word_with(name: str, part: bytes) -> bytes:
    """A DOCX that has something else in place of one of its parts."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as archive, zipfile.ZipFile(changed, "w") as other:
        for own in archive.namelist():
            other.writestr(own, part if own == name else archive.read(own))
    return changed.getvalue()
