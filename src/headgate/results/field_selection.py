"""Which field paths pass through a JSON value, and decoding of only the members that they name."""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple, Self, TypedDict

import msgspec
from msgspec import Raw, ValidationError

from headgate.results.embedded_json import json_in_string
from headgate.results.json_paths import WILDCARD, JsonPath, array_index, is_scalar

# Values are joined to be opened at once, unless that would copy much of a large content.
_MOST_JOINED_BYTES = 4 * 1024 * 1024
# mypy wants to see the keys of a TypedDict, but these come with the parameters.
_typed_dict: Any = TypedDict


class FieldSelection:
    """The paths that pass through one value, or end there."""

    def __init__(self, rests: Sequence[tuple[str, JsonPath]]) -> None:
        self._rests = rests
        self.fields = frozenset(field for field, _ in rests)
        # Whether the value itself is meant, with all that is in it.
        self.ends = any(not rest for _, rest in rests)
        heads = {rest[0] for _, rest in rests if rest}
        self.every = WILDCARD in heads
        self.names = frozenset(str(step) for step in heads if step is not WILDCARD)
        # Those that an index may mean in an array.
        self.indexes = {index for step in heads if (index := array_index(step)) is not None}
        self._members: dict[str | None, FieldSelection | None] = {}
        self._elements: dict[tuple[int, ...], FieldSelection | None] = {}

    @classmethod
    def of(cls, rests: Iterable[tuple[str, JsonPath]]) -> Self | None:
        """The fields and their paths as a selection, or None when there are none."""
        found = tuple(rests)
        return cls(found) if found else None

    def member(self, name: str | None) -> "FieldSelection | None":
        """What is left at a member of an object: one of `names`, or None for any other."""
        if name not in self._members:
            self._members[name] = FieldSelection.of(
                (field, rest[1:])
                for field, rest in self._rests
                if rest and (rest[0] is WILDCARD or str(rest[0]) == name)
            )
        return self._members[name]

    def element(self, indexes: tuple[int, ...] = ()) -> "FieldSelection | None":
        """What is left at the element of an array that these indexes mean, or at any other."""
        if indexes not in self._elements:
            self._elements[indexes] = FieldSelection.of(self._further(indexes))
        return self._elements[indexes]

    def _further(self, indexes: tuple[int, ...]) -> Iterator[tuple[str, JsonPath]]:
        for field, rest in self._rests:
            if rest and (rest[0] is WILDCARD or array_index(rest[0]) in indexes):
                yield field, rest[1:]
            elif rest and array_index(rest[0]) is None:
                # A name walks through arrays by itself.
                yield field, rest

    def indexed(self, count: int) -> "dict[int, FieldSelection | None]":
        """What is left at the elements, out of so many, that an index means."""
        meant: dict[int, tuple[int, ...]] = {}
        for index in self.indexes:
            if -count <= index < count:
                meant[index % count] = (*meant.get(index % count, ()), index)
        return {position: self.element(indexes) for position, indexes in meant.items()}

    def matches_none(self, held: dict[str, Raw]) -> bool:
        """Whether no member of the object is named."""
        return not self.every and self.names.isdisjoint(held)

    @cached_property
    def decoder(self) -> "ContainerDecoder":
        """Opens objects, at least as far as members are named, and arrays."""
        if self.every:
            return ContainerDecoder(dict[str, Raw])
        if not all(map(str.isascii, self.names)):
            # Of names beyond ASCII msgspec finds none in a TypedDict.
            return ContainerDecoder(dict[str, Raw], self.names)
        # msgspec passes over the members that a TypedDict does not name, and keeps the order of the others.
        return ContainerDecoder(_typed_dict("Named", dict.fromkeys(self.names, Raw), total=False))


class ContainerDecoder:
    """Opens many values at a time."""

    def __init__(self, members: Any, names: Set[str] | None = None) -> None:
        """With `names`, members that are called otherwise are passed over."""
        self._names = names
        self._one: msgspec.json.Decoder[dict[str, Raw] | list[Raw]] = msgspec.json.Decoder(
            members | list[Raw]
        )
        self._many = msgspec.json.Decoder(list[members | list[Raw] | None])

    def decode_all(self, values: list[Raw], *, may_be_large: bool) -> list[dict[str, Raw] | list[Raw] | None]:
        """The members or elements of each value, or None if it has neither."""
        held = self._decode_batch(values, may_be_large=may_be_large)
        return held if self._names is None else [_named(one, self._names) for one in held]

    def _decode_batch(
        self, values: list[Raw], *, may_be_large: bool
    ) -> list[dict[str, Raw] | list[Raw] | None]:
        if len(values) > 1 and not (may_be_large and _are_large(values)):
            try:
                return self._many.decode(b"[%b]" % b",".join(values))
            except ValidationError:
                # A number or a text is among them.
                pass
        return [self._decode_one(value) for value in values]

    def _decode_one(self, value: Raw) -> dict[str, Raw] | list[Raw] | None:
        if is_scalar(value):
            inner = json_in_string(value)
            return None if inner is None else self._one.decode(inner)
        return self._one.decode(value)


def _named(held: dict[str, Raw] | list[Raw] | None, names: Set[str]) -> dict[str, Raw] | list[Raw] | None:
    return {name: held[name] for name in held if name in names} if isinstance(held, dict) else held


def _are_large(values: list[Raw]) -> bool:
    return sum(memoryview(value).nbytes for value in values) > _MOST_JOINED_BYTES


class ElementSelection(NamedTuple):
    """What is kept and what is left out of the elements of one array."""

    # None where all of an element is kept, or nothing left out of it.
    keep: FieldSelection | None
    drop: FieldSelection | None
    # At the elements that an index means.
    keep_at: dict[int, FieldSelection | None]
    drop_at: dict[int, FieldSelection | None]
    # Where the elements are of which anything can be left.
    positions: Sequence[int]

    @classmethod
    def of(cls, keep: FieldSelection | None, drop: FieldSelection | None, count: int) -> Self:
        """What is left of the selections at the elements of an array of that length."""
        every, at = (keep.element(), keep.indexed(count)) if keep else (None, {})
        without, without_at = (drop.element(), drop.indexed(count)) if drop else (None, {})
        positions = sorted(at) if keep and not every else range(count)
        return cls(every, without, at, without_at, positions)

    def are_alike(self, positions: Sequence[int]) -> bool:
        """Whether no index means one of these elements."""
        meant = self.keep_at.keys() | self.drop_at.keys()
        return not meant or meant.isdisjoint(positions)

    def at(self, position: int) -> tuple[FieldSelection | None, FieldSelection | None]:
        """What is kept and what is left out of one element."""
        return self.keep_at.get(position, self.keep), self.drop_at.get(position, self.drop)
