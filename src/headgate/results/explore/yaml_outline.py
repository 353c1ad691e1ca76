"""The outline of YAML: keys by path, read from lines and indentation without building values."""

import re
from typing import Any, Final, NamedTuple

from headgate.results.explore.outline_tree import MOST_NODES, OutlineNode, OutlineTree, render_tree
from headgate.results.json_paths import member_path

# The beginning that is read; counts and sizes of the rest are extrapolated.
_LOOKED_AT: Final = 96 * 1024
_DEEPEST: Final = 64
_PROBED_LINES: Final = 200
# The largest share of probed lines that only continue a text.
_MOST_OTHERS: Final = 0.1
_LINE: Final = re.compile(
    r"(?P<indent> *+)(?P<dashes>(?:-[ \t]++)*+(?:-$)?)"
    r"(?:(?P<key>\"(?:[^\"\\]++|\\.)*+\"|'(?:[^']++|'')*+'|[^\s#:\"'{}\[\],&*!|>%@`-][^:#]{0,200}+|-[^\s:#][^:#]{0,200}+)"
    r"[ \t]{0,20}:(?:[ \t]++(?P<value>.*)|$))?"
)
_PLAIN_KEY: Final = re.compile(r"[\w./$@*~+-]++(?: [\w./()-]++){0,3}|\"[^\"]{1,80}\"|'[^']{1,80}'")
_ANCHOR: Final = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]*)+")
_COMMENT: Final = re.compile(r"(?:^|[ \t])#.*$")
_BLOCK: Final = re.compile(r"[|>][-+0-9]{0,2}[ \t]*(?:#.*)?")
_INTEGER: Final = re.compile(r"[-+]?[0-9][0-9_]*|0[xo][0-9a-fA-F]+")
_NUMBER: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE
)
_WORDS: Final = {"true": "boolean", "false": "boolean", "null": "null", "~": "null"}


def looks_like_yaml(start: str) -> bool:
    """Whether nearly every line is a key or an item, and something is nested or a document is marked."""
    lines = [line for line in start.split("\n") if line.strip()][:_PROBED_LINES]
    reader = _YamlReader()
    keys = others = 0
    for number, line in enumerate(lines):
        kind = reader.read_line(line.rstrip("\r"), number)
        keys += kind == "key"
        others += kind == "other"
    marked = any(line.rstrip() == "---" or line.startswith(("--- ", "%YAML")) for line in lines[:5])
    are_structure = keys > 1 and others <= len(lines) * _MOST_OTHERS and not reader.is_broken
    return are_structure and (marked or reader.has_nested)


def outline_yaml(text: str, tokens: int, max_depth: int, room: int) -> dict[str, Any]:
    """The keys of YAML by path, of all documents together."""
    sample = text if len(text) <= _LOOKED_AT else text[: text.rfind("\n", 0, _LOOKED_AT) + 1 or _LOOKED_AT]
    reader = _YamlReader()
    for number, line in enumerate(sample.split("\n")):
        reader.read_line(line.rstrip("\r"), number)
    factor = len(text) / max(len(sample), 1)
    facts: dict[str, Any] = {"documents": round(reader.documents * factor)} if reader.documents > 1 else {}
    if factor > 1:
        facts["looked_at_characters"] = len(sample)

    def path(above: str, name: str) -> str:
        return f"{above}[]" if name == "[]" else member_path(above, name)

    tree = OutlineTree(reader.root, path, tokens / max(len(text.encode()), 1), lambda _: factor)
    return facts | {"outline": render_tree(tree, max_depth, room)}


class _YamlLevel(NamedTuple):
    """An open mapping or sequence, and the column of its keys or dashes."""

    column: int
    node: OutlineNode
    is_sequence: bool


