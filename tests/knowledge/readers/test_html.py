"""HTML: what a reader sees, by its headings."""

import codecs

import pytest

from headgate.knowledge.readers.html import parse
from tests.knowledge.readers.sample_files import text_of

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
        "<p style='font: 0/0 a'>secret</p>",
        "<p style='font: bold 0px/1.2 serif'><b style='font: 2em serif'>secret</b></p>",
        "<p style='font-size: 14px; font: 0 serif'>secret</p>",
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
        "<p style='font: 700 14px/0 serif'>text</p>",
        "<p style='font: oblique 0deg 14px serif'>text</p>",
        "<p style='font: 0/0 a; font-size: 14px'>text</p>",
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


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("press <img src=ok> now", "press now"),
        ("one<img>two", "one two"),
        ("see <picture><source><img></picture> here", "see here"),
        ("your <input> please", "your please"),
        ("it is <output>5</output> now", "it is 5 now"),
        ("<big>so</big> <acronym>EU</acronym> <nobr>it is</nobr>", "so EU it is"),
        ("to <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby> too", "to 漢(kan) too"),
        ("a <my-word>made</my-word> one", "a made one"),
    ],
)
def test_what_stands_inside_of_a_line_does_not_cut_it(inside: str, text: str) -> None:
    assert text_of(parse(f"<p>{inside}</p>".encode())) == f"{text}\n\n"


def test_a_heading_above_a_table_or_a_column_is_its_name() -> None:
    page = "<table><caption><h2>Rooms</h2></caption><tr><th><h3>No</h3><th>Floor<tr><td>7<td>2</table>"
    assert text_of(parse(page.encode())) == "Rooms\nNo | Floor\n7 | 2\n\n"


def test_a_table_that_only_arranges_a_page_does_not_hide_its_headings() -> None:
    parsed = parse(b"<table><tr><td><h2>Left</h2><p>a</p></td><td><h2>Right</h2>b</td></tr></table>")
    assert [section.path for section in parsed.sections] == [("Left",), ("Right",)]


def test_the_encoding_that_a_page_names_is_used() -> None:
    page = "<meta charset='iso-8859-2'><p>Łódź</p>".encode("iso-8859-2")
    assert text_of(parse(page)) == "Łódź\n\n"


@pytest.mark.parametrize(
    ("label", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "“5 €” — déjà"),
        ("ISO_8859-1:1987", "cp1252", "“5 €”"),
        ("us-ascii", "cp1252", "“5 €”"),
        ("iso-8859-9", "cp1254", "“ığ”"),
        ("gb2312", "gb18030", "朱镕基"),
        ("x-gbk", "gb18030", "€ 㐀"),
        ("shift_jis", "cp932", "①髙"),
        ("windows-31j", "cp932", "①髙"),
        ("euc-kr", "cp949", "똠방각하"),
        ("tis-620", "cp874", "“ไทย”"),
        ("x-mac-roman", "mac-roman", "déjà"),
        ("iso-2022-jp", "iso2022_jp", "日本"),
    ],
)
def test_the_name_of_an_encoding_means_what_it_means_to_browsers(
    label: str, encoding: str, text: str
) -> None:
    page = f"<meta charset='{label}'><title>{text}</title><p>{text}".encode(encoding)
    parsed = parse(page)
    assert (parsed.title, text_of(parsed)) == (text, f"{text}\n\n")


@pytest.mark.parametrize(
    ("label", "encoding"), [("utf-8", "utf-8"), ("utf-16", "utf-8"), ("euc-kr", "cp949")]
)
def test_one_byte_that_is_wrong_does_not_make_the_others_mean_something_else(
    label: str, encoding: str
) -> None:
    page = f"<meta charset={label}><p>日本".encode(encoding) + b"</p><p>\xff</p>"
    assert text_of(parse(page)) == "日本\n\n\ufffd\n\n"


@pytest.mark.parametrize("label", ["unicode_escape", "utf-7", "rot13", "nobody"])
def test_an_encoding_that_no_browser_knows_is_not_used(label: str) -> None:
    page = f"<meta charset={label}><p>\\u0041 +AGE- é".encode("cp1252")
    assert text_of(parse(page)) == "\\u0041 +AGE- é\n\n"


def test_no_control_characters_are_left_in_texts_and_titles() -> None:
    page = "<meta charset=iso-8859-2><title>a\x96b&#129;c</title><h1>d\x96e&#129;f</h1>"
    parsed = parse(page.encode("iso-8859-2"))
    assert (parsed.title, text_of(parsed)) == ("abc", "# def\n\n")
    assert parse(b"<h1>d&#129;e</h1>").title == "de"


@pytest.mark.parametrize("page", ["<meta charset='utf-16'><p>plain", "<meta charset='iso-8859-1'><p>Łódź"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_page_that_names_the_wrong_encoding_is_read_all_the_same(page: str, mark: bytes) -> None:
    assert text_of(parse(mark + page.encode())) == f"{page.rpartition('>')[2]}\n\n"


def test_a_page_that_is_nested_deeper_than_the_stack_is_read() -> None:
    assert "bottom" in text_of(parse(b"<div>" * 3_000 + b"bottom"))


def test_a_page_that_is_only_called_utf_8_is_read_as_its_editor_wrote_it() -> None:
    assert "München" in text_of(parse("<meta charset='utf-8'><p>München".encode("cp1252")))
    mixed = "<meta charset='utf-8'><p>München".encode() + b"</p><p>\xff</p>"
    assert "München" in text_of(parse(mixed))
