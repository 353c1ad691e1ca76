"""Pages of the documentation that show what was measured: the figures stand between two marks.

A block begins with `<!-- figures: NAME -->` and ends with `<!-- end -->`; the rest of a page is left alone.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.process import ROOT
from bench.retrieval.goals import Goal

# Header and rows.
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
_BLOCK: Final = re.compile(r"(<!-- figures: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


class Whole(msgspec.Struct):
    """What every section says of its run beside its figures."""

    machine: dict[str, str]
    load_before: float
    load_after: float
    goals: list[Goal]


def write(pages: Mapping[Path, str]) -> None:
    """Put everything in its place."""
    for file, text in pages.items():
        file.write_text(text)
        print(f"bench: wrote {file.relative_to(ROOT)}", file=sys.stderr)


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """The page with these blocks in it. Raises KeyError for a block that there is none for."""
    return _BLOCK.sub(lambda block: f"{block[1]}{blocks[block[2]]}\n{block[3]}", page)


def markdown(table: Table) -> str:
    """A table as the documentation has it."""
    header, rows = table
    lines: list[Sequence[str]] = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def described(whole: Whole) -> str:
    """What the figures were measured on."""
    machine = whole.machine
    return (
        f"{machine['cores']} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}; "
        f"load average {whole.load_before:.1f} before the run and {whole.load_after:.1f} after it."
    )


def judged(goals: Sequence[Goal]) -> str:
    """The goals as a table."""
    rows = [(one.text, one.measured, "met" if one.met else "**missed**") for one in goals]
    return markdown((("goal", "measured", ""), rows))


def in_search_terms(text: str) -> str:
    """The text of a page with the established terms for the ways to search that results are stored under."""
    text = re.sub(r"\b(words and meaning|both)(?=[:|]| \|)", "hybrid", text)
    return re.sub(r"\bwords(?=[:|]| \|)", "lexical", text)
