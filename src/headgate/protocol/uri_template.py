"""URI templates (RFC 6570) read backwards: whether a URI may have been made from one, in linear time.

Every position in the URI is one bit of a number. Each part of a template turns the positions that the parts
before it may have led to into those that it may lead to, all at once, so nothing is ever tried twice.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from urllib.parse import quote

# Longer templates are not used for routing.
LONGEST_TEMPLATE = 2 * 1024
LONGEST_URI = 8 * 1024
# With more variables in one expression, it matches any text.
_MOST_VARIABLES = 8

# RFC 6570 allows no hyphens in names, but they are used.
_VARIABLE = r"[A-Za-z0-9_.%\-]+(?::[0-9]{1,4}|\*)?"
_EXPRESSION = re.compile(rf"([+#./;?&]?)({_VARIABLE}(?:,{_VARIABLE})*)")
_PARTS = re.compile(r"\{([^{}]*)\}")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
# Characters that stay unescaped in the text between expressions.
_KEPT = "%:/?#[]@!$&'()*+,;=~"

# Translates each byte to the digit 1 if it is in a set, and to 0 otherwise.
_Table = bytes


class _UriSubject:
    """A URI, and the positions of its characters."""

    def __init__(self, uri: str) -> None:
        self._backwards = uri.encode("ascii")[::-1]
        self._places: dict[_Table, int] = {}
        self.end = 1 << len(uri)

    def places(self, table: _Table) -> int:
        known = self._places.get(table)
        if known is None:
            known = self._places[table] = int(self._backwards.translate(table) or b"0", 2)
        return known


# Maps the reached positions to those reached next.
_Step = Callable[[_UriSubject, int], int]


class UriTemplate:
    """One template; `fixed` is the number of its characters that are in every matching URI."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if it is no template, or too long."""
        if len(text) > LONGEST_TEMPLATE:
            raise ValueError("the template is too long")
        # Texts and expressions alternate; a text is first and last.
        parts = _PARTS.split(text)
        texts = [_escaped(part) for part in parts[::2]]
        if any("{" in part or "}" in part for part in parts[::2]):
            raise ValueError("a brace of the template has no counterpart")
        self.fixed = sum(map(len, texts))
        self._start = texts[0]
        self._steps: list[_Step] = []
        for fixed, expression in zip(texts, [*parts[1::2], None], strict=True):
            self._steps.append(_text(fixed))
            if expression is not None:
                self._steps.append(_expression(expression))

    def matches(self, uri: str) -> bool:
        """Whether some values expand to this URI; lenient with characters that should be escaped."""
        if len(uri) > LONGEST_URI:
            return False
        uri = _escaped(uri)
        if not uri.startswith(self._start):
            return False
        subject = _UriSubject(uri)
        reached = 1
        for step in self._steps:
            reached = step(subject, reached)
            if not reached:
                return False
        return bool(reached & subject.end)


def _escaped(text: str) -> str:
    """The text as in a URI, in one spelling."""
    return _ESCAPE.sub(lambda escape: escape[0].upper(), quote(text, safe=_KEPT, errors="replace"))


@cache
def _only(character: str) -> _Table:
    return bytes(ord("1") if byte == ord(character) else ord("0") for byte in range(256))


@cache
def _all_but(characters: str) -> _Table:
    return bytes(ord("0") if chr(byte) in characters else ord("1") for byte in range(256))


def _text(fixed: str) -> _Step:
    """Exactly this text."""
    tables = [_only(character) for character in fixed]

    def step(subject: _UriSubject, reached: int) -> int:
        for table in tables:
            reached = (reached & subject.places(table)) << 1
            if not reached:
                break
        return reached

    return step


def _run(table: _Table) -> _Step:
    """Any number of these characters."""

    def step(subject: _UriSubject, reached: int) -> int:
        places = subject.places(table)
        # The addition carries each reached position through its run of allowed positions.
        return (((reached & places) + places) ^ places) | reached

    return step


def _sequence(*steps: _Step) -> _Step:
    def step(subject: _UriSubject, reached: int) -> int:
        for one in steps:
            reached = one(subject, reached)
        return reached

    return step


def _maybe(inner: _Step) -> _Step:
    """It, or nothing: a variable without a value expands to nothing."""

    def step(subject: _UriSubject, reached: int) -> int:
        return reached | inner(subject, reached)

    return step


def _expression(text: str) -> _Step:
    found = _EXPRESSION.fullmatch(text)
    if found is None:
        raise ValueError(f"the template has an expression that means nothing: {text[:50]!r}")
    operator = found[1]
    variables = found[2].split(",")
    names = [variable.rstrip("*").partition(":")[0] for variable in variables]
    loose = len(names) > _MOST_VARIABLES or any(variable.endswith("*") for variable in variables)
    if operator == "":
        # Some servers write `{path*}` for a path of several segments.
        return _run(_all_but("?#" if loose else "/?#"))
    if operator == "+":
        return _run(_all_but(""))
    if operator == "#":
        return _maybe(_sequence(_text("#"), _run(_all_but(""))))
    if operator == "/" and loose:
        return _maybe(_sequence(_text("/"), _run(_all_but("?#"))))
    if operator == "/":
        return _sequence(*[_maybe(_sequence(_text("/"), _run(_all_but("/?#"))))] * len(names))
    if operator in ".;":
        return _maybe(_sequence(_text(operator), _run(_all_but("/?#"))))
    return _maybe(_sequence(_text(operator), _run(_all_but("#")) if loose else _pairs(names)))


def _pairs(names: Sequence[str]) -> _Step:
    """`name=value`, in any order, as often as there are names."""
    value = _maybe(_sequence(_text("="), _run(_all_but("&#"))))
    pairs = [_sequence(_text(_escaped(name)), value) for name in names]
    parted = _text("&")

    def step(subject: _UriSubject, reached: int) -> int:
        ended = 0
        for _ in pairs:
            here = 0
            for pair in pairs:
                here |= pair(subject, reached)
            ended |= here
            reached = parted(subject, here)
            if not reached:
                break
        return ended

    return step
