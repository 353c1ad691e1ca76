"""A server's listing as it is stored for the next start, and the hashes that identify each tool in it."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import DecodeError

from headgate.catalog.listing_validation import CheckedDefinition
from headgate.catalog.paged_listing import CacheHint
from headgate.domain.item import DefinitionText, ItemKind, UpstreamItem


class DefinitionPosition(msgspec.Struct, frozen=True, array_like=True):
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
    kind: ItemKind
    definitions: list[bytes]
    hint: CacheHint
    # One for each definition; None where it has to be looked at again.
    places: list[DefinitionPosition | None] = []

    @property
    def is_current(self) -> bool:
        """Whether everything was found that this version looks for."""
        return all(place is None or place.output_checked for place in self.places)

    def checked_definitions(self) -> dict[bytes, CheckedDefinition]:
        """What is known of the definitions."""
        known = zip(self.definitions, self.places, strict=False)
        sources = ((definition, _source(definition, place)) for definition, place in known if place)
        return {definition: CheckedDefinition(source) for definition, source in sources if source}


def places(definitions: Sequence[bytes], sources: Iterable[UpstreamItem]) -> list[DefinitionPosition | None]:
    """Where the names stand in definitions that could be taken as they are."""
    plain = {
        source.definition.text: source
        for source in sources
        if source.handshake_definition is None
        and source.truncated_definition is None
        and not source.mirrored_parameters
    }
    found = (plain.get(definition.decode(errors="replace")) for definition in definitions)
    return [
        DefinitionPosition(
            source.name, source.definition.key_start, source.definition.key_end, output_checked=True
        )
        if source
        else None
        for source in found
    ]


def _source(definition: bytes, place: DefinitionPosition) -> UpstreamItem | None:
    """None where the name does not stand there: what was kept may have been damaged."""
    text = definition.decode(errors="replace")
    if not place.output_checked and "outputSchema" in text:
        return None
    if text[place.start : place.end] != msgspec.json.encode(place.name).decode() or place.start < 0:
        return None
    return UpstreamItem(place.name, DefinitionText(text, place.start, place.end))


class _HashedTool(msgspec.Struct):
    name: str = ""
    description: str | None = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)
    annotations: Any = None


def tool_hash(name: str, description: str | None, parameters: Any) -> str:
    """SHA-256 of name, description and parameters; none are `{}`, and the order of keys is nothing."""
    canonical = msgspec.json.encode(parameters if parameters is not None else {}, order="deterministic")
    digest = hashlib.sha256()
    for part in (name.encode(), (description or "").encode(), canonical):
        # Each with its length, so that nothing can move from one part to the next unseen.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


class ToolHashes(msgspec.Struct, frozen=True):
    """Both hashes of one tool."""

    # Name, description and parameters: what search looks at.
    search: str
    # These and the annotations: what a person looks at before the tool may be used.
    approval: str


def tool_hashes(definition: bytes) -> ToolHashes:
    """The hashes of a tool as its server defined it; what no parser takes is hashed as it stands."""
    try:
        tool = msgspec.json.decode(definition, type=_HashedTool)
        search = tool_hash(tool.name, tool.description, tool.inputSchema)
        annotations = msgspec.json.encode(tool.annotations or {}, order="deterministic")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        whole = hashlib.sha256(definition).hexdigest()
        return ToolHashes(whole, whole)
    return ToolHashes(search, hashlib.sha256(search.encode() + annotations).hexdigest())


def definition_hash(definition: bytes) -> str:
    """The hash of what search looks at."""
    return tool_hashes(definition).search
