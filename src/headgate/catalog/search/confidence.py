"""How sure it is that the best tool found is one that was asked for."""

import math
from collections.abc import Sequence
from heapq import nlargest
from typing import Final

from headgate.catalog.search.postings import Postings
from headgate.catalog.search.senses import Wanted, answered

# Fitted once on requests whose tool is in the catalog, and the same requests with its server taken out;
# each set of requests weighs the same.
_ANSWERED: Final = 8.2
_ANSWERABLE: Final = -3.3
_STRONGEST: Final = 1.5
_STRONG: Final = 2.6
_START: Final = -3.5


def confidence(words: Sequence[Wanted], postings: Postings, number: int) -> float:
    """From 0, when the document answers by chance at most, to 1."""
    worth = sum([word.worth for word in words])
    if not worth:
        return 0.0
    known = sum([word.worth for word in words if postings.of(word.term) is not None])
    found = list(answered(words, postings, number))
    same = [(word.worth * sense.sameness, gain) for word, sense, gain in found if sense.sameness]
    scale = math.log(postings.size + 1)
    log_odds = (
        _START
        + _ANSWERED * sum([worth_of for worth_of, _ in same]) / worth
        # A request whose other words other tools answer is rather meant for those.
        + _ANSWERABLE * known / worth
        + _STRONGEST * max([gain for _, gain in same], default=0.0) / scale
        + _STRONG * sum(nlargest(3, [gain for _, _, gain in found])) / scale
    )
    return 1 / (1 + math.exp(-log_odds))
