"""The shapes of values in terms of every dialect, notes on what a dialect lacks, and the log of changes."""

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from headgate.schema.keywords import JSON_TYPES, SchemaNode

# `null` is a flag of a union, and no shape.
SHAPE_TYPES: Final = JSON_TYPES[:-1]
# The keywords of each type, beside those for members and elements.
_OF_NUMBERS: Final = ("format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
TYPE_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "string": ("enum", "format", "pattern", "minLength", "maxLength"),
    "number": ("enum", *_OF_NUMBERS),
    "integer": ("enum", *_OF_NUMBERS),
    "boolean": ("enum",),
    "object": ("enum", "minProperties", "maxProperties"),
    "array": ("enum", "minItems", "maxItems", "uniqueItems"),
}


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
    # Whether members other than `properties` are allowed, and their type.
    open: bool = False
    values: str = ""
    # Of an array; None means anything.
    items: "ShapeUnion | None" = None
    # The name of the part that was cut off here, because it is recursive or too deep.
    cut: str = ""


class ShapeUnion(msgspec.Struct, frozen=True):
    """Any of several shapes, or null."""

    shapes: tuple[ValueShape, ...] = ()
    null: bool = False
    # Null is allowed by OpenAPI's `nullable`, which JSON Schema does not have.
    nullable: bool = False
    # The contents were cut off and have no type of their own, so null may not really be allowed.
    guessed: bool = False
    annotations: SchemaNode = {}
    # Constraints that no dialect can express and a model should know.
    hints: tuple[str, ...] = ()


NEVER: Final = ShapeUnion()
ANYTHING: Final = ShapeUnion(
    tuple(
        ValueShape(kind, open=kind == "object") for kind in ("string", "number", "boolean", "object", "array")
    ),
    null=True,
)


_MOST_LINES: Final = 50
_LONGEST_PLACE: Final = 160
_LONGEST_LINE: Final = 300


class SchemaChanges:
    """Collects changes as lines; beyond a limit only their number is kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def add(self, where: str, what: str) -> None:
        self._count += 1
        if len(self._lines) < _MOST_LINES:
            self._lines.append(f"{_cut(where, _LONGEST_PLACE)}: {_cut(what, _LONGEST_LINE)}")

    def lines(self) -> tuple[str, ...]:
        """All lines, or the first ones and the number of the rest."""
        more = self._count - len(self._lines)
        return (*self._lines, f"and {more} more") if more else tuple(self._lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


_LONGEST_VALUE: Final = 80
# Of a list of values, and of all notes on one place.
_LONGEST_LIST: Final = 200
_LONGEST_NOTES: Final = 400


def title_and_description(annotations: SchemaNode, notes: Iterable[str]) -> SchemaNode:
    """Title and description, followed by the notes."""
    found: SchemaNode = {}
    title, description = annotations.get("title"), annotations.get("description")
    if isinstance(title, str):
        found["title"] = title
    behind = "; ".join(dict.fromkeys(notes))[:_LONGEST_NOTES]
    if isinstance(description, str) and description:
        found["description"] = f"{description} [{behind}]" if behind else description
    elif behind:
        found["description"] = f"[{behind}]"
    return found


def keyword_notes(keywords: SchemaNode, keys: Iterable[str]) -> list[str]:
    """Keywords with their values as text for a model."""
    notes = []
    for key in keys:
        value = keywords.get(key)
        if key == "enum" and value is not None:
            notes.append(f"one of {_listed(value)}")
        elif key == "uniqueItems" and value is not None:
            notes.append("no duplicates")
        elif key in keywords:
            notes.append(f"{key} {value if isinstance(value, str) else _text(value)}"[:_LONGEST_VALUE])
    return notes


def _listed(values: list[Any]) -> str:
    joined = ""
    for count, value in enumerate(values):
        text = _text(value)
        if len(joined) + len(text) > _LONGEST_LIST:
            return f"{joined} and {len(values) - count} more"
        joined += f", {text}" if joined else text
    return joined


def example_notes(annotations: SchemaNode, *, default: bool) -> list[str]:
    """The example, and the default if the dialect has no keyword for it."""
    notes = []
    if default and annotations.get("default") is not None:
        notes.append(f"default {_text(annotations['default'])}")
    examples = annotations.get("examples")
    example = examples[0] if isinstance(examples, list) and examples else annotations.get("example")
    if example is not None:
        notes.append(f"e.g. {_text(example)}")
    return [one for one in notes if len(one) <= _LONGEST_VALUE]


def _text(value: Any) -> str:
    """JSON; a text longer than any limit here if it cannot be encoded."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return "?" * (_LONGEST_LIST + 1)


def member_note(shape: ValueShape) -> str:
    """The members of an object that is not described member by member; empty if they are unknown."""
    if shape.cut:
        return f"of the same form as {shape.cut}"
    known = [
        f"{name[:40]}{'' if name in shape.required else '?'}: {_kind(inner)}"
        for name, inner in shape.properties.items()
    ]
    if shape.values:
        known.append(f"any name: {shape.values}")
    elif known and shape.open:
        known.append("…")
    text = ", ".join(known)
    return f"{{{text if len(text) <= _LONGEST_LIST else text[:_LONGEST_LIST] + '…'}}}" if known else ""


def element_note(shape: ValueShape) -> str:
    """The elements of an array that is not described further."""
    if shape.cut:
        return f"of the same form as {shape.cut}"
    return f"elements {_kind(shape.items)}" if shape.items is not None else ""


def _kind(choice: ShapeUnion) -> str:
    return " or ".join(dict.fromkeys(shape.kind for shape in choice.shapes[:5])) or "null"
