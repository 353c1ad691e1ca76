"""What a schema allows in the terms that every dialect has, and the log of what a conversion changed."""

from typing import Any, Final

import msgspec

SchemaNode = dict[str, Any]
JSON_TYPES: Final = ("string", "number", "integer", "boolean", "object", "array")
# What may be said of a value of each type, beside what it is made of.
TYPE_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
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
TYPE_KEYWORDS["integer"] = TYPE_KEYWORDS["number"]


class ValueShape(msgspec.Struct, frozen=True):
    """Values of one type."""

    kind: str
    # Keywords of that type as the schema has them.
    keywords: SchemaNode = {}
    # Title, description, default and example of this alternative.
    annotations: SchemaNode = {}
    # Of an object.
    properties: dict[str, "ShapeUnion"] = {}
    required: tuple[str, ...] = ()
    closed: bool = False
    # The schema says that it may have members other than `properties`, and of which type.
    open: bool = False
    values: str = ""
    # Of an array; None is anything.
    items: "ShapeUnion | None" = None
    # What was cut off here, because it contains itself or is too deep.
    cut: str = ""


class ShapeUnion(msgspec.Struct, frozen=True):
    """Any of several shapes, or null."""

    shapes: tuple[ValueShape, ...] = ()
    null: bool = False
    # Null is allowed by the word that OpenAPI has for it, which JSON Schema does not know.
    nullable: bool = False
    # What is inside was cut off and has no type of its own: nobody knows whether null is really allowed.
    guessed: bool = False
    annotations: SchemaNode = {}
    # What no dialect can say and a model should know.
    hints: tuple[str, ...] = ()


NEVER: Final = ShapeUnion()
ANYTHING: Final = ShapeUnion(
    (
        ValueShape("string"),
        ValueShape("number"),
        ValueShape("boolean"),
        ValueShape("object", open=True),
        ValueShape("array"),
    ),
    null=True,
)


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


_MOST_LINES: Final = 50
_LONGEST_PLACE: Final = 160
_LONGEST_LINE: Final = 300


class SchemaChanges:
    """Collects the lines; beyond the first few only their number is kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def add(self, where: str, what: str) -> None:
        """One change at one place."""
        self._count += 1
        if len(self._lines) < _MOST_LINES:
            self._lines.append(f"{_cut(where, _LONGEST_PLACE)}: {_cut(what, _LONGEST_LINE)}")

    def lines(self) -> tuple[str, ...]:
        """All of them, or the first ones and how many there are beside them."""
        more = self._count - len(self._lines)
        return (*self._lines, f"and {more} more") if more else tuple(self._lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
