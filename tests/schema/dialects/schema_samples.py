"""Tools to adapt, values that a schema allows, and what a model writes for them under a strict schema."""

import json
import lzma
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable

DATA: Final = Path(__file__).parents[2] / "data"
_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
_OF_EACH_TYPE: Final[tuple[Any, ...]] = (None, "x", 1, [], {})
_LEFT_OUT: Final = object()


@lru_cache(maxsize=1)
def catalog_tools() -> tuple[bytes, ...]:
    """Every tool of the real catalogs."""
    with lzma.open(DATA / "catalogs.jsonl.xz", "rt", encoding="utf-8", newline="\n") as lines:
        return tuple(encoded(tool) for line in lines for tool in json.loads(line)["listing"]["tools"])


def encoded(value: Any) -> bytes:
    """JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def tool(schema: Any, **more: Any) -> bytes:
    """A tool with that schema."""
    return encoded({"name": "a_tool", "description": "Does it", "inputSchema": schema} | more)


def an_object(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), **more}


def schema_of(definition: bytes) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    schema = json.loads(definition)["inputSchema"]
    assert isinstance(schema, dict)
    return schema


def is_valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the schema allows the value; nothing is fetched to find out."""
    try:
        return bool(jsonschema.Draft202012Validator(schema, registry=Registry()).is_valid(value))
    except (Unresolvable, RecursionError):
        return False


