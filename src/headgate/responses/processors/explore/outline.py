"""An outline of a JSON value as a flat list of paths, cut down until it fits."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.json import encode as _encoded

from headgate.responses.content import characters
from headgate.responses.processors.explore.branches import Branch, kind_of
from headgate.responses.processors.lines import start_of_string

_SAMPLE = 60
# Among so many values a sample is looked for that is neither null nor empty.
_SAMPLE_FROM = 20
# Smaller sizes cost more than they say.
_WORTH_SAYING_TOKENS = 10
_CONTAINERS = ("object", "array", "null")


class _Style(NamedTuple):
    """How much is said."""

    depth: int
    # Characters of a sample.
    sample: int
    # Fields of one object.
    width: int


def outlined(root: Branch, facts: dict[str, Any], max_depth: int, room: int) -> tuple[bytes, int]:
    """A JSON object of the facts, what is at the root, and every path below it; and how deep that goes.

    Where it would not fit, samples are given up first, then depth, then fields.
    """
    for style in _styles(max_depth):
        made = _written(root, facts, style, room)
        if made is not None:
            return made, style.depth
    least = _encoded({"type": root.kinds, "tokens": root.tokens})
    return least if characters(least) <= room else b"{}", 0


def _styles(max_depth: int) -> Iterator[_Style]:
    for depth in range(max_depth, 0, -1):
        for sample in (_SAMPLE, _SAMPLE // 3, 0):
            yield _Style(depth, sample, 1_000)
    for width in (150, 100, 70, 50, 30, 20, 10, 5, 2):
        yield _Style(1, _SAMPLE // 3, width)
        yield _Style(1, 0, width)
    yield _Style(0, 0, 0)


def _written(root: Branch, facts: dict[str, Any], style: _Style, room: int) -> bytes | None:
    """The outline in that style, or None as soon as it is longer than the room."""
    # Once more at the end, because of JSON Lines there is more to say than of their objects.
    described = facts | _described(root, style, style.depth) | {"tokens": root.tokens} | facts
    head = _encoded(described)
    size = characters(head)
    entries = []
    for branch, depth in _shown(root, style, style.depth):
        entries.append(_encoded(branch.path) + b":" + _encoded(_described(branch, style, depth)))
        # And the comma; the first comes with what stands around all.
        size += characters(entries[-1]) + (1 if entries[1:] else len(',"paths":{}'))
        if size > room:
            return None
    if size > room:
        return None
    # Flat and by path: nested it would cost more signs, hide the paths, and be harder to cut.
    return head[:-1] + b',"paths":{' + b",".join(entries) + b"}}" if entries else head


def _shown(branch: Branch, style: _Style, depth: int) -> Iterator[tuple[Branch, int]]:
    """Everything below a branch, each with how much deeper it goes on."""
    if depth == 0:
        return
    for child in branch.below.branches[: style.width]:
        yield child, depth - 1
        yield from _shown(child, style, depth - 1)


def _described(branch: Branch, style: _Style, depth: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": branch.kinds}
    if branch.holds:
        facts["holds"] = branch.holds
    if len(branch.values) < branch.among:
        facts["in"] = f"{len(branch.values)} of {branch.among}"
    facts |= _counted(branch, style)
    if branch.tokens >= _WORTH_SAYING_TOKENS:
        facts["tokens"] = branch.tokens
    sample = _sample(branch, style.sample)
    if sample is not None:
        facts["sample"] = sample
    branches, left_out = branch.below
    if depth == 0 and branches:
        facts["deeper"] = _names((child.name for child in branches), style.sample) or True
    elif left_out or len(branches) > style.width:
        facts["more_fields"] = left_out + max(len(branches) - style.width, 0)
    return facts


def _counted(branch: Branch, style: _Style) -> dict[str, Any]:
    """How many elements there are, and of which type."""
    inside = branch.inside
    if inside is None:
        return {}
    facts: dict[str, Any] = {"count": inside.most}
    if inside.least < inside.most:
        facts["count"] = f"{inside.least}-{inside.most}"
    if inside.branch.values:
        facts["of"] = inside.branch.kinds
    if len(inside.branch.values) < inside.total:
        facts["looked_at"] = len(inside.branch.values)
    if inside.is_map and style.sample:
        facts["keys"] = _names(branch.keys, style.sample)
    return facts


def _names(names: Iterable[str], size: int) -> str:
    """The first names, as many as fit into one short line."""
    line = ""
    for name in names:
        if len(line) + len(name) > size - len(", …"):
            return f"{line}, …" if line else ""
        line = f"{line}, {name}" if line else name
    return line


def _sample(branch: Branch, size: int) -> Any:
    """One short value from here or, where they have no line of their own, from the elements here."""
    # The JSON in a string has lines of its own.
    values = [] if branch.holds else branch.values[:_SAMPLE_FROM]
    if branch.inside is not None and branch.inside.branch.inside is None:
        values = values + ([] if branch.inside.branch.holds else branch.inside.branch.values[:_SAMPLE_FROM])
    for value in values if size else ():
        kind = kind_of(value)
        if kind not in _CONTAINERS and len(memoryview(value)) > len('""') * (kind == "string"):
            return _short_string(value, size) if kind == "string" else _short_number(value, size)
    return None


def _short_string(value: Raw, size: int) -> str:
    text = start_of_string(value, size)
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _short_number(value: Raw, size: int) -> Raw | str:
    """The number, or the word, as it is written; one of hundreds of digits only begins."""
    view = memoryview(value)
    return value if len(view) <= size else f"{bytes(view[: size - 1]).decode()}…"
