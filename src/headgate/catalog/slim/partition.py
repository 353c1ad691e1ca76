"""Keeps the upper part of a schema, and of what lies deeper only that it is there."""

from typing import Any, Final

import msgspec

from headgate.catalog.slim.kinds import Kinds
from headgate.catalog.slim.reading import read

_KEPT: Final = ("type", "description", "enum", "const", "format", "pattern", "required", "default")
# They constrain nothing, so that they count beside a reference too.
_SAID: Final = ("description", "default")
# A schema that refers to itself has no end.
_DEEPEST: Final = 16
# Of a tool; its output schema, icons and metadata are left to expandSchema.
_SHOWN: Final = frozenset(["name", "title", "description", "inputSchema", "annotations"])
# Each may name arguments that the root does not.
_BRANCHES: Final = frozenset(
    [
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "patternProperties",
    ]
)
# To look at more takes longer than anybody waits.
_MOST_PROPERTIES: Final = 5_000


def partition_schema(schema: Any, depth: int = 1) -> Any:
    """The schema with its properties down to `depth` and nothing below; itself where that is not smaller.

    The input stays as it is. What it accepts, the result accepts too.
    """
    if not isinstance(schema, dict):
        return schema
    try:
        short = _part(schema, min(depth, _DEEPEST), Kinds(schema))
        return short if _size(short) < _size(schema) else schema
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema


def partitioned(definition: bytes) -> bytes:
    """The tool with its whole description and its top-level arguments, or the definition if that is smaller.

    A schema whose arguments are in branches or behind a reference to another place is not partitioned.
    """
    tool = read(definition)
    if tool is None or not _is_plain_object(tool.inputSchema):
        return definition
    schema = partition_schema(tool.inputSchema)
    whole = msgspec.json.decode(definition, type=dict[str, msgspec.Raw])
    if schema is tool.inputSchema and _SHOWN.issuperset(whole):
        return definition
    short: dict[str, Any] = {key: value for key, value in whole.items() if key in _SHOWN}
    short["inputSchema"] = schema
    form = msgspec.json.encode(short)
    return form if len(form) < len(definition) else definition


def _is_plain_object(schema: Any) -> bool:
    """Whether the arguments are named at the root alone, and so can all be kept."""
    if not isinstance(schema, dict):
        return False
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    described = isinstance(others, dict) and bool(others)
    return isinstance(properties, dict) and not described and _BRANCHES.isdisjoint(schema)


def _size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))


def _part(schema: Any, depth: int, kinds: Kinds) -> Any:
    if not isinstance(schema, dict):
        return schema
    said = {key: schema[key] for key in _SAID if key in schema}
    found = kinds.resolved(schema)
    if not isinstance(found, dict):
        return said
    short = {key: found[key] for key in _KEPT if key in found} | said
    inner = found.get("properties")
    if isinstance(inner, dict) and len(inner) > _MOST_PROPERTIES:
        raise ValueError("too many properties")
    if depth > 0 and isinstance(inner, dict) and kinds.step():
        short["properties"] = {name: _part(one, depth - 1, kinds) for name, one in inner.items()}
    if "type" not in short:
        # Where it may be one thing or another, of which the types are kept.
        short |= _typed(kinds.of(found))
        short |= _of_optional(found, kinds)
    if "items" in found and "prefixItems" not in found:
        short["items"] = _typed(kinds.of(found["items"]))
    return short


def _of_optional(schema: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    """The choices and the format of a value that may be null as well, as many generators write it."""
    union = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(union, list) or len(union) != 2 or {"type": "null"} not in union:
        return {}
    (one,) = [branch for branch in union if branch != {"type": "null"}] or [None]
    inner = kinds.resolved(one)
    if not isinstance(inner, dict):
        return {}
    # Both of them constrain texts alone.
    kept = {key: inner[key] for key in ("format", "pattern") if key in inner and key not in schema}
    if isinstance(inner.get("enum"), list) and "enum" not in schema:
        kept["enum"] = [*inner["enum"], None]
    if "items" in inner and "prefixItems" not in inner:
        kept["items"] = _typed(kinds.of(inner["items"]))
    return kept


def _typed(found: tuple[str, ...]) -> dict[str, Any]:
    if not found:
        return {}
    return {"type": found[0] if len(found) == 1 else list(found)}
