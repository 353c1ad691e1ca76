"""The documentation of search shows the figures that were measured last."""

from bench.retrieval.page import pages


def test_the_tables_are_those_of_the_results() -> None:
    stale = [page.name for page, text in pages().items() if page.read_text() != text]
    assert not stale, "run python -m bench.retrieval.page, and read what is said about the figures"


def test_every_page_has_figures() -> None:
    assert all("<!-- figures: " in text for text in pages().values())
