"""Everything that section `responses` has measured."""

from collections.abc import Sequence

import msgspec

from bench.responses.compact import Compact
from bench.responses.conversations import Talk
from bench.responses.end_to_end import Carried
from bench.responses.small_results import Passed
from bench.responses.speed import Timed


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The tables; a quick run has smaller results in them."""

    talks: Sequence[Talk]
    # Tokens of the definitions of the tools, whole and as stubs.
    definitions: dict[str, int]
    timed: Sequence[Timed]
    carried: Sequence[Carried]
    passed: Sequence[Passed]
    compact: Sequence[Compact]
