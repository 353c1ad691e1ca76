"""Logs with colours, XML, HTML and YAML are recognised, and hostile ones end in a short answer."""

import json
from typing import Any

import pytest

from headgate.results.explore.explore_processor import ExploreProcessor
from headgate.results.jobs import ExploreParams


def explored(content: str, **params: Any) -> dict[str, Any]:
    output: dict[str, Any] = json.loads(
        ExploreProcessor().process(content.encode(), ExploreParams(**params)).content[:]
    )
    return output


def test_a_log_with_colours_is_a_log() -> None:
    levels = ("\x1b[32mINFO\x1b[0m", "\x1b[1;31mERROR\x1b[0m")
    lines = [f"\x1b[90m2026-01-01T00:00:{n:02}Z\x1b[0m {levels[n % 3 == 0]} request {n}" for n in range(30)]
    output = explored("\r\n".join(lines))
    assert output["looks_like"] == "log"
    assert output["levels"] == {"INFO": 20, "ERROR": 10}
    assert (output["from"], output["to"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:29Z")
    assert output["ansi_codes"] is True
    assert output["head"].startswith("2026-01-01T00:00:00Z ERROR request 0")


XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE catalog SYSTEM "catalog.dtd">
<catalog xmlns:x="urn:x">
  <book id="b0"><title lang="en">Fish &amp; chips</title><x:price>1.5</x:price></book>
  <book id="b1"><title><![CDATA[a <b> c]]></title></book>
</catalog>
"""


def test_xml_is_told_by_element_with_counts_attributes_offsets_and_samples() -> None:
    output = explored(XML)
    assert output["looks_like"] == "xml"
    assert list(output["outline"]) == [
        "catalog",
        "catalog/book",
        "catalog/book/title",
        "catalog/book/x:price",
    ]
    assert output["outline"]["catalog"]["attributes"] == {"xmlns:x": "urn:x"}
    book = output["outline"]["catalog/book"]
    assert (book["count"], book["attributes"], book["offset"]) == (2, {"id": "b0"}, 3)
    assert book["tokens"] > 10
    assert output["outline"]["catalog/book/title"]["sample"] == "Fish & chips"
    assert explored(XML, max_depth=1)["outline"]["catalog"]["deeper"] == "book"


def test_a_section_of_characters_is_a_sample() -> None:
    assert explored("<r><t><![CDATA[a <b> c]]></t></r>")["outline"]["r/t"]["sample"] == "a <b> c"


def test_svg_fragments_and_several_roots_are_xml() -> None:
    assert explored('<svg width="1"><g><path d="M0 0"/></g></svg>')["outline"]["svg/g/path"]["count"] == 1
    assert explored("  <row n='1'/>\n<row n='2'/>\n")["outline"]["row"]["count"] == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (XML[:-20], "line"),
        ("<a><b></a></b>", "mismatched tag"),
        ('<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares the entity 'b'"),
        ('<!DOCTYPE a [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><a></a>', "declares the entity 'p'"),
    ],
)
def test_xml_that_is_broken_cut_off_or_declares_entities_is_text_with_a_reason(
    content: str, reason: str
) -> None:
    output = explored(content)
    assert reason in output["broken"]
    assert "outline" not in output
    assert output["head"]


HTML = """<!DOCTYPE html>
<html><head><title>Shop &amp; more</title><script>if (a < b) { x("<div>") }</script></head>
<body><!-- <table> -->
<h1>Orders</h1>
<ul class="list"><li>one<li>two</ul>
<table><tr><td>1<td>2<tr><td>3</table><br><img src='a>b.png'>
</body></html>
"""


def test_html_is_told_with_its_title_headings_elements_and_places() -> None:
    output = explored(HTML)
    assert (output["looks_like"], output["title"]) == ("html", "Shop & more")
    assert output["headings"] == [{"offset": 3, "heading": "h1 Orders"}]
    assert output["elements"]["li"] == 2
    assert output["elements"].keys().isdisjoint({"div", "b"})
    assert output["outline"]["ul/li"]["count"] == 2
    assert output["outline"]["ul"]["attributes"] == {"class": "list"}
    assert (output["outline"]["table/tr"]["count"], output["outline"]["table/tr/td"]["count"]) == (2, 3)
    assert output["outline"]["img"]["count"] == 1


def test_a_fragment_of_html_is_html() -> None:
    output = explored("<div><p>one<p>two</div>\n<div/>")
    assert output["looks_like"] == "html"
    assert output["outline"]["div/p"]["count"] == 2


YAML = """# settings
apiVersion: v1
items:
- name: a
  "quoted: key": 'v'
  script: |
    echo: hi
    - no item
  tags: [x, y,
    z]
- name: b
  port: 80
  on: true
  base: &base {a: 1}
  ref: *base
  none: ~
---
apiVersion: v2
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_yaml_is_told_by_key_with_types_counts_offsets_and_samples(line_end: str) -> None:
    output = explored(YAML.replace("\n", line_end))
    assert (output["looks_like"], output["documents"]) == ("yaml", 2)
    outline = output["outline"]
    # Of the two lines of 14 characters together.
    assert 8 <= outline["apiVersion"].pop("tokens") <= 14
    assert outline["apiVersion"] == {"type": "string", "count": 2, "offset": 1, "sample": "v1"}
    assert (outline["items"]["type"], outline["items[]"]["count"]) == ("array", 2)
    assert outline["items[].port"] == {"type": "integer", "count": 1, "offset": 11, "sample": "80"}
    kinds = {
        name: outline[f"items[].{name}"]["type"] for name in ("on", "base", "ref", "none", "tags", "script")
    }
    assert kinds == {
        "on": "boolean",
        "base": "object",
        "ref": "alias",
        "none": "null",
        "tags": "array",
        "script": "string",
    }
    assert 'items[]["quoted: key"]' in outline


@pytest.mark.parametrize(
    "content",
    [
        "Dear all: this is a text.\nIt has lines: some with colons.\n - and a dash\n",
        "def f():\n  return 1\nclass A:\n  x: int = 1\n",
        "From: a@b\nTo: c@d\nSubject: hello\n\nBody text\nmore of it\n",
        "- one\n- two\n- three\n",
        "a < b and c > d\n",
    ],
)
def test_other_texts_are_not_taken_for_it(content: str) -> None:
    assert "looks_like" not in explored(content)


@pytest.mark.parametrize(
    "content",
    [
        "<r>" + "<a>" * 30_000 + "</a>" * 30_000 + "</r>",
        "<r>" + "".join(f"<n{n}/>" for n in range(30_000)) + "</r>",
        '<r><a b="' + "x" * 1_000_000 + '"/></r>',
        "<html>" + "<div>" * 50_000,
        "<html>" + '<a "' * 50_000 + "</a>",
        "<html>" + "<a b='" * 50_000 + "</a>",
        "\n".join(" " * depth + "a:" for depth in range(1_000)),
        "a:\n  b: [\n" + "x\n" * 200_000,
        "a: &a [x]\n" + "".join(f"b{n}:\n  c: *a\n" for n in range(20_000)),
        "".join(f"key{n}:\n  a: 1\n" for n in range(20_000)),
        "a" + " " * 60_000 + "b\na:\n  b: 1\n",
        "a/" * 30_000 + "!: 1\nb:\n  c: 1\n",
        "'" * 60_000 + "\nb:\n  c: 1\n",
    ],
    ids=[
        "deep",
        "wide",
        "attribute",
        "open",
        "quotes",
        "ticks",
        "levels",
        "bracket",
        "aliases",
        "keys",
        "blanks",
        "slashes",
        "marks",
    ],
)
def test_hostile_texts_get_an_answer_that_fits(content: str) -> None:
    made = ExploreProcessor().process(content.encode(), ExploreParams(room=2_000)).content
    assert len(made) <= 2_000
    assert json.loads(made[:])["type"] == "text"


def test_counts_are_those_of_the_whole_though_only_its_beginning_is_taken_apart() -> None:
    output = explored("<r>" + "<a><b>x</b></a>\n" * 60_000 + "</r>")
    assert output["looked_at_bytes"] < 1_000_000
    assert output["outline"]["r/a/b"]["count"] == 60_000
    output = explored("<html><body>" + "<p>x</p>\n" * 60_000 + "</body></html>")
    assert output["outline"]["p"]["count"] == output["elements"]["p"] == 60_000
    output = explored("items:\n" + "- name: x\n  port: 1\n" * 20_000)
    assert output["outline"]["items[].name"]["count"] == pytest.approx(20_000, rel=0.01)


def test_a_string_in_json_is_told_in_the_same_way() -> None:
    output = explored(json.dumps({"page": XML}), path="page")
    assert (output["type"], output["looks_like"]) == ("string", "xml")
    assert output["outline"]["catalog/book"]["count"] == 2
