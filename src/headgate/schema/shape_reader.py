"""Reads a schema into the shapes that it allows, and joins similar alternatives."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.schema.dereference import (
    MOST_DEPTH,
    NO_TYPE,
    Dereferencer,
    ReferenceTrail,
    UnsupportedSchema,
    merge_schemas,
)
from headgate.schema.keywords import (
    SchemaNode,
    as_list,
    as_object,
    is_of_type,
    json_type_of,
    listed_types,
    properties_of,
    required_names,
)
from headgate.schema.shapes import (
    ANYTHING,
    NEVER,
    SHAPE_TYPES,
    TYPE_KEYWORDS,
    SchemaChanges,
    ShapeUnion,
    ValueShape,
    example_notes,
    title_and_description,
)

# An alternative with no other keyword only states which members are required.
_REQUIREMENT_KEYWORDS: Final = {"required", "not", "type", "title", "description", "$comment"}


def only_require_members(branches: Sequence[Any], rest: SchemaNode) -> bool:
    """Whether the alternatives only state which members of `rest` are required."""
    return "properties" in rest and all(
        isinstance(one, dict)
        and _REQUIREMENT_KEYWORDS.issuperset(one)
        and ("required" in one or "not" in one)
        for one in branches
    )


def join_shapes(choices: Sequence[ShapeUnion]) -> tuple[ValueShape, ...]:
    """The distinct shapes of all; bare enums of one type become one enum."""
    found: list[ValueShape] = []
    plain: set[str] = set()
    # The position and the values of the enum of each type.
    lists: dict[str, tuple[int, dict[str, Any]]] = {}
    for choice in choices:
        for shape in choice.shapes:
            annotations = shape.annotations or (choice.annotations if len(choice.shapes) == 1 else {})
            # Annotations without text for a model are not written by any dialect.
            notes = example_notes(annotations, default=True)
            annotated = annotations.get("default") is not None or title_and_description(annotations, notes)
            if annotated or shape.kind in ("object", "array"):
                found.append(msgspec.structs.replace(shape, annotations=annotations))
            elif shape.keywords.keys() == {"enum"}:
                place, values = lists.setdefault(shape.kind, (len(found), {}))
                values.update((repr(value), value) for value in shape.keywords["enum"])
                if place == len(found):
                    found.append(shape)
            elif shape.keywords or shape.kind not in plain:
                found.append(shape)
                plain.update(() if shape.keywords else (shape.kind,))
    for kind, (place, values) in lists.items():
        found[place] = ValueShape(kind, {"enum": list(values.values())})
    return tuple(found)


def join_objects(branches: Sequence[SchemaNode], rest: SchemaNode) -> SchemaNode:
    """One object with the members of all alternatives; required are the members that all require."""
    properties: dict[str, list[Any]] = {}
    required: list[set[str]] = []
    for branch in branches:
        for name, schema in properties_of(branch).items():
            known = properties.setdefault(name, [])
            if schema not in known[-3:]:
                known.append(schema)
        required.append(set(required_names(branch)))
    joined = {
        name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in properties.items()
    }
    # Those of `rest` first, in their order.
    own = properties_of(rest)
    common = set.intersection(*required) if required else set()
    return rest | {
        "properties": own | joined | own,
        "required": [*as_list(rest.get("required")), *sorted(common)],
    }


# Places of one schema: several times the number in a tool of the largest real server.
_MOST_PLACES: Final = 1000
_MOST_CHARACTERS: Final = 100_000
_ANNOTATIONS: Final = ("title", "description", "default", "example", "examples")
# They do not constrain a value.
# fmt: off
_WITHOUT_EFFECT: Final = {
    "$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "nullable", *_ANNOTATIONS
}
# fmt: on
_MADE_OF: Final = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "additionalItems"),
}
_INSIDE: Final = {"properties", "items", "prefixItems", "anyOf", "oneOf"}
_KNOWN: Final = {
    "type",
    "enum",
    "anyOf",
    "oneOf",
    "nullable",
    *_ANNOTATIONS,
    *(key for keys in (*TYPE_KEYWORDS.values(), *_MADE_OF.values()) for key in keys),
}
# The type of a schema without `type` follows from its keywords.
_TELLTALE: Final = tuple(
    (kind, {*_MADE_OF.get(kind, ()), *TYPE_KEYWORDS[kind]} - {"enum", "required", "format"})
    for kind in ("object", "array", "string", "number")
)


def read_shapes(schema: SchemaNode, changes: SchemaChanges) -> ShapeUnion:
    """The shape of a tool's arguments, always one object; raises UnsupportedSchema."""
    return _ShapeReader(schema, changes).read_root(schema)


