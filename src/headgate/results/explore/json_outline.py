"""The outline of a JSON value: paths with types, counts, sizes and samples, reduced until it fits."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from msgspec import DecodeError, Raw
from msgspec.json import encode as _encoded

from headgate.results.content import character_count, string_prefix
from headgate.results.embedded_json import json_in_string
from headgate.results.json_paths import decode_container, elements_path, member_path
from headgate.results.pipeline import ProcessingError
from headgate.results.token_estimate import estimate_tokens

_KINDS = {ord("{"): "object", ord("["): "array", ord('"'): "string", ord("n"): "null"}
_KINDS |= {ord("t"): "boolean", ord("f"): "boolean"}
# Of many elements so many bytes are looked at, but not fewer elements than the least nor more than the most.
_LOOKED_AT_BYTES = 128 * 1024
_LEAST, _MOST = 50, 300
# Of strings so many bytes are looked into for JSON, and the first whatever its size.
_OPENED_BYTES = 4 * 1024 * 1024
# An object with more keys than this may be a map from ids to records.
_RECORD_KEYS = 50
# And with more than this it is one, whatever is in it.
# Values by which the tokens of all of them are told.
_SAMPLED = 32
_MOST_KEYS = 1000
# So many of its keys tell whether it is.
_PROBE = 100
_MOST_FIELDS = 200
# Longer keys are counted, not shown: nobody could write them into a path.
_LONGEST_KEY = 200


class BranchContents(NamedTuple):
    """What is in the arrays of a branch, or in its map."""

    # The values, as far as they are looked at.
    branch: "OutlineBranch"
    total: int
    # How many the smallest and the largest of the arrays has.
    least: int
    most: int
    is_map: bool


class ChildBranches(NamedTuple):
    """The branches that begin at a branch."""

    branches: list["OutlineBranch"]
    # Fields that are not among them.
    left_out: int


class OutlineBranch:
    """One place in a JSON value and the values there."""

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
        """Each of the values stands for `weight` of them; `among` is how many objects could have had one."""
        self.path = path
        self.values = values
        self.name = name
        self.among = among
        self._weight = weight
        self._element_path = elements_path(path) if element_path is None else element_path

    @cached_property
    def kinds(self) -> str:
        """Their types, the commonest first, null last."""
        counts = Counter(map(json_type, self.values))
        ordered = sorted(counts, key=lambda kind: (kind == "null", -counts[kind]))
        return "|".join(ordered)

    @cached_property
    def tokens(self) -> int:
        """About how many tokens all the values here have."""
        sample = b"".join(self.values[:_SAMPLED])
        return round(estimate_tokens(sample) * self._weight * _bytes(self.values) / max(len(sample), 1))

    @cached_property
    def contents(self) -> BranchContents | None:
        """The elements of the arrays here, or the values of the map here; None where there is neither."""
        arrays = [held for held in self._containers if isinstance(held, list)]
        if arrays:
            looked_at = sample_values([value for array in arrays for value in sample_values(array)])
            return self._contents_of(looked_at, list(map(len, arrays)), self._element_path, "[]")
        # Of very many keys not even the names are gathered.
        if max(map(len, self._objects), default=0) > _MOST_KEYS or _is_map(self._objects, self._fields):
            path = f"{self.path}.*" if self.path else "*"
            looked_at = sample_values(
                [value for held in self._objects for value in sample_values(list(held.values()))]
            )
            return self._contents_of(looked_at, list(map(len, self._objects)), path, "*")
        return None

    def _contents_of(self, looked_at: list[Raw], counts: list[int], path: str, name: str) -> BranchContents:
        total = sum(counts)
        weight = self._weight * total / max(len(looked_at), 1)
        branch = OutlineBranch(path, looked_at, name=name, weight=weight)
        return BranchContents(branch, total, min(counts), max(counts), is_map=name == "*")

    @cached_property
    def embedded_types(self) -> str:
        """The types of the JSON values that strings here hold; empty where they hold none."""
        return "|".join(
            dict.fromkeys(json_type(inner) for inner in self._embedded_values if inner is not None)
        )

    @cached_property
    def _embedded_values(self) -> list[Raw | None]:
        """For each value the JSON that it holds as a string."""
        inner: list[Raw | None] = []
        left = _OPENED_BYTES
        for value in self.values:
            left -= len(memoryview(value)) if memoryview(value)[0] == ord('"') else 0
            inner.append(json_in_string(value, only_main=True) if left >= 0 or not inner else None)
        return inner

    @property
    def is_undecodable(self) -> bool:
        """Whether none of the values can be opened, because a key is no UTF-8 or there are no members."""
        return not self._containers

    @property
    def keys(self) -> Iterable[str]:
        """The first keys of the objects here."""
        return dict.fromkeys(islice(chain.from_iterable(self._objects), _PROBE))

    @cached_property
    def children(self) -> ChildBranches:
        """The fields of the objects here and of those in the arrays here; arrays in arrays are one branch."""
        inside = self.contents
        fields = ChildBranches([], 0) if inside is not None and inside.is_map else self._named()
        if inside is None:
            return fields
        deeper = (
            inside.branch.children if inside.branch.contents is None else ChildBranches([inside.branch], 0)
        )
        return ChildBranches(fields.branches + deeper.branches, fields.left_out + deeper.left_out)

    def _named(self) -> ChildBranches:
        names = [name for name in self._fields if len(name) <= _LONGEST_KEY][:_MOST_FIELDS]
        among = len(self._objects)
        branches = [
            OutlineBranch(
                member_path(self.path, name), self._fields[name], name=name, weight=self._weight, among=among
            )
            for name in names
        ]
        return ChildBranches(branches, len(self._fields) - len(names))

    @cached_property
    def _containers(self) -> list[dict[str, Raw] | list[Raw]]:
        values = (inner or value for value, inner in zip(self.values, self._embedded_values, strict=True))
        return [held for held in map(_decode_container, values) if held is not None]

    @cached_property
    def _objects(self) -> list[dict[str, Raw]]:
        return [held for held in self._containers if isinstance(held, dict)]

    @cached_property
    def _fields(self) -> dict[str, list[Raw]]:
        fields: dict[str, list[Raw]] = {}
        for members in self._objects:
            for name, value in members.items():
                fields.setdefault(name, []).append(value)
        return fields


def json_type(value: Raw) -> str:
    """The type of a value, in the words of JSON Schema."""
    view = memoryview(value)
    kind = _KINDS.get(view[0])
    if kind is not None:
        return kind
    digits = bytes(view[:400])
    return "number" if b"." in digits or b"e" in digits or b"E" in digits else "integer"


class RawValues(Protocol):
    """Values, as many as there may be."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int, /) -> Raw:
        """One of them."""


