"""Places in a JSON value, each with what the values there look like; opened only as far as somebody looks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple, Protocol

from msgspec import DecodeError, Raw

from headgate.responses.embedded import json_in_string
from headgate.responses.paths import below, each, opened
from headgate.responses.processing import Refused
from headgate.responses.tokens import tokens_of

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


class Inside(NamedTuple):
    """What is in the arrays of a branch, or in its map."""

    # The values, as far as they are looked at.
    branch: "Branch"
    total: int
    # How many the smallest and the largest of the arrays has.
    least: int
    most: int
    is_map: bool


class Below(NamedTuple):
    """The branches that begin at a branch."""

    branches: list["Branch"]
    # Fields that are not among them.
    left_out: int


class Branch:
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
        self._element_path = each(path) if element_path is None else element_path

    @cached_property
    def kinds(self) -> str:
        """Their types, the commonest first, null last."""
        counts = Counter(map(kind_of, self.values))
        ordered = sorted(counts, key=lambda kind: (kind == "null", -counts[kind]))
        return "|".join(ordered)

    @cached_property
    def tokens(self) -> int:
        """About how many tokens all the values here have."""
        sample = b"".join(self.values[:_SAMPLED])
        return round(tokens_of(sample) * self._weight * _bytes(self.values) / max(len(sample), 1))

    @cached_property
    def inside(self) -> Inside | None:
        """The elements of the arrays here, or the values of the map here; None where there is neither."""
        arrays = [held for held in self._held if isinstance(held, list)]
        if arrays:
            looked_at = spread([value for array in arrays for value in spread(array)])
            return self._inside(looked_at, list(map(len, arrays)), self._element_path, "[]")
        # Of very many keys not even the names are gathered.
        if max(map(len, self._objects), default=0) > _MOST_KEYS or _is_map(self._objects, self._fields):
            path = f"{self.path}.*" if self.path else "*"
            looked_at = spread([value for held in self._objects for value in spread(list(held.values()))])
            return self._inside(looked_at, list(map(len, self._objects)), path, "*")
        return None

    def _inside(self, looked_at: list[Raw], counts: list[int], path: str, name: str) -> Inside:
        total = sum(counts)
        weight = self._weight * total / max(len(looked_at), 1)
        branch = Branch(path, looked_at, name=name, weight=weight)
        return Inside(branch, total, min(counts), max(counts), is_map=name == "*")

    @cached_property
    def holds(self) -> str:
        """The types of the JSON values that strings here hold; empty where they hold none."""
        return "|".join(dict.fromkeys(kind_of(inner) for inner in self._inner if inner is not None))

    @cached_property
    def _inner(self) -> list[Raw | None]:
        """For each value the JSON that it holds as a string."""
        inner: list[Raw | None] = []
        left = _OPENED_BYTES
        for value in self.values:
            left -= len(memoryview(value)) if memoryview(value)[0] == ord('"') else 0
            inner.append(json_in_string(value, only_main=True) if left >= 0 or not inner else None)
        return inner

    @property
    def is_closed(self) -> bool:
        """Whether none of the values can be opened, because a key is no UTF-8 or there are no members."""
        return not self._held

    @property
    def keys(self) -> Iterable[str]:
        """The first keys of the objects here."""
        return dict.fromkeys(islice(chain.from_iterable(self._objects), _PROBE))

    @cached_property
    def below(self) -> Below:
        """The fields of the objects here and of those in the arrays here; arrays in arrays are one branch."""
        inside = self.inside
        fields = Below([], 0) if inside is not None and inside.is_map else self._named()
        if inside is None:
            return fields
        deeper = inside.branch.below if inside.branch.inside is None else Below([inside.branch], 0)
        return Below(fields.branches + deeper.branches, fields.left_out + deeper.left_out)

    def _named(self) -> Below:
        names = [name for name in self._fields if len(name) <= _LONGEST_KEY][:_MOST_FIELDS]
        among = len(self._objects)
        branches = [
            Branch(below(self.path, name), self._fields[name], name=name, weight=self._weight, among=among)
            for name in names
        ]
        return Below(branches, len(self._fields) - len(names))

    @cached_property
    def _held(self) -> list[dict[str, Raw] | list[Raw]]:
        values = (inner or value for value, inner in zip(self.values, self._inner, strict=True))
        return [held for held in map(_opened, values) if held is not None]

    @cached_property
    def _objects(self) -> list[dict[str, Raw]]:
        return [held for held in self._held if isinstance(held, dict)]

    @cached_property
    def _fields(self) -> dict[str, list[Raw]]:
        fields: dict[str, list[Raw]] = {}
        for members in self._objects:
            for name, value in members.items():
                fields.setdefault(name, []).append(value)
        return fields


def kind_of(value: Raw) -> str:
    """The type of a value, in the words of JSON Schema."""
    view = memoryview(value)
    kind = _KINDS.get(view[0])
    if kind is not None:
        return kind
    digits = bytes(view[:400])
    return "number" if b"." in digits or b"e" in digits or b"E" in digits else "integer"


class Many(Protocol):
    """Values, as many as there may be."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int, /) -> Raw:
        """One of them."""


def spread(values: Many) -> list[Raw]:
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


def _opened(value: Raw) -> dict[str, Raw] | list[Raw] | None:
    try:
        return opened(value)
    except (Refused, DecodeError, RecursionError):
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
    kinds = {kind_of(fields[name][0]) for name in names} - {"null"}
    if len(kinds) != 1:
        return kinds == {"integer", "number"} and _are_ids(names)
    if kinds == {"object"}:
        opened_ones = (_opened(fields[name][0]) for name in names)
        return _are_alike([held for held in opened_ones if isinstance(held, dict)])
    return len(fields) > _MOST_FIELDS or _are_ids(names)


def _are_ids(names: list[str]) -> bool:
    return sum(any(sign.isdigit() for sign in name) for name in names) > len(names) * 0.8


def _are_alike(objects: Sequence[Iterable[str]]) -> bool:
    """Whether an object has, on average, half of the fields that all of them have together."""
    counts = Counter(name for names in objects for name in names)
    return sum(counts.values()) * 2 >= len(counts) * len(objects) > 0
