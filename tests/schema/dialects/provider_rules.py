"""What a provider takes, written down without a look at how schemas are made to fit."""

from typing import Any, Final

Schema = dict[str, Any]

_GEMINI_KEYS: Final = {
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "anyOf",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "default",
}
# Keywords that are refused beside another type.
_GEMINI_TYPED: Final = {
    "string": {"enum", "minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum"},
    "integer": {"minimum", "maximum"},
    "boolean": set[str](),
    "object": {"properties", "required", "minProperties", "maxProperties"},
    "array": {"items", "minItems", "maxItems"},
    "null": set[str](),
}
_GEMINI_FORMATS: Final = {
    "string": {"date-time", "enum"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_ANYWHERE: Final = {"type", "title", "description", "nullable", "default", "anyOf", "format"}
_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")


def gemini_faults(schema: Schema) -> list[str]:
    """What the Gemini API would refuse in the schema of a function's parameters."""
    faults = [] if schema.get("type") == "object" and "anyOf" not in schema else ["the root is no object"]
    _gemini(schema, "root", faults)
    return faults


def _gemini(schema: Any, where: str, faults: list[str]) -> None:
    if not isinstance(schema, dict):
        faults.append(f"{where} is no object")
        return
    faults += [f"{where}: unknown {key}" for key in schema if key not in _GEMINI_KEYS]
    if "anyOf" in schema:
        faults += (
            [] if "type" not in schema and schema["anyOf"] else [f"{where}: anyOf beside type, or empty"]
        )
        for at, one in enumerate(schema["anyOf"]):
            _gemini(one, f"{where}.anyOf[{at}]", faults)
        return
    kind = schema.get("type")
    if kind not in _GEMINI_TYPED:
        faults.append(f"{where}: type is {kind}")
        return
    faults += [f"{where}: {key} with {kind}" for key in schema if key not in _ANYWHERE | _GEMINI_TYPED[kind]]
    _gemini_values(schema, kind, where, faults)
    _gemini_inside(schema, kind, where, faults)


def _gemini_values(schema: Schema, kind: str, where: str, faults: list[str]) -> None:
    if "format" in schema and schema["format"] not in _GEMINI_FORMATS.get(kind, ()):
        faults.append(f"{where}: format {schema['format']}")
    if "enum" in schema and not all(isinstance(value, str) and value for value in schema["enum"]):
        faults.append(f"{where}: enum of something else than texts")
    if schema.get("enum") == []:
        faults.append(f"{where}: empty enum")
    faults += [f"{where}: {key}" for key in _COUNTS if key in schema and type(schema[key]) is not int]
    for key in ("title", "description", "pattern"):
        if key in schema and not isinstance(schema[key], str):
            faults.append(f"{where}: {key} is no text")


def _gemini_inside(schema: Schema, kind: str, where: str, faults: list[str]) -> None:
    if kind == "array":
        _gemini(schema.get("items"), f"{where}.items", faults)
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        _gemini(inner, f"{where}.{name[:20]}", faults)
    required = schema.get("required", [])
    if len(set(required)) != len(required) or not set(required) <= set(properties):
        faults.append(f"{where}: required {required}")


_STRICT_KEYS: Final = {
    "type",
    "title",
    "description",
    "enum",
    "items",
    "properties",
    "required",
    "additionalProperties",
    "anyOf",
}
_STRICT_TYPES: Final = {"string", "number", "integer", "boolean", "object", "array", "null"}


def strict_faults(schema: Schema) -> list[str]:
    """What OpenAI would refuse in the schema of a strict function's parameters."""
    faults = [] if schema.get("type") == "object" else ["the root is no object"]
    measured = {"properties": 0, "values": 0, "characters": 0, "levels": 0}
    _strict(schema, "root", 1, measured, faults)
    limits = {"properties": 5000, "values": 1000, "characters": 120_000, "levels": 10}
    return faults + [f"{count} {key}" for key, count in measured.items() if count > limits[key]]


def _strict(schema: Any, where: str, level: int, measured: dict[str, int], faults: list[str]) -> None:
    if not isinstance(schema, dict):
        faults.append(f"{where} is no object")
        return
    faults += [f"{where}: unknown {key}" for key in schema if key not in _STRICT_KEYS]
    values = schema.get("enum", [])
    measured["values"] += len(values)
    measured["characters"] += sum(len(value) for value in values if isinstance(value, str))
    if "anyOf" in schema:
        faults += (
            [] if "type" not in schema and schema["anyOf"] else [f"{where}: anyOf beside type, or empty"]
        )
        for at, one in enumerate(schema["anyOf"]):
            _strict(one, f"{where}.anyOf[{at}]", level, measured, faults)
        return
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if not kinds or not _STRICT_TYPES.issuperset(kinds):
        faults.append(f"{where}: type is {kinds}")
    if "object" in kinds:
        measured["levels"] = max(measured["levels"], level)
        _strict_object(schema, where, level, measured, faults)
    elif any(key in schema for key in ("properties", "required", "additionalProperties")):
        faults.append(f"{where}: members of something else than an object")
    if "array" in kinds:
        measured["levels"] = max(measured["levels"], level)
        _strict(schema.get("items"), f"{where}.items", level + 1, measured, faults)
    elif "items" in schema:
        faults.append(f"{where}: items of something else than an array")


def _strict_object(
    schema: Schema, where: str, level: int, measured: dict[str, int], faults: list[str]
) -> None:
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is not False or "properties" not in schema:
        faults.append(f"{where}: an open object")
    if schema.get("required", []) != list(properties) and set(schema.get("required", [])) != set(properties):
        faults.append(f"{where}: not all required")
    measured["properties"] += len(properties)
    measured["characters"] += sum(map(len, properties))
    for name, inner in properties.items():
        _strict(inner, f"{where}.{name[:20]}", level + 1, measured, faults)
