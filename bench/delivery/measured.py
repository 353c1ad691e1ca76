"""Everything that section `delivery` has measured."""

from collections.abc import Sequence

import msgspec

from bench.delivery.disk import Disk
from bench.delivery.keyed import Keyed
from bench.delivery.library import Library
from bench.delivery.plain import Beside
from bench.delivery.recovery import Recovered
from bench.delivery.transactions import Grouped


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The tables; a quick run has fewer rounds and rows in them."""

    disk: Disk
    plain: Sequence[Beside]
    keyed: Sequence[Keyed]
    recovered: Sequence[Recovered]
    grouped: Sequence[Grouped]
    library: Library
