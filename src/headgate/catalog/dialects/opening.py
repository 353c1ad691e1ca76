"""Follows references inside one schema and joins what must hold together; nothing is ever fetched."""

from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.merging import merged
from headgate.catalog.dialects.shapes import Node

# References inside references, and parts inside parts.
MOST_DEPTH: Final = 32
_MOST_PARTS: Final = 200
# Written out again and again, a few references can become a schema of any size.
_MOST_WRITTEN: Final = 1000

# The references that lead to a place, so that one that leads back is seen.
Trail = frozenset[str]


class Unsayable(ValueError):
    """A schema that is served as it is, with the reason."""


class Opened(NamedTuple):
    """A schema without references and `allOf` of its own; its inner ones are as they were."""

    node: Node
    trail: Trail
    # The reference that was not followed, because it leads back or too far.
    cut: str = ""


class Document:
    """One schema, and what its references mean."""

    def __init__(self, root: Node, changes: Changes) -> None:
        self._root = root
        self._changes = changes
        self._written = 0

    def open(self, schema: Any, where: str, trail: Trail, depth: int = 0) -> Opened:
        """One schema of the document, as the place asks it that `trail` leads to; raises Unsayable."""
        if not isinstance(schema, dict):
            return Opened({}, trail)
        if "$ref" not in schema and "allOf" not in schema:
            return Opened(_with_enum(schema), trail)
        node = _with_enum({key: value for key, value in schema.items() if key not in ("$ref", "allOf")})
        reference = schema.get("$ref")
        cut = ""
        if isinstance(reference, str):
            node, trail, cut = self._followed(reference, node, where, trail, depth)
        parts = schema.get("allOf")
        if isinstance(parts, list) and parts:
            node, trail = self._together(parts, node, where, trail, depth)
        return Opened(node, trail, cut)

    def target(self, reference: str) -> Any:
        """What a reference leads to, or None."""
        found: Any = self._root
        if not reference.startswith("#"):
            return None
        for part in reference[1:].split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and len(name) < 6 and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        # A name that is no pointer is an anchor, which hardly any tool has.
        return found if reference in ("#", "#/") or reference.startswith("#/") else None

    def _followed(self, reference: str, node: Node, where: str, trail: Trail, depth: int) -> Opened:
        target = self.target(reference)
        if not isinstance(target, dict):
            self._changes.add(where, f"$ref {reference} leads nowhere in this schema and was dropped")
            return Opened(node, trail)
        # A large one takes longer to join with what stands beside it.
        self._written += 1 + sum(len(one) for one in target.values() if isinstance(one, dict | list)) // 20
        if reference in trail or depth >= MOST_DEPTH or self._written > _MOST_WRITTEN:
            self._changes.add(where, f"$ref {reference} leads back or too far and was cut off")
            return Opened(node, trail, reference)
        self._changes.add(where, f"$ref {reference} written out")
        found = self.open(target, where, trail | {reference}, depth + 1)
        return Opened(merged(node, found.node), found.trail, found.cut)

    def _together(
        self, parts: list[Any], node: Node, where: str, trail: Trail, depth: int
    ) -> tuple[Node, Trail]:
        if len(parts) > _MOST_PARTS:
            raise Unsayable(f"{len(parts)} schemas in one allOf")
        if depth >= MOST_DEPTH:
            self._changes.add(where, "allOf is too deep and was dropped")
            return node, trail
        self._changes.add(where, "allOf merged")
        for part in parts:
            found = self.open(part, where, trail, depth + 1)
            node, trail = merged(node, found.node), found.trail
        return node, trail


def _with_enum(node: Node) -> Node:
    """A constant is a choice of one."""
    if "const" not in node:
        return node
    constant = {"enum": [node["const"]]}
    return merged(constant, {key: value for key, value in node.items() if key != "const"})
