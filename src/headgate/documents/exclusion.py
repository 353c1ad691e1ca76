"""Which files are left out, by patterns as a .gitignore has them."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class _Rule(NamedTuple):
    expression: re.Pattern[str]
    excludes: bool
    directories_only: bool


class Exclusion:
    """Patterns; the last that fits decides, and one that begins with `!` takes a file in again."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._rules = [_rule(pattern.strip()) for pattern in patterns if _is_pattern(pattern.strip())]

    def covers(self, path: str, *, is_directory: bool) -> bool:
        """Whether this path, relative to its root and with slashes, is left out."""
        for rule in reversed(self._rules):
            if (is_directory or not rule.directories_only) and rule.expression.fullmatch(path):
                return rule.excludes
        return False


def _is_pattern(pattern: str) -> bool:
    return bool(pattern.strip("/!")) and not pattern.startswith("#")


def _rule(pattern: str) -> _Rule:
    excludes = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    directories_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    # Without a slash it is a name that may stand anywhere.
    anywhere = "" if "/" in pattern else r"(?:[^/]+/)*"
    expression = re.compile(anywhere + _expression(pattern.removeprefix("/")), re.DOTALL)
    return _Rule(expression, excludes, directories_only)


def _expression(pattern: str) -> str:
    parts = []
    # The longest first: two stars cross directories, one does not.
    for part in re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?[^\]]+\]|.", pattern, re.DOTALL):
        if part == "**/":
            parts.append(r"(?:[^/]+/)*")
        elif part == "**":
            parts.append(".*")
        elif part == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        elif len(part) > 1:
            parts.append(_one_of(part))
        else:
            parts.append(re.escape(part))
    return "".join(parts)


def _one_of(letters: str) -> str:
    """A choice of characters; a range that runs backwards stands for itself."""
    inside = letters[1:-1].replace("\\", r"\\").replace("[", r"\[")
    choice = f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    try:
        re.compile(choice)
    except re.error:
        return re.escape(letters)
    return choice
