"""The tool expandSchema: answers from what the catalog keeps, also while the tool's server is down."""

import re
from itertools import islice
from typing import Final, Protocol

import msgspec

from headgate.catalog.definition_text import split_definition
from headgate.catalog.expansion.pointer import steps_of, text_of
from headgate.catalog.expansion.prose import prose_of
from headgate.catalog.expansion.refusal import no_part, reason, unopened
from headgate.catalog.expansion.saying import MOST_NAMED, cut, named, written
from headgate.catalog.expansion.schema import Found, Lost, Schema
from headgate.catalog.expansion.wish import Wish, read_wish
from headgate.domain.call import Answer, Caller, Request
from headgate.domain.errors import ExpansionRefused, SchemaNotFound
from headgate.domain.item import Item
from headgate.domain.profile import Profile

# A property of that name has an object behind it, and no text.
_REFERENCE: Final = re.compile(rb'"\$ref"\s*+:\s*+("(?:[^"\\]|\\.)*+")')
# Looked at in one part; the same few come again and again.
_MOST_REFERENCES: Final = 1_000


class Tools(Protocol):
    """The tools that can be expanded."""

    def find(self, name: str, caller: Caller, profile: Profile) -> Item | None:
        """The tool that a call of this name would reach; None when this client does not see it."""

    def nearest(self, name: str) -> list[str]:
        """Names like this one."""


class ExpandSchema:
    """Gives a tool's inputSchema, and whatever else the tool says about itself, as its server wrote it."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        # For whoever watches the gateway: how often something was expanded, and how often it could not be.
        self.expansions = 0
        self.refused = 0

    async def run(self, request: Request) -> Answer:
        """The schema or the prose as text; raises ExpansionRefused or SchemaNotFound."""
        try:
            blocks = self._expand(request)
        except (ExpansionRefused, SchemaNotFound):
            self.refused += 1
            raise
        self.expansions += 1
        content = [{"type": "text", "text": block} for block in blocks]
        return Answer(msgspec.json.encode({"content": content}))

    def _expand(self, request: Request) -> list[str]:
        wish = read_wish(request.params)
        tool = self._tools.find(wish.tool, request.caller, request.profile)
        if tool is None:
            raise SchemaNotFound(wish.tool, self._tools.nearest(wish.tool))
        definition = tool.definition.decode(errors="replace")
        parted = split_definition(definition)
        if parted is None:
            if wish.path:
                raise unopened(tool.public_name)
            return [definition]
        if not wish.path:
            return [parted.docs if wish.docs else parted.schema]
        return _part(Schema(parted.schema.encode()), wish, tool.public_name)


def _part(schema: Schema, wish: Wish, tool: str) -> list[str]:
    """One part of a schema; raises ExpansionRefused."""
    found = schema.find(wish.path)
    if isinstance(found, Lost):
        raise no_part(schema, found, tool)
    if wish.docs:
        return [prose_of(schema, found.part).decode()]
    value, target = found.part.value, b""
    if not found.part.container:
        value, target = schema.faces.settled(value)
    blocks = [value, target] if target else [value]
    notes = "\n".join(_notes(schema, found, blocks))
    return [block.decode() for block in blocks] + ([notes] if notes else [])


def _notes(schema: Schema, found: Found, blocks: list[bytes]) -> list[str]:
    """How to read on from a part that does not stand for itself."""
    there: dict[str, bytes] = {}
    gone: list[str] = []
    for reference in _references(blocks):
        said = text_of(reference) or ""
        target = schema.faces.target(reference)
        if target:
            there[said] = target
        else:
            gone.append(f"{cut(said)!r} {reason(said)}")
    notes = []
    if there:
        ways = (_way_to(schema, said, target) for said, target in islice(there.items(), MOST_NAMED))
        notes.append(f"Expand $ref with path: {named(ways, len(there))}")
    if gone:
        notes.append(f"$ref {named(gone)}")
    if found.others:
        notes.append(f"Also at path: {named(map(written, found.others))}")
    return notes


def _references(blocks: list[bytes]) -> dict[bytes, None]:
    every = (match[1] for block in blocks for match in _REFERENCE.finditer(block))
    return dict.fromkeys(islice(every, _MOST_REFERENCES))


def _way_to(schema: Schema, reference: str, target: bytes) -> str:
    """A path that leads where the reference leads; the reference itself where names would lead elsewhere."""
    steps = steps_of(reference)
    if not steps:
        return "[]"
    found = schema.find(steps)
    straight = isinstance(found, Found) and found.part.value == target
    return written(steps if straight else [reference])
