"""Validates the listing of one server: malformed definitions are repaired, or omitted with a reason."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headgate.catalog.definition_text import (
    OPTIONAL_MEMBERS,
    RepairableList,
    RepairableObject,
    UnusableDefinition,
    definition_members,
    keyed_definition,
    single_member,
    without_wrong_members,
)
from headgate.domain.item import DefinitionText, ItemKind, ParamHeader, UpstreamItem
from headgate.protocol.json_scan import insert_first_member, remove_member, replace_member
from headgate.protocol.mcp_headers import mirrored_parameters
from headgate.schema.notice_compatibility import admits_notice

# Parsing a larger one would delay other clients.
_LONGEST_SCHEMA = 128 * 1024


class _ToolAnnotations(msgspec.Struct, rename="camel"):
    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class _ToolExecution(msgspec.Struct, rename="camel"):
    task_support: str = ""


class _OpenObject(msgspec.Struct):
    """A JSON Schema with any members."""


# The required type of each optional member; a member of another type is removed.
_TOOL_MEMBERS: dict[str, Any] = OPTIONAL_MEMBERS | {
    "annotations": _ToolAnnotations,
    "execution": _ToolExecution,
    "outputSchema": _OpenObject,
}
_INPUT_SCHEMA_MEMBERS: dict[str, Any] = {
    "$schema": str,
    "properties": dict[str, _OpenObject],
    "required": list[str],
}


def validate_tool(text: str) -> tuple[UpstreamItem, list[str]]:
    """The tool, and its repairs; raises ValueError if it cannot be served."""
    repairs: list[str] = []
    text = _with_object_schema(without_wrong_members(text, _TOOL_MEMBERS, repairs), repairs)
    name, found = keyed_definition(text, "name")
    for_handshake, if_truncated = _without_output_schema(text)
    return UpstreamItem(name, found, for_handshake, _mirrors(text), if_truncated), repairs


def _with_object_schema(text: str, repairs: list[str]) -> str:
    """The definition with an input schema of type object, as the protocol requires."""
    schema = single_member(text, "inputSchema")
    if schema is None:
        repairs.append("inputSchema was missing")
        return insert_first_member(text, '"inputSchema":{"type":"object"}')
    inner = text[schema.start : schema.end]
    if not inner.startswith("{"):
        raise UnusableDefinition("its inputSchema is not an object")
    repaired = _with_object_properties(inner, repairs)
    repaired = without_wrong_members(repaired, _INPUT_SCHEMA_MEMBERS, repairs, "inputSchema.")
    repaired = _typed_object(repaired, repairs)
    return text if repaired == inner else replace_member(text, schema, repaired)


def _with_object_properties(schema: str, repairs: list[str]) -> str:
    """Replaces the schema `true` by `{}`, because some clients do not accept a boolean."""
    properties = single_member(schema, "properties")
    if properties is None or schema[properties.start] != "{":
        return schema
    inner = repaired = schema[properties.start : properties.end]
    # Parsing tens of thousands of properties takes a while, and hardly any is a boolean.
    if "true" not in inner:
        return schema
    for member in reversed(definition_members(inner)):
        if inner[member.start : member.end] == "true":
            repaired = replace_member(repaired, member, "{}")
            repairs.append(f"inputSchema.properties.{member.key} was true and became {{}}")
    return schema if repaired == inner else replace_member(schema, properties, repaired)


def _typed_object(schema: str, repairs: list[str]) -> str:
    kind = single_member(schema, "type")
    if kind is None:
        repairs.append("inputSchema had no type: object")
        return insert_first_member(schema, '"type":"object"')
    value = msgspec.json.decode(schema[kind.start : kind.end])
    if value == "object":
        return schema
    if not isinstance(value, list) or "object" not in value:
        raise UnusableDefinition(
            f"its inputSchema describes no object but {schema[kind.start : kind.end][:50]}"
        )
    repairs.append("inputSchema had several types, of which arguments can only be an object")
    return replace_member(schema, kind, '"object"')


def _without_output_schema(text: str) -> tuple[DefinitionText | None, DefinitionText | None]:
    """The definition without its output schema: for the handshake era if only the stateless era allows the
    schema, and for truncated results if the schema admits no notice.
    """
    output = single_member(text, "outputSchema")
    if output is None:
        return None, None
    schema = text[output.start : output.end]
    kind = single_member(schema, "type")
    is_object = kind is not None and schema[kind.start : kind.end] == '"object"'
    if is_object and admits_notice(schema):
        return None, None
    without = keyed_definition(remove_member(text, output), "name")[1]
    return None if is_object else without, without


def _mirrors(text: str) -> tuple[ParamHeader, ...]:
    """The arguments that are also sent as headers; raises ValueError if the schema declares them wrongly."""
    # Few tools have this keyword, plain or escaped, and reading it means parsing the schema.
    if "x-mcp-header" not in text and "\\u00" not in text:
        return ()
    schema = single_member(text, "inputSchema")
    assert schema is not None
    if schema.end - schema.start > _LONGEST_SCHEMA:
        raise UnusableDefinition("its inputSchema is too large to look for an x-mcp-header in it")
    return tuple(
        ParamHeader(path, header) for path, header in mirrored_parameters(text[schema.start : schema.end])
    )


_PROMPT_ARGUMENT = RepairableObject(
    {"title": str, "description": str, "required": bool}, needed={"name": str}
)
_PROMPT_MEMBERS: dict[str, Any] = OPTIONAL_MEMBERS | {"arguments": RepairableList(_PROMPT_ARGUMENT)}


def validate_prompt(text: str) -> tuple[UpstreamItem, list[str]]:
    """The prompt, and its repairs; raises ValueError if it cannot be served."""
    repairs: list[str] = []
    name, found = keyed_definition(without_wrong_members(text, _PROMPT_MEMBERS, repairs), "name")
    return UpstreamItem(name, found), repairs


_TIMESTAMP_PATTERN = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
    r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
)
_RESOURCE_ANNOTATIONS = RepairableObject(
    {
        "audience": list[Literal["user", "assistant"]],
        "priority": Annotated[float, Meta(ge=0, le=1)],
        "lastModified": Annotated[str, Meta(pattern=_TIMESTAMP_PATTERN)],
    }
)
_RESOURCE_MEMBERS: dict[str, Any] = OPTIONAL_MEMBERS | {
    "mimeType": str,
    "size": int,
    "annotations": _RESOURCE_ANNOTATIONS,
}


def validate_resource(text: str, kind: ItemKind) -> tuple[UpstreamItem, list[str]]:
    """The resource or template, and its repairs; raises ValueError if it cannot be served."""
    repairs: list[str] = []
    text = without_wrong_members(text, _RESOURCE_MEMBERS, repairs)
    uri, found = keyed_definition(text, kind.key)
    name = single_member(text, "name")
    if name is not None and text[name.start] == '"':
        return UpstreamItem(uri, found), repairs
    # Clients display the name; the URI where it is missing.
    quoted = msgspec.json.encode(uri).decode()
    if name is None:
        repairs.append("name was missing")
        text = insert_first_member(text, f'"name":{quoted}')
    else:
        repairs.append("name was not a text")
        text = replace_member(text, name, quoted)
    return UpstreamItem(*keyed_definition(text, kind.key)), repairs


log = logging.getLogger("headgate.catalog")

# SDK clients refuse an event of more than 1 MiB, and with it the whole page of such an item.
_LARGEST_BYTES = 1_000_000
# Of one listing, also for a server with thousands of malformed items.
_MOST_LINES = 20
_NO_SOURCES: Mapping[str, UpstreamItem] = MappingProxyType({})


_Validator = Callable[[str], tuple[UpstreamItem, list[str]]]
# The name of each kind in the log, and its validator.
_VALIDATION_BY_KIND: Mapping[ItemKind, tuple[str, _Validator]] = {
    ItemKind.TOOLS: ("tool", validate_tool),
    ItemKind.PROMPTS: ("prompt", validate_prompt),
    ItemKind.RESOURCES: ("resource", partial(validate_resource, kind=ItemKind.RESOURCES)),
    ItemKind.TEMPLATES: ("template", partial(validate_resource, kind=ItemKind.TEMPLATES)),
}


class ValidatedListing(msgspec.Struct, frozen=True):
    """The valid items of one server's listing, and the reasons for omitted ones."""

    sources: tuple[UpstreamItem, ...]
    left_out: dict[str, str]


