"""Regular expressions supplied by agents: RE2 in linear time and bounded memory; their syntax and errors."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import groupby, islice, takewhile
from typing import Protocol

import re2  # type: ignore[import-untyped]
from msgspec import Raw

from headgate.results.content import Content
from headgate.results.pipeline import ProcessingError

# Types that RE2 searches without a copy.
Searchable = Content | memoryview | Raw

# A larger count is reported as "at least".
MAX_HITS = 100_000
# For a larger literal that repeats one character the states of RE2's automaton may outgrow _MEMORY, and each
# byte of the text then costs one step for each instruction of the pattern (decision 0079).
MAX_PATTERN_BYTES = 1_024

# RE2 may read up to the given limit to find the end of a hit, so the number of hits times this length bounds
# the work. A longer hit could not be shown. Across line ends more hits read that far, so fewer are counted;
# for an unbounded repetition as many as read 256 MiB together.
_LONGEST_HIT_BYTES = 64 * 1024
_MOST_HITS_OVER_LINES = 20_000
_MOST_HITS_THAT_RUN_ON = 256 * 1024 * 1024 // (2 * _LONGEST_HIT_BYTES)
# For a pattern that may scan far ahead: after so many hits in one line it gets a shorter limit.
_MOST_HITS_READ_FAR = 256
_SHORT_REACH_BYTES = 512
# Skipping a hit is cheaper than starting again behind its part, skipping many is not; where one part has many
# hits, the next parts mostly have too.
_MOST_IN_VAIN = 4
_PARTS_ALIKE = 32
# RE2's own default for the program and its caches.
_MEMORY = 8 * 1024 * 1024
_PROGRAM_MEMORY = 256 * 1024
# Without its caches RE2 takes one step for each instruction on each byte.
_LONGEST_PROGRAM = 5_000

_START_ANCHORS = ("^", "\\A")
_END_ANCHORS = ("$", "\\z")
_WORD_BOUNDARIES = ("\\b", "\\B")


class RegexPattern:
    """A compiled pattern; it matches within lines, unless it is `multiline`."""

    def __init__(self, source: str, *, case_insensitive: bool, multiline: bool) -> None:
        """Raises re2.error; `compile_pattern` translates it."""
        self.source = source
        self.multiline = multiline
        self._case_insensitive = case_insensitive
        # A pattern whose expansion needs more memory than this is rejected early.
        self._compile(_PROGRAM_MEMORY)
        self._expression = self._compile(_MEMORY)

    def _compile(self, memory: int) -> "Re2Expression":
        options = re2.Options()
        options.max_mem = memory
        options.log_errors = False
        options.case_sensitive = not self._case_insensitive
        options.dot_nl = self.multiline
        # Removes line ends from every class, so that nothing matches one.
        options.never_nl = not self.multiline
        # Only the span of a match is used, not its groups.
        options.never_capture = True
        expression: Re2Expression = re2.compile(_PREFIX + self.source, options)
        # Otherwise the package keeps the last 128 patterns with all of their memory.
        re2.purge()
        return expression

    @cached_property
    def max_hits(self) -> int:
        """The search stops after so many hits."""
        if not self.multiline:
            return MAX_HITS
        return _MOST_HITS_THAT_RUN_ON if _may_run_over_lines(self.source) else _MOST_HITS_OVER_LINES

    @property
    def program_size(self) -> int:
        """The number of instructions of the compiled program."""
        return int(self._expression.programsize)

    def search(self, searched: Searchable, start: int = 0, end: int | None = None) -> tuple[int, int] | None:
        """The first hit between the two positions."""
        hit = self._expression.search(searched, start, end)
        return None if hit is None else hit.span()

    def finditer(self, searched: Searchable, start: int = 0) -> Iterator[tuple[int, int]]:
        """The hits as RE2 returns them, faster than repeated `search`; an empty one may occur twice."""
        return (hit.span() for hit in self._expression.finditer(searched, start))

    def first_hit_per_part(
        self, content: Content, ends: Callable[[int], int]
    ) -> Iterator[tuple[int, int, int]]:
        """The first hit of each part of a content, and the end of that part.

        `ends` returns the end of the part that contains a position; no hit spans two parts.
        """
        start, size, alike = 0, len(content), 0
        while start <= size:
            end, same = start - 1, 0
            for hit in self.finditer(content, start):
                if hit[0] > end:
                    end, same = ends(hit[1]), 0
                    yield hit[0], hit[1], end
                else:
                    same += 1
                if alike or same == _MOST_IN_VAIN:
                    break
            else:
                return
            alike = alike - 1 if alike else _PARTS_ALIKE
            start = end + 1

    def find_hits_in_line(self, content: Content, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Every hit between two positions of one line, in time linear in their distance."""
        if not may_scan_ahead(self.source):
            hits = (hit for hit, _ in groupby(self.finditer(content, start)))
            yield from takewhile(lambda hit: hit[0] <= end, hits)
            return
        # Each hit may scan to the end of the line without becoming longer.
        far, position = 0, start
        for hit in islice(self.find_hits(content, start, end), _MOST_HITS_READ_FAR):
            far, position = far + 1, hit[1] if hit[1] > hit[0] else _next_character(content, hit[1])
            yield hit
        if far == _MOST_HITS_READ_FAR:
            yield from self.find_hits(content, position, end, reach=_SHORT_REACH_BYTES)

    def find_hits(
        self, content: Content, start: int = 0, stop: int | None = None, reach: int = _LONGEST_HIT_BYTES
    ) -> Iterator[tuple[int, int]]:
        """Every hit from `start` on; none spans a line end unless the pattern is `multiline`."""
        size = len(content) if stop is None else stop
        while start <= size:
            end = min(start + 2 * reach, size)
            hit = self.search(content, start, end)
            if hit is None:
                if end == size:
                    return
                start += reach
            elif end < size and hit[0] > start + reach:
                # It may be longer than this window.
                start = hit[0]
            else:
                yield hit
                start = hit[1] if hit[1] > hit[0] else _next_character(content, hit[1])

    @cached_property
    def anchored(self) -> bool:
        return any(token in _START_ANCHORS + _END_ANCHORS for _, token in regex_tokens(self.source))

    @cached_property
    def for_values(self) -> "RegexPattern":
        """The pattern for single values, one on each line, which begin and end with their lines."""
        return self._variant({"\\A": "^", "\\z": "$"})

    @cached_property
    def prefilter(self) -> "RegexPattern | None":
        """A pattern that matches JSON wherever this one matches a value in it; None if there is none."""
        found = [token for _, token in regex_tokens(self.source)]
        if sum(map(found.count, _START_ANCHORS)) > 1 or sum(map(found.count, _END_ANCHORS)) > 1:
            return None
        if any(edge in found for edge in _WORD_BOUNDARIES):
            return None
        beginning, end = r'(?:^|[\s":,\[])', r'(?:$|[\s",\]}])'
        # A repeated anchor takes no step, a repeated character class does.
        try:
            made = self._variant(dict.fromkeys(_START_ANCHORS, beginning) | dict.fromkeys(_END_ANCHORS, end))
        except re2.error:
            return None
        return made if made.program_size <= _LONGEST_PROGRAM else None

    def _variant(self, meanings: Mapping[str, str]) -> "RegexPattern":
        source = replace_tokens(self.source, meanings)
        if source == self.source:
            return self
        return RegexPattern(source, case_insensitive=self._case_insensitive, multiline=self.multiline)


