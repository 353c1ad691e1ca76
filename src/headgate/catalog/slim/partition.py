"""Keeps the upper part of a schema, and of what lies deeper only that it is there."""

from typing import Any, Final

import msgspec

from headgate.catalog.slim.kinds import Kinds

_KEPT: Final = ("type", "description", "enum", "const", "format", "pattern", "required", "default")
# They constrain nothing, so that they count beside a reference too.
_SAID: Final = ("description", "default")
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
        short = _part(schema, min(depth, _DEEPEST), Kinds(schema))
        return short if _size(short) < _size(schema) else schema
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema


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
    if "items" in found and "prefixItems" not in found:
        short["items"] = _typed(kinds.of(found["items"]))
    return short


def _typed(found: tuple[str, ...]) -> dict[str, Any]:
    if not found:
        return {}
    return {"type": found[0] if len(found) == 1 else list(found)}
