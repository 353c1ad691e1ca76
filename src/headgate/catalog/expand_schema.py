"""The tool expandSchema: returns the whole schema of a tool, or one part, from the catalog, even while its
server is down.
"""

import re
from itertools import islice
from typing import Final, Protocol

import msgspec
from msgspec import Raw

from headgate.catalog.definition_text import split_definition
from headgate.catalog.errors import InvalidExpansionRequest, SchemaNotFound
from headgate.catalog.expand_schema_arguments import (
    MOST_NAMED,
    ExpandSchemaArguments,
    join_names,
    nested_too_deep,
    part_not_found,
    path_text,
    read_expand_schema_arguments,
    replace_lone_surrogates,
    shorten_name,
    unresolved_reason,
)
from headgate.domain.client_profile import ClientProfile
from headgate.domain.identity import Identity
from headgate.domain.item import Item
from headgate.domain.mcp_request import McpRequest, McpResponse
from headgate.schema.path_lookup import NavigableSchema, PathFound, PathNotFound, SchemaChild, SchemaPart
from headgate.schema.references import pointer_steps, string_value

_OWN: Final = ("title", "description", "type", "default", "examples")
_MOST_CHILDREN: Final = 200
_MOST_TYPES: Final = 8


def describe_part(schema: NavigableSchema, part: SchemaPart) -> bytes:
    """A JSON object, short: what `mode` schema has is left out."""
    told: dict[str, object] = {} if part.container else dict(_keyword_values(schema, part.value, _OWN))
    children = schema.children(part, _MOST_CHILDREN)
    if children.first:
        told["children"] = {
            replace_lone_surrogates(name): _describe_child(schema, child)
            for name, child in children.first.items()
        }
    if children.total > len(children.first):
        told["more"] = children.total - len(children.first)
    return msgspec.json.encode(told)


def _describe_child(schema: NavigableSchema, child: SchemaChild) -> dict[str, object]:
    line: dict[str, object] = dict(_keyword_values(schema, child.value, ("type",)))
    if child.required:
        line["required"] = True
    return line | _keyword_values(schema, child.value, ("description",))


def _keyword_values(schema: NavigableSchema, value: bytes, keywords: tuple[str, ...]) -> dict[str, Raw]:
    """What the schema says under these keywords, or what it refers to says in its place."""
    said: dict[str, Raw] = {}
    for subschema in schema.subschemas.with_references(value):
        for keyword in keywords:
            member = schema.json.member(subschema.value, keyword)
            if member and keyword not in said:
                said[keyword] = Raw(member)
    if "type" in keywords and "type" not in said:
        said |= _type_of_branches(schema, value)
    return {keyword: said[keyword] for keyword in keywords if keyword in said}


def _type_of_branches(schema: NavigableSchema, value: bytes) -> dict[str, Raw]:
    """The types of what may be one thing or another."""
    types: dict[bytes, None] = {}
    for subschema in schema.subschemas.with_branches(value):
        kind = schema.json.member(subschema.value, "type")
        if kind[:1] == b'"':
            types[kind] = None
        if len(types) == _MOST_TYPES:
            break
    if not types:
        return {}
    return {"type": Raw(next(iter(types)) if len(types) == 1 else b"[" + b",".join(types) + b"]")}


# A property of that name has an object behind it, and no text.
_REFERENCE: Final = re.compile(rb'"\$ref"\s*+:\s*+("(?:[^"\\]|\\.)*+")')
# Looked at in one part; the same few come again and again.
_MOST_REFERENCES: Final = 1_000


class ToolDefinitionLookup(Protocol):
    """The tools that can be expanded."""

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        """The tool that a call of this name would reach; None when this client does not see it."""

    def nearest(self, name: str, caller: Identity) -> list[str]:
        """Names of the caller's tools like this one."""


class ExpandSchema:
    """Gives a tool's inputSchema, and whatever else the tool says about itself, as its server wrote it."""

    def __init__(self, tools: ToolDefinitionLookup) -> None:
        self._tools = tools
        # For whoever watches the gateway: how often something was expanded, and how often it could not be.
        self.expansions = 0
        self.refused = 0

    async def run(self, request: McpRequest) -> McpResponse:
        """The schema or the prose as text; raises ExpansionRefused or SchemaNotFound."""
        try:
            blocks = self._expand(request)
        except (InvalidExpansionRequest, SchemaNotFound):
            self.refused += 1
            raise
        self.expansions += 1
        content = [{"type": "text", "text": block} for block in blocks]
        return McpResponse(msgspec.json.encode({"content": content}))

    def _expand(self, request: McpRequest) -> list[str]:
        arguments = read_expand_schema_arguments(request.params)
        tool = self._tools.find(arguments.tool, request.caller, request.profile)
        if tool is None:
            raise SchemaNotFound(arguments.tool, self._tools.nearest(arguments.tool, request.caller))
        definition = tool.definition.decode(errors="replace")
        parted = split_definition(definition)
        if parted is None:
            if arguments.path:
                raise nested_too_deep(tool.public_name)
            return [definition]
        if not arguments.path:
            return [parted.docs if arguments.docs else parted.schema]
        return _expand_part(NavigableSchema(parted.schema.encode()), arguments, tool.public_name)


def _expand_part(schema: NavigableSchema, arguments: ExpandSchemaArguments, tool: str) -> list[str]:
    """One part of a schema; raises ExpansionRefused."""
    found = schema.find(arguments.path)
    if isinstance(found, PathNotFound):
        raise part_not_found(schema, found, tool)
    if arguments.docs:
        return [describe_part(schema, found.part).decode()]
    value, target = found.part.value, b""
    if not found.part.container:
        value, target = schema.subschemas.follow_plain_references(value)
    blocks = [value, target] if target else [value]
    notes = "\n".join(_notes(schema, found, blocks))
    return [block.decode() for block in blocks] + ([notes] if notes else [])


def _notes(schema: NavigableSchema, found: PathFound, blocks: list[bytes]) -> list[str]:
    """How to read on from a part that does not stand for itself."""
    there: dict[str, bytes] = {}
    gone: list[str] = []
    for reference in _references(blocks):
        said = string_value(reference) or ""
        target = schema.subschemas.reference_target(reference)
        if target:
            there[said] = target
        else:
            gone.append(f"{shorten_name(said)!r} {unresolved_reason(said)}")
    notes = []
    if there:
        ways = (_path_to(schema, said, target) for said, target in islice(there.items(), MOST_NAMED))
        notes.append(f"Expand $ref with path: {join_names(ways, len(there))}")
    if gone:
        notes.append(f"$ref {join_names(gone)}")
    if found.others:
        notes.append(f"Also at path: {join_names(map(path_text, found.others))}")
    return notes


def _references(blocks: list[bytes]) -> dict[bytes, None]:
    every = (match[1] for block in blocks for match in _REFERENCE.finditer(block))
    return dict.fromkeys(islice(every, _MOST_REFERENCES))


def _path_to(schema: NavigableSchema, reference: str, target: bytes) -> str:
    """A path that leads where the reference leads; the reference itself where names would lead elsewhere."""
    steps = pointer_steps(reference)
    if not steps:
        return "[]"
    found = schema.find(steps)
    straight = isinstance(found, PathFound) and found.part.value == target
    return path_text(steps if straight else [reference])
