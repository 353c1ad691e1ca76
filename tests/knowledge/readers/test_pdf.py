"""PDF: pages and chapters, and one sentence for what cannot be read."""

import io
import re

import pytest
from pypdf import PdfWriter

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers.pdf import parse
from tests.knowledge.readers.sample_files import form_pdf, inline_scan, pdf, scan, tex_pdf, text_of


def test_each_page_is_a_section_with_its_number() -> None:
    parsed = parse(pdf("Terms of supply", "Payment in 30 days", title="Supply"))
    assert [section.path for section in parsed.sections] == [("Page 1",), ("Page 2",)]
    assert text_of(parsed) == "Terms of supply\n\nPayment in 30 days\n\n"
    assert (parsed.title, parsed.date) == ("Supply", "2024-05-06")


def test_pages_stand_below_the_titles_of_the_outline() -> None:
    parsed = parse(pdf("cover", "terms", "more terms", outline={"Terms": 1}))
    assert [section.path for section in parsed.sections] == [
        ("Page 1",),
        ("Terms", "Page 2"),
        ("Terms", "Page 3"),
    ]


def test_a_page_on_which_several_titles_begin_stands_below_the_first_of_them() -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("one", "two", "three")))
    part = writer.add_outline_item("Part", 0)
    for title, page in (("A", 0), ("B", 1), ("C", 1)):
        writer.add_outline_item(title, page, parent=part)
    written = io.BytesIO()
    writer.write(written)
    assert [section.path for section in parse(written.getvalue()).sections] == [
        ("Part", "A", "Page 1"),
        ("Part", "B", "Page 2"),
        ("Part", "C", "Page 3"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pdf("secret", password="pass"), "is encrypted; save it without a password"),
        (scan(), "has no text, only pictures of it; run text recognition (OCR) over it"),
        (inline_scan(), "has no text, only pictures of it; run text recognition (OCR) over it"),
        (scan(is_broken=True), "has pages that are broken, and no text on the others; save it again"),
        (pdf(""), "has no text: its pages are empty, or only drawn on; save it again with its text"),
        (b"%PDF-1.7 broken", "is no PDF that can be read; save it again"),
    ],
)
def test_what_cannot_be_read_says_why_in_one_sentence(content: bytes, reason: str) -> None:
    with pytest.raises(DocumentUnreadable, match=f"^{re.escape(reason)}$"):
        parse(content)


def test_what_stands_on_every_page_is_read_once_and_words_are_whole() -> None:
    texts = ("the belt was re-\nplaced", "nothing new", "the end")
    pages = [f"Kranz Logistik\n{text}\nPage {number} of 3" for number, text in enumerate(texts, 1)]
    sections = parse(pdf(*pages)).sections
    assert [section.text for section in sections] == [
        "Kranz Logistik\nthe belt was replaced\nPage 1 of 3\n\n",
        "nothing new\n\n",
        "the end\n\n",
    ]


def test_pages_of_a_kind_keep_what_counts_along_with_them() -> None:
    pages = [f"Room {number}\nFloor: second\nCapacity 9{number} people" for number in range(1, 7)]
    assert [section.text for section in parse(pdf(*pages)).sections] == [f"{page}\n\n" for page in pages]


def test_a_pdf_that_is_encrypted_without_a_password_is_read() -> None:
    from_nobody = pdf("open to all", password="")
    assert "open to all" in text_of(parse(from_nobody))


def test_words_that_only_a_shift_separates_are_words() -> None:
    parsed = parse(tex_pdf("The official document giving", "installation instruc-", "tions is the guide"))
    assert text_of(parsed) == "The official document giving\ninstallation instructions is the guide\n\n"


def test_what_was_filled_into_a_form_is_read() -> None:
    filled = form_pdf(
        "/FT /Tx /T (vendor) /V (Larkfield Hosting Ltd)",
        "/FT /Ch /T (terms) /TU (Terms of payment) /V [(30 days) (by wire)]",
        "/FT /Btn /T (accepted) /V /Yes /AS /Yes",
        "/FT /Tx /Parent 5 0 R /T (city) /V (Leeds)",
        content="Order form",
    )
    assert text_of(parse(filled)) == (
        "Order form\n\n"
        "vendor: Larkfield Hosting Ltd\nTerms of payment: 30 days, by wire\naccepted: Yes\n"
        "vendor.city: Leeds\n\n"
    )


def test_a_form_is_read_without_passwords_and_what_is_not_filled_in() -> None:
    empty = ("/FT /Tx /T (pin) /Ff 8192 /V (0451)", "/FT /Btn /T (no) /V /Off", "/FT /Tx /T (none) /V ()")
    submit = "/FT /Btn /T (send) /Ff 65536 /V /Sent"
    parsed = parse(form_pdf("/FT /Tx /T (name) /V (Ada)", *empty, submit, "/FT /Sig /T (signature)"))
    assert text_of(parsed) == "name: Ada\n\n"


def test_a_field_that_is_above_itself_is_read_all_the_same() -> None:
    assert "Ada" in text_of(parse(form_pdf("/FT /Tx /T (name) /V (Ada) /Parent 5 0 R")))


def test_pages_without_text_between_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("one", "three")))
    writer.append(io.BytesIO(inline_scan()))
    written = io.BytesIO()
    writer.write(written)
    assert text_of(parse(written.getvalue())) == "one\n\nthree\n\n"
    assert "1 of 3 pages have no text, only pictures of it" in caplog.text
