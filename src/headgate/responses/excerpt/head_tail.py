"""The cut that keeps the beginning and the very end of a text."""

MARKER = " <truncated by smart mcp proxy> "

_TAIL = 50
# Below this the head would be shorter than the tail.
_SMALLEST = _TAIL + len(MARKER) + _TAIL


def shortened_size(limit: int) -> int:
    """How many characters are left of a text that is cut."""
    return limit if limit >= _SMALLEST else max(limit, 0) + len(MARKER)


def head_tail(text: str, limit: int) -> str:
    """The first part, the marker and the last 50 characters, `limit` characters in all.

    A limit under 132 gives the first `limit` characters and the marker. A text within the limit, or one that
    would not become shorter, is unchanged.
    """
    limit = max(limit, 0)
    if len(text) <= shortened_size(limit):
        return text
    if limit < _SMALLEST:
        return text[:limit] + MARKER
    return text[: limit - len(MARKER) - _TAIL] + MARKER + text[-_TAIL:]
