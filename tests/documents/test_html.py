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
