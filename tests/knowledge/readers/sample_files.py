"""Small files of the kinds that people write with programs."""

import io
import zipfile

import docx
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, NumberObject

from headgate.knowledge.ingestion.document_source import ParsedDocument


def text_of(parsed: ParsedDocument) -> str:
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


def tex_pdf(*lines: str) -> bytes:
    """A PDF as TeX writes it: glyphs by number, and no space between words but a shift of the next one.

    Glyph 32 is a wide one and no space, which a reader must not take for the width of a space.
    """
    rows = []
    for line in lines:
        words = " -195 ".join(f"<{word.encode('utf-16-be').hex()}>" for word in line.split())
        rows.append(f"[{words}] TJ 0 -14 Td")
    system = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
    glyphs = f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Serif {system} /W [32 [1000] 33 126 556] >>"
    font = "<< /Type /Font /Subtype /Type0 /BaseFont /Serif /Encoding /Identity-H"
    letters = (
        "begincmap 1 begincodespacerange <0000> <ffff> endcodespacerange"
        " 1 beginbfrange <0021> <007e> <0021> endbfrange endcmap"
    )
    return raw_pdf(
        f"BT /F1 10 Tf 10 180 Td {' '.join(rows)} ET",
        f"<< /Length {len(letters)} >>\nstream\n{letters}\nendstream",
        fonts=f"/F1 {font} /DescendantFonts [{glyphs}] /ToUnicode 5 0 R >>",
    )


def inline_scan() -> bytes:
    """A scan whose picture stands among the drawing operators of its page."""
    return raw_pdf("q 200 0 0 200 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G /F /AHx ID ff> EI Q")


def raw_pdf(content: str, *others: str, fonts: str = "", widgets: str = "") -> bytes:
    """A PDF of one page with these drawing operators; the other objects are numbered from 5."""
    return _assembled(
        f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{widgets}] >> >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 200] /Contents 4 0 R"
        f" /Resources << /Font << {fonts} >> >> /Annots [{widgets}] >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        *others,
    )


def form_pdf(*fields: str, content: str = "") -> bytes:
    """A PDF with these fields in a form on its page, each given as the entries of its widget."""
    font = "/F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    shown = f"BT /F1 10 Tf 10 180 Td ({content}) Tj ET" if content else ""
    widgets = [f"<< /Type /Annot /Subtype /Widget /Rect [10 10 90 30] {field} >>" for field in fields]
    numbers = " ".join(f"{number} 0 R" for number in range(5, 5 + len(widgets)))
    return raw_pdf(shown, *widgets, fonts=font, widgets=numbers)


def _assembled(*objects: str) -> bytes:
    """A PDF of these objects, of which the first is the catalog, with the table of where each begins."""
    file = bytearray(b"%PDF-1.7\n")
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(file))
        file += f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(file)}\n%%EOF\n"
    return bytes(file) + (head + trailer).encode("latin-1")


def scan(*, is_broken: bool = False) -> bytes:
    """A PDF with nothing but a picture on its page; what shows it there may be packed in an unusual way."""
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
