"""Markdown: headings make sections, and every character of the text stays as it was written."""

from collections.abc import Iterator
from itertools import pairwise

from markdown_it import MarkdownIt

from headgate.documents.dates import day_of
from headgate.documents.front_matter import front_matter
from headgate.documents.outline import Outline
from headgate.documents.text import decoded
from headgate.knowledge.reading import Parsed, Section


def parse(content: bytes) -> Parsed:
    """The sections, and what the front matter says; without it the first heading is the title."""
    text = decoded(content)
    said = front_matter(text)
    text = text[said.end :]
    sections = list(_sections(text))
    if sections and (tags := said.values.get("tags")):
        # There is no other place for them, and people search for them.
        sections[0] = Section(sections[0].path, f"Tags: {', '.join(tags)}\n\n{sections[0].text}")
    top = next((section.path[0] for section in sections if section.path), "")
    return Parsed(
        sections=tuple(sections),
        doc_type=said.first("doc_type", "type") or "markdown",
        title=said.first("title") or top,
        date=day_of(said.first("date", "updated", "last_updated")),
        category=said.first("category"),
    )


def _sections(text: str) -> Iterator[Section]:
    # Only blocks are looked for: what a line has inside does not matter here, and costs the most.
    parser = MarkdownIt("commonmark").disable("inline")
    tokens = parser.parse(text)
    starts = _line_starts(text)
    outline = Outline()
    # Where a section begins, and under which headings.
    begins: list[tuple[int, tuple[str, ...]]] = [(0, ())]
    for token, following in pairwise(tokens):
        # One inside of a quotation or a list is part of that.
        if token.type == "heading_open" and token.level == 0 and token.map:
            path = outline.enter(int(token.tag[1:]), _plain(following.content))
            begins.append((starts[token.map[0]], path))
    begins.append((len(text), ()))
    for (start, path), (end, _) in pairwise(begins):
        if start < end and (path or not text[start:end].isspace()):
            yield Section(path, text[start:end])


def _plain(heading: str) -> str:
    """The heading as a reader sees it, without marks."""
    [inline] = MarkdownIt("commonmark").parseInline(heading)
    return "".join(child.content or " " for child in inline.children or () if not child.nesting)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    return starts