class _ShapeReader:
    def __init__(self, schema: SchemaNode, changes: SchemaChanges) -> None:
        self._dereferencer = Dereferencer(schema, changes)
        self._changes = changes
        self._places = 0
        self._characters = 0

    def read_root(self, schema: SchemaNode) -> ShapeUnion:
        where = "inputSchema"
        opened = self._dereferencer.dereference(schema, where, frozenset(("#",)))
        hints: tuple[str, ...] = ()
        # No dialect supports alternatives at the root: one object has the members of all.
        branches, node = self._branches(opened.node, where)
        if branches and only_require_members(branches, node):
            hints = self._hint(branches, where)
        elif branches:
            self._changes.add(where, "alternatives merged into one object")
            nodes = [self._dereferencer.dereference(one, where, opened.trail).node for one in branches]
            node = join_objects(nodes, node)
        self._note_unknown(node, where)
        shape = self._object(node | {"type": "object"}, where, opened.trail, 0)
        return ShapeUnion((shape,), annotations=_annotations(node), hints=hints)

    def read_subschema(self, schema: Any, where: str, trail: ReferenceTrail, depth: int) -> ShapeUnion:
        self._places += 1
        if self._places > _MOST_PLACES:
            raise UnsupportedSchema(f"more than {_MOST_PLACES} places")
        if schema is False:
            return NEVER
        node, trail, cut = self._dereferencer.dereference(schema, where, trail)
        if cut:
            return _open_shapes(self._dereferencer.lookup(cut), node, cut)
        if depth > MOST_DEPTH and not _INSIDE.isdisjoint(node):
            self._changes.add(where, "too deep and cut off")
            return _open_shapes(node, node)
        self._note_unknown(node, where)
        branches, rest = self._branches(node, where)
        if not branches:
            return self._plain(node, where, trail, depth)
        if only_require_members(branches, rest):
            plain = self._plain(rest, where, trail, depth)
            return msgspec.structs.replace(plain, hints=self._hint(branches, where))
        return self._union(branches, rest, where, trail, depth)

    def _branches(self, node: SchemaNode, where: str) -> tuple[list[Any], SchemaNode]:
        """The alternatives, and the keywords that apply to all of them."""
        found = [key for key in ("anyOf", "oneOf") if isinstance(node.get(key), list) and node[key]]
        if not found:
            return [], node
        if "oneOf" in found:
            both = len(found) > 1
            self._changes.add(where, "oneOf dropped beside anyOf" if both else "oneOf became anyOf")
        return node[found[0]], {key: value for key, value in node.items() if key not in ("anyOf", "oneOf")}

    def _hint(self, branches: Sequence[Any], where: str) -> tuple[str, ...]:
        """The required members of the alternatives as text."""
        needed = [one["required"] for one in branches if isinstance(one.get("required"), list)]
        self._changes.add(where, "alternatives that only say what is required dropped")
        members = " | ".join(
            " + ".join(str(name)[:40] for name in names[:8]) for names in needed[:8] if names
        )
        return (f"needs {members}",) if members else ()

    def _union(
        self, branches: list[Any], rest: SchemaNode, where: str, trail: ReferenceTrail, depth: int
    ) -> ShapeUnion:
        own = {key: value for key, value in rest.items() if key not in _WITHOUT_EFFECT}
        found = [
            self.read_subschema(
                merge_schemas(branch, own) if own and isinstance(branch, dict) else branch,
                f"{where}.anyOf[{position}]",
                trail,
                depth + 1,
            )
            for position, branch in enumerate(branches)
        ]
        return ShapeUnion(
            join_shapes(found),
            null=any(one.null for one in found),
            nullable=rest.get("nullable") is True or any(one.nullable for one in found),
            # Another alternative may allow null for certain.
            guessed=any(one.guessed for one in found)
            and not any(one.null and not one.guessed for one in found),
            annotations=_annotations(rest),
            hints=tuple(dict.fromkeys(hint for one in found for hint in one.hints))[:3],
        )

    def _plain(self, node: SchemaNode, where: str, trail: ReferenceTrail, depth: int) -> ShapeUnion:
        if node.get("type") == NO_TYPE:
            return NEVER
        kinds, null = _kinds(node)
        if not kinds and not null:
            self._changes.add(where, "no type: alternatives of every type written")
            return ShapeUnion(ANYTHING.shapes, null=True, annotations=_annotations(node))
        if len(kinds) > 1:
            self._changes.add(where, "several types became alternatives")
        elif kinds and "type" not in node:
            self._changes.add(where, f"type {kinds[0]} added")
        shapes = []
        for kind in kinds:
            if kind == "object":
                shapes.append(self._object(node, where, trail, depth))
                continue
            items = self._items(node, where, trail, depth) if kind == "array" else None
            shapes.append(ValueShape(kind, _type_keywords(kind, node), items=items))
        return ShapeUnion(
            tuple(shapes),
            null=null,
            nullable=node.get("nullable") is True,
            annotations=_annotations(node),
        )

    def _object(self, node: SchemaNode, where: str, trail: ReferenceTrail, depth: int) -> ValueShape:
        found = {}
        for name, schema in properties_of(node).items():
            self._characters += len(name)
            if self._characters > _MOST_CHARACTERS:
                raise UnsupportedSchema(f"property names of more than {_MOST_CHARACTERS} characters")
            inner = self.read_subschema(schema, f"{where}.properties.{name[:60]}", trail, depth + 1)
            if not inner.shapes and not inner.null:
                self._changes.add(where, f"property {name[:60]} allows no value and was dropped")
            else:
                found[name] = inner
        required = required_names(node)
        unknown = ", ".join([name[:60] for name in required if name not in found][:5])
        if unknown:
            self._changes.add(where, f"required names that are no properties dropped: {unknown}")
        more, patterns = node.get("additionalProperties"), node.get("patternProperties")
        # The type of additional members, if it is a single one.
        kind = self._dereferencer.dereference(more, where, trail).node.get("type")
        return ValueShape(
            "object",
            _type_keywords("object", node),
            properties=found,
            required=tuple(name for name in required if name in found),
            closed=more is False and not patterns,
            open=more is True or isinstance(more, dict) or bool(patterns),
            values=kind if isinstance(kind, str) and kind in SHAPE_TYPES else "",
        )

    def _items(self, node: SchemaNode, where: str, trail: ReferenceTrail, depth: int) -> ShapeUnion:
        items = node.get("items")
        several = items if isinstance(items, list) else node.get("prefixItems")
        if isinstance(several, list) and several:
            self._changes.add(where, "items by position became items of any position")
            # The schema of the elements after those by position.
            behind = node.get("additionalItems") if several is items else items
            several = [*several, *([behind] if isinstance(behind, dict) else [])]
            found = self._union(several, {}, where, trail, depth)
        elif isinstance(items, dict):
            found = self.read_subschema(items, f"{where}.items", trail, depth + 1)
        else:
            return ANYTHING
        # No constraint, or one that no value satisfies.
        return found if found.shapes or found.null else ANYTHING

    def _note_unknown(self, node: SchemaNode, where: str) -> None:
        unknown = [key[:40] for key in node if key not in _KNOWN]
        if unknown:
            self._changes.add(where, f"{', '.join(unknown[:10])} dropped")


