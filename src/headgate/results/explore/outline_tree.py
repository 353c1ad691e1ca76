"""The tree of XML, HTML or YAML parts, grouped by name and path, and its rendering within a size."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from headgate.results.content import character_count

# Nodes in one tree; parts beyond it are counted at their parent.
MOST_NODES: Final = 5_000
_MOST_CHILDREN: Final = 100
_MOST_ATTRIBUTES: Final = 8
_LONGEST_NAME: Final = 80
_SAMPLE: Final = 60
# The size of a smaller value costs more than it says.
_WORTH_SAYING_TOKENS: Final = 10


# A path and its facts.
_Entry = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class OutlineNode:
    """All parts of one name at one path."""

    # The line of the first, counted from 0 as in `proxy_read`.
    line: int = 0
    count: int = 0
    # Without the children.
    own_bytes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    sample: str = ""
    # Each with an example value.
    attributes: dict[str, str] = field(default_factory=dict)
    children: dict[str, "OutlineNode"] = field(default_factory=dict)
    _all_bytes: int | None = None

    def child(self, name: str, line: int) -> "OutlineNode":
        """The node of a child with that name, counted once more."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = OutlineNode(line)
        found.count += 1
        return found

    def count_value(self, kind: str, sample: str = "") -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if sample and not self.sample:
            self.sample = sample[: _SAMPLE * 4]

    @property
    def all_bytes(self) -> int:
        """The bytes of the parts with their children; valid when the tree is complete."""
        if self._all_bytes is None:
            # The reader bounds the depth of the tree.
            self._all_bytes = self.own_bytes + sum(child.all_bytes for child in self.children.values())
        return self._all_bytes


@dataclass(frozen=True, slots=True)
class OutlineTree:
    """The structure of a text."""

    root: OutlineNode
    # The path of a child, from the path of its parent and its name.
    path: Callable[[str, str], str]
    tokens_per_byte: float
    # The number of parts of a name in the whole text for each parsed one.
    scale: Callable[[str], float]
    with_offsets: bool = True


def render_tree(tree: OutlineTree, max_depth: int, room: int) -> dict[str, Any]:
    """The facts of each part by its path, as deep as they fit."""
    for depth in range(max_depth, 0, -1):
        for sample in (_SAMPLE, 20, 0):
            rendered, is_complete = _fitting(_entries(tree, tree.root, "", depth, sample), room)
            if is_complete:
                return rendered
    return _fitting(_entries(tree, tree.root, "", 1, 0), room)[0]


def _fitting(entries: Iterator[_Entry], room: int) -> tuple[dict[str, Any], bool]:
    """The first entries that fit, and whether they are all."""
    rendered: dict[str, Any] = {}
    left = room - len("{}")
    for path, facts in entries:
        # With its colon and comma.
        left -= character_count(msgspec.json.encode(path) + msgspec.json.encode(facts)) + 2
        if left < 0:
            return rendered, False
        rendered[path] = facts
    return rendered, True


def _entries(tree: OutlineTree, node: OutlineNode, above: str, depth: int, sample: int) -> Iterator[_Entry]:
    for name, child in list(node.children.items())[:_MOST_CHILDREN]:
        path = tree.path(above, name[:_LONGEST_NAME])
        yield path, _facts(tree, child, name, sample, is_last=depth == 1)
        if depth > 1:
            yield from _entries(tree, child, path, depth - 1, sample)


def _facts(tree: OutlineTree, node: OutlineNode, name: str, sample: int, *, is_last: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if node.kinds:
        facts["type"] = "|".join(sorted(node.kinds, key=lambda kind: (kind == "null", -node.kinds[kind])))
    facts["count"] = round(node.count * tree.scale(name))
    if node.attributes:
        shown = list(node.attributes.items())[:_MOST_ATTRIBUTES]
        facts["attributes"] = {key[:_LONGEST_NAME]: shorten(value, sample) for key, value in shown}
    tokens = round(node.all_bytes * tree.tokens_per_byte * tree.scale(name))
    if tokens >= _WORTH_SAYING_TOKENS:
        facts["tokens"] = tokens
    if tree.with_offsets:
        facts["offset"] = node.line
    if sample and node.sample:
        facts["sample"] = shorten(node.sample, sample)
    if is_last and node.children:
        facts["deeper"] = shorten(", ".join(node.children), max(sample, 20))
    elif len(node.children) > _MOST_CHILDREN:
        facts["more_children"] = len(node.children) - _MOST_CHILDREN
    return facts


def shorten(text: str, size: int) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: size * 4].split())
    return line if len(line) <= size else f"{line[: max(size - 1, 0)]}…"
