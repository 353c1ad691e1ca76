"""Writes shapes as the Schema object of the Gemini API: a part of OpenAPI 3.0, which has no references."""

import re
from typing import Any, Final

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.shapes import ANYTHING, Choice, Node, Shape, is_a
from headgate.catalog.dialects.wording import described, told_examples, told_keywords, told_members

_FORMATS: Final = {
    "string": {"date-time", "enum"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_KEPT: Final = {
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
}
# What RE2 does not know: looking around, and what was found before.
_FANCY_PATTERN: Final = re.compile(r"\(\?|\\[1-9]|\\[cux]")
# Elements of an array in which anything may be; an array needs a schema for them.
_ELEMENTS: Final = tuple(Shape(kind) for kind in ("string", "number", "boolean", "object"))


class Gemini:
    """Writes one schema."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def root(self, choice: Choice) -> Node:
        """The schema of a tool's arguments."""
        (shape,) = choice.shapes
        # Arguments that are not described are none, and not any.
        written, more = self._object(shape, "inputSchema")
        told = [*choice.hints, *told_examples(choice.words, default=True), *more]
        return {"type": "object", **described(choice.words, told), **written}

    def _choice(self, choice: Choice, where: str) -> Node:
        nullable: Node = {"nullable": True} if choice.null or choice.nullable else {}
        if not choice.shapes:
            return {"type": "null", **described(choice.words, ())}
        if choice.null:
            self._changes.add(where, "null became nullable")
        default = _default(choice.words)
        told = [*choice.hints, *told_examples(choice.words, default=not default)]
        if len(choice.shapes) == 1:
            (shape,) = choice.shapes
            words = shape.words | choice.words
            written, more = self._shape(shape, where)
            inner = shape.words.get("description")
            if isinstance(inner, str) and inner != words["description"]:
                more.append(inner)
            return {"type": shape.kind, **described(words, [*told, *more]), **written, **nullable, **default}
        outs = [self._alternative(shape, f"{where}.anyOf[{at}]") for at, shape in enumerate(choice.shapes)]
        return {"anyOf": outs, **described(choice.words, told), **nullable, **default}

    def _alternative(self, shape: Shape, where: str) -> Node:
        written, told = self._shape(shape, where)
        default = _default(shape.words)
        told = [*told_examples(shape.words, default=not default), *told]
        return {"type": shape.kind, **described(shape.words, told), **written, **default}

    def _shape(self, shape: Shape, where: str) -> tuple[Node, list[str]]:
        """The keywords of one type, and what is told because there is no keyword for it."""
        kept: Node = {}
        untold: list[str] = []
        for key, value in shape.said.items():
            if _is_kept(shape, key, value):
                kept[key] = int(value) if _is_whole(key) else value
            else:
                untold.append(key)
        told = told_keywords(shape.said, untold)
        if untold:
            self._changes.add(where, f"{', '.join(untold)} told in the description")
        if shape.kind == "array":
            kept["items"] = self._items(shape, where)
        elif shape.kind == "object":
            written, more = self._object(shape, where)
            return kept | written, told + more
        return kept, told

    def _items(self, shape: Shape, where: str) -> Node:
        items = shape.items
        if items is None or items is ANYTHING:
            items = Choice(_ELEMENTS)
        return self._choice(items, f"{where}.items")

    def _object(self, shape: Shape, where: str) -> tuple[Node, list[str]]:
        written: Node = {}
        if shape.properties:
            written["properties"] = {
                name: self._choice(inner, f"{where}.properties.{name[:60]}")
                for name, inner in shape.properties.items()
            }
        if shape.required:
            written["required"] = list(shape.required)
        if shape.open or shape.closed:
            self._changes.add(where, "additionalProperties dropped")
        told = []
        if shape.cut or (shape.open and shape.values):
            told.append(told_members(shape))
        return written, told


def _is_kept(shape: Shape, key: str, value: Any) -> bool:
    if key == "enum":
        # The API takes texts only, and none that is empty.
        return shape.kind == "string" and all(value)
    if key == "format":
        return value in _FORMATS.get(shape.kind, ()) and (value != "enum" or "enum" in shape.said)
    if key == "pattern":
        return len(value) <= 500 and _FANCY_PATTERN.search(value) is None
    return key in _KEPT


def _is_whole(key: str) -> bool:
    return key in _KEPT and key not in ("minimum", "maximum")


def _default(words: Node) -> Node:
    default = words.get("default")
    if default is None or isinstance(default, list | dict):
        return {}
    return {} if is_a(default, "number") and not abs(default) < 2**63 else {"default": default}
