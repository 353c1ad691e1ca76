"""Keeps or drops named fields of JSON and columns of CSV; copies what it keeps byte for byte."""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from itertools import islice
from typing import Any, Self, TypedDict

import msgspec
from msgspec import UNSET, DecodeError, Raw, UnsetType, ValidationError

from headgate.results.content import Content, first_byte
from headgate.results.delimited_text import detect_delimited, project_columns
from headgate.results.embedded_json import json_in_string
from headgate.results.jobs import ProjectionMode, ProjectionParams
from headgate.results.json_paths import (
    WILDCARD,
    JsonPath,
    array_index,
    decode_container,
    is_scalar,
    nearest_paths,
    nesting_error,
    parse_path,
    undecodable_key_error,
)
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed, unchanged

_MOST_FIELDS = 1_000
# How many elements are decoded to Python objects at once.
_BATCH = 512
# From this size on, no batch is copied before it is measured.
_LARGE_BYTES = 32 * 1024 * 1024
# How many unknown fields get suggestions.
_MOST_CORRECTED = 5

_TEXT = "the content is neither JSON nor CSV with a header line: proxy_search finds lines"

_encoder = msgspec.json.Encoder()
_documents = msgspec.json.Decoder(Raw)

# What remains of a value: itself, a part, None for none of the kept fields, UNSET where it is dropped.
_Kept = Raw | dict[str, Any] | list[Any] | UnsetType | None


class ProjectionProcessor:
    """Keeps or drops fields; an element without any of the kept ones stays in its array as {}."""

    name = "projection"

    def process(self, content: Content, params: ProjectionParams) -> ProcessorResult:
        """JSON with fewer fields, CSV with fewer columns; other text unchanged. Raises ProcessingError."""
        fields, exclude = _parse_fields(params)
        metadata: dict[str, Any] = {"mode": "include" if fields else "exclude"}
        metadata["fields"] = list(fields or exclude)
        if fields and exclude:
            metadata["exclude"] = list(exclude)
        try:
            return _project(content, fields, exclude, metadata)
        except RecursionError:
            raise nesting_error() from None
        except UnicodeDecodeError:
            raise undecodable_key_error() from None


def _parse_fields(params: ProjectionParams) -> tuple[dict[str, JsonPath], dict[str, JsonPath]]:
    if len(params.fields) + len(params.exclude) > _MOST_FIELDS:
        raise ProcessingError(
            f"'fields' and 'exclude' name more than {_MOST_FIELDS} fields: name their parents."
        )
    fields = {field: parse_path(field) for field in params.fields}
    exclude = {field: parse_path(field) for field in params.exclude}
    if params.mode is ProjectionMode.EXCLUDE:
        fields, exclude = {}, fields | exclude
    if not fields and not exclude:
        raise ProcessingError("Neither 'fields' nor 'exclude' names a field: name at least one.")
    if () in exclude.values():
        raise ProcessingError(
            "The whole content is excluded, so that nothing would be left: name fields in it."
        )
    return fields, exclude


def _project(
    content: Content, fields: dict[str, JsonPath], exclude: dict[str, JsonPath], metadata: dict[str, Any]
) -> ProcessorResult:
    keep = None if () in fields.values() else FieldSelection.of(fields.items())
    drop = FieldSelection.of(exclude.items())
    work, values, made = _ProjectionRun(len(content)), list[Raw](), None
    if first_byte(content) in (b"{", b"["):
        values = [Raw(memoryview(content))]
        try:
            made = work.document(values[0], keep, drop)
        except DecodeError:
            values = _lines(content)
            made = work.lines(values, keep, drop) if values else None
    if not values:
        table = detect_delimited(content)
        projected = None if table is None else project_columns(table, fields, exclude)
        if projected is None:
            return unchanged(content, metadata | {"reason": _TEXT})
        return processed(content, projected[0], metadata | projected[1])
    requested = fields or exclude
    missing = [field for field in requested if field not in work.found] if keep or not fields else []
    if missing:
        near = {field: nearest_paths(values, requested[field]) for field in missing[:_MOST_CORRECTED]}
        metadata["fields_not_found"] = missing
        metadata["nearest_fields"] = {field: paths for field, paths in near.items() if paths}
    return unchanged(content, metadata) if made is None else processed(content, made, metadata)


def _lines(content: Content) -> list[Raw]:
    """The objects of JSON Lines; none for any other text."""
    try:
        values: list[Raw] = _documents.decode_lines(content)
    except DecodeError:
        return []
    return values if all(memoryview(value)[0] == ord("{") for value in values) else []


# Values are joined and decoded at once, unless that would copy a large content.
_MOST_JOINED_BYTES = 4 * 1024 * 1024
# mypy requires literal keys of a TypedDict, but these come with the parameters.
_typed_dict: Any = TypedDict


