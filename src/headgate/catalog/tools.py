"""What a tool must be, so that clients can read the page it is on."""

from typing import Any

import msgspec

from headgate.catalog.definition import OPTIONAL, Unusable, definition, members, only, without_wrong_members
from headgate.domain.item import Definition, Mirror, Source
from headgate.domain.output_schema import admits_notice
from headgate.protocol.json_members import insert_first_member, remove_member, replace_member
from headgate.protocol.mcp_headers import mirrored_parameters

# To look through a larger one takes so long that others would notice.
_LONGEST_SCHEMA = 128 * 1024


class _Annotations(msgspec.Struct, rename="camel"):
    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class _Execution(msgspec.Struct, rename="camel"):
    task_support: str = ""


class _Object(msgspec.Struct):
    """A JSON Schema whose members are none of our business."""


# What each member must be, if it is there; one that is something else is taken out.
_OPTIONAL: dict[str, Any] = OPTIONAL | {
    "annotations": _Annotations,
    "execution": _Execution,
    "outputSchema": _Object,
}
_SCHEMA_OPTIONAL: dict[str, Any] = {
    "$schema": str,
    "properties": dict[str, _Object],
    "required": list[str],
}


def take_in_tool(text: str) -> tuple[Source, list[str]]:
    """The tool, and what had to be mended; raises ValueError when it cannot be served."""
    repairs: list[str] = []
    text = _with_object_schema(without_wrong_members(text, _OPTIONAL, repairs), repairs)
    name, found = definition(text, "name")
    for_handshake, if_truncated = _without_output_schema(text)
    return Source(name, found, for_handshake, _mirrors(text), if_truncated), repairs


def _with_object_schema(text: str, repairs: list[str]) -> str:
    """The definition with the input schema that it must have: an object's."""
    schema = only(text, "inputSchema")
    if schema is None:
        repairs.append("inputSchema was missing")
        return insert_first_member(text, '"inputSchema":{"type":"object"}')
    inner = text[schema.start : schema.end]
    if not inner.startswith("{"):
        raise Unusable("its inputSchema is not an object")
    mended = _with_object_properties(inner, repairs)
    mended = without_wrong_members(mended, _SCHEMA_OPTIONAL, repairs, "inputSchema.")
    mended = _typed_object(mended, repairs)
    return text if mended == inner else replace_member(text, schema, mended)


def _with_object_properties(schema: str, repairs: list[str]) -> str:
    """`true` is a schema that allows everything, and some clients only know its other spelling."""
    properties = only(schema, "properties")
    if properties is None or schema[properties.start] != "{":
        return schema
    inner = mended = schema[properties.start : properties.end]
    # To look at tens of thousands of properties takes a while, and hardly any is that.
    if "true" not in inner:
        return schema
    for member in reversed(members(inner)):
        if inner[member.start : member.end] == "true":
            mended = replace_member(mended, member, "{}")
            repairs.append(f"inputSchema.properties.{member.key} was true and became {{}}")
    return schema if mended == inner else replace_member(schema, properties, mended)


def _typed_object(schema: str, repairs: list[str]) -> str:
    kind = only(schema, "type")
    if kind is None:
        repairs.append("inputSchema had no type: object")
        return insert_first_member(schema, '"type":"object"')
    value = msgspec.json.decode(schema[kind.start : kind.end])
    if value == "object":
        return schema
    if not isinstance(value, list) or "object" not in value:
        raise Unusable(f"its inputSchema describes no object but {schema[kind.start : kind.end][:50]}")
    repairs.append("inputSchema had several types, of which arguments can only be an object")
    return replace_member(schema, kind, '"object"')


def _without_output_schema(text: str) -> tuple[Definition | None, Definition | None]:
    """The definition without its output schema: where only the stateless era allows that schema, and where
    the schema admits no notice of a truncated result.
    """
    output = only(text, "outputSchema")
    if output is None:
        return None, None
    schema = text[output.start : output.end]
    kind = only(schema, "type")
    is_object = kind is not None and schema[kind.start : kind.end] == '"object"'
    if is_object and admits_notice(schema):
        return None, None
    without = definition(remove_member(text, output), "name")[1]
    return None if is_object else without, without


def _mirrors(text: str) -> tuple[Mirror, ...]:
    """Which arguments go into headers as well; raises ValueError when the schema says it wrongly."""
    # Hardly any tool says it, in letters or in escapes, and looking properly means to parse the schema.
    if "x-mcp-header" not in text and "\\u00" not in text:
        return ()
    schema = only(text, "inputSchema")
    assert schema is not None
    if schema.end - schema.start > _LONGEST_SCHEMA:
        raise Unusable("its inputSchema is too large to look for an x-mcp-header in it")
    return tuple(
        Mirror(path, header) for path, header in mirrored_parameters(text[schema.start : schema.end])
    )
