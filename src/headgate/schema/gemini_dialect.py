"""Writes shapes as the Schema object of the Gemini API: a subset of OpenAPI 3.0 without references."""

import re
from typing import Any, Final

from headgate.schema.keywords import SchemaNode, is_of_type
from headgate.schema.shapes import (
    ANYTHING,
    SchemaChanges,
    ShapeUnion,
    ValueShape,
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
