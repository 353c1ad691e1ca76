"""How near the tools that were found come to the request in meaning."""

from collections.abc import Mapping
from typing import Final

from headgate.catalog.search.gist import Compass, Gist, direction_of
from headgate.catalog.search.lexicon import Lexicon
from headgate.catalog.search.request import Request

# The nearest clause of a long request against the request as a whole.
_CLAUSE_SHARE: Final = 0.7


def nearness(request: Request, gists: Mapping[int, Gist | None], lexicon: Lexicon) -> dict[int, float]:
    """Of each document that has a gist how near it is, from -1 to 1; empty when the request has none."""
    weights = request.weights
    whole = direction_of(weights.items(), lexicon)
    if whole is None:
        return {}
    parts = [
        direction_of([(term, weights[term]) for term in clause if term in weights], lexicon)
        for clause in request.clauses
    ]
    cosines = Compass([whole, *(part for part in parts if part is not None)]).cosines
    found = {}
    for number, gist in gists.items():
        if gist is not None:
            near, *clauses = cosines(gist)
            found[number] = near + _CLAUSE_SHARE * (max(clauses) - near) if clauses else near
    return found