def _open_shapes(target: Any, node: SchemaNode, reference: str = "") -> ShapeUnion:
    """A place with the types of `target` whose contents are left open."""
    known = as_object(target)
    kinds, null = _kinds(known)
    null = null or any(
        isinstance(one, dict) and _kinds(one)[1]
        for key in ("anyOf", "oneOf")
        for one in as_list(known.get(key))
    )
    name = reference.rsplit("/", 1)[-1][:60]
    shapes = tuple(ValueShape(kind, open=kind == "object", cut=name) for kind in kinds)
    return ShapeUnion(
        shapes or ANYTHING.shapes,
        null=null or not kinds,
        guessed=not (kinds or null),
        annotations=_annotations(node),
    )


def _annotations(node: SchemaNode) -> SchemaNode:
    return {key: node[key] for key in _ANNOTATIONS if key in node}


def _kinds(node: SchemaNode) -> tuple[list[str], bool]:
    """The types that a schema names or implies, and whether null is one of them; none means any."""
    named = listed_types(node.get("type"))
    kinds = [kind for kind in SHAPE_TYPES if kind in named]
    null = "null" in named
    values = node.get("enum")
    if isinstance(values, list) and values:
        fitting = list(dict.fromkeys(json_type_of(value) for value in values))
        null = "null" in fitting and (null or not kinds)
        kinds = [kind for kind in kinds if any(is_of_type(value, kind) for value in values)] or kinds
        kinds = kinds or [kind for kind in SHAPE_TYPES if kind in fitting]
    elif not kinds and not null:
        kinds = [kind for kind, keys in _TELLTALE if not keys.isdisjoint(node)][:1]
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds], null


def _type_keywords(kind: str, node: SchemaNode) -> SchemaNode:
    """The valid keywords of that type."""
    found = {key: node[key] for key in TYPE_KEYWORDS[kind] if key in node and _is_meaningful(key, node[key])}
    if "enum" in found:
        found["enum"] = [one for one in found["enum"] if is_of_type(one, kind) and _is_finite(one)]
    return {key: value for key, value in found.items() if key != "enum" or value}


def _is_meaningful(key: str, value: Any) -> bool:
    if key == "enum":
        return isinstance(value, list)
    if key in ("format", "pattern"):
        return isinstance(value, str)
    if key == "uniqueItems":
        return value is True
    if not is_of_type(value, "number") or not _is_finite(value):
        return False
    counts = key[:3] in ("min", "max") and key not in ("minimum", "maximum")
    return not counts or (is_of_type(value, "integer") and 0 <= value < 2**31)


def _is_finite(value: Any) -> bool:
    """Whether a number fits the number type of every JSON parser; True for other values."""
    return not is_of_type(value, "number") or -(2**63) < value < 2**63
