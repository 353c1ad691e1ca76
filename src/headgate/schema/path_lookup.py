"""Finds the part of a schema that a path means, as people and models write paths."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.schema.bounded_json import BoundedJson
from headgate.schema.keywords import COMBINING_KEYWORDS, array_index, pointer_steps, string_value

LONGEST_PATH: Final = 100
# Other parts that the same path could mean; a model reads few.
_MOST_OTHERS: Final = 20
# Names in one `required`; a longer list is not read to its end.
_MOST_REQUIRED: Final = 10_000
_UNITS_A_STEP: Final = 20_000

# Their values map names or positions to schemas and are no schemas themselves.
# fmt: off
_CONTAINERS: Final = frozenset([
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
    "anyOf", "oneOf", "allOf", "prefixItems"
])
_SCHEMAS: Final = frozenset([
    "items", "additionalItems", "additionalProperties", "unevaluatedItems",
    "unevaluatedProperties", "propertyNames", "contains", "not", "if", "then", "else"
])
# fmt: on
_KEYWORDS: Final = _CONTAINERS | _SCHEMAS
# They hold no schemas; a path that names one means a property that does not exist.
_VALUES: Final = frozenset({"required", "type", "enum", "const", "default", "examples"})
# Where a path in one string is split: a.b, a/b, a[].b, a[0].b
_PATH_SEPARATORS: Final = re.compile(r"[./\[\]]+")
_ROOTS: Final = ("", "#", "$")
# References to references, within one step of a path.
_MOST_HOPS: Final = 32
# Of one schema; further branches can be named by their position.
_MOST_SUBSCHEMAS: Final = 300
_UNITS_A_SUBSCHEMA: Final = 2_000

_BRANCHES: Final = (*COMBINING_KEYWORDS, "then", "else")
_INSIDE: Final = ("items", "prefixItems", "additionalItems", "additionalProperties", "patternProperties")


class SchemaPart(NamedTuple):
    """One part of a schema: its bytes and its full path."""

    value: bytes
    at: tuple[str, ...] = ()
    container: bool = False


class SchemaChild(NamedTuple):
    """A part that is one step further."""

    value: bytes
    required: bool = False


class SchemaChildren(NamedTuple):
    """The first parts that are one step further, by name, and their total number."""

    first: dict[str, SchemaChild]
    total: int


class PathFound(NamedTuple):
    """The part that a path means, and the paths of others that it could mean."""

    part: SchemaPart
    others: list[tuple[str, ...]]


class PathNotFound(NamedTuple):
    """How far a path leads: the existing steps, the first missing one, and the part before it."""

    steps: tuple[str, ...]
    missing: str
    part: SchemaPart


class Subschema(NamedTuple):
    """One object of keywords that applies to a schema."""

    value: bytes
    # The keywords on the way; references add none.
    at: tuple[str, ...] = ()
    hops: int = 0
    # Whether it applies to the contents: the elements of an array, the values of a map.
    inside: bool = False


_Faces = Callable[[bytes], Iterator[Subschema]]


class NavigableSchema:
    """The inputSchema of one tool, parsed only along the path."""

    def __init__(self, value: bytes) -> None:
        self.json = BoundedJson()
        self.subschemas = SubschemaWalker(value, self.json)
        self._root = SchemaPart(value)

    def find(self, path: Sequence[str]) -> PathFound | PathNotFound:
        """The part at the path, read literally first and then leniently."""
        found = self._walk(path)
        if isinstance(found, PathFound):
            return found
        with self.json.exact_path_budget():
            exact = self._at_pointer(path)
        if exact is not None:
            return PathFound(exact, [])
        pieces = [piece for step in path for piece in _PATH_SEPARATORS.split(step) if piece not in _ROOTS]
        if not 0 < len(pieces) <= LONGEST_PATH or pieces == list(path):
            return found
        again = self._walk(pieces)
        return again if isinstance(again, PathFound) or len(again.steps) > len(found.steps) else found

    def _at_pointer(self, path: Sequence[str]) -> SchemaPart | None:
        """A place that is no property, named as in a `$ref`."""
        if path[0] in _VALUES:
            return None
        steps = pointer_steps(path[0]) if len(path) == 1 else None
        value = self._root.value
        for step in path if steps is None else steps:
            value = self.subschemas.child_value(value, step)
        if value[:1] not in (b"{", b"["):
            return None
        return SchemaPart(value, tuple(path), container=value[:1] == b"[")

    def _walk(self, path: Sequence[str]) -> PathFound | PathNotFound:
        # First, so that the search cannot use up its budget: the part at the literal path, of which each step
        # is a property or a keyword of the part before it.
        straight: SchemaPart | None = self._root
        with self.json.exact_path_budget():
            for step in path:
                if straight is not None:
                    straight = next(self._next_parts(straight, step, self.subschemas.with_references), None)
        reached, deepest = self._root, 0
        found: SchemaPart | None = None
        others: dict[tuple[str, ...], None] = {}
        for depth, part in self._steps(path):
            if depth > deepest:
                reached, deepest = part, depth
            if depth < len(path):
                continue
            if found is None:
                found = part
            elif part.at != found.at and part.value != found.value:
                others[part.at] = None
            if len(others) == _MOST_OTHERS:
                break
        if found is not None:
            return PathFound(found, list(others))
        if straight is not None:
            return PathFound(straight, [])
        return PathNotFound(tuple(path[:deepest]), path[deepest], reached)

    def _steps(self, path: Sequence[str]) -> Iterator[tuple[int, SchemaPart]]:
        """Every reachable part with its depth, depth first; a dead end backtracks."""
        ways: list[Iterator[SchemaPart]] = [iter([self._root])]
        while ways:
            part = next(ways[-1], None)
            if part is None:
                ways.pop()
                continue
            depth = len(ways) - 1
            yield depth, part
            if depth < len(path) and self.json.spend(_UNITS_A_STEP):
                walker = self.subschemas
                ways.append(self._next_parts(part, path[depth], walker.with_branches, walker.of_contents))

    def _next_parts(
        self, part: SchemaPart, step: str, faces: _Faces, contents: _Faces | None = None
    ) -> Iterator[SchemaPart]:
        """A property of one of these subschemas, then a keyword, then a property of the contents."""
        if part.container:
            value = self.subschemas.child_value(part.value, step)
            if value:
                yield SchemaPart(value, (*part.at, step))
            return
        for subschema in faces(part.value):
            yield from self._properties(part, subschema, step)
        for subschema in faces(part.value):
            yield from self._keywords(part, subschema, step)
        for subschema in contents(part.value) if contents is not None else ():
            yield from self._properties(part, subschema, step)

    def _properties(self, part: SchemaPart, subschema: "Subschema", step: str) -> Iterator[SchemaPart]:
        for keyword, at in (("properties", (step,)), ("patternProperties", ("patternProperties", step))):
            value = self.json.pick(self.json.member(subschema.value, keyword), step)
            if value:
                yield SchemaPart(value, (*part.at, *subschema.at, *at))

    def _keywords(self, part: SchemaPart, subschema: "Subschema", step: str) -> Iterator[SchemaPart]:
        at = (*part.at, *subschema.at)
        value = self.json.member(subschema.value, step) if step in _KEYWORDS else b""
        if value:
            yield SchemaPart(value, (*at, step), container=step in _CONTAINERS or value[:1] == b"[")
        position = array_index(step)
        if position is None:
            return
        for keyword in ("prefixItems", "items"):
            element = self.json.element(self.json.member(subschema.value, keyword), position)
            if element:
                yield SchemaPart(element, (*at, keyword, step))
        for keyword in ("items", "additionalItems"):
            value = self.json.member(subschema.value, keyword)
            if value[:1] == b"{":
                yield SchemaPart(value, (*at, keyword))

    def children(self, part: SchemaPart, most: int) -> SchemaChildren:
        """The parts one step further: properties, or those of the contents, or keywords with schemas."""
        if part.container:
            names = list(self.json.names(part.value)) or list(map(str, range(self.json.count(part.value))))
            inside = {name: self.subschemas.child_value(part.value, name) for name in names[:most]}
            return SchemaChildren({name: SchemaChild(one) for name, one in inside.items()}, len(names))
        for faces in (self.subschemas.with_branches, self.subschemas.of_contents):
            children = self._properties_of(faces(part.value), most)
            if children.total:
                return children
        first: dict[str, SchemaChild] = {}
        for subschema in islice(self.subschemas.with_branches(part.value), _MOST_OTHERS):
            for keyword in _KEYWORDS.intersection(self.json.names(subschema.value)):
                value = self.json.member(subschema.value, keyword)
                if value[:1] in (b"{", b"["):
                    first.setdefault(keyword, SchemaChild(value))
        return SchemaChildren(dict(sorted(first.items())), len(first))

    def _properties_of(self, faces: "Iterator[Subschema]", most: int) -> SchemaChildren:
        first: dict[str, SchemaChild] = {}
        names: set[str] = set()
        for subschema in faces:
            required = self.json.member(subschema.value, "required")
            needed = set(map(string_value, self.json.elements(required, _MOST_REQUIRED)))
            for keyword in ("properties", "patternProperties"):
                properties = self.json.member(subschema.value, keyword)
                names.update(self.json.names(properties))
                for name in islice(self.json.names(properties), most - len(first)):
                    first.setdefault(name, SchemaChild(self.json.member(properties, name), name in needed))
        return SchemaChildren(first, len(names))


class SubschemaWalker:
    """Walks the references and branches of one schema, outermost first."""

    def __init__(self, root: bytes, bounded_json: BoundedJson) -> None:
        self._root = root
        self._json = bounded_json
        # The subschemas found so far for each schema, and the source of the next ones.
        self._known: dict[bytes, tuple[list[Subschema], Iterator[Subschema]]] = {}

    def with_references(self, value: bytes) -> Iterator[Subschema]:
        """The schema and its chain of references, without branches."""
        seen: set[bytes] = set()
        while value[:1] == b"{" and value not in seen and len(seen) <= _MOST_HOPS:
            yield Subschema(value)
            seen.add(value)
            value = self.reference_target(self._json.member(value, "$ref"))

    def with_branches(self, value: bytes) -> Iterator[Subschema]:
        """The schema itself, its references and its branches."""
        for subschema in self._all_subschemas(value):
            if subschema.inside:
                return
            yield subschema

    def of_contents(self, value: bytes) -> Iterator[Subschema]:
        """The same for the contents of the schema."""
        return (subschema for subschema in self._all_subschemas(value) if subschema.inside)

    def _all_subschemas(self, value: bytes) -> Iterator[Subschema]:
        """The subschemas of the schema itself, then those of its contents."""
        if value not in self._known:
            self._known[value] = ([], self._walk(value))
        found, source = self._known[value]
        position = 0
        while True:
            if position == len(found):
                subschema = next(source, None)
                if subschema is None:
                    return
                found.append(subschema)
            yield found[position]
            position += 1

    def _walk(self, value: bytes) -> Iterator[Subschema]:
        """Each subschema once, also with cyclic references."""
        queue, later = deque([Subschema(value)]), deque[Subschema]()
        seen: set[bytes] = set()
        while queue or later:
            if not queue:
                queue, later = later, deque()
            subschema = queue.popleft()
            if subschema.value in seen or subschema.value[:1] != b"{":
                continue
            seen.add(subschema.value)
            yield subschema
            if len(seen) >= _MOST_SUBSCHEMAS or not self._json.spend(_UNITS_A_SUBSCHEMA):
                return
            target = self.reference_target(self._json.member(subschema.value, "$ref"))
            if target and subschema.hops < _MOST_HOPS:
                # Next, because it describes the schema itself.
                queue.appendleft(Subschema(target, subschema.at, subschema.hops + 1, subschema.inside))
            queue.extend(self._under_keywords(subschema, _BRANCHES, inside=subschema.inside))
            later.extend(self._under_keywords(subschema, _INSIDE, inside=True))

    def _under_keywords(
        self, subschema: Subschema, keywords: Sequence[str], *, inside: bool
    ) -> Iterator[Subschema]:
        for keyword in keywords:
            value, at = self._json.member(subschema.value, keyword), (*subschema.at, keyword)
            if value[:1] == b"[":
                for position, element in enumerate(self._json.elements(value, _MOST_SUBSCHEMAS)):
                    yield Subschema(element, (*at, str(position)), subschema.hops, inside)
            elif value[:1] == b"{" and keyword == "patternProperties":
                for name in self._json.names(value):
                    yield Subschema(self._json.member(value, name), (*at, name), subschema.hops, inside)
            elif value[:1] == b"{":
                yield Subschema(value, at, subschema.hops, inside)

    def reference_target(self, reference: bytes) -> bytes:
        """The target of an encoded `$ref`; empty if it is not in this schema."""
        steps = pointer_steps(string_value(reference))
        if steps is None:
            return b""
        value = self._root
        for step in steps:
            value = self.child_value(value, step)
        return value

    def child_value(self, value: bytes, step: str) -> bytes:
        """The member or element of that exact name; empty if there is none."""
        if value[:1] != b"[":
            return self._json.pick(value, step)
        position = array_index(step)
        return b"" if position is None else self._json.element(value, position)

    def follow_plain_references(self, value: bytes) -> tuple[bytes, bytes]:
        """The end of a chain of bare references, and the target of its own `$ref` beside other keywords."""
        settled = value
        for _ in range(_MOST_HOPS):
            target = self.reference_target(self._json.member(settled, "$ref"))
            if target in (b"", settled):
                return settled, b""
            if len(list(self._json.names(settled))) > 1:
                return settled, target
            settled = target
        return value, b""
