"""Writes shapes as OpenAI strict schemas: closed objects in which every member is required."""

from typing import Final

from headgate.schema.dereference import UnsupportedSchema
from headgate.schema.keywords import SchemaNode
from headgate.schema.shapes import (
    SchemaChanges,
    ShapeUnion,
    ValueShape,
    element_note,
    example_notes,
    keyword_notes,
    member_note,
    title_and_description,
)

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
