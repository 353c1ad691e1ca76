"""The pages of the documentation, and the code blocks in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
# Records of decisions and generated pages follow rules of their own.
WRITTEN = [README, *sorted(page for page in DOCS.rglob("*.md") if "decisions" not in page.parts)]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language and its text."""

    page: Path
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    for found in _BLOCK.finditer(page.read_text()):
        yield Block(page, found[2], found[3])


def prose(page: Path) -> str:
    """The text of a page without code blocks, generated figures, comments, tables and inline code."""
    text = re.sub(r"<!-- figures: .*?<!-- end -->", "", _BLOCK.sub("", page.read_text()), flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("|"))
    return re.sub(r"`[^`\n]*`", "", "\n".join(lines))


def name(page: Path) -> str:
    """The name of a page, for the id of a test."""
    return str(page.relative_to(ROOT))
