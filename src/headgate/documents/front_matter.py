"""What a Markdown file says of itself between two lines of dashes; only plain values are understood."""

import re
from typing import Final, NamedTuple

# Without an end after so many lines it is a rule, and the text goes on below it.
_MOST_LINES: Final = 200
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*):(?:[ \t]+(.*))?$")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.+)$")


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
    if lines[0].rstrip() != "---" or len(lines) < 2 or not _KEY.match(lines[1].rstrip()):
        return FrontMatter({}, 0)
    values: dict[str, list[str]] = {}
    key = ""
    end = len(lines[0]) + 1
    for line in lines[1 : _MOST_LINES + 1]:
        end += len(line) + 1
        if line.rstrip() in ("---", "..."):
            return FrontMatter(values, min(end, len(text)))
        if found := _KEY.match(line.rstrip()):
            key = found[1].lower()
            values[key] = _values(found[2] or "")
        elif (item := _ITEM.match(line.rstrip())) and key:
            values[key] += _values(item[1])
    return FrontMatter({}, 0)


def _values(text: str) -> list[str]:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [value for part in text[1:-1].split(",") for value in _values(part)]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return [text] if text else []
