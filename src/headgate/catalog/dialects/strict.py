"""Writes shapes as the schemas that OpenAI calls strict: closed objects in which every member is required."""

from typing import Any, Final

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.opening import Unsayable
from headgate.catalog.dialects.shapes import Choice, Node, Shape
from headgate.catalog.dialects.wording import (
    described,
    told_elements,
    told_examples,
    told_keywords,
    told_members,
)

# The provider's limits: levels of nesting, values in all lists, and the characters of long lists.
_MOST_LEVELS: Final = 10
_MOST_VALUES: Final = 1000
_MOST_CHARACTERS: Final = 15_000
_NULL: Final = {"type": "null"}


def is_text(shape: Shape, level: int) -> bool:
    """Whether values of that shape are written as JSON in a text, because their members are not named."""
    if shape.kind == "object":
        unnamed = shape.open or (not shape.properties and not shape.closed)
        return unnamed or level > _MOST_LEVELS
    return shape.kind == "array" and (shape.items is None or level > _MOST_LEVELS)


def level_inside(choice: Choice, level: int) -> int:
    """The level of nesting of the shapes of a place; alternatives are one of their own."""
    return level + 1 if len(choice.shapes) > 1 else level


def root_of(choice: Choice) -> Shape:
    """The object that all arguments are; raises Unsayable when any members may be in it."""
    (shape,) = choice.shapes
    if shape.open and not shape.properties:
        raise Unsayable("arguments of any name have no strict form")
    return shape


class Strict:
    """Writes one schema."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._values = 0
        self._characters = 0

    def root(self, choice: Choice) -> Node:
        """The schema of a tool's arguments; raises Unsayable."""
        shape = root_of(choice)
        if shape.open:
            self._changes.add("inputSchema", "only the properties that are named can be given")
        told = [*choice.hints, *told_examples(choice.words, default=True)]
        return {"type": "object", **described(choice.words, told), **self._object(shape, "inputSchema", 1)}

    def _choice(self, choice: Choice, where: str, level: int, *, optional: bool) -> Node:
        null = optional or choice.null or choice.nullable
        level = level_inside(choice, level)
        texts = [shape for shape in choice.shapes if is_text(shape, level)]
        outs = [
            self._alternative(shape, f"{where}.anyOf[{at}]" if len(choice.shapes) > 1 else where, level)
            for at, shape in enumerate(choice.shapes)
            if not is_text(shape, level)
        ]
        if texts:
            outs = self._with_text(outs, texts, choice, where)
        told = [*choice.hints, *told_examples(choice.words, default=True)]
        if len(outs) == 1 and not (null and _is_made_of(outs[0])):
            (out,) = outs
            if null:
                out = out | {"type": [out["type"], "null"]}
            return _worded(out, choice.words, told)
        if null:
            outs.append(dict(_NULL))
        return _worded(outs[0] if len(outs) == 1 else {"anyOf": outs}, choice.words, told)

    def _alternative(self, shape: Shape, where: str, level: int) -> Node:
        written, told = self._shape(shape, where, level)
        told = [*told_examples(shape.words, default=True), *told]
        return {"type": shape.kind, **described(shape.words, told), **written}

    def _with_text(self, outs: list[Node], texts: list[Shape], choice: Choice, where: str) -> list[Node]:
        """The alternatives and one text for all that is written as JSON."""
        kinds = " or ".join(dict.fromkeys(shape.kind for shape in texts))
        self._changes.add(where, f"{kinds} became a text that holds JSON")
        inside = dict.fromkeys(
            told_members(shape) if shape.kind == "object" else told_elements(shape) for shape in texts
        )
        told = [f"JSON text of an {kinds}", *filter(None, inside)]
        strings = [shape for shape in choice.shapes if shape.kind == "string"]
        words: Node = next((shape.words for shape in [*strings, *texts] if shape.words), {})
        if not strings:
            return [*outs, {"type": "string", **described(words, told)}]
        # What is asked of a plain text must not be asked of the JSON.
        asked = [one for shape in strings for one in told_keywords(shape.said, shape.said)]
        told = [f"a plain text, or {told[0]}", *told[1:], *asked]
        others = [out for out in outs if out["type"] != "string"]
        return [{"type": "string", **described(words, told)}, *others]

    def _shape(self, shape: Shape, where: str, level: int) -> tuple[Node, list[str]]:
        if shape.kind == "object":
            return self._object(shape, where, level), self._told(shape, where)
        if shape.kind == "array" and shape.items is not None:
            items = self._choice(shape.items, f"{where}.items", level + 1, optional=False)
            return {"items": items}, self._told(shape, where)
        values = shape.said.get("enum")
        if values is not None and self._fits(values):
            return {"enum": values}, self._told(shape, where, "enum")
        return {}, self._told(shape, where)

    def _told(self, shape: Shape, where: str, *kept: str) -> list[str]:
        keys = [key for key in shape.said if key not in kept]
        if keys:
            self._changes.add(where, f"{', '.join(keys)} told in the description")
        return told_keywords(shape.said, keys)

    def _fits(self, values: list[Any]) -> bool:
        """Whether a list of values stays within the limits, together with those before it."""
        characters = sum(len(value) for value in values if isinstance(value, str))
        if self._values + len(values) > _MOST_VALUES or self._characters + characters > _MOST_CHARACTERS:
            return False
        self._values += len(values)
        self._characters += characters
        return True

    def _object(self, shape: Shape, where: str, level: int) -> Node:
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


def _is_made_of(out: Node) -> bool:
    """Whether a place is more than a bare type, so that null stands beside it."""
    return out["type"] in ("object", "array") or "enum" in out


def _worded(out: Node, words: Node, told: list[str]) -> Node:
    """The schema of a place with what is said of the place itself, and of its only alternative."""
    own = {key: out[key] for key in ("title", "description") if key in out}
    if not own:
        return out | described(words, told)
    inner = own.get("description")
    if "description" not in words or inner is None:
        return out | described(own | words, told)
    return out | described(own | words, [*told, inner.removeprefix("[").removesuffix("]")])
