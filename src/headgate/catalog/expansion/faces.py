"""What one schema is made of when its references and branches are looked through."""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.catalog.expansion.levels import Levels
from headgate.catalog.expansion.pointer import index, steps_of, text_of

# References that lead to references, from one step of a path to the next.
_MOST_HOPS: Final = 32
# Of one schema; whoever has more branches can still name one by its number.
_MOST_FACES: Final = 300
_UNITS_A_FACE: Final = 2_000

_BRANCHES: Final = ("allOf", "anyOf", "oneOf", "then", "else")
_INSIDE: Final = ("items", "prefixItems", "additionalItems", "additionalProperties", "patternProperties")
_MAP: Final = "patternProperties"


class Face(NamedTuple):
    """One object of keywords that says something about a schema."""

    value: bytes
    # The keywords that lead there; references are followed in silence.
    at: tuple[str, ...] = ()
    hops: int = 0
    # Whether it is about what is inside: the elements of an array, the values of a map.
    inside: bool = False


class Faces:
    """Looks through the references and branches of one schema, the outermost first."""

    def __init__(self, root: bytes, levels: Levels) -> None:
        self._root = root
        self._levels = levels
        # Those of a schema that have been found so far, and where the next ones come from.
        self._known: dict[bytes, tuple[list[Face], Iterator[Face]]] = {}

    def itself(self, value: bytes) -> Iterator[Face]:
        """The schema and what it refers to; no branch is looked into."""
        seen: set[bytes] = set()
        while value[:1] == b"{" and value not in seen and len(seen) <= _MOST_HOPS:
            yield Face(value)
            seen.add(value)
            value = self.target(self._levels.member(value, "$ref"))

    def near(self, value: bytes) -> Iterator[Face]:
        """The schema itself, what it refers to, and its branches."""
        for face in self._every(value):
            if face.inside:
                return
            yield face

    def inside(self, value: bytes) -> Iterator[Face]:
        """The same of what the schema has inside."""
        return (face for face in self._every(value) if face.inside)

    def _every(self, value: bytes) -> Iterator[Face]:
        """The near ones, then those inside."""
        if value not in self._known:
            self._known[value] = ([], self._look(value))
        found, source = self._known[value]
        position = 0
        while True:
            if position == len(found):
                face = next(source, None)
                if face is None:
                    return
                found.append(face)
            yield found[position]
            position += 1

    def _look(self, value: bytes) -> Iterator[Face]:
        """Each of them once, however the references turn."""
        queue, later = deque([Face(value)]), deque[Face]()
        seen: set[bytes] = set()
        while queue or later:
            if not queue:
                queue, later = later, deque()
            face = queue.popleft()
            if face.value in seen or face.value[:1] != b"{":
                continue
            seen.add(face.value)
            yield face
            if len(seen) >= _MOST_FACES or not self._levels.spend(_UNITS_A_FACE):
                return
            target = self.target(self._levels.member(face.value, "$ref"))
            if target and face.hops < _MOST_HOPS:
                # At once, for it is what the schema is.
                queue.appendleft(Face(target, face.at, face.hops + 1, face.inside))
            queue.extend(self._branches(face))
            later.extend(self._inward(face))

    def _branches(self, face: Face) -> Iterator[Face]:
        for keyword in _BRANCHES:
            for value, at in self._below(face, keyword):
                yield Face(value, at, face.hops, face.inside)

    def _inward(self, face: Face) -> Iterator[Face]:
        for keyword in _INSIDE:
            for value, at in self._below(face, keyword):
                yield Face(value, at, face.hops, inside=True)

    def _below(self, face: Face, keyword: str) -> Iterator[tuple[bytes, tuple[str, ...]]]:
        """The schemas under a keyword, and where they are."""
        value, at = self._levels.member(face.value, keyword), (*face.at, keyword)
        if value[:1] == b"[":
            for position, element in enumerate(self._levels.elements(value, _MOST_FACES)):
                yield element, (*at, str(position))
        elif value[:1] == b"{" and keyword == _MAP:
            for name in self._levels.names(value):
                yield self._levels.member(value, name), (*at, name)
        elif value[:1] == b"{":
            yield value, at

    def target(self, reference: bytes) -> bytes:
        """What a `$ref`, as it stands in the schema, leads to; nothing where that is not in this schema."""
        steps = steps_of(text_of(reference))
        if steps is None:
            return b""
        value = self._root
        for step in steps:
            value = self.below(value, step)
        return value

    def below(self, value: bytes, step: str) -> bytes:
        """A member of an object or an element of an array, just as it is called; nothing if there is none."""
        if value[:1] != b"[":
            return self._levels.pick(value, step)
        position = index(step)
        return b"" if position is None else self._levels.element(value, position)

    def settled(self, value: bytes) -> tuple[bytes, bytes]:
        """What a schema that is nothing but references leads to, and what that one refers to besides."""
        settled = value
        for _ in range(_MOST_HOPS):
            target = self.target(self._levels.member(settled, "$ref"))
            if target in (b"", settled):
                return settled, b""
            if len(list(self._levels.names(settled))) > 1:
                return settled, target
            settled = target
        return value, b""
