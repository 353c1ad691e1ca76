"""The page of the documents shows what the commands print of the example beside it."""

import re
from pathlib import Path

from headgate.knowledge.search.hybrid_search import RESULT_DEPTH
from tests.cli.test_knowledge import told

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "knowledge"
QUESTION = "who do we call when the servers are down"
GUIDES = ROOT / "docs" / "guides"
PAGE = (GUIDES / "documents.md").read_text(encoding="utf-8")
SEARCH_PAGE = (GUIDES / "documents-search.md").read_text(encoding="utf-8")


def test_the_outputs_of_the_page_are_those_of_the_commands(tmp_path: Path) -> None:
    summary = told(tmp_path, "ingest", EXAMPLE / "documents", "--graph", EXAMPLE / "vendors.jsonl")
    shown = re.findall(r"```text\n(graph .+?\n)```", PAGE, re.DOTALL)
    assert [stable(text) for text in shown] == [stable(summary)]
    assert f"headgate knowledge vendor lfh\n```\n\n```text\n{told(tmp_path, 'vendor', 'lfh')}```" in PAGE
    head, *rows = table(told(tmp_path, "search", QUESTION, "--mode", "metadata"))
    command = f'search "{QUESTION}" --limit 3 --mode metadata\n```\n\n```text\n'
    shown_head, *shown_rows = table(PAGE.split(command)[1])
    assert (shown_head, len(shown_rows)) == (head, 3)
    # Ranks and scores are of another strategy here.
    places = [row[2:] for row in rows]
    assert [row for row in shown_rows if row[2:] not in places] == []


def test_the_page_says_where_a_list_ends_whose_best_are_told() -> None:
    page = " ".join(SEARCH_PAGE.split())
    assert f"Each list ends after its best {RESULT_DEPTH}." in page
    assert f"the command line says `10 of the best {RESULT_DEPTH + 74}`" in page


def stable(summary: str) -> list[str]:
    """The lines of a summary that say the same on every machine, with vectors and without."""
    lines = [line for line in summary.splitlines() if not line.startswith("time ")]
    return [line.removesuffix(", 5 given a vector") for line in lines]


def table(text: str) -> list[list[str]]:
    """The words of the lines until the first that is empty."""
    return [line.split() for line in text.partition("\n\n")[0].splitlines()]
