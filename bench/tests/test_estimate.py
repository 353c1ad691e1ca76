"""The cheap estimate of tokens is within the error that the documentation promises for each kind of text."""

import pytest

from bench.responses.estimate import BOUNDS, errors, kinds
from bench.responses.page import PAGES
from headgate.results.token_estimate import estimate_tokens
from headgate.search.token_counter import count_tokens

KINDS = kinds()


@pytest.mark.parametrize("kind", BOUNDS)
def test_the_error_is_within_the_promised_one(kind: str) -> None:
    data = KINDS[kind].encode()
    assert abs(estimate_tokens(data) / count_tokens(data) - 1) * 100 <= BOUNDS[kind]


@pytest.mark.parametrize("kind", BOUNDS)
def test_a_short_text_is_estimated_too(kind: str) -> None:
    data = KINDS[kind].encode()[:1500]
    assert abs(estimate_tokens(data) / count_tokens(data) - 1) * 100 <= 2 * BOUNDS[kind]


def test_the_documentation_has_every_kind_with_its_promise() -> None:
    page = PAGES[1].read_text()
    for one in errors():
        assert f"| {one.kind} | " in page
        assert any(
            line.startswith(f"| {one.kind} |") and line.endswith(f"| ±{BOUNDS[one.kind]} % |")
            for line in page.splitlines()
        )
