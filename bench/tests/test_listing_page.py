"""The documentation of listings shows the figures that were measured last."""

import re

from bench.listing.page import PAGE, PAGES, pages
from bench.process import ROOT

README = ROOT / "README.md"


def test_the_page_and_the_chart_are_those_of_the_results() -> None:
    stale = [file.name for file, text in pages().items() if not file.exists() or file.read_text() != text]
    assert not stale, "run python -m bench.listing.page, and read what is said about the figures"


def test_no_place_for_figures_is_empty() -> None:
    text = "".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"<!-- figures: (.+?) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert {"tokens", "servers", "uses", "small", "speed", "goals"} <= {name for name, _ in blocks}
    assert all(text.strip() for _, text in blocks)


def test_the_readme_shows_the_same_tokens_per_mode() -> None:
    rows = r"^\| ([a-z]+)(?: 3,000)? \| [\d,]+ \| [\d,]+ \| ([\d,]+) \| [\d.]+% \|"
    measured = dict(re.findall(rows, PAGE.read_text(), re.MULTILINE))
    told = re.search(r"cost ([\d,]+) tokens\s+instead\s+of\s+([\d,]+\d)", README.read_text())
    assert told is not None
    assert told.groups() == (measured["auto"], measured["full"])
