"""A preview shows the passage that matched, and names the section that it stands in."""

import pytest

from headgate.knowledge.data_model import ChunkRecord
from headgate.knowledge.tools.highlighter import highlight
from tests.knowledge.tools.tool_harness import ToolHarness

FILLER = "nothing of note stands here and it goes on for a while. " * 8


def chunk(text: str, header: str = "guide.md > Guide", doc_type: str = "markdown") -> ChunkRecord:
    return ChunkRecord(
        id=1,
        source_id=1,
        file="guide.md",
        category="",
        doc_type=doc_type,
        date="",
        index=0,
        total=1,
        text=text,
        header=header,
        tokens=9,
    )


async def test_the_preview_of_a_search_shows_the_passage_that_matched() -> None:
    desk = ToolHarness()
    await desk.add("guide.md", f"# Part\n\n{FILLER}\n\n## Pumps\n\nThe valve closes at 7 bar. {FILLER}")
    answer = await desk.ask("semantic_search", query="when does the valve close", response_mode="preview")
    [first] = answer["results"]
    assert "The valve closes at 7 bar." in first["chunk_snippet"]
    assert first["chunk_snippet"].startswith("...")
    assert first["chunk_snippet"].endswith("...")
    assert len(first["chunk_snippet"]) == 206
    assert first["context_header"] == "guide.md > Part > Pumps"


def test_without_a_match_it_is_the_beginning_with_dots() -> None:
    passage = highlight(chunk("x" * 300), "valve")
    assert passage == ("x" * 200 + "...", "guide.md > Guide")
    assert highlight(chunk("the valve"), "valve").snippet == "the valve"


def test_a_code_counts_for_more_than_words_that_stand_elsewhere() -> None:
    text = f"compile again and re again. {FILLER} Call re.compile once. {FILLER}"
    assert "Call re.compile once." in highlight(chunk(text), "re.compile").snippet


def test_the_end_of_a_text_has_no_dots_behind_it() -> None:
    snippet = highlight(chunk(f"{FILLER} the valve"), "valve").snippet
    assert snippet.endswith("the valve")
    assert len(snippet) == 203


def test_headings_in_code_and_in_plain_text_are_none() -> None:
    code = f"{FILLER}\n```\n# no heading\n```\nthe valve closes"
    assert highlight(chunk(code), "valve").header == "guide.md > Guide"
    plain = f"{FILLER}\n# no heading\n{FILLER} the valve closes"
    assert highlight(chunk(plain, doc_type="text"), "valve").header == "guide.md > Guide"


def test_a_section_beside_takes_the_place_of_the_one_before() -> None:
    text = f"## One\n\n{FILLER}\n\n## Two\n\n{FILLER} the valve closes. {FILLER}"
    header = highlight(chunk(text, "guide.md > Guide > One"), "valve").header
    assert header == "guide.md > Guide > Two"


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("# Guide\n\n## One\n\nNothing.\n\n## Two\n\nThe valve closes.", "Guide > Two"),
        (f"## One\n\n{FILLER}\nThe valve closes.\n## Two\n\n{FILLER}", "Guide > One"),
        (f"## One\n{FILLER}\n## Two\n{'Short words. ' * 8}\n### Three\nThe valve.", "Guide > Two > Three"),
        (
            f"## One\n\n{FILLER} The valve.\n\n## Closing the valve\n\nTurn it. {FILLER}",
            "Guide > Closing the valve",
        ),
        (f"One\n---\n\n{FILLER}\n\nTwo\n---\n\nThe valve closes.", "Guide > Two"),
        (f"## One\n\n{FILLER}\n\nThe valve\n---\n\n{FILLER}", "Guide > The valve"),
        (f"## One\n\n~~~\n```\n# none\n~~~\n{FILLER}\n\n## Two\n\nThe valve closes.", "Guide > Two"),
        (
            f"## One\n\n{FILLER}\n\n## The `Two` of [them](x.md)\n\nThe valve closes.",
            "Guide > The Two of them",
        ),
        (f"## One\n\n- a list\n---\n{FILLER}\n\nThe valve closes.", "Guide > One"),
    ],
)
def test_the_header_names_the_section_of_the_match(text: str, header: str) -> None:
    passage = highlight(chunk(text), "closing the valve")
    assert passage.header == f"guide.md > {header}"
    assert "valve" in passage.snippet.lower()
