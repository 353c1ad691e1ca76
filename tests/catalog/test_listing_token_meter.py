"""What is far too large for a budget is not counted to its end, and what may fit is counted exactly."""

from headgate.catalog.listing_budget import ListingTokenMeter
from headgate.search.token_counter import count_tokens

BUDGET = 500


def test_what_is_far_too_large_is_estimated_from_its_beginning() -> None:
    counted: list[int] = []

    def count(text: bytes) -> int:
        counted.append(len(text))
        return count_tokens(text)

    form = b'{"name":"long","description":"%b"}' % (b"Reads a file. " * 60_000)
    cost = ListingTokenMeter(count, enough=BUDGET).cost(form)
    assert cost > BUDGET
    assert sum(counted) < len(form) / 10


def test_what_is_large_and_yet_fits_is_counted_exactly() -> None:
    # Blanks cost hardly anything: 128 of them are one token.
    form = b'{"name":"blank","description":"%b"}' % (b" " * 30_000)
    exact = ListingTokenMeter(count_tokens).cost(form)
    assert exact <= BUDGET
    assert ListingTokenMeter(count_tokens, enough=BUDGET).cost(form) == exact


def test_what_begins_cheaply_and_ends_dearly_is_never_cheap() -> None:
    form = b'{"name":"odd","description":"%b%b"}' % (b" " * 30_000, b"Reads a file. " * 10_000)
    assert ListingTokenMeter(count_tokens, enough=BUDGET).cost(form) > BUDGET