class FieldSelection:
    """The paths that pass through one value, or end there."""

    def __init__(self, rests: Sequence[tuple[str, JsonPath]]) -> None:
        self._rests = rests
        self.fields = frozenset(field for field, _ in rests)
        # Whether a path selects the value itself.
        self.ends = any(not rest for _, rest in rests)
        heads = {rest[0] for _, rest in rests if rest}
        self.every = WILDCARD in heads
        self.names = frozenset(str(step) for step in heads if step is not WILDCARD)
        # Steps that can be an index of an array.
        self.indexes = {index for step in heads if (index := array_index(step)) is not None}
        self._members: dict[str | None, FieldSelection | None] = {}
        self._elements: dict[tuple[int, ...], FieldSelection | None] = {}

    @classmethod
    def of(cls, rests: Iterable[tuple[str, JsonPath]]) -> Self | None:
        """The selection of these fields, or None when there are none."""
        found = tuple(rests)
        return cls(found) if found else None

    def member(self, name: str | None) -> "FieldSelection | None":
        """The selection below a member: one of `names`, or None for any other."""
        if name not in self._members:
            self._members[name] = FieldSelection.of(
                (field, rest[1:])
                for field, rest in self._rests
                if rest and (rest[0] is WILDCARD or str(rest[0]) == name)
            )
        return self._members[name]

    def element(self, indexes: tuple[int, ...] = ()) -> "FieldSelection | None":
        """The selection below the array element with these indexes, or any other element."""
        if indexes not in self._elements:
            # A name steps through arrays.
            self._elements[indexes] = FieldSelection.of(
                (field, rest[1:] if rest[0] is WILDCARD or index is not None else rest)
                for field, rest in self._rests
                if rest and ((index := array_index(rest[0])) is None or index in indexes)
            )
        return self._elements[indexes]

    def element_selections(self, count: int) -> "dict[int, FieldSelection | None]":
        """The selections of the elements of an array of `count` that an index selects."""
        meant: dict[int, tuple[int, ...]] = {}
        for index in self.indexes:
            if -count <= index < count:
                meant[index % count] = (*meant.get(index % count, ()), index)
        return {position: self.element(indexes) for position, indexes in meant.items()}

    def matches_none(self, container: dict[str, Raw]) -> bool:
        """Whether no member of the object is selected."""
        return not self.every and self.names.isdisjoint(container)

    @cached_property
    def decoder(self) -> "ContainerDecoder":
        """Decodes arrays, and objects at least as far as their members are selected."""
        if self.every:
            return ContainerDecoder(dict[str, Raw])
        if not all(map(str.isascii, self.names)):
            # In a TypedDict msgspec finds no member whose name is not ASCII.
            return ContainerDecoder(dict[str, Raw], self.names)
        # msgspec skips members that a TypedDict does not declare, and keeps the order of the others.
        return ContainerDecoder(_typed_dict("Named", dict.fromkeys(self.names, Raw), total=False))


_Container = dict[str, Raw] | list[Raw] | None


class ContainerDecoder:
    """Decodes one level of many values at once."""

    def __init__(self, members: Any, names: Set[str] | None = None) -> None:
        """With `names`, all other members are skipped."""
        self._names = names
        self._one: msgspec.json.Decoder[dict[str, Raw] | list[Raw]] = msgspec.json.Decoder(
            members | list[Raw]
        )
        self._many = msgspec.json.Decoder(list[members | list[Raw] | None])

    def decode_all(self, values: list[Raw], *, may_be_large: bool) -> list[_Container]:
        """The members or elements of each value, or None for a scalar."""
        containers = self._decode_batch(values, may_be_large=may_be_large)
        names = self._names
        if names is None:
            return containers
        return [
            {name: one[name] for name in one if name in names} if isinstance(one, dict) else one
            for one in containers
        ]

    def _decode_batch(self, values: list[Raw], *, may_be_large: bool) -> list[_Container]:
        are_large = may_be_large and sum(map(len, values)) > _MOST_JOINED_BYTES
        if len(values) > 1 and not are_large:
            try:
                return self._many.decode(b"[%b]" % b",".join(values))
            except ValidationError:
                # A scalar is among them.
                pass
        # A string is stepped into where it contains JSON.
        inner = (json_in_string(value) if is_scalar(value) else value for value in values)
        return [None if value is None else self._one.decode(value) for value in inner]


_Selection = FieldSelection | None


_all_members = ContainerDecoder(dict[str, Raw])


