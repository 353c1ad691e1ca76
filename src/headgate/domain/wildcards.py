"""Matches names against patterns in which `*` stands for anything."""

import re
from functools import lru_cache


def matches_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns is this name; `*` stands for anything, all else for itself."""
    return bool(patterns) and _compiled(patterns).fullmatch(tool) is not None


# Each tool is asked about after each change; there are a few of these for each server.
@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, patterns)), re.DOTALL)


def _expression(pattern: str) -> str:
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    # What stands between two stars is looked for once: `*a*a*a*b` must not take minutes for a long name.
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece) + f".*{rest[-1]}"
