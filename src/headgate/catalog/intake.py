"""Takes in one upstream's listing, leniently: a tool that is odd is repaired, or left out with a reason.

SDK clients refuse a whole page for one member of the wrong type, so what they cannot read is not served.
"""

import logging
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.tool import Definition, UpstreamTool
from headgate.wire.members import Member, insert_first, members, remove, replace

log = logging.getLogger("headgate.catalog")


class Intake(msgspec.Struct, frozen=True):
    """The tools of one upstream that can be served, and why others cannot."""

    tools: tuple[UpstreamTool, ...]
    left_out: dict[str, str]


class Unusable(ValueError):
    """A definition that no client could use."""


class _Annotations(msgspec.Struct, rename="camel"):
    title: str = ""
    read_only_hint: bool = False
    destructive_hint: bool = False
    idempotent_hint: bool = False
    open_world_hint: bool = False


class _Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: str = ""


class _Execution(msgspec.Struct, rename="camel"):
    task_support: str = ""


class _Object(msgspec.Struct):
    """A JSON Schema whose members are none of our business."""


# What each member must be, if it is there; one that is something else is taken out.
_OPTIONAL: dict[str, Any] = {
    "title": str,
    "description": str,
    "annotations": _Annotations,
    "icons": list[_Icon],
    "execution": _Execution,
    "outputSchema": _Object,
    "_meta": dict[str, Raw],
}
_SCHEMA_OPTIONAL: dict[str, Any] = {
    "$schema": str,
    "properties": dict[str, _Object],
    "required": list[str],
}


def take_in(server: str, definitions: Iterable[bytes]) -> Intake:
    """Every definition that can be served, in the upstream's order."""
    tools: dict[str, UpstreamTool] = {}
    left_out: dict[str, str] = {}
    for position, definition in enumerate(definitions):
        try:
            tool, repairs = _take_in_one(definition)
            if tool.name in tools:
                raise Unusable(f"a second tool is called {tool.name!r}")
        except (ValueError, RecursionError) as error:
            label = f"#{position + 1}"
            left_out[label] = str(error)[:200]
            log.warning("tool left out", extra={"server": server, "tool": label, "reason": str(error)[:200]})
            continue
        tools[tool.name] = tool
        if repairs:
            log.info(
                "tool repaired", extra={"server": server, "tool": tool.name, "repair": "; ".join(repairs)}
            )
    return Intake(tuple(tools.values()), left_out)


def _take_in_one(definition: bytes) -> tuple[UpstreamTool, list[str]]:
    text, repairs = _without_wrong_members(definition.decode(), _OPTIONAL, "")
    text = _with_object_schema(text, repairs)
    name = _only(text, "name")
    if name is None:
        raise Unusable("it has no name")
    called = msgspec.json.decode(text[name.start : name.end])
    if not isinstance(called, str) or not called:
        raise Unusable("its name is not a text")
    return UpstreamTool(called, _definition(text), _for_handshake(text)), repairs


def _definition(text: str) -> Definition:
    name = _only(text, "name")
    assert name is not None
    return Definition(text, name.start, name.end)


def _only(text: str, key: str) -> Member | None:
    found = [member for member in members(text) if member.key == key]
    if len(found) > 1:
        raise Unusable(f"it has {key!r} twice")
    return found[0] if found else None


def _without_wrong_members(text: str, wanted: dict[str, Any], where: str) -> tuple[str, list[str]]:
    """The object without optional members that are not what they must be."""
    repairs: list[str] = []
    # From the last to the first, so that the places of the others stay right.
    for member in reversed(list(members(text))):
        kind = wanted.get(member.key)
        if kind is not None and not _is(text[member.start : member.end], kind):
            text = remove(text, member)
            repairs.append(f"{where}{member.key} was not what it must be and was taken out")
    return text, repairs


def _is(value: str, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except (DecodeError, RecursionError):
        return False
    return True


def _with_object_schema(text: str, repairs: list[str]) -> str:
    """The definition with the input schema that it must have: an object's."""
    schema = _only(text, "inputSchema")
    if schema is None:
        repairs.append("inputSchema was missing")
        return insert_first(text, '"inputSchema":{"type":"object"}')
    inner = text[schema.start : schema.end]
    if not inner.startswith("{"):
        raise Unusable("its inputSchema is not an object")
    mended = _with_object_properties(inner, repairs)
    mended, more = _without_wrong_members(mended, _SCHEMA_OPTIONAL, "inputSchema.")
    repairs += more
    mended = _typed_object(mended, repairs)
    return text if mended == inner else replace(text, schema, mended)


def _with_object_properties(schema: str, repairs: list[str]) -> str:
    """`true` is a schema that allows everything, and some clients only know its other spelling."""
    properties = _only(schema, "properties")
    if properties is None or schema[properties.start] != "{":
        return schema
    inner = mended = schema[properties.start : properties.end]
    for member in reversed(list(members(inner))):
        if inner[member.start : member.end] == "true":
            mended = replace(mended, member, "{}")
            repairs.append(f"inputSchema.properties.{member.key} was true and became {{}}")
    return schema if mended == inner else replace(schema, properties, mended)


def _typed_object(schema: str, repairs: list[str]) -> str:
    kind = _only(schema, "type")
    if kind is None:
        repairs.append("inputSchema had no type: object")
        return insert_first(schema, '"type":"object"')
    value = msgspec.json.decode(schema[kind.start : kind.end])
    if value == "object":
        return schema
    if not isinstance(value, list) or "object" not in value:
        raise Unusable(f"its inputSchema describes no object but {schema[kind.start : kind.end][:50]}")
    repairs.append("inputSchema had several types, of which arguments can only be an object")
    return replace(schema, kind, '"object"')


def _for_handshake(text: str) -> Definition | None:
    """The definition without an output schema that only the stateless era allows."""
    output = _only(text, "outputSchema")
    if output is None:
        return None
    kind = _only(text[output.start : output.end], "type")
    schema = text[output.start : output.end]
    if kind is not None and schema[kind.start : kind.end] == '"object"':
        return None
    return _definition(remove(text, output))
