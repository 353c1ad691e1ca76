"""The syntax of a regular expression: its tokens, rewriting, and explanations of compile errors."""

import re
from collections.abc import Iterator, Mapping

_LINEAR = "not possible: this engine has none, so that every search ends in linear time"
_HINTS = {
    **dict.fromkeys(("(?=", "(?!", "(?<=", "(?<!"), f"look-around is {_LINEAR}"),
    **dict.fromkeys(("(?P=", "\\k", *(f"\\{n}" for n in range(1, 10))), f"back-references are {_LINEAR}"),
    "(?>": "atomic groups are not needed here, write (?:",
    "(?#": "comments are not possible",
    "\\Z": "the end of the text is \\z here",
    "\\u": "write \\x{00e9} for a character by its number",
}


_PARENTHESIS = ("missing )", "unexpected )")


def regex_tokens(pattern: str) -> Iterator[tuple[int, str]]:
    """Each token outside of character classes with its position; an escape is one token."""
    position = 0
    while position < len(pattern):
        token = pattern[position : position + 2] if pattern[position] == "\\" else pattern[position]
        if token == "[":
            position = _class_end(pattern, position)
        elif token == "\\Q":
            end = pattern.find("\\E", position)
            position = len(pattern) if end < 0 else end + 2
        else:
            yield position, token
            position += len(token)


def _class_end(pattern: str, start: int) -> int:
    """The position after the class that begins at `start`; one that is not closed extends to the end."""
    position = start + 1
    if pattern[position : position + 1] == "^":
        position += 1
    # A first bracket is a member of the class.
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


def replace_tokens(pattern: str, meanings: Mapping[str, str]) -> str:
    parts, last = [], 0
    for position, token in regex_tokens(pattern):
        if token in meanings:
            parts += [pattern[last:position], meanings[token]]
            last = position + len(token)
    return "".join([*parts, pattern[last:]])


def allow_json_spacing(pattern: str) -> str:
    """The pattern with optional spaces where only some JSON encoders write one.

    That is around a colon after a quotation mark, and after a comma between two values.
    """
    found = list(regex_tokens(pattern))
    parts, last = [], 0
    for index, (position, token) in enumerate(found):
        if token not in ":," or position < last:
            continue
        start, end = _with_spaces(found, index)
        before, behind = _token_before(found, start), pattern[end:]
        if _REPEATED.match(behind):
            continue
        if token == ":" and before in _QUOTES:
            parts += [pattern[last : found[start][0]], " ?: ?"]
        elif token == "," and start == index and '"' in pattern and _separates_values(before, behind):
            parts += [pattern[last:position], ", ?"]
        else:
            continue
        last = end
    return "".join([*parts, pattern[last:]])


def _with_spaces(found: list[tuple[int, str]], index: int) -> tuple[int, int]:
    """The index of the first space before a token, and the position after the last space behind it."""
    first = last = index
    while first > 0 and found[first - 1] == (found[first][0] - 1, " "):
        first -= 1
    while last + 1 < len(found) and found[last + 1] == (found[last][0] + 1, " "):
        last += 1
    return first, found[last][0] + 1


def _token_before(found: list[tuple[int, str]], index: int) -> str:
    """The token right before, or the one that is optional or ends a group there; none after a class."""
    for position, token in reversed(found[max(index - 2, 0) : index]):
        if position + len(token) != found[index][0]:
            return ""
        if token not in "?)":
            return token
        index -= 1
    return ""


def _separates_values(before: str, behind: str) -> bool:
    return (before in _VALUE_ENDS or before.isdigit()) and _VALUE_START.match(behind) is not None


_QUOTES = ('"', "'", '\\"', "\\'")
_REPEATED = re.compile(r"[*+?]|\{\d")
_VALUE_ENDS = ('"', '\\"', "}", "\\}", "]", "\\]", "e", "l")
_VALUE_START = re.compile(r'\\?["{]|\\\[|[-\d]')


def may_scan_ahead(pattern: str) -> bool:
    """Whether a search may scan far behind a hit, and again behind the next one.

    It may if something is repeated greedily without bound, in an alternative or in a group that is optional
    or repeated. Otherwise it finds the last possible end of the match, and continues there.
    """
    # For each open group: whether it has a repetition, and whether it has alternatives.
    levels = [(False, False)]
    for position, token in regex_tokens(pattern):
        repeats, chooses = levels[-1]
        if token == "(":
            levels.append((False, False))
        elif token == ")" and len(levels) > 1:
            levels.pop()
            if repeats and (chooses or _REPEATED.match(pattern, position + 1)):
                return True
            levels[-1] = (levels[-1][0] or repeats, levels[-1][1])
        else:
            levels[-1] = (repeats or bool(_GREEDY.match(pattern, position)), chooses or token == "|")
    return all(levels[-1])


_GREEDY = re.compile(r"(?:[*+]|\{\d+,\})(?!\?)")


def explain_error(pattern: str, error: str) -> str:
    """What is wrong, and where, in a sentence; `error` is a message of RE2, which has no position."""
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
    if reason in _PARENTHESIS:
        details = ""
    return f"invalid regex at position {_position(pattern, reason, fragment)}: {reason} {details}".rstrip()


def _position(pattern: str, reason: str, fragment: str) -> int:
    if reason in _PARENTHESIS:
        open_brackets: list[int] = []
        for position, token in regex_tokens(pattern):
            if token == "(":
                open_brackets.append(position)
            elif token == ")" and not open_brackets:
                # The first bracket that closes nothing, else the last one that is not closed.
                return position
            elif token == ")":
                open_brackets.pop()
        return open_brackets[-1] if open_brackets else 0
    if reason == "missing ]":
        return max(0, len(pattern) - len(fragment))
    if reason.startswith("trailing"):
        return len(pattern) - 1
    # Tokens first: the same characters may also occur as plain text.
    for position, _ in regex_tokens(pattern):
        if pattern.startswith(fragment, position):
            return position
    return max(0, pattern.find(fragment))
