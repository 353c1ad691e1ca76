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
    """The name in a definition that needs no repair, and its position."""

    name: str
    start: int
    end: int
    # Whether its output schema is known to admit the notice of a truncated result; earlier versions did not
    # check.
    output_checked: bool = False


class StoredListing(msgspec.Struct, frozen=True):
    """The definitions of a server, with the results of their validation, which takes longest at a start."""

    server: str
    kind: ItemKind
    definitions: list[bytes]
    hint: CacheHint
    # One for each definition; None for one that must be validated again.
    places: list[DefinitionPosition | None] = []

    @property
    def is_current(self) -> bool:
        """Whether the stored results have everything that this version checks."""
        return all(place is None or place.output_checked for place in self.places)

    def checked_definitions(self) -> dict[bytes, CheckedDefinition]:
        """The stored validation results."""
        checked: dict[bytes, CheckedDefinition] = {}
        for definition, place in zip(self.definitions, self.places, strict=False):
            text = definition.decode(errors="replace")
            if place is None or (not place.output_checked and "outputSchema" in text):
                continue
            # The name is not there if the stored data is damaged.
            is_there = text[place.start : place.end] == msgspec.json.encode(place.name).decode()
            if is_there and place.start >= 0:
                source = UpstreamItem(place.name, DefinitionText(text, place.start, place.end))
                checked[definition] = CheckedDefinition(source)
        return checked


def places(definitions: Sequence[bytes], sources: Iterable[UpstreamItem]) -> list[DefinitionPosition | None]:
    """The positions of the names in definitions that were valid as they are."""
    plain = {
        source.definition.text: source
        for source in sources
        if source.handshake_definition is None
        and source.truncated_definition is None
        and not source.mirrored_parameters
    }
    found: list[DefinitionPosition | None] = []
    for definition in definitions:
        source = plain.get(definition.decode(errors="replace"))
        place = source.definition if source else None
        found.append(
            DefinitionPosition(source.name, place.key_start, place.key_end, output_checked=True)
            if source and place
            else None
        )
    return found


class _HashedTool(msgspec.Struct):
    name: str = ""
    description: str | None = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)
    annotations: Any = None


def tool_hash(name: str, description: str | None, parameters: Any) -> str:
    """SHA-256 of name, description and parameters, where none is `{}`; the order of keys does not matter."""
    canonical = msgspec.json.encode(parameters if parameters is not None else {}, order="deterministic")
    digest = hashlib.sha256()
    for part in (name.encode(), (description or "").encode(), canonical):
        # Each with its length, so that nothing can move unnoticed from one part to the next.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


class ToolHashes(msgspec.Struct, frozen=True):
    """Both hashes of one tool."""

    # Of name, description and parameters, which search indexes.
    search: str
    # Of these and the annotations, which a person reviews before the tool may be used.
    approval: str


def tool_hashes(definition: bytes) -> ToolHashes:
    """The hashes of a tool as its server defined it; an unparsable definition is hashed as bytes."""
    try:
        tool = msgspec.json.decode(definition, type=_HashedTool)
        search = tool_hash(tool.name, tool.description, tool.inputSchema)
        annotations = msgspec.json.encode(tool.annotations or {}, order="deterministic")
    except (DecodeError, UnicodeDecodeError, RecursionError):
        whole = hashlib.sha256(definition).hexdigest()
        return ToolHashes(whole, whole)
    return ToolHashes(search, hashlib.sha256(search.encode() + annotations).hexdigest())
