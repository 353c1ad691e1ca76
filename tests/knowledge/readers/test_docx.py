"""DOCX: headings, lists, tables and properties; bombs are refused."""

import io
import re
import struct
import zipfile

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers import docx as reading
from tests.knowledge.readers.sample_files import text_of, word, word_with

# Its list of parts is right, but the text cannot be unpacked.
DAMAGED = re.sub(
    rb"(word/document\.xml).{40}", rb"\1" + b"\xff" * 40, word(("Normal", "x")), count=1, flags=re.DOTALL
)

DECLARING = (
    b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    b'<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    b"<w:body><w:p><w:r><w:t>words &x;</w:t></w:r></w:p></w:body></w:document>"
)


def test_styles_make_sections_lists_and_tables() -> None:
    parsed = reading.parse(
        word(
            ("Title", "Handbook"),
            ("Heading 1", "Travel"),
            ("Normal", "Book early."),
            ("List Bullet", "train"),
            ("List Bullet", "bus"),
            table=[["City", "Limit"], ["Bern", "120"]],
        )
    )
    assert [section.path for section in parsed.sections] == [("Handbook",), ("Handbook", "Travel")]
    expected = "# Travel\n\nBook early.\n\n- train\n- bus\n\nCity | Limit\nBern | 120\n\n"
    assert parsed.sections[1].text == expected
    assert parsed.title == "Handbook"


def test_the_properties_of_the_document_come_first() -> None:
    assert reading.parse(word(("Heading 1", "Travel"), title="Rules")).title == "Rules"


def test_a_heading_of_a_template_is_the_heading_that_it_is_made_from() -> None:
    document, file = docx.Document(), io.BytesIO()
    for name, base in {"House Heading": "Heading 2", "House Text": "Normal", "Round": "House Text"}.items():
        document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH).base_style = document.styles[base]
        document.add_paragraph(name, style=name)
    document.styles["House Text"].base_style = document.styles["Round"]
    document.save(file)
    [section] = reading.parse(file.getvalue()).sections
    assert section.path == ("House Heading",)
    assert section.text == "## House Heading\n\nHouse Text\n\nRound\n\n"


def test_a_document_without_properties_has_no_title_and_no_day_of_its_own() -> None:
    whole, bare = io.BytesIO(word(("Normal", "text"), title="Named")), io.BytesIO()
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(bare, "w") as without:
        for part in archive.namelist():
            content = archive.read(part)
            if part == "_rels/.rels":
                content = re.sub(rb"<Relationship [^>]*core-properties[^>]*>", b"", content)
            if part != "docProps/core.xml":
                without.writestr(part, content)
    parsed = reading.parse(bare.getvalue())
    assert (parsed.title, parsed.date) == ("", "")


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(1024))
    # What the list of the archive says of the part's size.
    bomb = bytearray(file.getvalue())
    struct.pack_into("<I", bomb, bomb.rindex(b"PK\x01\x02") + 24, 300 * 1024 * 1024)
    with pytest.raises(DocumentUnreadable, match="more than 256 MiB when it is unpacked"):
        reading.parse(bytes(bomb))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no archive", "no DOCX that can be read"),
        (word(("Normal", "x"))[:-40], "no DOCX that can be read"),
        (word_with("word/document.xml", b"<w:document><w:bo"), "no DOCX that can be read"),
        (word_with("word/styles.xml", b""), "no DOCX that can be read"),
        (word_with("word/document.xml", DECLARING), "has a document type declaration, which no DOCX"),
        (DAMAGED, "no DOCX that can be read"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", "save it as DOCX without a password"),
    ],
)
def test_what_is_no_docx_says_so(content: bytes, reason: str) -> None:
    with pytest.raises(DocumentUnreadable, match=reason):
        reading.parse(content)


def test_text_of_a_document_has_no_entities_of_others() -> None:
    assert text_of(reading.parse(word(("Normal", "a & b <c>")))) == "a & b <c>\n\n"


def test_what_stands_in_forms_boxes_and_proposals_is_read_and_what_is_to_leave_is_not() -> None:
    text = text_of(reading.parse(_with_body(FORM)))
    assert text == "Fill in: your name\n\nkept added\tend\n\nin a box\n\ncell inner | b\n\n"


