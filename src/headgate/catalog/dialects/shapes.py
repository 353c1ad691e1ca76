"""What a schema allows, in the few terms that every dialect has: one of several shapes, each of one type."""

from typing import Any, Final

import msgspec

Node = dict[str, Any]
TYPES: Final = ("string", "number", "integer", "boolean", "object", "array")
# What may be said of a value of each type, beside what it is made of.
KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
    "number": (
        "enum",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ),
    "boolean": ("enum",),
    "object": ("enum", "minProperties", "maxProperties"),
    "array": ("enum", "minItems", "maxItems", "uniqueItems"),
}
KEYWORDS["integer"] = KEYWORDS["number"]


class Shape(msgspec.Struct, frozen=True):
    """Values of one type."""

    kind: str
    # Keywords of that type as the schema has them.
    said: Node = {}
    # Title, description, default and example of this alternative.
    words: Node = {}
    # Of an object.
    properties: dict[str, "Choice"] = {}
    required: tuple[str, ...] = ()
    closed: bool = False
    # The schema says that it may have members other than `properties`, and of which type.
    open: bool = False
    values: str = ""
    # Of an array; None is anything.
    items: "Choice | None" = None
    # What was cut off here, because it contains itself or is too deep.
    cut: str = ""


class Choice(msgspec.Struct, frozen=True):
    """Any of several shapes, or null."""

    shapes: tuple[Shape, ...] = ()
    null: bool = False
    # Null is allowed by the word that OpenAPI has for it, which JSON Schema does not know.
    nullable: bool = False
    # What is inside was cut off and has no type of its own: nobody knows whether null is really allowed.
    guessed: bool = False
    words: Node = {}
    # What no dialect can say and a model should know.
    hints: tuple[str, ...] = ()


NEVER: Final = Choice()
ANYTHING: Final = Choice(
    (
        Shape("string"),
        Shape("number"),
        Shape("boolean"),
        Shape("object", open=True),
        Shape("array"),
    ),
    null=True,
)


def kind_of(value: Any) -> str:
    """The type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, types in (("string", str), ("integer", int), ("number", float), ("array", list)):
        if isinstance(value, types):
            return kind
    return "object"


def is_a(value: Any, kind: str) -> bool:
    """Whether a JSON value is of that type; a number without a fraction is an integer too."""
    found = kind_of(value)
    if found == kind or (kind == "number" and found == "integer"):
        return True
    return kind == "integer" and found == "number" and value.is_integer()
