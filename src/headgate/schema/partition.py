"""Keeps the upper levels of a schema and only the types of what lies deeper."""

from typing import Any, Final

import msgspec

from headgate.schema.accepted_types import AcceptedTypes

_KEPT: Final = ("type", "description", "enum", "const", "format", "pattern", "required", "default")
# They constrain nothing, so that they count beside a reference too.
_ANNOTATIONS: Final = ("description", "default")
# A schema that refers to itself has no end.
_DEEPEST: Final = 16
# To look at more takes longer than anybody waits.
_MOST_PROPERTIES: Final = 5_000


def partition_schema(schema: Any, depth: int = 1) -> Any:
    """The schema with its properties down to `depth` and nothing below; itself where that is not smaller.

    The input stays as it is. What it accepts, the result accepts too.
    """
    if not isinstance(schema, dict):
        return schema
    try:
        short = _part(schema, min(depth, _DEEPEST), AcceptedTypes(schema))
        return short if _size(short) < _size(schema) else schema
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema


def _size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))


def _part(schema: Any, depth: int, types: AcceptedTypes) -> Any:
    if not isinstance(schema, dict):
        return schema
    said = {key: schema[key] for key in _ANNOTATIONS if key in schema}
    found = types.resolve(schema)
    if not isinstance(found, dict):
        return said
    short = {key: found[key] for key in _KEPT if key in found} | said
    inner = found.get("properties")
    if isinstance(inner, dict) and len(inner) > _MOST_PROPERTIES:
        raise ValueError("too many properties")
    if depth > 0 and isinstance(inner, dict) and types.take_step():
        short["properties"] = {name: _part(one, depth - 1, types) for name, one in inner.items()}
    if "type" not in short:
        # Where it may be one thing or another, of which the types are kept.
        short |= _typed(types.types_of(found))
        short |= _of_optional(found, types)
    if "items" in found and "prefixItems" not in found:
        short["items"] = _typed(types.types_of(found["items"]))
    return short


def _of_optional(schema: dict[str, Any], types: AcceptedTypes) -> dict[str, Any]:
    """The choices and the format of a value that may be null as well, as many generators write it."""
    union = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(union, list) or len(union) != 2 or {"type": "null"} not in union:
        return {}
    (one,) = [branch for branch in union if branch != {"type": "null"}] or [None]
    inner = types.resolve(one)
    if not isinstance(inner, dict):
        return {}
    # Both of them constrain texts alone.
    kept = {key: inner[key] for key in ("format", "pattern") if key in inner and key not in schema}
    if isinstance(inner.get("enum"), list) and "enum" not in schema:
        kept["enum"] = [*inner["enum"], None]
    if "items" in inner and "prefixItems" not in inner:
        kept["items"] = _typed(types.types_of(inner["items"]))
    return kept


def _typed(found: tuple[str, ...]) -> dict[str, Any]:
    if not found:
        return {}
    return {"type": found[0] if len(found) == 1 else list(found)}
