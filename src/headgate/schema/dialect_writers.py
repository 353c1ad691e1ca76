"""Writes shapes in the dialects of providers: the Schema object of Gemini, and strict schemas of OpenAI."""

import re
from typing import Any, Final

from headgate.schema.dereference import UnsupportedSchema
from headgate.schema.keywords import SchemaNode, is_of_type
from headgate.schema.shapes import (
    ANYTHING,
    SchemaChanges,
    ShapeUnion,
    ValueShape,
    element_note,
    example_notes,
    keyword_notes,
    member_note,
    title_and_description,
)

_FORMATS: Final = {
    "string": {"date-time", "enum"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_COUNTS: Final = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
# Lookaround and back references, which RE2 does not support.
_FANCY_PATTERN: Final = re.compile(r"\(\?|\\[1-9]|\\[cux]")
# The items of an array of anything: an array needs a schema for them.
_ELEMENTS: Final = tuple(ValueShape(kind) for kind in ("string", "number", "boolean", "object"))


class GeminiSchemaWriter:
    """Writes one schema."""

    def __init__(self, changes: SchemaChanges) -> None:
        self._changes = changes

    def write_root(self, choice: ShapeUnion) -> SchemaNode:
        """The schema of a tool's arguments."""
        (shape,) = choice.shapes
        # Without described arguments there are none, not any.
        written, more = self._object(shape, "inputSchema")
        notes = [*choice.hints, *example_notes(choice.annotations, default=True), *more]
        return {"type": "object", **title_and_description(choice.annotations, notes), **written}

    def _choice(self, choice: ShapeUnion, where: str) -> SchemaNode:
        nullable: SchemaNode = {"nullable": True} if choice.null or choice.nullable else {}
        if not choice.shapes:
            return {"type": "null", **title_and_description(choice.annotations, ())}
        if choice.null:
            self._changes.add(where, "null became nullable")
        default = _default(choice.annotations)
        notes = [*choice.hints, *example_notes(choice.annotations, default=not default)]
        if len(choice.shapes) == 1:
            (shape,) = choice.shapes
            annotations = shape.annotations | choice.annotations
            written, more = self._shape(shape, where)
            inner = shape.annotations.get("description")
            if isinstance(inner, str) and inner != annotations["description"]:
                more.append(inner)
            return {
                "type": shape.kind,
                **title_and_description(annotations, [*notes, *more]),
                **written,
                **nullable,
                **default,
            }
        outs: list[SchemaNode] = []
        for at, shape in enumerate(choice.shapes):
            written, more = self._shape(shape, f"{where}.anyOf[{at}]")
            own = _default(shape.annotations)
            more = [*example_notes(shape.annotations, default=not own), *more]
            described = title_and_description(shape.annotations, more)
            outs.append({"type": shape.kind, **described, **written, **own})
        return {"anyOf": outs, **title_and_description(choice.annotations, notes), **nullable, **default}

    def _shape(self, shape: ValueShape, where: str) -> tuple[SchemaNode, list[str]]:
        """The keywords of one type, and notes for those that the dialect does not have."""
        kept: SchemaNode = {}
        unsupported: list[str] = []
        for key, value in shape.keywords.items():
            if _is_kept(shape, key, value):
                kept[key] = int(value) if key in _COUNTS else value
            else:
                unsupported.append(key)
        notes = keyword_notes(shape.keywords, unsupported)
        if unsupported:
            self._changes.add(where, f"{', '.join(unsupported)} told in the description")
        if shape.kind == "array":
            items = shape.items
            if items is None or items is ANYTHING:
                items = ShapeUnion(_ELEMENTS)
            kept["items"] = self._choice(items, f"{where}.items")
        elif shape.kind == "object":
            written, more = self._object(shape, where)
            return kept | written, notes + more
        return kept, notes

    def _object(self, shape: ValueShape, where: str) -> tuple[SchemaNode, list[str]]:
        written: SchemaNode = {}
        if shape.properties:
            written["properties"] = {
                name: self._choice(inner, f"{where}.properties.{name[:60]}")
                for name, inner in shape.properties.items()
            }
        if shape.required:
            written["required"] = list(shape.required)
        if shape.open or shape.closed:
            self._changes.add(where, "additionalProperties dropped")
        notes = []
        if shape.cut or (shape.open and shape.values):
            notes.append(member_note(shape))
        return written, notes


def _is_kept(shape: ValueShape, key: str, value: Any) -> bool:
    if key == "enum":
        # The API accepts non-empty texts only.
        return shape.kind == "string" and all(value)
    if key == "format":
        return value in _FORMATS.get(shape.kind, ()) and (value != "enum" or "enum" in shape.keywords)
    if key == "pattern":
        return len(value) <= 500 and _FANCY_PATTERN.search(value) is None
    return key in _COUNTS or key in ("minimum", "maximum")


def _default(annotations: SchemaNode) -> SchemaNode:
    default = annotations.get("default")
    if default is None or isinstance(default, list | dict):
        return {}
    return {} if is_of_type(default, "number") and not abs(default) < 2**63 else {"default": default}


# The provider's limits: levels of nesting, values in all lists, and the characters of long lists.
_MOST_LEVELS: Final = 10
_MOST_VALUES: Final = 1000
_MOST_CHARACTERS: Final = 15_000


def is_json_text(shape: ValueShape, level: int) -> bool:
    """Whether values of that shape are written as JSON in a string, because their members are unknown."""
    if shape.kind == "object":
        unnamed = shape.open or (not shape.properties and not shape.closed)
        return unnamed or level > _MOST_LEVELS
    return shape.kind == "array" and (shape.items is None or level > _MOST_LEVELS)


def nesting_level_inside(choice: ShapeUnion, level: int) -> int:
    """The nesting level of the shapes of a place; a union adds one level."""
    return level + 1 if len(choice.shapes) > 1 else level


def arguments_shape(choice: ShapeUnion) -> ValueShape:
    """The shape of the arguments; raises UnsupportedSchema if it allows any member."""
    (shape,) = choice.shapes
    if shape.open and not shape.properties:
        raise UnsupportedSchema("arguments of any name have no strict form")
    return shape


class StrictSchemaWriter:
    """Writes one schema."""

    def __init__(self, changes: SchemaChanges) -> None:
        self._changes = changes
        self._values = 0
        self._characters = 0

    def write_root(self, choice: ShapeUnion) -> SchemaNode:
        """The schema of a tool's arguments; raises UnsupportedSchema."""
        shape = arguments_shape(choice)
        if shape.open:
            self._changes.add("inputSchema", "only the properties that are named can be given")
        notes = [*choice.hints, *example_notes(choice.annotations, default=True)]
        return {
            "type": "object",
            **title_and_description(choice.annotations, notes),
            **self._object(shape, "inputSchema", 1),
        }

    def _choice(self, choice: ShapeUnion, where: str, level: int, *, optional: bool) -> SchemaNode:
        null = optional or choice.null or choice.nullable
        level = nesting_level_inside(choice, level)
        texts: list[ValueShape] = []
        outs: list[SchemaNode] = []
        for at, shape in enumerate(choice.shapes):
            if is_json_text(shape, level):
                texts.append(shape)
                continue
            place = f"{where}.anyOf[{at}]" if len(choice.shapes) > 1 else where
            written, more = self._shape(shape, place, level)
            annotations = title_and_description(
                shape.annotations, [*example_notes(shape.annotations, default=True), *more]
            )
            outs.append({"type": shape.kind, **annotations, **written})
        if texts:
            outs = self._with_json_text(outs, texts, choice, where)
        notes = [*choice.hints, *example_notes(choice.annotations, default=True)]
        if null and len(outs) == 1 and outs[0]["type"] not in ("object", "array") and "enum" not in outs[0]:
            # Only a schema that is no more than a type has room for null in it.
            outs[0] |= {"type": [outs[0]["type"], "null"]}
        elif null:
            outs.append({"type": "null"})
        return _with_notes(outs[0] if len(outs) == 1 else {"anyOf": outs}, choice.annotations, notes)

    def _with_json_text(
        self, outs: list[SchemaNode], texts: list[ValueShape], choice: ShapeUnion, where: str
    ) -> list[SchemaNode]:
        """The alternatives, and one string for all that are written as JSON."""
        kinds = " or ".join(dict.fromkeys(shape.kind for shape in texts))
        self._changes.add(where, f"{kinds} became a text that holds JSON")
        inside = dict.fromkeys(
            member_note(shape) if shape.kind == "object" else element_note(shape) for shape in texts
        )
        notes = [f"JSON text of an {kinds}", *filter(None, inside)]
        strings = [shape for shape in choice.shapes if shape.kind == "string"]
        annotations: SchemaNode = next(
            (shape.annotations for shape in [*strings, *texts] if shape.annotations), {}
        )
        if not strings:
            return [*outs, {"type": "string", **title_and_description(annotations, notes)}]
        # Constraints on a plain text must not apply to the JSON.
        constraints = [one for shape in strings for one in keyword_notes(shape.keywords, shape.keywords)]
        notes = [f"a plain text, or {notes[0]}", *notes[1:], *constraints]
        others = [out for out in outs if out["type"] != "string"]
        return [{"type": "string", **title_and_description(annotations, notes)}, *others]

    def _shape(self, shape: ValueShape, where: str, level: int) -> tuple[SchemaNode, list[str]]:
        if shape.kind == "object":
            return self._object(shape, where, level), self._noted_keywords(shape, where)
        if shape.kind == "array" and shape.items is not None:
            items = self._choice(shape.items, f"{where}.items", level + 1, optional=False)
            return {"items": items}, self._noted_keywords(shape, where)
        values = shape.keywords.get("enum", [])
        count = self._values + len(values)
        characters = self._characters + sum(len(value) for value in values if isinstance(value, str))
        # Whether the values fit the limits together with those before.
        if not values or count > _MOST_VALUES or characters > _MOST_CHARACTERS:
            return {}, self._noted_keywords(shape, where)
        self._values, self._characters = count, characters
        return {"enum": values}, self._noted_keywords(shape, where, "enum")

    def _noted_keywords(self, shape: ValueShape, where: str, *kept: str) -> list[str]:
        keys = [key for key in shape.keywords if key not in kept]
        if keys:
            self._changes.add(where, f"{', '.join(keys)} told in the description")
        return keyword_notes(shape.keywords, keys)

    def _object(self, shape: ValueShape, where: str, level: int) -> SchemaNode:
        optional = [name for name in shape.properties if name not in shape.required]
        if optional:
            names = ", ".join(name[:40] for name in optional[:10])
            self._changes.add(where, f"required and nullable: {names}{', …' if len(optional) > 10 else ''}")
        if not shape.closed:
            self._changes.add(where, "additionalProperties became false")
        required = set(shape.required)
        return {
            "properties": {
                name: self._choice(
                    inner, f"{where}.properties.{name[:60]}", level + 1, optional=name not in required
                )
                for name, inner in shape.properties.items()
            },
            "required": list(shape.properties),
            "additionalProperties": False,
        }


def _with_notes(out: SchemaNode, annotations: SchemaNode, notes: list[str]) -> SchemaNode:
    """The schema with the notes on the place and on its only alternative."""
    own = {key: out[key] for key in ("title", "description") if key in out}
    if not own:
        return out | title_and_description(annotations, notes)
    inner = own.get("description")
    if "description" not in annotations or inner is None:
        return out | title_and_description(own | annotations, notes)
    return out | title_and_description(own | annotations, [*notes, inner.removeprefix("[").removesuffix("]")])
