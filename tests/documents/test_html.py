"""HTML: what a reader sees, by its headings."""

import codecs

import pytest

from headgate.documents.html import parse
from tests.documents.made import text_of

PAGE = b"""<!doctype html><html><head><title> The  page </title>
<meta name="Date" content="2025-03-04"><style>p {}</style></head><body>
<nav><a href=/>Menu</a></nav><template><p>unseen</p></template>
<h1>One</h1><p>hello <b>bold</b>
world<br>second line</p>
<ul><li>first<ul><li>inner <i>item</i></li></ul></li><li><p>last</p></li></ul>
<h2>Prices</h2><table><caption>Of today</caption><tr><th>Part</th><th>Price</th></tr>
<tr><td><p>Bolt</p></td><td>1.50</td></tr></table>
<pre>
def f():
    return 1</pre><script>alert(1)</script><p hidden>secret</p>tail</body></html>"""


def test_sections_follow_the_headings_and_menus_and_scripts_are_left_out() -> None:
    parsed = parse(PAGE)
    assert (parsed.title, parsed.date, parsed.doc_type) == ("The page", "2025-03-04", "html")
    assert [section.path for section in parsed.sections] == [("One",), ("One", "Prices")]
    text = text_of(parsed)
    assert not any(word in text for word in ("Menu", "alert", "unseen", "secret", "p {}"))


@pytest.mark.parametrize(
    "unseen",
    [
        "<p style='display:none'>secret</p>",
        "<div style='color: red; DISPLAY : None !important; display: block'><p>secret</p></div>",
        "<p style='display:/**/none'>secret</p>",
        "<span style='visibility:hidden'>sec<b>ret</b></span>",
        "<p style='font-size:0'>secret</p>",
        "<p style='font-size: 0.0px'><b style='font-size: 200%'>secret</b></p>",
        "<p style='opacity:0'><b style='opacity:1'>secret</b></p>",
        "<p aria-hidden=TRUE>secret</p>",
        "<h1 style='display:none'>secret</h1>",
        "<template><p>secret</p></template>",
        "<datalist><option>secret</option></datalist>",
        "<video>secret</video>",
        "<!-- secret -->",
        "<div role=navigation>secret</div>",
        "<footer>secret</footer>",
    ],
)
def test_what_a_page_does_not_show_is_not_read(unseen: str) -> None:
    parsed = parse(f"<p>before</p>{unseen}<p>after</p>".encode())
    assert (parsed.title, text_of(parsed)) == ("", "before\n\nafter\n\n")


@pytest.mark.parametrize(
    "seen",
    [
        "<p style='display:block; font-size: 0.8em; opacity: 0.5'>text</p>",
        "<p style='display:none; display:inline'>text</p>",
        "<div style='visibility:hidden'><p style='visibility:visible'>text</p></div>",
        "<div style='font-size:0'><p style='font-size:14px'>text</p></div>",
        "<div style='font-size:0'><p style='font: bold 14px serif'>text</p></div>",
        "<p style>text</p>",
        "<article><footer>text</footer></article>",
        "<header>text</header>",
        "<aside>text</aside>",
        "<details><p>text</p></details>",
        "<body style='display:none'>text",
    ],
)
def test_what_a_page_shows_is_read(seen: str) -> None:
    assert text_of(parse(seen.encode())) == "text\n\n"


def test_the_first_heading_that_is_shown_is_the_title_where_there_is_no_other() -> None:
    page = b"<h1 hidden>No</h1><h2>Sub</h2><h1>Terms of <i>use</i></h1><h1>Other</h1>"
    assert parse(page).title == "Terms of use"


def test_lists_tables_and_programs_stay_readable() -> None:
    first, second = parse(PAGE).sections
    assert first.text == "# One\n\nhello bold world\nsecond line\n\n- first\n  - inner item\n- last\n\n"
    assert "Of today\nPart | Price\nBolt | 1.50\n" in second.text
    assert "```\ndef f():\n    return 1\n```\n\ntail" in second.text


def test_a_table_that_only_arranges_a_page_does_not_hide_its_headings() -> None:
    parsed = parse(b"<table><tr><td><h2>Left</h2><p>a</p></td><td><h2>Right</h2>b</td></tr></table>")
    assert [section.path for section in parsed.sections] == [("Left",), ("Right",)]


def test_the_encoding_that_a_page_names_is_used() -> None:
    page = "<meta charset='iso-8859-2'><p>Łódź</p>".encode("iso-8859-2")
    assert text_of(parse(page)) == "Łódź\n\n"


@pytest.mark.parametrize("page", ["<meta charset='utf-16'><p>plain", "<meta charset='iso-8859-1'><p>Łódź"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_page_that_names_the_wrong_encoding_is_read_all_the_same(page: str, mark: bytes) -> None:
    assert text_of(parse(mark + page.encode())) == f"{page.rpartition('>')[2]}\n\n"


def test_a_page_that_is_nested_deeper_than_the_stack_is_read() -> None:
    assert "bottom" in text_of(parse(b"<div>" * 3_000 + b"bottom"))
