"""Everything that section `knowledge` has measured."""

from collections.abc import Sequence

import msgspec

from bench.knowledge.ingestion_rate import Ingested
from bench.knowledge.latency import Filled, Timed
from bench.knowledge.quality import Found10, Fused, Line
from bench.knowledge.scenario import Spent


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The tables; a quick run has less in them."""

    lines: Sequence[Line]
    fused: Sequence[Fused]
    tools: Sequence[Line]
    needles: Sequence[Found10] = ()
    timed: Sequence[Timed]
    filled: Sequence[Filled]
    ingested: Sequence[Ingested]
    spent: Sequence[Spent]
