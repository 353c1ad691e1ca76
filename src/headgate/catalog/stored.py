"""What one server listed of one kind, as it is kept for the next start."""

from collections.abc import Iterable, Sequence

import msgspec

from headgate.catalog.hints import CacheHint
from headgate.catalog.intake import Looked
from headgate.domain.item import Definition, Source
from headgate.domain.kind import Kind


class Place(msgspec.Struct, frozen=True, array_like=True):
    """What a definition that needs no repair is called, and where that stands in it."""

    name: str
    start: int
    end: int
    # Whether its output schema is known to admit the notice of a truncated result; earlier versions did not
    # look.
    output_checked: bool = False


class StoredListing(msgspec.Struct, frozen=True):
    """The definitions as the server sent them, and what was found in them.

    To look through a definition takes longer than everything else that is done at a start.
    """

    server: str
    kind: Kind
    definitions: list[bytes]
    hint: CacheHint
    # One for each definition; None where it has to be looked at again.
    places: list[Place | None] = []

    @property
    def is_current(self) -> bool:
        """Whether everything was found that this version looks for."""
        return all(place is None or place.output_checked for place in self.places)

    def looked_at(self) -> dict[bytes, Looked]:
        """What is known of the definitions."""
        known = zip(self.definitions, self.places, strict=False)
        sources = ((definition, _source(definition, place)) for definition, place in known if place)
        return {definition: Looked(source) for definition, source in sources if source}


def places(definitions: Sequence[bytes], sources: Iterable[Source]) -> list[Place | None]:
    """Where the names stand in definitions that could be taken as they are."""
    plain = {
        source.definition.text: source
        for source in sources
        if source.handshake_definition is None and source.truncated_definition is None and not source.mirrors
    }
    found = (plain.get(definition.decode(errors="replace")) for definition in definitions)
    return [
        Place(source.name, source.definition.key_start, source.definition.key_end, output_checked=True)
        if source
        else None
        for source in found
    ]


def _source(definition: bytes, place: Place) -> Source | None:
    """None where the name does not stand there: what was kept may have been damaged."""
    text = definition.decode(errors="replace")
    if not place.output_checked and "outputSchema" in text:
        return None
    if text[place.start : place.end] != msgspec.json.encode(place.name).decode() or place.start < 0:
        return None
    return Source(place.name, Definition(text, place.start, place.end))