@pytest.mark.parametrize(
    "look",
    [
        "<w:vanish/>",
        '<w:vanish w:val="true"/>',
        '<w:rStyle w:val="Whisper"/>',
        '<w:rStyle w:val="Softer"/>',
    ],
)
def test_hidden_text_is_not_read(look: str) -> None:
    body = f"<w:p><w:r><w:t>seen</w:t></w:r><w:r><w:rPr>{look}</w:rPr><w:t>unseen</w:t></w:r></w:p>"
    assert text_of(reading.parse(_with_body(body, WHISPER))) == "seen\n\n"


def test_hidden_paragraphs_and_rows_are_not_read() -> None:
    body = """
<w:p><w:pPr><w:pStyle w:val="Hushed"/></w:pPr><w:r><w:t>unseen</w:t></w:r>
  <w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>loud </w:t></w:r>
  <w:r><w:rPr><w:rStyle w:val="Whisper"/></w:rPr><w:t>and twice hidden</w:t></w:r></w:p>
<w:tbl><w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p><w:r><w:t>unseen</w:t></w:r></w:p></w:tc></w:tr>
  <w:tr><w:tc><w:p><w:r><w:t>row</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"""
    assert text_of(reading.parse(_with_body(body, WHISPER))) == "loud and twice hidden\n\nrow\n\n"


def test_text_that_is_hidden_twice_is_not_read_either() -> None:
    twice = "<w:r><w:rPr><w:vanish/><w:vanish/></w:rPr><w:t>unseen</w:t></w:r>"
    cell = "<w:tc><w:p><w:r><w:t>unseen</w:t></w:r></w:p></w:tc>"
    row = f"<w:tr><w:trPr><w:hidden/><w:hidden/></w:trPr>{cell}</w:tr>"
    body = f"<w:p>{twice}<w:r><w:t>seen</w:t></w:r></w:p><w:tbl>{row}</w:tbl>"
    assert text_of(reading.parse(_with_body(body))) == "seen\n\n"


def test_a_mark_of_a_paragraph_that_is_hidden_does_not_hide_its_text() -> None:
    body = "<w:p><w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr><w:r><w:t>seen</w:t></w:r></w:p>"
    assert text_of(reading.parse(_with_body(body))) == "seen\n\n"


WHISPER = """
<w:style w:type="character" w:styleId="Whisper"><w:name w:val="Whisper"/><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type="character" w:styleId="Softer"><w:name w:val="Softer"/><w:basedOn w:val="Whisper"/></w:style>
<w:style w:type="paragraph" w:styleId="Hushed"><w:name w:val="Hushed"/><w:rPr><w:vanish/></w:rPr></w:style>
"""
FORM = """
<w:sdt><w:sdtPr/><w:sdtContent>
  <w:p><w:r><w:t xml:space="preserve">Fill in: </w:t></w:r>
    <w:sdt><w:sdtContent><w:r><w:t>your name</w:t></w:r></w:sdtContent></w:sdt></w:p>
</w:sdtContent></w:sdt>
<w:p><w:r><w:t xml:space="preserve">kept </w:t></w:r><w:ins><w:r><w:t>added</w:t></w:r></w:ins>
  <w:del><w:r><w:delText>deleted</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom>
  <w:r><w:tab/><w:t>end</w:t></w:r>
  <w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p>
    </w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p>
    </w:txbxContent></mc:Fallback></mc:AlternateContent></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p>
  <w:tbl><w:tr><w:tc><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:tc>
  <w:sdt><w:sdtContent><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:sdtContent></w:sdt></w:tr></w:tbl>
"""


def _with_body(body: str, styles: str = "") -> bytes:
    """A DOCX with this between the beginning and the end of its text, and these styles besides its own."""
    names = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as archive, zipfile.ZipFile(changed, "w") as other:
        for name in archive.namelist():
            part = archive.read(name).decode("latin-1")
            if name == "word/document.xml":
                part = re.sub(
                    "<w:body>.*</w:body>", f"<w:body {names}>{body}</w:body>", part, flags=re.DOTALL
                )
            if name == "word/styles.xml":
                part = part.replace("</w:styles>", f"{styles}</w:styles>")
            other.writestr(name, part.encode("latin-1"))
    return changed.getvalue()
