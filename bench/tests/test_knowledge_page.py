"""The documentation of knowledge shows the figures that were measured last."""

import re

from bench.knowledge.page import PAGES, pages


def test_the_pages_have_the_figures_of_the_results() -> None:
    stale = [file.name for file, text in pages().items() if file.read_text() != text]
    assert not stale, "run python -m bench.knowledge.page, and read what is said about the figures"


def test_no_place_for_figures_is_empty() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    blocks = re.findall(r"<!-- figures: (.+?) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert {"sets", "quality", "latency", "million", "ingestion", "tokens", "goals", "run"} <= {
        name for name, _ in blocks
    }
    assert all(text.strip() for _, text in blocks)
