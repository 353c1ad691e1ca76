"""Everything that section `listing` has measured."""

from collections.abc import Sequence

import msgspec

from bench.listing.callable_tools import Reached
from bench.listing.counter import Counted
from bench.listing.memory import Kept
from bench.listing.slim_search import Compared
from bench.listing.speed import Sized, Timed
from bench.listing.tokens import Alone, Listed
from bench.listing.uses import Found, Spent


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The tables; what a quick run leaves out is empty."""

    listed: Sequence[Listed]
    alone: Sequence[Alone]
    reached: Sequence[Reached]
    spent: Sequence[Spent]
    found: Sequence[Found]
    timed: Sequence[Timed]
    sized: Sequence[Sized]
    kept: Sequence[Kept]
    compared: Sequence[Compared]
    # None in a quick run.
    counted: Counted | None