def ends(schema: dict[str, Any]) -> bool:
    """Whether validating by the definitions of a schema ends: one may refer to nothing but itself."""
    try:
        for name in schema["$defs"]:
            one = {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
            for value in _OF_EACH_TYPE:
                jsonschema.Draft202012Validator(one, registry=Registry()).is_valid(value)
    except RecursionError:
        return False
    return True


def values_of(schema: dict[str, Any], chance: Random, count: int) -> Iterator[Any]:
    """Some objects that the schema allows, as far as such are found by trying."""
    maker = _Maker(schema, chance)
    for _ in range(count):
        value = maker.value(schema, 0)
        if isinstance(value, dict) and is_valid(value, schema):
            yield value


class _Maker:
    """Makes values that mostly fit; the caller checks them."""

    def __init__(self, root: dict[str, Any], chance: Random) -> None:
        self._root = root
        self._chance = chance

    def value(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > 12:
            return "x"
        for key in ("anyOf", "oneOf"):
            if schema.get(key) and not (schema.get("properties") and depth == 0):
                rest = {name: inner for name, inner in schema.items() if name not in ("anyOf", "oneOf")}
                return self.value(rest | self._chance.choice(schema[key]), depth + 1)
        if schema.get("allOf"):
            return self.value({**_all(schema["allOf"]), **_without(schema, "allOf")}, depth + 1)
        if "$ref" in schema:
            return self.value({**self._target(schema["$ref"]), **_without(schema, "$ref")}, depth + 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chance.choice(schema["enum"])
        return self._of_type(schema, depth)

    def _target(self, reference: str) -> dict[str, Any]:
        found: Any = self._root
        for part in reference.split("/")[1:]:
            found = found.get(part, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._chance.choice(kind)
        if kind not in _TYPES:
            kind = "object" if "properties" in schema else self._chance.choice(_TYPES)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            most = min(2, schema.get("maxItems", 2)) if depth < 8 else 0
            count = self._chance.randint(0, most) if "minItems" not in schema else schema["minItems"]
            return [self.value(schema.get("items"), depth + 1) for _ in range(count)]
        return self._scalar(kind, schema)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", [])
        made = {
            name: self.value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or (depth < 8 and self._chance.random() < 0.5)
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict) or (more is None and depth and not schema.get("properties")):
            made["another"] = self.value(more, depth + 1)
        return made

    def _scalar(self, kind: str, schema: dict[str, Any]) -> Any:
        if kind == "string":
            words = (
                "x",
                "{not json",
                '["json"]',
                '"quoted"',
                "",
                "2026-11-16T00:00:00Z",
                "https://a.example",
            )
            return self._chance.choice(words).ljust(schema.get("minLength", 0), "x")[
                : schema.get("maxLength", 99)
            ]
        if kind == "boolean":
            return self._chance.random() < 0.5
        if kind == "null":
            return None
        lowest = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        number = min(lowest + self._chance.randint(0, 3), schema.get("maximum", lowest + 3))
        return int(number) if kind == "integer" else number


def _all(parts: list[Any]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for part in parts:
        properties = {**joined.get("properties", {}), **part.get("properties", {})}
        required = [*joined.get("required", []), *part.get("required", [])]
        joined |= part | {"properties": properties, "required": required}
    return joined


def _without(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: inner for name, inner in schema.items() if name != key}


def has_like_alternatives(schema: dict[str, Any]) -> bool:
    """Whether two alternatives of one place are both lists, or both objects."""
    return any(
        sum(kind in found for found in kinds) > 1
        for place in _places(schema)
        if (kinds := _kinds_of(place, schema, 0))
        for kind in ("array", "object")
    )


def _places(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from _places(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _places(inner)


def _kinds_of(place: Any, schema: dict[str, Any], depth: int) -> list[set[str]]:
    """The types of each alternative of a place, those of nested ones too."""
    if not isinstance(place, dict) or depth > 5:
        return [{"array", "object"}]
    if "$ref" in place:
        target = schema.get("$defs", {}).get(str(place["$ref"]).rsplit("/", 1)[-1])
        return _kinds_of(target, schema, depth + 1)
    branches = [*place.get("anyOf", ()), *place.get("oneOf", ())]
    if branches:
        return [kinds for branch in branches for kinds in _kinds_of(branch, schema, depth + 1)]
    named = place.get("type", ["array", "object"])
    # A property may be called so.
    return [{kind for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str)}]


def written_strictly(value: Any, schema: dict[str, Any]) -> Any:
    """What a model writes that means `value` and has no choice but to follow the strict schema."""
    found = _written(value, schema)
    assert found is not _LEFT_OUT, f"{value!r} cannot be said in {schema}"
    return found


def _written(value: Any, schema: dict[str, Any]) -> Any:
    """The value in the form that the schema asks for, or _LEFT_OUT when it has none."""
    if "anyOf" in schema:
        # What is exactly so first, and JSON in a text last.
        tried = sorted(
            schema["anyOf"], key=lambda one: one.get("type") == "string" and not isinstance(value, str)
        )
        return next((found for one in tried if (found := _written(value, one)) is not _LEFT_OUT), _LEFT_OUT)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "enum" in schema and value not in schema["enum"]:
        return _LEFT_OUT
    if isinstance(value, dict) and "object" in kinds:
        return _written_object(value, schema)
    if isinstance(value, list) and "array" in kinds:
        found = [_written(inner, schema["items"]) for inner in value]
        return _LEFT_OUT if any(inner is _LEFT_OUT for inner in found) else found
    if isinstance(value, dict | list):
        told = schema.get("description", "").partition("JSON text of an")[2]
        wanted = "object" if isinstance(value, dict) else "array"
        return json.dumps(value) if "string" in kinds and wanted in told else _LEFT_OUT
    if isinstance(value, str) and "string" in kinds:
        return (
            _quoted(value) if "a plain text, or JSON text of an" in schema.get("description", "") else value
        )
    return value if jsonschema.Draft202012Validator({"type": kinds}).is_valid(value) else _LEFT_OUT


def _written_object(value: dict[str, Any], schema: dict[str, Any]) -> Any:
    if not value.keys() <= schema["properties"].keys():
        return _LEFT_OUT
    found = {name: _written(value.get(name), inner) for name, inner in schema["properties"].items()}
    return _LEFT_OUT if any(inner is _LEFT_OUT for inner in found.values()) else found


def _quoted(text: str) -> str:
    """A text beside JSON in a text: in quotes where it would be taken for JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    looks = isinstance(found, dict | list) or (
        isinstance(found, str) and found.lstrip()[:1] in ("{", "[", '"')
    )
    return json.dumps(text) if looks else text
