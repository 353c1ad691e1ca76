"""The written form of a regular expression: what stands where in it, and what is wrong with it."""

from collections.abc import Iterator, Mapping

_LINEAR = "this engine has none, so that every search ends in linear time"
_HINTS = {
    "(?=": f"look-around is not possible: {_LINEAR}",
    "(?!": f"look-around is not possible: {_LINEAR}",
    "(?<=": f"look-around is not possible: {_LINEAR}",
    "(?<!": f"look-around is not possible: {_LINEAR}",
    "(?P=": f"back-references are not possible: {_LINEAR}",
    "\\k": f"back-references are not possible: {_LINEAR}",
    "(?>": "atomic groups are not needed here, write (?:",
    "(?#": "comments are not possible",
    "\\Z": "the end of the text is \\z here",
    "\\u": "write \\x{00e9} for a character by its number",
}
_HINTS |= {f"\\{digit}": f"back-references are not possible: {_LINEAR}" for digit in range(1, 10)}


def signs(pattern: str) -> Iterator[tuple[int, str]]:
    """Each sign outside of character classes with its position; an escape is one sign."""
    position = 0
    while position < len(pattern):
        sign = pattern[position : position + 2] if pattern[position] == "\\" else pattern[position]
        if sign == "[":
            position = _class_end(pattern, position)
        elif sign == "\\Q":
            end = pattern.find("\\E", position)
            position = len(pattern) if end < 0 else end + 2
        else:
            yield position, sign
            position += len(sign)


def _class_end(pattern: str, start: int) -> int:
    """Behind the class that begins at `start`; one that does not end goes to the end."""
    position = start + 1
    if pattern[position : position + 1] == "^":
        position += 1
    # The first one is a member of the class.
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        if pattern[position] == "\\":
            position += 2
        elif pattern[position : position + 2] == "[:" and (end := pattern.find(":]", position + 2)) > 0:
            position = end + 2
        else:
            position += 1
    return position + 1


def replaced(pattern: str, meanings: Mapping[str, str]) -> str:
    """The pattern with some of its signs written in another way."""
    parts, last = [], 0
    for position, sign in signs(pattern):
        if sign in meanings:
            parts += [pattern[last:position], meanings[sign]]
            last = position + len(sign)
    return "".join([*parts, pattern[last:]])


def complaint(pattern: str, error: str) -> str:
    """What is wrong, and where, in a sentence; `error` is a message of RE2, which names no position."""
    reason, _, fragment = error.partition(": ")
    if fragment == "(?P" and "(?P=" in pattern:
        fragment = "(?P="
    if "too large" in reason:
        return "the pattern is too large when its repetitions are written out: repeat less, or use * and +"
    hint = next((hint for start, hint in _HINTS.items() if fragment.startswith(start)), "")
    if not hint and reason == "invalid repetition size":
        hint = "at most 1000 repetitions, nested ones multiplied, and the smaller number first"
    named = fragment if len(fragment) <= 40 else ""
    details = " ".join(filter(None, [named, f"({hint})" if hint else ""]))
    if reason in ("missing )", "unexpected )"):
        details = ""
    return f"invalid regex at position {_position(pattern, reason, fragment)}: {reason} {details}".rstrip()


def _position(pattern: str, reason: str, fragment: str) -> int:
    if reason in ("missing )", "unexpected )"):
        return _lonely_bracket(pattern)
    if reason == "missing ]":
        return max(0, len(pattern) - len(fragment))
    if reason.startswith("trailing"):
        return len(pattern) - 1
    # Signs first: the same letters may stand somewhere as plain text.
    for position, _ in signs(pattern):
        if pattern.startswith(fragment, position):
            return position
    return max(0, pattern.find(fragment))


def _lonely_bracket(pattern: str) -> int:
    """Where the first bracket stands that closes nothing, else the last one that is not closed."""
    opened: list[int] = []
    for position, sign in signs(pattern):
        if sign == "(":
            opened.append(position)
        elif sign == ")":
            if not opened:
                return position
            opened.pop()
    return opened[-1] if opened else 0
