"""Finds the part of a schema that a path means, as people and models write paths."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from headgate.catalog.expansion.faces import Face, Faces
from headgate.catalog.expansion.levels import Levels
from headgate.catalog.expansion.pointer import index, steps_of, text_of

LONGEST_PATH: Final = 100
# Other parts that the same path could mean; a model looks at few.
_MOST_OTHERS: Final = 20
# Names, of one schema; a list of more is not read to its end.
_MOST_REQUIRED: Final = 10_000
_UNITS_A_STEP: Final = 20_000

# Their values are schemas under names or numbers, and no schemas themselves.
_CONTAINERS: Final = frozenset(
    {
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "dependencies",
        "anyOf",
        "oneOf",
        "allOf",
        "prefixItems",
    }
)
_SCHEMAS: Final = frozenset(
    {
        "items",
        "additionalItems",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "propertyNames",
        "contains",
        "not",
        "if",
        "then",
        "else",
    }
)
_KEYWORDS: Final = _CONTAINERS | _SCHEMAS
# No schemas are there; whoever names one of these means a property that does not exist.
_VALUES: Final = frozenset({"required", "type", "enum", "const", "default", "examples"})
# Where a path that was sent as one text may be cut: a.b, a/b, a[].b, a[0].b
_CUTS: Final = re.compile(r"[./\[\]]+")
_ROOTS: Final = ("", "#", "$")


class Part(NamedTuple):
    """One part of a schema: its bytes, and the whole path that leads there."""

    value: bytes
    at: tuple[str, ...] = ()
    container: bool = False


class Child(NamedTuple):
    """What is found one step further."""

    value: bytes
    required: bool = False


class Children(NamedTuple):
    """The first of what is one step further, by name, and how many there are."""

    first: dict[str, Child]
    total: int


class Found(NamedTuple):
    """The part that a path means, and where others stand that it could mean as well."""

    part: Part
    others: list[tuple[str, ...]]


class Lost(NamedTuple):
    """How far a path leads: the steps that exist, the next one that does not, and the part before it."""

    steps: tuple[str, ...]
    missing: str
    part: Part


class Schema:
    """The inputSchema of one tool, opened only where a path leads."""

    def __init__(self, value: bytes) -> None:
        self.levels = Levels()
        self.faces = Faces(value, self.levels)
        self._root = Part(value)

    def find(self, path: Sequence[str]) -> Found | Lost:
        """The part at the path, which is read as it is first, and then as it may have been meant."""
        found = self._walk(path)
        if isinstance(found, Found):
            return found
        with self.levels.named():
            exact = self._pointed_at(path)
        if exact is not None:
            return Found(exact, [])
        pieces = [piece for step in path for piece in _CUTS.split(step) if piece not in _ROOTS]
        if not 0 < len(pieces) <= LONGEST_PATH or pieces == list(path):
            return found
        again = self._walk(pieces)
        return again if isinstance(again, Found) or len(again.steps) > len(found.steps) else found

    def _pointed_at(self, path: Sequence[str]) -> Part | None:
        """A place that is no property, named as a `$ref` names it."""
        if path[0] in _VALUES:
            return None
        steps = steps_of(path[0]) if len(path) == 1 else None
        value = self._root.value
        for step in path if steps is None else steps:
            value = self.faces.below(value, step)
        if value[:1] not in (b"{", b"["):
            return None
        return Part(value, tuple(path), container=value[:1] == b"[")

    def _walk(self, path: Sequence[str]) -> Found | Lost:
        # First, so that whatever is looked at on the way cannot use up what it takes.
        with self.levels.named():
            straight = self._straight(path)
        reached, deepest = self._root, 0
        found: Part | None = None
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
            return Found(found, list(others))
        if straight is not None:
            return Found(straight, [])
        return Lost(tuple(path[:deepest]), path[deepest], reached)

    def _straight(self, path: Sequence[str]) -> Part | None:
        """Where the path leads by its word: each step a property, or a keyword, of the part before it."""
        part: Part | None = self._root
        for step in path:
            if part is None:
                return None
            part = next(self._onward(part, step, self.faces.itself), None)
        return part

    def _steps(self, path: Sequence[str]) -> Iterator[tuple[int, Part]]:
        """Every part that is reached, and after how many steps; a step that leads nowhere is taken back."""
        ways: list[Iterator[Part]] = [iter([self._root])]
        while ways:
            part = next(ways[-1], None)
            if part is None:
                ways.pop()
                continue
            depth = len(ways) - 1
            yield depth, part
            if depth < len(path) and self.levels.spend(_UNITS_A_STEP):
                ways.append(self._meanings(part, path[depth]))

    def _meanings(self, part: Part, step: str) -> Iterator[Part]:
        """What a step may mean: a property, then a keyword, then a property of what is inside."""
        yield from self._onward(part, step, self.faces.near)
        if not part.container:
            for face in self.faces.inside(part.value):
                yield from self._properties(part, face, step)

    def _onward(self, part: Part, step: str, faces: Callable[[bytes], Iterator[Face]]) -> Iterator[Part]:
        """A property of one of these faces, then a keyword."""
        if part.container:
            value = self.faces.below(part.value, step)
            if value:
                yield Part(value, (*part.at, step))
            return
        for face in faces(part.value):
            yield from self._properties(part, face, step)
        for face in faces(part.value):
            yield from self._keywords(part, face, step)

    def _properties(self, part: Part, face: Face, step: str) -> Iterator[Part]:
        for keyword, at in (("properties", (step,)), ("patternProperties", ("patternProperties", step))):
            value = self.levels.pick(self.levels.member(face.value, keyword), step)
            if value:
                yield Part(value, (*part.at, *face.at, *at))

    def _keywords(self, part: Part, face: Face, step: str) -> Iterator[Part]:
        at = (*part.at, *face.at)
        value = self.levels.member(face.value, step) if step in _KEYWORDS else b""
        if value:
            yield Part(value, (*at, step), container=step in _CONTAINERS or value[:1] == b"[")
        position = index(step)
        if position is None:
            return
        for keyword in ("prefixItems", "items"):
            element = self.levels.element(self.levels.member(face.value, keyword), position)
            if element:
                yield Part(element, (*at, keyword, step))
        for keyword in ("items", "additionalItems"):
            value = self.levels.member(face.value, keyword)
            if value[:1] == b"{":
                yield Part(value, (*at, keyword))

    def children(self, part: Part, most: int) -> Children:
        """What is one step further: properties, or those of what is inside, or keywords that lead on."""
        if part.container:
            return self._contents(part.value, most)
        for faces in (self.faces.near, self.faces.inside):
            children = self._properties_of(faces(part.value), most)
            if children.total:
                return children
        return self._keywords_of(part)

    def _contents(self, value: bytes, most: int) -> Children:
        names = list(self.levels.names(value)) or list(map(str, range(self.levels.count(value))))
        first = {name: Child(self.faces.below(value, name)) for name in names[:most]}
        return Children(first, len(names))

    def _properties_of(self, faces: Iterator[Face], most: int) -> Children:
        first: dict[str, Child] = {}
        names: set[str] = set()
        for face in faces:
            required = self.levels.member(face.value, "required")
            needed = set(map(text_of, self.levels.elements(required, _MOST_REQUIRED)))
            for keyword in ("properties", "patternProperties"):
                properties = self.levels.member(face.value, keyword)
                names.update(self.levels.names(properties))
                for name in islice(self.levels.names(properties), most - len(first)):
                    first.setdefault(name, Child(self.levels.member(properties, name), name in needed))
        return Children(first, len(names))

    def _keywords_of(self, part: Part) -> Children:
        first: dict[str, Child] = {}
        for face in islice(self.faces.near(part.value), _MOST_OTHERS):
            for keyword in _KEYWORDS.intersection(self.levels.names(face.value)):
                value = self.levels.member(face.value, keyword)
                if value[:1] in (b"{", b"["):
                    first.setdefault(keyword, Child(value))
        return Children(dict(sorted(first.items())), len(first))
