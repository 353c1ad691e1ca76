"""Reads keywords of a JSON Schema that may be malformed, and resolves local `$ref`s; fetches nothing."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from msgspec import DecodeError
from msgspec.json import Decoder

SchemaNode = dict[str, Any]
JSON_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array", "null")
# Branches of a schema that apply to the same value.
COMBINING_KEYWORDS: Final = ("allOf", "anyOf", "oneOf")
CONDITIONAL_KEYWORDS: Final = ("if", "then", "else")
# They do not constrain a value.
# fmt: off
ANNOTATION_KEYWORDS: Final = frozenset([
    "$schema", "$comment", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$vocabulary",
    "title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly",
    "nullable", "discriminator", "externalDocs", "markdownDescription"
])
# fmt: on


def as_object(value: Any) -> SchemaNode:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def properties_of(schema: Any) -> SchemaNode:
    """The schemas of the named members."""
    return as_object(as_object(schema).get("properties"))


def required_names(schema: Any) -> list[str]:
    """The names of the required members, each once."""
    names = as_list(as_object(schema).get("required"))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def listed_types(keyword_value: Any) -> list[Any]:
    """The value of `type` as a list, not validated."""
    return keyword_value if isinstance(keyword_value, list) else [keyword_value]


def declared_types(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The types that `type` names, none without it; None if it names anything that is no type."""
    if "type" not in schema:
        return ()
    named = listed_types(schema["type"])
    if len(named) > len(JSON_TYPES) or not all(
        isinstance(name, str) and name in JSON_TYPES for name in named
    ):
        return None
    return tuple(named)


def branches_of(schema: SchemaNode) -> Iterator[Any]:
    """Every schema that is combined with this one or applies on a condition; references are not followed."""
    for keyword in CONDITIONAL_KEYWORDS:
        yield schema.get(keyword)
    for keyword in COMBINING_KEYWORDS:
        yield from as_list(schema.get(keyword))
    yield from as_object(schema.get("dependentSchemas")).values()


def says_nothing(keyword: str) -> bool:
    """Whether a keyword is an annotation, or an extension that validators do not know."""
    return keyword in ANNOTATION_KEYWORDS or keyword.startswith("x-")


def json_type_of(value: Any) -> str:
    """The type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, types in (("string", str), ("integer", int), ("number", float), ("array", list)):
        if isinstance(value, types):
            return kind
    return "object"


def is_of_type(value: Any, kind: str) -> bool:
    """Whether a JSON value is of that type; a number without a fraction is an integer too."""
    found = json_type_of(value)
    if found == kind or (kind == "number" and found == "integer"):
        return True
    return kind == "integer" and found == "number" and value.is_integer()


_LONGEST_POINTER: Final = 100
# More than any array has elements.
_MOST_DIGITS: Final = 9

_text = Decoder(str)


def resolve_reference(root: Any, reference: Any) -> Any:
    """The value that a reference into its own schema points to; raises LookupError for any other."""
    steps = pointer_steps(reference) if isinstance(reference, str) else None
    if steps is None:
        raise LookupError(reference)
    place: Any = root
    for step in steps:
        if isinstance(place, Mapping) and step in place:
            place = place[step]
            continue
        index = array_index(step) if isinstance(place, Sequence) and not isinstance(place, str) else None
        if index is None or index >= len(place):
            raise LookupError(reference)
        place = place[index]
    return place


def pointer_steps(reference: str | None) -> list[str] | None:
    """The steps of a reference into its own schema; None for an anchor or another document."""
    if reference is None or reference[:1] != "#":
        return None
    first, *steps = unquote(reference[1:]).split("/")
    if first or len(steps) > _LONGEST_POINTER:
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def array_index(step: str) -> int | None:
    """The position that a step of a path names."""
    return int(step) if step.isascii() and step.isdigit() and len(step) <= _MOST_DIGITS else None


def string_value(value: bytes) -> str | None:
    """The text that encoded JSON holds, if it is one."""
    if value[:1] != b'"':
        return None
    try:
        return _text.decode(value)
    except (DecodeError, UnicodeDecodeError):
        return None