class _YamlReader:
    """Reads lines and collects their keys and values."""

    def __init__(self) -> None:
        self.root = OutlineNode()
        self.documents = 1
        self.has_nested = False
        # Whether something is nested below a key that already has a value.
        self.is_broken = False
        self._levels: list[_YamlLevel] = []
        # The key or item whose value is on the following lines.
        self._pending: OutlineNode = self.root
        self._leaf: OutlineNode = self.root
        self._is_open = True
        # Lines with more indentation belong to a block text; None outside of one.
        self._block_column: int | None = None
        self._open_brackets = 0
        self._nodes = 0
        self._seen = False

    def read_line(self, line: str, number: int) -> str:
        """The type of the line: key, item, text, comment, mark, or other."""
        stripped = line.strip()
        column = len(line) - len(line.lstrip(" "))
        if self._block_column is not None and (not stripped or column > self._block_column):
            self._leaf.own_bytes += len(line) + 1
            return "text"
        self._block_column = None
        if self._open_brackets > 0:
            self._leaf.own_bytes += len(line) + 1
            self._open_brackets += _brackets(line)
            return "text"
        if not stripped or stripped.startswith("#"):
            return "comment"
        if column == 0 and (line.startswith(("---", "...")) and line[3:4] in ("", " ")):
            if line.startswith("---") and self._seen:
                self.documents += 1
            self._levels.clear()
            self._pending = self._leaf = self.root
            self._is_open = True
            return "mark"
        if line.startswith("%"):
            return "mark"
        self._seen = True
        return self._content(line, number)

    def _content(self, line: str, number: int) -> str:
        found = _LINE.match(line)
        if found is None:
            return "other"
        column = len(found["indent"])
        dashes = found["dashes"]
        for at, character in enumerate(dashes):
            if character == "-":
                self._enter(column + at, "[]", number, is_sequence=True)
        key = (found["key"] or "").rstrip()
        if key and (dashes or _PLAIN_KEY.fullmatch(key)):
            name = key[1:-1] if key[0] in "\"'" else key
            self._enter(column + len(dashes), name, number, is_sequence=False)
            self._value(self._leaf, found["value"] or "", column + len(dashes))
            self._leaf.own_bytes += len(line) + 1
            return "key"
        rest = line[column + len(dashes) :]
        self._leaf.own_bytes += len(line) + 1
        if not dashes:
            return "other"
        if rest.strip():
            self._value(self._leaf, rest, column)
        return "item"

    def _holder(self, column: int, *, is_sequence: bool) -> OutlineNode:
        """The mapping or sequence with its keys or dashes in this column."""
        levels = self._levels
        while levels and levels[-1].column > column:
            levels.pop()
        if not is_sequence:
            # Dashes may be in the column of the key that they belong to.
            while levels and levels[-1].column == column and levels[-1].is_sequence:
                levels.pop()
        if levels and levels[-1].column == column and levels[-1].is_sequence == is_sequence:
            return levels[-1].node
        node = self._pending if len(levels) < _DEEPEST else levels[-1].node
        self.has_nested = self.has_nested or node is not self.root
        self.is_broken = self.is_broken or not self._is_open
        node.count_value("array" if is_sequence else "object")
        levels.append(_YamlLevel(column, node, is_sequence))
        return node

    def _enter(self, column: int, name: str, number: int, *, is_sequence: bool) -> None:
        """Begin an item or the value of a key."""
        above = self._holder(column, is_sequence=is_sequence)
        is_new = name not in above.children
        node = above
        if not is_new or self._nodes <= MOST_NODES:
            self._nodes += is_new
            node = above.child(name, number)
        self._pending = self._leaf = node
        self._is_open = True

    def _value(self, node: OutlineNode, written: str, column: int) -> None:
        value = _ANCHOR.sub("", written, count=1) if written[:1] in ("&", "!") else written
        value = value if value[:1] in "\"'" else _COMMENT.sub("", value)
        value = value.strip()
        if not value:
            return
        self._is_open = False
        if _BLOCK.fullmatch(value):
            self._block_column = column
            node.count_value("string")
        elif value[0] in "[{":
            self._open_brackets = _brackets(value)
            node.count_value("array" if value[0] == "[" else "object", value)
        else:
            node.count_value(_kind(value), value.strip("\"'"))


def _brackets(line: str) -> int:
    return line.count("[") + line.count("{") - line.count("]") - line.count("}")


def _kind(value: str) -> str:
    if value[0] == "*":
        return "alias"
    if value[0] in "\"'":
        return "string"
    if _INTEGER.fullmatch(value):
        return "integer"
    return _WORDS.get(value.lower(), "number" if _NUMBER.fullmatch(value) else "string")
