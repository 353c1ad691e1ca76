"""How much each term of a document says about it: a fielded BM25 without the rarity of the term.

Lengths are compared with those of usual tools and not with the mean of the catalog, so that what one
server changes leaves the documents of all others as they are.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.catalog.search.document import Document
from headgate.domain.words import terms


class Field(msgspec.Struct, frozen=True):
    """One field of a document: its weight, and how far its length counts against it."""

    name: str
    weight: float
    length_share: float
    usual_length: float


FIELDS: Final = (
    Field("name", 2.0, 0.4, 3.0),
    Field("server", 2.0, 0.2, 2.0),
    Field("description", 1.0, 0.85, 20.0),
    Field("parameters", 0.5, 0.75, 6.0),
    Field("parameter descriptions", 0.4, 0.75, 30.0),
)
_SATURATION: Final = 0.9
# The largest impact. Small whole numbers are shared objects, and an index has hundreds of thousands of them;
# and sums of whole numbers are the same in whatever order they are added up.
FULL: Final = 255


def field_terms(document: Document) -> tuple[list[str], ...]:
    """The terms of each field, in the order of FIELDS."""
    return (
        terms(f"{document.name} {document.title}")
        if document.title != document.name
        else terms(document.name),
        terms(document.key[0]),
        terms(document.description),
        terms(document.parameters),
        terms(document.parameter_texts),
    )


def impacts(fields: Sequence[Sequence[str]]) -> dict[str, int]:
    """Every term of a document with its impact, from 1 to 255, by the terms of its fields."""
    frequencies: dict[str, float] = defaultdict(float)
    for field, found in zip(FIELDS, fields, strict=True):
        relative = len(found) / field.usual_length
        each = field.weight / (1 - field.length_share + field.length_share * relative)
        for term in found:
            frequencies[term] += each
    return {
        term: max(1, round(FULL * frequency / (frequency + _SATURATION)))
        for term, frequency in frequencies.items()
    }