class CheckedDefinition(msgspec.Struct, frozen=True):
    """The validation result of one definition: the item and its repairs, or the problem."""

    source: UpstreamItem | None
    repairs: list[str] = []
    problem: str = ""


def check_definition(kind: ItemKind, definition: bytes) -> CheckedDefinition:
    """The definition, repaired where necessary."""
    problem = f"it is larger than {_LARGEST_BYTES:,} bytes, which clients refuse"
    if len(definition) <= _LARGEST_BYTES:
        try:
            return CheckedDefinition(*_VALIDATION_BY_KIND[kind][1](definition.decode()))
        except RecursionError:
            problem = "it is nested too deep to be read"
        except UnicodeDecodeError as error:
            bad = definition[error.start]
            problem = f"it is not UTF-8: byte 0x{bad:02x} at position {error.start}"
        except ValueError as error:
            problem = str(error)[:200]
    return CheckedDefinition(None, problem=problem)


_NOTHING_CHECKED: Mapping[bytes, CheckedDefinition] = MappingProxyType({})


def validate_listing(
    server: str,
    kind: ItemKind,
    definitions: Iterable[bytes],
    known: Mapping[str, UpstreamItem] = _NO_SOURCES,
    checked: Mapping[bytes, CheckedDefinition] = _NOTHING_CHECKED,
) -> ValidatedListing:
    """Every definition that can be served, in the server's order.

    `known` has items that are served already, by text; `checked` has earlier validation results.
    """
    word = _VALIDATION_BY_KIND[kind][0]
    sources: dict[str, UpstreamItem] = {}
    left_out: dict[str, str] = {}
    lines = 0
    for position, definition in enumerate(definitions, start=1):
        served = known.get(definition.decode(errors="replace"))
        result = CheckedDefinition(served) if served else checked.get(definition)
        result = result or check_definition(kind, definition)
        source, problem = result.source, result.problem
        if source is not None and source.name in sources:
            problem = f"a second {word} is called {source.name[:100]!r}"
        if source is None or problem:
            left_out[f"#{position}"] = problem
            lines += 1
            if lines <= _MOST_LINES:
                extra = {"server": server, word: f"#{position}", "reason": problem}
                log.warning("%s left out", word, extra=extra)
            continue
        sources[source.name] = source
        lines += bool(result.repairs)
        if result.repairs and lines <= _MOST_LINES:
            extra = {"server": server, word: source.name[:200], "repair": "; ".join(result.repairs)[:500]}
            log.info("%s repaired", word, extra=extra)
    if lines > _MOST_LINES:
        more = {"server": server, "more": lines - _MOST_LINES}
        log.warning("more of its %ss repaired or left out", word, extra=more)
    return ValidatedListing(tuple(sources.values()), left_out)
