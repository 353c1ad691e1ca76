"""Follows the `$ref`s of a schema and merges `allOf`, within bounds on depth and size."""

from typing import Any, Final, NamedTuple

from headgate.schema.keywords import SchemaNode, json_type_of, listed_types, resolve_reference
from headgate.schema.shapes import SchemaChanges

# The type of two schemas that contradict each other.
NO_TYPE: Final = "nothing"
_HIGHER: Final = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
_LOWER: Final = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
_OF_SCHEMAS: Final = {"properties", "patternProperties", "$defs", "definitions"}


def merge_schemas(over: SchemaNode, under: SchemaNode) -> SchemaNode:
    """Both schemas in one; where only one value can be kept, such as a description, `over` wins."""
    both = over | {
        key: _joined(key, over[key], value) if key in over and over[key] != value else value
        for key, value in under.items()
    }
    if both.get("enum") == [] and over.get("enum"):
        both["type"] = NO_TYPE
    return both


def _joined(key: str, over: Any, under: Any) -> Any:
    if key == "type":
        # An integer is a number too.
        first, second = listed_types(over), listed_types(under)
        common = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
        common += [kind for kind in second if kind == "integer" and "number" in first and kind not in common]
        return common or NO_TYPE
    are_objects = isinstance(over, dict) and isinstance(under, dict)
    are_lists = isinstance(over, list) and isinstance(under, list)
    if key in ("items", "additionalProperties") and are_objects:
        return {"allOf": [over, under]}
    if key == "additionalProperties":
        # `false` is the strictest and `true` the most lenient.
        return (over is not False and under is not False) and (under if over is True else over)
    if key in _OF_SCHEMAS and are_objects:
        differing = {name for name in over.keys() & under.keys() if over[name] != under[name]}
        return over | {
            name: {"allOf": [over[name], schema]} if name in differing else schema
            for name, schema in under.items()
        }
    if key == "required" and are_lists:
        return list(dict.fromkeys(name for name in [*over, *under] if isinstance(name, str)))
    if key == "enum" and are_lists:
        known = {_key(value) for value in under}
        return [value for value in over if _key(value) in known]
    if key in _HIGHER | _LOWER and {json_type_of(over), json_type_of(under)} <= {"integer", "number"}:
        return max(over, under) if key in _HIGHER else min(over, under)
    return over


def _key(value: Any) -> str:
    """Equal for equal values only: 1 and true differ."""
    return f"{json_type_of(value)} {value!r}"


# References inside references, and `allOf` inside `allOf`.
MOST_DEPTH: Final = 32
_MOST_PARTS: Final = 200
# Inlined repeatedly, a few references can become a schema of any size.
_MOST_WRITTEN: Final = 1000

# The references that were followed to a place, to detect a cycle.
ReferenceTrail = frozenset[str]


class UnsupportedSchema(ValueError):
    """A schema that is served unchanged, with the reason."""


class DereferencedSchema(NamedTuple):
    """A schema without `$ref` and `allOf` at its own level; inner ones are unchanged."""

    node: SchemaNode
    trail: ReferenceTrail
    # The reference that was not followed, because of a cycle or a limit.
    cut: str = ""


class Dereferencer:
    """Resolves the references of one schema."""

    def __init__(self, root: SchemaNode, changes: SchemaChanges) -> None:
        self._root = root
        self._changes = changes
        self._written = 0

    def dereference(
        self, schema: Any, where: str, trail: ReferenceTrail, depth: int = 0
    ) -> DereferencedSchema:
        """The schema with its references inlined; raises UnsupportedSchema for an oversized `allOf`."""
        if not isinstance(schema, dict):
            return DereferencedSchema({}, trail)
        if "$ref" not in schema and "allOf" not in schema:
            return DereferencedSchema(_with_enum(schema), trail)
        node = _with_enum({key: value for key, value in schema.items() if key not in ("$ref", "allOf")})
        reference = schema.get("$ref")
        cut = ""
        if isinstance(reference, str):
            node, trail, cut = self._follow(reference, node, where, trail, depth)
        parts = schema.get("allOf")
        if isinstance(parts, list) and parts:
            node, trail = self._merge_all_of(parts, node, where, trail, depth)
        return DereferencedSchema(node, trail, cut)

    def lookup(self, reference: str) -> Any:
        """The schema that a reference leads to; None where it leads nowhere or to another document."""
        try:
            return resolve_reference(self._root, reference)
        except LookupError:
            return None

    def _follow(
        self, reference: str, node: SchemaNode, where: str, trail: ReferenceTrail, depth: int
    ) -> DereferencedSchema:
        target = self.lookup(reference)
        if not isinstance(target, dict):
            self._changes.add(where, f"$ref {reference} leads nowhere in this schema and was dropped")
            return DereferencedSchema(node, trail)
        # A large target takes longer to merge.
        self._written += 1 + sum(len(one) for one in target.values() if isinstance(one, dict | list)) // 20
        if reference in trail or depth >= MOST_DEPTH or self._written > _MOST_WRITTEN:
            self._changes.add(where, f"$ref {reference} leads back or too far and was cut off")
            return DereferencedSchema(node, trail, reference)
        self._changes.add(where, f"$ref {reference} written out")
        found = self.dereference(target, where, trail | {reference}, depth + 1)
        return DereferencedSchema(merge_schemas(node, found.node), found.trail, found.cut)

    def _merge_all_of(
        self, parts: list[Any], node: SchemaNode, where: str, trail: ReferenceTrail, depth: int
    ) -> tuple[SchemaNode, ReferenceTrail]:
        if len(parts) > _MOST_PARTS:
            raise UnsupportedSchema(f"{len(parts)} schemas in one allOf")
        if depth >= MOST_DEPTH:
            self._changes.add(where, "allOf is too deep and was dropped")
            return node, trail
        self._changes.add(where, "allOf merged")
        for part in parts:
            found = self.dereference(part, where, trail, depth + 1)
            node, trail = merge_schemas(node, found.node), found.trail
        return node, trail


def _with_enum(node: SchemaNode) -> SchemaNode:
    """`const` as an `enum` of one value."""
    if "const" not in node:
        return node
    constant = {"enum": [node["const"]]}
    return merge_schemas(constant, {key: value for key, value in node.items() if key != "const"})