def sample_values(values: RawValues) -> list[Raw]:
    """All of a few values; of many the first, and more of them from everywhere."""
    size = len(values)
    if size > _LEAST:
        average = _bytes(values[at] for at in range(_LEAST)) // _LEAST
        size = min(size, max(_LOOKED_AT_BYTES // max(average, 1), _LEAST), _MOST)
    first = size // 5 if size < len(values) else size
    found = [values[at] for at in range(first)]
    # None of them twice: a step is never shorter than one.
    step = (len(values) - first) / max(size - first, 1)
    return found + [values[first + int(at * step)] for at in range(size - first)]


def _bytes(values: Iterable[Raw]) -> int:
    return sum(len(memoryview(value)) for value in values)


def _decode_container(value: Raw) -> dict[str, Raw] | list[Raw] | None:
    try:
        return decode_container(value)
    except (ProcessingError, DecodeError, RecursionError):
        # A key is no UTF-8: what is in there has no path.
        return None


def _is_map(objects: list[dict[str, Raw]], fields: dict[str, list[Raw]]) -> bool:
    """Whether the keys are ids, and the values all of one sort."""
    if len(fields) <= _RECORD_KEYS:
        return False
    # Records have the same fields; each map has keys of its own.
    if len(objects) > 1 and sum(map(len, objects)) > len(fields) * len(objects) / 2:
        return False
    names = list(fields)[:: max(len(fields) // _PROBE, 1)]
    kinds = {json_type(fields[name][0]) for name in names} - {"null"}
    if len(kinds) != 1:
        return kinds == {"integer", "number"} and _are_ids(names)
    if kinds == {"object"}:
        opened_ones = (_decode_container(fields[name][0]) for name in names)
        return _are_alike([held for held in opened_ones if isinstance(held, dict)])
    return len(fields) > _MOST_FIELDS or _are_ids(names)


def _are_ids(names: list[str]) -> bool:
    return sum(any(sign.isdigit() for sign in name) for name in names) > len(names) * 0.8


def _are_alike(objects: Sequence[Iterable[str]]) -> bool:
    """Whether an object has, on average, half of the fields that all of them have together."""
    counts = Counter(name for names in objects for name in names)
    return sum(counts.values()) * 2 >= len(counts) * len(objects) > 0


_SAMPLE = 60
# Among so many values a sample is looked for that is neither null nor empty.
_SAMPLE_FROM = 20
# Smaller sizes cost more than they say.
_WORTH_SAYING_TOKENS = 10
_CONTAINERS = ("object", "array", "null")


class _OutlineStyle(NamedTuple):
    """How much is said."""

    depth: int
    # Characters of a sample.
    sample: int
    # Fields of one object.
    width: int


def outline_json(root: OutlineBranch, facts: dict[str, Any], max_depth: int, room: int) -> tuple[bytes, int]:
    """A JSON object of the facts, what is at the root, and every path below it; and how deep that goes.

    Where it would not fit, samples are given up first, then depth, then fields.
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
    """The outline in that style, or None as soon as it is longer than the room."""
    # Once more at the end, because of JSON Lines there is more to say than of their objects.
    described = facts | _branch_facts(root, style, style.depth) | {"tokens": root.tokens} | facts
    head = _encoded(described)
    size = character_count(head)
    entries = []
    for branch, depth in _branches_below(root, style, style.depth):
        entries.append(_encoded(branch.path) + b":" + _encoded(_branch_facts(branch, style, depth)))
        # And the comma; the first comes with what stands around all.
        size += character_count(entries[-1]) + (1 if entries[1:] else len(',"paths":{}'))
        if size > room:
            return None
    if size > room:
        return None
    # Flat and by path: nested it would cost more signs, hide the paths, and be harder to cut.
    return head[:-1] + b',"paths":{' + b",".join(entries) + b"}}" if entries else head


def _branches_below(
    branch: OutlineBranch, style: _OutlineStyle, depth: int
) -> Iterator[tuple[OutlineBranch, int]]:
    """Everything below a branch, each with how much deeper it goes on."""
    if depth == 0:
        return
    for child in branch.children.branches[: style.width]:
        yield child, depth - 1
        yield from _branches_below(child, style, depth - 1)


def _branch_facts(branch: OutlineBranch, style: _OutlineStyle, depth: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": branch.kinds}
    if branch.embedded_types:
        facts["holds"] = branch.embedded_types
    if len(branch.values) < branch.among:
        facts["in"] = f"{len(branch.values)} of {branch.among}"
    facts |= _count_facts(branch, style)
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


def _count_facts(branch: OutlineBranch, style: _OutlineStyle) -> dict[str, Any]:
    """How many elements there are, and of which type."""
    inside = branch.contents
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


def _sample(branch: OutlineBranch, size: int) -> Any:
    """One short value from here or, where they have no line of their own, from the elements here."""
    # The JSON in a string has lines of its own.
    values = [] if branch.embedded_types else branch.values[:_SAMPLE_FROM]
    if branch.contents is not None and branch.contents.branch.contents is None:
        values = values + (
            [] if branch.contents.branch.embedded_types else branch.contents.branch.values[:_SAMPLE_FROM]
        )
    for value in values if size else ():
        kind = json_type(value)
        if kind not in _CONTAINERS and len(memoryview(value)) > len('""') * (kind == "string"):
            return _short_string(value, size) if kind == "string" else _short_number(value, size)
    return None


def _short_string(value: Raw, size: int) -> str:
    text = string_prefix(value, size)
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _short_number(value: Raw, size: int) -> Raw | str:
    """The number, or the word, as it is written; one of hundreds of digits only begins."""
    view = memoryview(value)
    return value if len(view) <= size else f"{bytes(view[: size - 1]).decode()}…"