class Re2Expression(Protocol):
    """The used part of a compiled RE2 object, which has no types of its own."""

    programsize: int

    def search(self, text: Searchable, pos: int, endpos: int | None) -> "Re2Match | None": ...

    def finditer(self, text: Searchable, pos: int) -> "Iterator[Re2Match]": ...


class Re2Match(Protocol):
    """The used part of a match."""

    def span(self) -> tuple[int, int]: ...


def compile_pattern(pattern: str, *, case_insensitive: bool = False, multiline: bool = False) -> RegexPattern:
    """The compiled pattern; raises ProcessingError with the position and the reason.

    `^` and `$` match at line ends; with `multiline` a dot matches a line end too.
    """
    size = len(pattern.encode(errors="surrogatepass"))
    if size > MAX_PATTERN_BYTES:
        raise ProcessingError(
            f"the pattern is too large: it has {size} bytes in UTF-8, "
            f"at most {MAX_PATTERN_BYTES} are allowed; search for a part of it"
        )
    try:
        made = RegexPattern(pattern, case_insensitive=case_insensitive, multiline=multiline)
    except UnicodeEncodeError as error:
        position = error.start - len(_PREFIX)
        raise ProcessingError(f"invalid regex at position {position}: half of a surrogate pair") from error
    except re2.error as error:
        raise ProcessingError(explain_error(pattern, error.args[0].decode(errors="replace"))) from error
    any_byte = next((position for position, token in regex_tokens(pattern) if token == "\\C"), None)
    if any_byte is not None:
        raise ProcessingError(
            f"invalid regex at position {any_byte}: \\C would split characters, write a dot"
        )
    if made.program_size > _LONGEST_PROGRAM:
        raise ProcessingError(
            f"the pattern is too large: it takes {made.program_size} steps "
            "when its repetitions are written out, "
            f"at most {_LONGEST_PROGRAM} are allowed; repeat less, or use * and +"
        )
    return made


def compile_pattern_for_json(
    pattern: str, *, case_insensitive: bool = False, multiline: bool = False
) -> RegexPattern:
    """As `compile_pattern`, for a pattern that matches `"id":1` and `"id": 1` alike."""
    made = compile_pattern(pattern, case_insensitive=case_insensitive, multiline=multiline)
    source = allow_json_spacing(pattern)
    if source == pattern:
        return made
    try:
        other = RegexPattern(source, case_insensitive=case_insensitive, multiline=multiline)
    except re2.error:
        return made
    return other if other.program_size <= _LONGEST_PROGRAM else made


# `^` and `$` match at line ends.
_PREFIX = "(?m)"


def _may_run_over_lines(source: str) -> bool:
    """Whether it repeats, without bound, something that may match a line end."""
    last, behind = "", 0
    for position, token in regex_tokens(source):
        if token in ("*", "+") or _without_end.match(source, position):
            # Classes and quoted texts are no tokens: they are the gaps between tokens.
            gap = source[behind:position]
            if _may_hold_line_ends.search(gap) if gap else last in _MAY_BE_LINE_ENDS:
                return True
        last, behind = token, position + len(token)
    return False


_without_end = re.compile(r"\{\d+,\}")
_may_hold_line_ends = re.compile(r"\^|\[:|\\(?![dw.-])|[\x00-\x1f]")
_MAY_BE_LINE_ENDS = (".", ")", "\n", "\\n", "\\s", "\\S", "\\W", "\\D", "\\x", "\\p", "\\P", "}")


def _next_character(content: Content, position: int) -> int:
    position += 1
    while position < len(content) and content[position] & 0xC0 == 0x80:
        position += 1
    return position


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
        elif (
            token == ","
            and start == index
            and '"' in pattern
            and (before in _VALUE_ENDS or before.isdigit())
            and _VALUE_START.match(behind)
        ):
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
