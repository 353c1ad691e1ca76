"""Markdown: headings make sections, front matter is understood, and nothing of the text is lost."""

import importlib.metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.readers.markdown import parse
from tests.knowledge.readers.sample_files import text_of


def test_headings_of_all_kinds_make_sections_below_each_other() -> None:
    parsed = parse(b"before\n\n# One **bold** `x`\n\na\n\n### Deep [link](u)\nb\n\nTwo\n---\nc\n")
    assert [section.path for section in parsed.sections] == [
        (),
        ("One bold x",),
        ("One bold x", "Deep link"),
        ("One bold x", "Two"),
    ]


def test_what_looks_like_a_heading_inside_of_code_or_a_quotation_is_none() -> None:
    parsed = parse(b"# Real\n\n```\n# code\n```\n\n> # quoted\n\n    # indented\n")
    assert [section.path for section in parsed.sections] == [("Real",)]


def test_front_matter_says_what_the_document_is() -> None:
    parsed = parse(
        b"---\ntitle: 'Terms of supply'\ndate: 2026-11-02\ncategory: legal\ndoc_type: contract\n"
        b"tags:\n  - steel\n  - [ignored\nauthor:\n  name: nested\n---\n# Terms\n\nPay soon.\n"
    )
    assert (parsed.title, parsed.date, parsed.category) == ("Terms of supply", "2026-11-02", "legal")
    assert parsed.doc_type == "contract"
    assert parsed.sections[0].text.startswith("Tags: steel, [ignored\n\n# Terms")


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ('"A: b" # remark', "A: b"),
        ("'It''s' # so \"said\"", "It's"),
        ("'Draft' and 'Final'", "'Draft' and 'Final'"),
        ('"So \\"said\\""', 'So "said"'),
        ("[Draft] My doc [v2]", "[Draft] My doc [v2]"),
        ("[Draft]", "Draft"),
        ("Plain # remark", "Plain"),
        ("Ticket #12", "Ticket #12"),
        (">-\n  Folded\n  text\ntype: memo", "Folded text"),
        ("|\n\ttabbed", "tabbed"),
        ('""', "Heading"),
        ("> \ntype: memo", "Heading"),
    ],
)
def test_a_title_is_read_as_people_write_it(written: str, title: str) -> None:
    parsed = parse(f"---\ntitle: {written}\n---\n# Heading\n".encode())
    assert parsed.title == title


def test_a_rule_at_the_beginning_is_no_front_matter() -> None:
    text = "---\n\nJust a rule: above this.\n\n---\n"
    assert text_of(parse(text.encode())) == text
    assert text_of(parse(b"---\ntitle: x\nno end")) == "---\ntitle: x\nno end"


@pytest.mark.parametrize("first", ["# remark", "", "# one\n\n# two"])
def test_front_matter_may_begin_with_a_remark_or_an_empty_line(first: str) -> None:
    parsed = parse(f"---\n{first}\ntitle: Terms\ntags:\n- steel\n---\ntext\n".encode())
    assert (parsed.title, text_of(parsed)) == ("Terms", "Tags: steel\n\ntext\n")


@pytest.mark.parametrize("text", ["Note: below a rule.\n", "# Head\nNote: this\nis a text", "# Head", ""])
def test_a_text_between_two_rules_is_no_front_matter(text: str) -> None:
    written = f"---\n\n{text}\n---\nend\n"
    assert text_of(parse(written.encode())) == written


def test_without_front_matter_the_first_heading_is_the_title() -> None:
    assert parse(b"intro\n\n## The title\n").title == "The title"


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["# a", "## b", "text", "", "---", "```", "> # q", "- # i", "\tx", "==="])))
def test_nothing_of_a_text_is_lost(lines: list[str]) -> None:
    text = "\n".join(["intro", *lines])
    assert text_of(parse(text.encode())) == text


def test_files_that_packages_ship_are_read_whole() -> None:
    files = [
        Path(str(file.locate()))
        for name in ("onnxruntime", "numpy")
        for file in importlib.metadata.files(name) or ()
        if file.suffix == ".md"
    ]
    assert files
    for file in files:
        text = file.read_text().replace("\r\n", "\n")
        assert text_of(parse(text.encode())) == text
