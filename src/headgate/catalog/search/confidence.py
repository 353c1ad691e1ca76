"""How sure it is that the best tool found is one that was asked for."""

import math
from heapq import nlargest
from typing import Final

from headgate.catalog.search.postings import Postings
from headgate.catalog.search.senses import Wanted, best_sense, gain_of

# Fitted once on requests whose tool is in the catalog, and the same requests with its server taken out;
# each set of requests weighs the same.
_ANSWERED: Final = 8.2
_ANSWERABLE: Final = -3.3
_STRONGEST: Final = 1.5
_STRONG: Final = 2.6
_START: Final = -3.5


def confidence(words: list[Wanted], postings: Postings, number: int) -> float:
    """From 0, when the document answers by chance at most, to 1."""
    worth = sum(word.worth for word in words)
    if not worth:
        return 0.0
    known = sum(word.worth for word in words if postings.of(word.term) is not None)
    matched = [(word, sense) for word in words if (sense := best_sense(word, postings, number))]
    same = [(word, sense) for word, sense in matched if sense.sameness]
    own = max((gain_of(word, postings, number) for word, _ in same), default=0.0)
    best = nlargest(3, (gain_of(word, postings, number) for word in words))
    scale = math.log(postings.size + 1)
    log_odds = (
        _START
        + _ANSWERED * sum(word.worth * sense.sameness for word, sense in same) / worth
        # A request whose other words other tools answer is rather meant for those.
        + _ANSWERABLE * known / worth
        + _STRONGEST * own / scale
        + _STRONG * sum(best) / scale
    )
    return 1 / (1 + math.exp(-log_odds))
