"""Reads a schema into the shapes that it allows."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.merging import NOTHING, merged
from headgate.catalog.dialects.opening import MOST_DEPTH, Document, Trail, Unsayable
from headgate.catalog.dialects.shapes import (
    ANYTHING,
    KEYWORDS,
    NEVER,
    TYPES,
    Choice,
    Node,
    Shape,
    is_a,
    kind_of,
)
from headgate.catalog.dialects.unions import joined, thin, together

# Places of one schema: what a tool of the largest real server has, several times over.
_MOST_PLACES: Final = 1000
_MOST_CHARACTERS: Final = 100_000
_WORDS: Final = ("title", "description", "default", "example", "examples")
# What has no bearing on a value.
_SILENT: Final = {"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "nullable"}
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
    *_WORDS,
    *(key for keys in (*KEYWORDS.values(), *_MADE_OF.values()) for key in keys),
}
# A schema without a type has the one whose keywords it uses.
_TELLTALE: Final = tuple(
    (kind, {*_MADE_OF.get(kind, ()), *KEYWORDS[kind]} - {"enum", "required", "format"})
    for kind in ("object", "array", "string", "number")
)


def read(schema: Node, changes: Changes) -> Choice:
    """What the schema of a tool's arguments allows, always one object; raises Unsayable."""
    reader = _Reader(schema, changes)
    return reader.root(schema)


class _Reader:
    def __init__(self, schema: Node, changes: Changes) -> None:
        self._document = Document(schema, changes)
        self._changes = changes
        self._places = 0
        self._characters = 0

    def root(self, schema: Node) -> Choice:
        where = "inputSchema"
        opened = self._document.open(schema, where, frozenset(("#",)))
        node = opened.node
        hints: tuple[str, ...] = ()
        branches, rest = self._branches(node, where)
        if branches:
            node, hints = self._one_object(branches, rest, where, opened.trail)
        self._note_unknown(node, where)
        shape = self._object(node | {"type": "object"}, where, opened.trail, 0)
        return Choice((shape,), words=_words(node), hints=hints)

    def _one_object(
        self, branches: Sequence[Any], rest: Node, where: str, trail: Trail
    ) -> tuple[Node, tuple[str, ...]]:
        """Alternatives of the whole, of which no dialect has any, as one object with the members of all."""
        if thin(branches, rest):
            return rest, self._hint(branches, where)
        self._changes.add(where, "alternatives merged into one object")
        return together([self._document.open(one, where, trail).node for one in branches], rest), ()

    def place(self, schema: Any, where: str, trail: Trail, depth: int) -> Choice:
        self._places += 1
        if self._places > _MOST_PLACES:
            raise Unsayable(f"more than {_MOST_PLACES} places")
        if schema is False:
            return NEVER
        node, trail, cut = self._document.open(schema, where, trail)
        if cut:
            return _open(self._document.target(cut), node, cut)
        if depth > MOST_DEPTH and not _INSIDE.isdisjoint(node):
            self._changes.add(where, "too deep and cut off")
            return _open(node, node)
        self._note_unknown(node, where)
        branches, rest = self._branches(node, where)
        if not branches:
            return self._plain(node, where, trail, depth)
        if thin(branches, rest):
            plain = self._plain(rest, where, trail, depth)
            return msgspec.structs.replace(plain, hints=self._hint(branches, where))
        return self._union(branches, rest, where, trail, depth)

    def _branches(self, node: Node, where: str) -> tuple[list[Any], Node]:
        """The alternatives, and what holds for all of them."""
        found = [key for key in ("anyOf", "oneOf") if isinstance(node.get(key), list) and node[key]]
        if not found:
            return [], node
        if "oneOf" in found:
            both = len(found) > 1
            self._changes.add(where, "oneOf dropped beside anyOf" if both else "oneOf became anyOf")
        return node[found[0]], {key: value for key, value in node.items() if key not in ("anyOf", "oneOf")}

    def _hint(self, branches: Sequence[Any], where: str) -> tuple[str, ...]:
        """Alternatives that only say which members are needed, in words."""
        needed = [one["required"] for one in branches if isinstance(one.get("required"), list)]
        self._changes.add(where, "alternatives that only say what is required dropped")
        said = " | ".join(" + ".join(str(name)[:40] for name in names[:8]) for names in needed[:8] if names)
        return (f"needs {said}",) if said else ()

    def _union(self, branches: list[Any], rest: Node, where: str, trail: Trail, depth: int) -> Choice:
        own = {key: value for key, value in rest.items() if key not in _SILENT and key not in _WORDS}
        found = [
            self.place(
                merged(branch, own) if own and isinstance(branch, dict) else branch,
                f"{where}.anyOf[{position}]",
                trail,
                depth + 1,
            )
            for position, branch in enumerate(branches)
        ]
        return Choice(
            joined(found),
            null=any(one.null for one in found),
            nullable=rest.get("nullable") is True or any(one.nullable for one in found),
            # What one alternative surely allows, the others need not.
            guessed=any(one.guessed for one in found)
            and not any(one.null and not one.guessed for one in found),
            words=_words(rest),
            hints=tuple(dict.fromkeys(hint for one in found for hint in one.hints))[:3],
        )

    def _plain(self, node: Node, where: str, trail: Trail, depth: int) -> Choice:
        if node.get("type") == NOTHING:
            return NEVER
        kinds, null = _kinds(node)
        if not kinds and not null:
            self._changes.add(where, "no type: alternatives of every type written")
            return Choice(ANYTHING.shapes, null=True, words=_words(node))
        if len(kinds) > 1:
            self._changes.add(where, "several types became alternatives")
        elif kinds and "type" not in node:
            self._changes.add(where, f"type {kinds[0]} added")
        return Choice(
            tuple(self._shape(kind, node, where, trail, depth) for kind in kinds),
            null=null,
            nullable=node.get("nullable") is True,
            words=_words(node),
        )

    def _shape(self, kind: str, node: Node, where: str, trail: Trail, depth: int) -> Shape:
        if kind == "object":
            return self._object(node, where, trail, depth)
        if kind == "array":
            return Shape(kind, _said(kind, node), items=self._items(node, where, trail, depth))
        return Shape(kind, _said(kind, node))

    def _object(self, node: Node, where: str, trail: Trail, depth: int) -> Shape:
        found = {}
        properties = node.get("properties")
        for name, schema in properties.items() if isinstance(properties, dict) else ():
            self._characters += len(name)
            if self._characters > _MOST_CHARACTERS:
                raise Unsayable(f"property names of more than {_MOST_CHARACTERS} characters")
            inner = self.place(schema, f"{where}.properties.{name[:60]}", trail, depth + 1)
            if not inner.shapes and not inner.null:
                self._changes.add(where, f"property {name[:60]} allows no value and was dropped")
            else:
                found[name] = inner
        more = node.get("additionalProperties")
        patterns = node.get("patternProperties")
        return Shape(
            "object",
            _said("object", node),
            properties=found,
            required=self._required(node, found, where),
            closed=more is False and not patterns,
            open=more is True or isinstance(more, dict) or bool(patterns),
            values=self._values(more, where, trail),
        )

    def _required(self, node: Node, found: dict[str, Choice], where: str) -> tuple[str, ...]:
        required = node.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        unknown = [name[:60] for name in names if name not in found]
        if unknown:
            self._changes.add(
                where, f"required names that are no properties dropped: {', '.join(unknown[:5])}"
            )
        return tuple(dict.fromkeys(name for name in names if name in found))

    def _values(self, more: Any, where: str, trail: Trail) -> str:
        """The type of further members, where one word says it."""
        kind = self._document.open(more, where, trail).node.get("type")
        return kind if isinstance(kind, str) and kind in TYPES else ""

    def _items(self, node: Node, where: str, trail: Trail, depth: int) -> Choice:
        items = node.get("items")
        several = items if isinstance(items, list) else node.get("prefixItems")
        if isinstance(several, list) and several:
            self._changes.add(where, "items by position became items of any position")
            # What comes behind those that are named.
            behind = node.get("additionalItems") if several is items else items
            several = [*several, *([behind] if isinstance(behind, dict) else [])]
            found = self._union(several, {}, where, trail, depth)
        else:
            found = (
                self.place(items, f"{where}.items", trail, depth + 1) if isinstance(items, dict) else NEVER
            )
        # Nothing is said, or nothing that a value could hold to.
        return found if found.shapes or found.null else ANYTHING

    def _note_unknown(self, node: Node, where: str) -> None:
        unknown = [key[:40] for key in node if key not in _KNOWN]
        if unknown:
            self._changes.add(where, f"{', '.join(unknown[:10])} dropped")


