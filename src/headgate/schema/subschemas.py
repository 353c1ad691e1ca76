"""Walks the subschemas of one schema through its references, branches and items."""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.schema.bounded_json import BoundedJson
from headgate.schema.references import array_index, pointer_steps, string_value

# References that lead to references, from one step of a path to the next.
_MOST_HOPS: Final = 32
# Of one schema; whoever has more branches can still name one by its number.
_MOST_SUBSCHEMAS: Final = 300
_UNITS_A_SUBSCHEMA: Final = 2_000

_BRANCHES: Final = ("allOf", "anyOf", "oneOf", "then", "else")
_INSIDE: Final = ("items", "prefixItems", "additionalItems", "additionalProperties", "patternProperties")
_MAP: Final = "patternProperties"


class Subschema(NamedTuple):
    """One object of keywords that says something about a schema."""

    value: bytes
    # The keywords that lead there; references are followed in silence.
    at: tuple[str, ...] = ()
    hops: int = 0
    # Whether it is about what is inside: the elements of an array, the values of a map.
    inside: bool = False


class SubschemaWalker:
    """Looks through the references and branches of one schema, the outermost first."""

    def __init__(self, root: bytes, bounded_json: BoundedJson) -> None:
        self._root = root
        self._json = bounded_json
        # Those of a schema that have been found so far, and where the next ones come from.
        self._known: dict[bytes, tuple[list[Subschema], Iterator[Subschema]]] = {}

    def with_references(self, value: bytes) -> Iterator[Subschema]:
        """The schema and what it refers to; no branch is looked into."""
        seen: set[bytes] = set()
        while value[:1] == b"{" and value not in seen and len(seen) <= _MOST_HOPS:
            yield Subschema(value)
            seen.add(value)
            value = self.reference_target(self._json.member(value, "$ref"))

    def with_branches(self, value: bytes) -> Iterator[Subschema]:
        """The schema itself, what it refers to, and its branches."""
        for subschema in self._all_subschemas(value):
            if subschema.inside:
                return
            yield subschema

    def of_contents(self, value: bytes) -> Iterator[Subschema]:
        """The same of what the schema has inside."""
        return (subschema for subschema in self._all_subschemas(value) if subschema.inside)

    def _all_subschemas(self, value: bytes) -> Iterator[Subschema]:
        """The near ones, then those inside."""
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
        """Each of them once, however the references turn."""
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
                # At once, for it is what the schema is.
                queue.appendleft(Subschema(target, subschema.at, subschema.hops + 1, subschema.inside))
            queue.extend(self._branches(subschema))
            later.extend(self._contents(subschema))

    def _branches(self, subschema: Subschema) -> Iterator[Subschema]:
        for keyword in _BRANCHES:
            for value, at in self._under_keyword(subschema, keyword):
                yield Subschema(value, at, subschema.hops, subschema.inside)

    def _contents(self, subschema: Subschema) -> Iterator[Subschema]:
        for keyword in _INSIDE:
            for value, at in self._under_keyword(subschema, keyword):
                yield Subschema(value, at, subschema.hops, inside=True)

    def _under_keyword(self, subschema: Subschema, keyword: str) -> Iterator[tuple[bytes, tuple[str, ...]]]:
        """The schemas under a keyword, and where they are."""
        value, at = self._json.member(subschema.value, keyword), (*subschema.at, keyword)
        if value[:1] == b"[":
            for position, element in enumerate(self._json.elements(value, _MOST_SUBSCHEMAS)):
                yield element, (*at, str(position))
        elif value[:1] == b"{" and keyword == _MAP:
            for name in self._json.names(value):
                yield self._json.member(value, name), (*at, name)
        elif value[:1] == b"{":
            yield value, at

    def reference_target(self, reference: bytes) -> bytes:
        """What a `$ref`, as it stands in the schema, leads to; nothing where that is not in this schema."""
        steps = pointer_steps(string_value(reference))
        if steps is None:
            return b""
        value = self._root
        for step in steps:
            value = self.child_value(value, step)
        return value

    def child_value(self, value: bytes, step: str) -> bytes:
        """A member of an object or an element of an array, just as it is called; nothing if there is none."""
        if value[:1] != b"[":
            return self._json.pick(value, step)
        position = array_index(step)
        return b"" if position is None else self._json.element(value, position)

    def follow_plain_references(self, value: bytes) -> tuple[bytes, bytes]:
        """What a schema that is nothing but references leads to, and what that one refers to besides."""
        settled = value
        for _ in range(_MOST_HOPS):
            target = self.reference_target(self._json.member(settled, "$ref"))
            if target in (b"", settled):
                return settled, b""
            if len(list(self._json.names(settled))) > 1:
                return settled, target
            settled = target
        return value, b""