class _ProjectionRun:
    """One projection, and the fields that it has found.

    It works level by level on many values at once, because one call of msgspec for all of them costs much
    less than one for each.
    """

    def __init__(self, size_bytes: int) -> None:
        self._is_large = size_bytes > _LARGE_BYTES
        self.found: set[str] = set()
        self._has_dropped = False

    def document(self, value: Raw, keep: _Selection, drop: _Selection) -> bytes | None:
        """What remains of a JSON document; None where it stays whole."""
        left = self._keep([value], keep, drop)[0]
        if left is value or not (keep or self._has_dropped):
            return None
        if left is None:
            return b"[]" if isinstance(decode_container(value), list) else b"{}"
        return _encoder.encode(left)

    def lines(self, values: list[Raw], keep: _Selection, drop: _Selection) -> bytes | None:
        """What remains of JSON Lines; None where they stay whole."""
        pieces, matched = [], not keep
        for batch, has_match in self._batches(values, keep, drop):
            pieces.append(_encoder.encode_lines(batch))
            matched = matched or has_match
        if not (keep or self._has_dropped):
            return None
        return b"".join(pieces) if matched else b"{}\n"

    def _keep(self, values: list[Raw], keep: _Selection, drop: _Selection) -> Sequence[_Kept]:
        if not values or not (keep or drop):
            return values
        if keep and keep.ends:
            self.found |= keep.fields
            keep = None
        if drop and drop.ends:
            self.found |= drop.fields
            self._has_dropped = True
            return [UNSET] * len(values)
        if not keep and not drop:
            return values
        containers = (keep.decoder if keep else _all_members).decode_all(values, may_be_large=self._is_large)
        if drop and not keep:
            # An object that loses no member stays as it is written.
            containers = [
                None if isinstance(container, dict) and drop.matches_none(container) else container
                for container in containers
            ]
        self._members([container for container in containers if isinstance(container, dict)], keep, drop)
        lists = [container for container in containers if isinstance(container, list)]
        if keep and not lists:
            return [container or None for container in containers]
        arrays = self._arrays(lists, keep, drop)
        left: list[_Kept] = []
        for value, container in zip(values, containers, strict=True):
            if isinstance(container, list):
                left.append(next(arrays))
            elif keep:
                left.append(container or None)
            else:
                left.append(value if container is None else container)
        return left

    def _members(self, objects: list[dict[str, Any]], keep: _Selection, drop: _Selection) -> None:
        """Remove members from the objects, in place."""
        names = (keep.names if keep else frozenset()) | (drop.names if drop else frozenset())
        for name in names:
            chosen, without = keep and keep.member(name), drop and drop.member(name)
            if chosen and chosen.ends and not without:
                if not chosen.fields <= self.found and any(name in container for container in objects):
                    self.found |= chosen.fields
            else:
                self._replace(
                    [(container, name) for container in objects if name in container], chosen, without
                )
        selection = keep or drop
        if selection and selection.every:
            members = [(container, key) for container in objects for key in container if key not in names]
            self._replace(members, keep and keep.member(None), drop and drop.member(None))

    def _replace(self, members: list[tuple[dict[str, Any], str]], keep: _Selection, drop: _Selection) -> None:
        left = self._keep([container[key] for container, key in members], keep, drop)
        for (container, key), value in zip(members, left, strict=True):
            if value is None or value is UNSET:
                del container[key]
            else:
                container[key] = value

    def _arrays(self, arrays: list[list[Raw]], keep: _Selection, drop: _Selection) -> Iterator[_Kept]:
        if not all(arrays):
            # An empty array may well have the fields elsewhere.
            self.found.update(keep.fields if keep else (), drop.fields if drop else ())
        if (keep and keep.indexes) or (drop and drop.indexes):
            yield from (self._array(container, keep, drop) for container in arrays)
            return
        short = [value for container in arrays if len(container) <= _BATCH for value in container]
        left = iter(self._keep(short, keep and keep.element(), drop and drop.element()))
        for container in arrays:
            if len(container) > _BATCH:
                yield self._array(container, keep, drop)
            else:
                batch, matched = _gather_elements(list(islice(left, len(container))), in_place=bool(keep))
                yield batch if matched or not (keep and container) else None

    def _array(self, container: list[Raw], keep: _Selection, drop: _Selection) -> _Kept:
        pieces, matched = [], not (keep and container)
        for batch, has_match in self._batches(container, keep, drop):
            pieces.append(_encoder.encode(batch)[1:-1])
            matched = matched or has_match
        return Raw(b"[%b]" % b",".join(filter(None, pieces))) if matched else None

    def _batches(
        self, values: list[Raw], keep: _Selection, drop: _Selection
    ) -> Iterator[tuple[list[_Kept], bool]]:
        """What remains of the elements, in batches, and whether a batch has a kept field."""
        count = len(values)
        kept, kept_at = (keep.element(), keep.element_selections(count)) if keep else (None, {})
        without, without_at = (drop.element(), drop.element_selections(count)) if drop else (None, {})
        # Of other elements nothing can remain.
        positions = sorted(kept_at) if keep and not kept else range(count)
        selected = kept_at.keys() | without_at.keys()
        for start in range(0, len(positions), _BATCH):
            some = positions[start : start + _BATCH]
            if not selected or selected.isdisjoint(some):
                left = self._keep([values[at] for at in some], kept, without)
            else:
                left = [
                    self._keep([values[at]], kept_at.get(at, kept), without_at.get(at, without))[0]
                    for at in some
                ]
            yield _gather_elements(left, in_place=bool(kept))


def _gather_elements(left: Sequence[_Kept], *, in_place: bool) -> tuple[list[_Kept], bool]:
    """The remaining elements of an array, and whether there are any."""
    made: list[_Kept] = []
    matched = False
    for value in left:
        if value is None and in_place:
            # An element of which nothing remains keeps its place, so that the indexes of the others stay.
            made.append({})
        elif value is not None and value is not UNSET:
            made.append(value)
            matched = True
    return made, matched