def _open(target: Any, node: Node, reference: str = "") -> Choice:
    """A place whose types are those of `target`, with what is inside left open."""
    known = target if isinstance(target, dict) else {}
    kinds, null = _kinds(known)
    null = null or any(
        isinstance(one, dict) and _kinds(one)[1]
        for key in ("anyOf", "oneOf")
        for one in _listed(known.get(key))
    )
    name = reference.rsplit("/", 1)[-1][:60]
    shapes = tuple(Shape(kind, open=kind == "object", cut=name) for kind in kinds)
    return Choice(
        shapes or ANYTHING.shapes, null=null or not kinds, guessed=not (kinds or null), words=_words(node)
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(node: Node) -> Node:
    return {key: node[key] for key in _WORDS if key in node}


def _kinds(node: Node) -> tuple[list[str], bool]:
    """The types that a schema names or lets guess, and whether null is one of them; nothing is anything."""
    named = node.get("type")
    named = named if isinstance(named, list) else [named]
    kinds = [kind for kind in TYPES if kind in named]
    null = "null" in named
    values = node.get("enum")
    if isinstance(values, list) and values:
        fitting = list(dict.fromkeys(kind_of(value) for value in values))
        null = "null" in fitting and (null or not kinds)
        kinds = [kind for kind in kinds if any(is_a(value, kind) for value in values)] or kinds
        kinds = kinds or [kind for kind in TYPES if kind in fitting]
    elif not kinds and not null:
        kinds = [kind for kind, keys in _TELLTALE if not keys.isdisjoint(node)][:1]
    return [kind for kind in kinds if kind != "integer" or "number" not in kinds], null


def _said(kind: str, node: Node) -> Node:
    """The keywords of that type which the schema has in a form that means something."""
    said = {key: node[key] for key in KEYWORDS[kind] if key in node and _meant(key, node[key])}
    if "enum" in said:
        said["enum"] = [value for value in said["enum"] if is_a(value, kind) and _is_finite(value)]
        if not said["enum"]:
            del said["enum"]
    return said


def _meant(key: str, value: Any) -> bool:
    if key == "enum":
        return isinstance(value, list)
    if key in ("format", "pattern"):
        return isinstance(value, str)
    if key == "uniqueItems":
        return value is True
    if not is_a(value, "number") or not _is_finite(value):
        return False
    return key[:3] not in ("min", "max") or key in ("minimum", "maximum") or _is_count(value)


def _is_finite(value: Any) -> bool:
    """Whether every reader of JSON can hold the number, if it is one."""
    return not is_a(value, "number") or -(2**63) < value < 2**63


def _is_count(value: Any) -> bool:
    return is_a(value, "integer") and 0 <= value < 2**31
