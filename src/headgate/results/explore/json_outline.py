"""The outline of a JSON value: paths with types, counts, sizes and samples, reduced until it fits."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from msgspec import Raw
from msgspec.json import encode as _encoded

from headgate.results.content import character_count, string_prefix
from headgate.results.embedded_json import json_in_string
from headgate.results.json_paths import decode_container_or_none, elements_path, member_path
from headgate.results.token_estimate import estimate_tokens

_KINDS = {ord("{"): "object", ord("["): "array", ord('"'): "string", ord("n"): "null"}
_KINDS |= {ord("t"): "boolean", ord("f"): "boolean"}
# The bytes of elements that are sampled, and the fewest and most elements.
_LOOKED_AT_BYTES = 128 * 1024
_LEAST, _MOST = 50, 300
# The bytes of strings that are searched for JSON; the first string always is.
_OPENED_BYTES = 4 * 1024 * 1024
# An object with more keys may be a map from ids to records.
_RECORD_KEYS = 50
# An object with more keys is a map, whatever its values.
_MOST_KEYS = 1000
# The sample for the token estimate of a branch.
_SAMPLED = 32
# The keys that are compared to detect a map.
_PROBE = 100
_MOST_FIELDS = 200
# Longer keys are only counted: they are too long for a path.
_LONGEST_KEY = 200


class BranchContents(NamedTuple):
    """The elements of the arrays at a branch, or the values of its map."""

    # The sampled values.
    branch: "OutlineBranch"
    # The number of elements of each array, or of values of each map.
    counts: list[int]
    is_map: bool


class OutlineBranch:
    """One path in a JSON value and the values there."""

    def __init__(
        self,
        path: str,
        values: list[Raw],
        *,
        name: str = "",
        weight: float = 1.0,
        among: int = 0,
        element_path: str | None = None,
    ) -> None:
        """Each sampled value stands for `weight` values; `among` objects could have one."""
        self.path = path
        self.values = values
        self.name = name
        self.among = among
        self._weight = weight
        self._element_path = elements_path(path) if element_path is None else element_path

    @cached_property
    def kinds(self) -> str:
        """The types of the values, the most frequent first, null last."""
        counts = Counter(map(json_type, self.values))
        return "|".join(sorted(counts, key=lambda kind: (kind == "null", -counts[kind])))

    @cached_property
    def tokens(self) -> int:
        """An estimate of the tokens of all values at this path."""
        sample = b"".join(self.values[:_SAMPLED])
        return round(estimate_tokens(sample) * self._weight * _bytes(self.values) / max(len(sample), 1))

    @cached_property
    def contents(self) -> BranchContents | None:
        """The elements of the arrays, or the values of the map; None where there is neither."""
        values = [container for container in self._containers if isinstance(container, list)]
        path, name = self._element_path, "[]"
        if not values:
            # With very many keys not even their names are collected.
            if max(map(len, self._objects), default=0) <= _MOST_KEYS and not self._is_map:
                return None
            values = [list(container.values()) for container in self._objects]
            path, name = f"{self.path}.*" if self.path else "*", "*"
        sample = sample_values([value for one in values for value in sample_values(one)])
        counts = list(map(len, values))
        weight = self._weight * sum(counts) / max(len(sample), 1)
        branch = OutlineBranch(path, sample, name=name, weight=weight)
        return BranchContents(branch, counts, is_map=name == "*")

    @cached_property
    def embedded_types(self) -> str:
        """The types of the JSON inside strings; empty where there is none."""
        return "|".join(
            dict.fromkeys(json_type(inner) for inner in self._embedded_values if inner is not None)
        )

    @cached_property
    def _embedded_values(self) -> list[Raw | None]:
        """For each value the JSON inside it, if it is a string."""
        inner: list[Raw | None] = []
        left = _OPENED_BYTES
        for value in self.values:
            left -= len(memoryview(value)) if memoryview(value)[0] == ord('"') else 0
            inner.append(json_in_string(value, only_main=True) if left >= 0 or not inner else None)
        return inner

    @property
    def is_undecodable(self) -> bool:
        """Whether no value can be decoded, because a key is no UTF-8 or all are scalars."""
        return not self._containers

    @property
    def keys(self) -> Iterable[str]:
        return dict.fromkeys(islice(chain.from_iterable(self._objects), _PROBE))

    @cached_property
    def children(self) -> tuple[list["OutlineBranch"], int]:
        """The branches of all fields, also of objects in arrays, and the number of fields without one."""
        inside = self.contents
        fields = {} if inside is not None and inside.is_map else self._fields
        names = [name for name in fields if len(name) <= _LONGEST_KEY][:_MOST_FIELDS]
        among, left_out = len(self._objects), len(fields) - len(names)
        branches = [
            OutlineBranch(
                member_path(self.path, name), fields[name], name=name, weight=self._weight, among=among
            )
            for name in names
        ]
        if inside is not None:
            deeper = inside.branch.children if inside.branch.contents is None else ([inside.branch], 0)
            branches, left_out = branches + deeper[0], left_out + deeper[1]
        return branches, left_out

    @cached_property
    def _containers(self) -> list[dict[str, Raw] | list[Raw]]:
        values = (inner or value for value, inner in zip(self.values, self._embedded_values, strict=True))
        return [container for container in map(decode_container_or_none, values) if container is not None]

    @cached_property
    def _objects(self) -> list[dict[str, Raw]]:
        return [container for container in self._containers if isinstance(container, dict)]

    @cached_property
    def _fields(self) -> dict[str, list[Raw]]:
        fields: dict[str, list[Raw]] = {}
        for members in self._objects:
            for name, value in members.items():
                fields.setdefault(name, []).append(value)
        return fields

    @property
    def _is_map(self) -> bool:
        """Whether the keys are ids and the values are similar."""
        fields, objects = self._fields, self._objects
        if len(fields) <= _RECORD_KEYS:
            return False
        # Records have the same fields; each map has keys of its own.
        if len(objects) > 1 and sum(map(len, objects)) > len(fields) * len(objects) / 2:
            return False
        names = list(fields)[:: max(len(fields) // _PROBE, 1)]
        kinds = {json_type(fields[name][0]) for name in names} - {"null"}
        are_ids = sum(any(map(str.isdigit, name)) for name in names) > len(names) * 0.8
        if len(kinds) != 1:
            return kinds == {"integer", "number"} and are_ids
        if kinds != {"object"}:
            return len(fields) > _MOST_FIELDS or are_ids
        decoded = [decode_container_or_none(fields[name][0]) for name in names]
        values = [members for members in decoded if isinstance(members, dict)]
        # An object has, on average, at least half of all their fields.
        counts = Counter(chain.from_iterable(values))
        return counts.total() * 2 >= len(counts) * len(values) > 0


def json_type(value: Raw) -> str:
    view = memoryview(value)
    kind = _KINDS.get(view[0])
    if kind is not None:
        return kind
    digits = bytes(view[:400])
    return "number" if b"." in digits or b"e" in digits or b"E" in digits else "integer"


class RawValues(Protocol):
    """A sequence of values that may be decoded on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Raw: ...


