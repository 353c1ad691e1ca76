"""The documentation of knowledge shows the figures that were measured last."""

import re

from bench.knowledge.page import PAGE, pages


def test_the_page_has_the_figures_of_the_results() -> None:
    stale = [file.name for file, text in pages().items() if file.read_text() != text]
    assert not stale, "run python -m bench.knowledge.page, and read what is said about the figures"


def test_no_place_for_figures_is_empty() -> None:
    blocks = re.findall(r"<!-- figures: (.+?) -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert {"sets", "quality", "latency", "ingestion", "tokens", "goals", "run"} <= {
        name for name, _ in blocks
    }
    assert all(text.strip() for _, text in blocks)
