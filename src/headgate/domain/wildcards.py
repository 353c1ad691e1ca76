"""Matches names against patterns in which `*` stands for anything."""

import re
from functools import lru_cache


def matches_any(tool: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the patterns is this name; `*` stands for anything, all else for itself."""
    return bool(patterns) and _compiled(patterns).fullmatch(tool) is not None


# Each tool is matched after each change; each server has a few patterns.
@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, patterns)), re.DOTALL)


def _expression(pattern: str) -> str:
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    # The text between two stars is searched once: `*a*a*a*b` must not take minutes for a long name.
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece) + f".*{rest[-1]}"