def sample_values(values: RawValues) -> list[Raw]:
    """All of a few values; of many the first, and more of them spread over the rest."""
    size = len(values)
    if size > _LEAST:
        average = _bytes(values[at] for at in range(_LEAST)) // _LEAST
        size = min(size, max(_LOOKED_AT_BYTES // max(average, 1), _LEAST), _MOST)
    first = size // 5 if size < len(values) else size
    found = [values[at] for at in range(first)]
    # A step is at least one, so that no value is taken twice.
    step = (len(values) - first) / max(size - first, 1)
    return found + [values[first + int(at * step)] for at in range(size - first)]


def _bytes(values: Iterable[Raw]) -> int:
    return sum(len(memoryview(value)) for value in values)


_SAMPLE = 60
# How many values are searched for a sample that is neither null nor empty.
_SAMPLE_FROM = 20
# The size of a smaller value costs more than it says.
_WORTH_SAYING_TOKENS = 10
_WITHOUT_SAMPLE = ("object", "array", "null", "string")


class _OutlineStyle(NamedTuple):
    """How detailed the outline is."""

    depth: int
    # Characters of a sample.
    sample: int
    # Fields of one object.
    width: int


def outline_json(root: OutlineBranch, facts: dict[str, Any], max_depth: int, room: int) -> tuple[bytes, int]:
    """A JSON object of the facts, the root, and every path below it; and its depth.

    Where it does not fit, samples are dropped first, then depth, then fields.
    """
    for style in _styles(max_depth):
        made = _render(root, facts, style, room)
        if made is not None:
            return made, style.depth
    least = _encoded({"type": root.kinds, "tokens": root.tokens})
    return least if character_count(least) <= room else b"{}", 0


def _styles(max_depth: int) -> Iterator[_OutlineStyle]:
    for depth in range(max_depth, 0, -1):
        for sample in (_SAMPLE, _SAMPLE // 3, 0):
            yield _OutlineStyle(depth, sample, 1_000)
    for width in (150, 100, 70, 50, 30, 20, 10, 5, 2):
        yield _OutlineStyle(1, _SAMPLE // 3, width)
        yield _OutlineStyle(1, 0, width)
    yield _OutlineStyle(0, 0, 0)


def _render(root: OutlineBranch, facts: dict[str, Any], style: _OutlineStyle, room: int) -> bytes | None:
    """The outline in that style, or None as soon as it exceeds the room."""
    # Again at the end, because JSON Lines have more facts than their objects.
    described = facts | _branch_facts(root, style, style.depth) | {"tokens": root.tokens} | facts
    head = _encoded(described)
    size = character_count(head)
    entries = []
    for branch, depth in _branches_below(root, style, style.depth):
        entries.append(_encoded(branch.path) + b":" + _encoded(_branch_facts(branch, style, depth)))
        # With the comma; the first is counted with the frame.
        size += character_count(entries[-1]) + (1 if entries[1:] else len(',"paths":{}'))
        if size > room:
            return None
    if size > room:
        return None
    # Flat and by path: nesting would cost more characters, hide the paths, and be harder to truncate.
    return head[:-1] + b',"paths":{' + b",".join(entries) + b"}}" if entries else head


def _branches_below(
    branch: OutlineBranch, style: _OutlineStyle, depth: int
) -> Iterator[tuple[OutlineBranch, int]]:
    if depth == 0:
        return
    for child in branch.children[0][: style.width]:
        yield child, depth - 1
        yield from _branches_below(child, style, depth - 1)


def _branch_facts(branch: OutlineBranch, style: _OutlineStyle, depth: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": branch.kinds}
    if branch.embedded_types:
        facts["holds"] = branch.embedded_types
    if len(branch.values) < branch.among:
        facts["in"] = f"{len(branch.values)} of {branch.among}"
    if branch.contents is not None:
        facts |= _count_facts(branch, branch.contents, style)
    if branch.tokens >= _WORTH_SAYING_TOKENS:
        facts["tokens"] = branch.tokens
    sample = _sample(branch, style.sample)
    if sample is not None:
        facts["sample"] = sample
    branches, left_out = branch.children
    if depth == 0 and branches:
        facts["deeper"] = _names((child.name for child in branches), style.sample) or True
    elif left_out or len(branches) > style.width:
        facts["more_fields"] = left_out + max(len(branches) - style.width, 0)
    return facts


def _count_facts(branch: OutlineBranch, inside: BranchContents, style: _OutlineStyle) -> dict[str, Any]:
    least, most = min(inside.counts), max(inside.counts)
    facts: dict[str, Any] = {"count": f"{least}-{most}" if least < most else most}
    if inside.branch.values:
        facts["of"] = inside.branch.kinds
    if len(inside.branch.values) < sum(inside.counts):
        facts["looked_at"] = len(inside.branch.values)
    if inside.is_map and style.sample:
        facts["keys"] = _names(branch.keys, style.sample)
    return facts


def _names(names: Iterable[str], size: int) -> str:
    """The first names that fit into one short line."""
    line = ""
    for name in names:
        if len(line) + len(name) > size - len(", …"):
            return f"{line}, …" if line else ""
        line = f"{line}, {name}" if line else name
    return line


def _sample(branch: OutlineBranch, size: int) -> Any:
    """A short value of this branch or, where they have no line of their own, of its elements."""
    # The JSON in a string has lines of its own.
    values = [] if branch.embedded_types else branch.values[:_SAMPLE_FROM]
    if branch.contents is not None and branch.contents.branch.contents is None:
        values = values + (
            [] if branch.contents.branch.embedded_types else branch.contents.branch.values[:_SAMPLE_FROM]
        )
    for value in values if size else ():
        kind, view = json_type(value), memoryview(value)
        if kind == "string" and len(view) > len('""'):
            text = string_prefix(value, size)
            return text if len(text) <= size else f"{text[: size - 1]}…"
        if kind not in _WITHOUT_SAMPLE:
            # The number or literal as it is written; the beginning of one with hundreds of digits.
            return value if len(view) <= size else f"{bytes(view[: size - 1]).decode()}…"
    return None
