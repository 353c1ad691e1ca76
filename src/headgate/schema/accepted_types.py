"""Finds the JSON types that a schema accepts, within a bounded number of steps."""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

_TYPES: Final = frozenset(["string", "number", "integer", "boolean", "array", "object", "null"])
# Of one tool: to look at more takes longer than anybody waits, and says less than one type would.
_MOST_STEPS: Final = 2_000
_MOST_BRANCHES: Final = 16
_DEEPEST: Final = 8
_UNIONS: Final = ("anyOf", "oneOf")


class AcceptedTypes:
    """Reads the schemas below one root; when its steps are used up, everything may be of any type."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps_left = _MOST_STEPS

    def take_step(self) -> bool:
        """Take one step, if one is left."""
        self._steps_left -= 1
        return self._steps_left >= 0

    def types_of(self, schema: Any, depth: int = _DEEPEST) -> tuple[str, ...]:
        """The types that the schema accepts at most; nothing where they are unknown, or all."""
        if isinstance(schema, dict) and "$ref" in schema:
            schema = self.resolve(schema)
        if not isinstance(schema, dict) or depth == 0 or not self.take_step():
            return ()
        found = _named(schema.get("type")) or _of_values(schema) or self._of_branches(schema, depth)
        if found and schema.get("nullable") is True:
            found = (*found, "null")
        return found if len(found) < 2 else _without_repetition(found)

    def resolve(self, schema: Any) -> Any:
        """The schema that a local reference leads to; None where it leads nowhere or away from here."""
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            # What stands beside a reference does not count in older dialects, so it is not relied upon.
            schema = self._lookup(schema["$ref"])
        return None

    def _lookup(self, pointer: Any) -> Any:
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            return None
        place = self._root
        for part in unquote(pointer[1:]).split("/", _DEEPEST)[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(place, dict) or key not in place:
                return None
            place = place[key]
        return place if pointer == "#" or pointer[1] == "/" else None

    def _of_branches(self, schema: dict[str, Any], depth: int) -> tuple[str, ...]:
        for union in _UNIONS:
            found = self._of_any(schema.get(union), depth)
            if found:
                return found
        every = schema.get("allOf")
        branches = every[:_MOST_BRANCHES] if isinstance(every, list) else []
        return next((found for one in branches if (found := self.types_of(one, depth - 1))), ())

    def _of_any(self, branches: Any, depth: int) -> tuple[str, ...]:
        if not isinstance(branches, list) or len(branches) > _MOST_BRANCHES:
            return ()
        found: list[str] = []
        for branch in branches:
            own = self.types_of(branch, depth - 1)
            if not own:
                return ()
            found += own
        return tuple(found)


def _named(kind: Any) -> tuple[str, ...]:
    if isinstance(kind, str):
        # A word that is no type is somebody's mistake, and what he meant is unknown.
        return (kind,) if kind in _TYPES else ()
    if not isinstance(kind, list) or len(kind) > len(_TYPES):
        return ()
    return tuple(kind) if all(isinstance(one, str) and one in _TYPES for one in kind) else ()


def _of_values(schema: dict[str, Any]) -> tuple[str, ...]:
    """The type of the choices, where they are all texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not values or len(values) > _MOST_STEPS:
        return ()
    return ("string",) if all(isinstance(value, str) for value in values) else ()


def _without_repetition(found: Iterable[str]) -> tuple[str, ...]:
    kinds = dict.fromkeys(found)
    if "number" in kinds:
        kinds.pop("integer", None)
    return tuple(kinds)
