"""The cut that keeps the beginning and the very end of a text."""

MARKER = " <truncated by smart mcp proxy> "

_TAIL = 50
# Below this the head would be shorter than the tail.
_SMALLEST = _TAIL + len(MARKER) + _TAIL


def head_tail(text: str, limit: int) -> str:
    """The first part, the marker and the last 50 characters, `limit` characters in all.

    A limit under 132 gives the first `limit` characters and the marker; a text within the limit is unchanged.
    """
    limit = max(limit, 0)
    if len(text) <= limit:
        return text
    if limit < _SMALLEST:
        return text[:limit] + MARKER
    return text[: limit - len(MARKER) - _TAIL] + MARKER + text[-_TAIL:]
