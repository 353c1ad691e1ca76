"""The documentation of large results shows the figures that were measured last."""

import re

from bench.process import ROOT
from bench.responses.page import PAGES, pages


def test_the_page_and_the_chart_are_those_of_the_results() -> None:
    stale = [file.name for file, text in pages().items() if not file.exists() or file.read_text() != text]
    assert not stale, "run python -m bench.responses.page, and read what is said about the figures"


def test_no_place_for_figures_is_empty() -> None:
    blocks = re.findall(
        r"<!-- figures: (.+?) -->\n(.*?)<!-- end -->",
        "\n".join(page.read_text() for page in PAGES),
        re.DOTALL,
    )
    assert {"tokens", "net", "times", "gateway", "passing", "compact", "goals"} <= {
        name for name, _ in blocks
    }
    assert all(text.strip() for _, text in blocks)


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    told = re.search(
        r"reads ([\d,]+) tokens of a 1 MB log instead of\s+([\d,]+\d)", (ROOT / "README.md").read_text()
    )
    assert told is not None
    row, _ = re.findall(r"^\| 1 MB of log.*the first 20.*$", PAGES[0].read_text(), re.MULTILINE)
    assert f"| {told[2]} | {told[1]} |" in row
