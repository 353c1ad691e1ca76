"""What a Markdown file says of itself between two lines of dashes; only plain values are understood."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

# Without an end after so many lines it is a rule, and the text goes on below it.
_MOST_LINES: Final = 200
_ENDS: Final = ("---", "...")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?$")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.+)$")
# All that front matter may have: a name, an item, what belongs to the line above, a remark, or nothing.
_LINE: Final = re.compile(r"[A-Za-z_][\w-]*:(?:\s|$)|-[ \t]|[ \t]|#|$")
# The value is the indented lines below it.
_BLOCK: Final = re.compile(r"[>|][-+0-9]*")
_QUOTED: Final = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')(?:[ \t]+#.*)?""")
_ESCAPED: Final = re.compile(r"""\\(["\\])""")
_REMARK: Final = re.compile(r"(?<![ \t])[ \t]+#[ \t].*")


class FrontMatter(NamedTuple):
    """The values by their names in lower case, and where the text begins."""

    values: dict[str, list[str]]
    end: int

    def first(self, *names: str) -> str:
        """The value of the first of these names that has one."""
        return next((self.values[name][0] for name in names if self.values.get(name)), "")


def front_matter(text: str) -> FrontMatter:
    """What stands before the text; lines that are neither `name: value` nor `- value` are passed over."""
    lines = text.split("\n", _MOST_LINES + 1)
    if lines[0].rstrip() != "---" or not _begins(lines[1 : _MOST_LINES + 1]):
        return FrontMatter({}, 0)
    values: dict[str, list[str]] = {}
    key, is_block = "", False
    end = len(lines[0]) + 1
    for line in lines[1 : _MOST_LINES + 1]:
        end += len(line) + 1
        if line.rstrip() in _ENDS:
            return FrontMatter(values, min(end, len(text)))
        if found := _KEY.match(line.rstrip()):
            key, value = found[1].lower(), (found[2] or "").strip()
            is_block = _BLOCK.fullmatch(value) is not None
            values[key] = [] if is_block else _values(value)
        elif is_block and line[:1].isspace():
            values[key] = [" ".join([*values[key], line.strip()])]
        elif (item := _ITEM.match(line.rstrip())) and key:
            values[key] += _values(item[1])
    return FrontMatter({}, 0)


def _begins(lines: Sequence[str]) -> bool:
    """Whether these are front matter and not a text below a rule."""
    told = list(takewhile(lambda line: line.rstrip() not in _ENDS, lines))
    if not told or _KEY.match(told[0].rstrip()):
        return bool(told)
    # Below a remark or an empty line it may be either, so that nothing else may stand there; and a text needs
    # an empty line above the next rule, otherwise its last line would be a heading.
    return any(map(_KEY.match, told)) and all(map(_LINE.match, told)) and bool(told[-1].strip())


def _values(text: str) -> list[str]:
    if quoted := _QUOTED.fullmatch(text.strip()):
        value = _ESCAPED.sub(r"\1", quoted[1] or "") or (quoted[2] or "").replace("''", "'")
        return [value] if value else []
    text = _REMARK.sub("", text.strip())
    if _is_list(text):
        return [value for part in text[1:-1].split(",") for value in _values(part)]
    return [text] if text else []


def _is_list(text: str) -> bool:
    """Whether the bracket at the beginning is closed at the end: `[Draft] My doc [v2]` is a text."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth == 0:
            return letter == "]" and place == len(text) - 1
    return False
