"""Keeps or leaves out the named fields of JSON, and copies what it keeps byte for byte."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET, DecodeError, Raw, UnsetType

from headgate.responses.content import Content, first_sign
from headgate.responses.delimited import delimited
from headgate.responses.params import Keep, Projection
from headgate.responses.paths import Path, nearest_paths, not_named, opened, parse, too_deep
from headgate.responses.processing import ProcessorResult, Refused, done, unchanged
from headgate.responses.processors.projection.columns import projected_columns
from headgate.responses.processors.projection.selection import Elements, Opener, Selection

_MOST_FIELDS = 1_000
# So many elements are Python objects at one time, however long the array is.
_BATCH = 512
# From here on no batch may be copied before it is measured.
_LARGE_BYTES = 32 * 1024 * 1024
# For so many of the fields that lead nowhere the nearest ones are looked for.
_MOST_CORRECTED = 5

_TEXT = "the content is neither JSON nor CSV with a header line: proxy_search finds lines"

_encoder = msgspec.json.Encoder()
_documents = msgspec.json.Decoder(Raw)
_all_members = Opener(dict[str, Raw])

# What is left of a value: itself, less of it, None for nothing that was asked for, UNSET if it is left out.
_Left = Raw | dict[str, Any] | list[Any] | UnsetType | None


class ProjectionProcessor:
    """Gives fewer fields; an element that has none of those asked for stays in its array as {}."""

    @property
    def name(self) -> str:
        """Under which its parameters are given and its metadata collected."""
        return "projection"

    def process(self, content: Content, params: Projection) -> ProcessorResult:
        """JSON with fewer fields, CSV with fewer columns; other text passes unchanged. Raises Refused."""
        fields, exclude = _wanted(params)
        metadata: dict[str, Any] = {"mode": str(Keep.INCLUDE if fields else Keep.EXCLUDE)}
        metadata["fields"] = list(fields or exclude)
        if fields and exclude:
            metadata["exclude"] = list(exclude)
        try:
            return _projected(content, fields, exclude, metadata)
        except RecursionError:
            raise too_deep() from None
        except UnicodeDecodeError:
            raise not_named() from None


def _wanted(params: Projection) -> tuple[dict[str, Path], dict[str, Path]]:
    if len(params.fields) + len(params.exclude) > _MOST_FIELDS:
        raise Refused(f"'fields' and 'exclude' name more than {_MOST_FIELDS} fields: name their parents.")
    fields = {field: parse(field) for field in params.fields}
    exclude = {field: parse(field) for field in params.exclude}
    if params.mode is Keep.EXCLUDE:
        fields, exclude = {}, fields | exclude
    if not fields and not exclude:
        raise Refused("Neither 'fields' nor 'exclude' names a field: name at least one.")
    if () in exclude.values():
        raise Refused("The whole content is excluded, so that nothing would be left: name fields in it.")
    return fields, exclude


def _projected(
    content: Content, fields: dict[str, Path], exclude: dict[str, Path], metadata: dict[str, Any]
) -> ProcessorResult:
    if first_sign(content) not in (b"{", b"["):
        return _projected_text(content, fields, exclude, metadata)
    keep = None if () in fields.values() else Selection.of(fields.items())
    drop = Selection.of(exclude.items())
    work, values = _Work(len(content)), [Raw(memoryview(content))]
    try:
        made = work.document(values[0], keep, drop)
    except DecodeError:
        values = _lines(content)
        if not values:
            return _projected_text(content, fields, exclude, metadata)
        made = work.lines(values, keep, drop)
    if keep or not fields:
        metadata |= _not_found(values, fields or exclude, work.found)
    return unchanged(content, metadata) if made is None else done(content, made, metadata)


def _projected_text(
    content: Content, fields: dict[str, Path], exclude: dict[str, Path], metadata: dict[str, Any]
) -> ProcessorResult:
    """A table with fewer columns; any other text as it is."""
    table = delimited(content)
    made = None if table is None else projected_columns(table, fields, exclude)
    if made is None:
        return unchanged(content, metadata | {"reason": _TEXT})
    return done(content, made[0], metadata | made[1])


def _lines(content: Content) -> list[Raw]:
    """The objects of JSON Lines, or nothing of a text."""
    try:
        values: list[Raw] = _documents.decode_lines(content)
    except DecodeError:
        return []
    return values if all(memoryview(value)[0] == ord("{") for value in values) else []


def _not_found(values: list[Raw], asked: dict[str, Path], found: set[str]) -> dict[str, Any]:
    missing = [field for field in asked if field not in found]
    if not missing:
        return {}
    near = {field: nearest_paths(values, asked[field]) for field in missing[:_MOST_CORRECTED]}
    return {
        "fields_not_found": missing,
        "nearest_fields": {field: near[field] for field in near if near[field]},
    }


class _Work:
    """One projection, and the fields that it has found.

    It goes down level by level with many values at a time, because one call of msgspec for all of them
    costs much less than one for each.
    """

    def __init__(self, size_bytes: int) -> None:
        self._is_large = size_bytes > _LARGE_BYTES
        self.found: set[str] = set()
        self._has_dropped = False

    def document(self, value: Raw, keep: Selection | None, drop: Selection | None) -> bytes | None:
        """What is left of a JSON document, or None when that is all of it."""
        left = self._left([value], keep, drop)[0]
        if left is value or not (keep or self._has_dropped):
            return None
        if left is None:
            return b"[]" if isinstance(opened(value), list) else b"{}"
        return _encoder.encode(left)

    def lines(self, values: list[Raw], keep: Selection | None, drop: Selection | None) -> bytes | None:
        """What is left of JSON Lines, or None when that is all of them."""
        pieces, matched = [], not keep
        for batch, has_match in self._batches(values, keep, drop):
            pieces.append(_encoder.encode_lines(batch))
            matched = matched or has_match
        if not (keep or self._has_dropped):
            return None
        return b"".join(pieces) if matched else b"{}\n"

    def _left(self, values: list[Raw], keep: Selection | None, drop: Selection | None) -> Sequence[_Left]:
        """What is left of each of the values."""
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
        all_held = (keep.opener if keep else _all_members).opened(values, may_be_large=self._is_large)
        if drop and not keep:
            # What loses no member stays as it was written.
            all_held = [None if isinstance(held, dict) and drop.passes(held) else held for held in all_held]
        self._members([held for held in all_held if isinstance(held, dict)], keep, drop)
        lists = [held for held in all_held if isinstance(held, list)]
        if keep and not lists:
            return [held or None for held in all_held]
        arrays = self._arrays(lists, keep, drop)
        left: list[_Left] = []
        for value, held in zip(values, all_held, strict=True):
            if isinstance(held, list):
                left.append(next(arrays))
            elif keep:
                left.append(held or None)
            else:
                left.append(value if held is None else held)
        return left

    def _members(self, objects: list[dict[str, Any]], keep: Selection | None, drop: Selection | None) -> None:
        """Takes out of the objects what is not left of them."""
        names = (keep.names if keep else frozenset()) | (drop.names if drop else frozenset())
        for name in names:
            chosen, without = keep and keep.member(name), drop and drop.member(name)
            if chosen and chosen.ends and not without:
                if not chosen.fields <= self.found and any(name in held for held in objects):
                    self.found |= chosen.fields
            else:
                self._replace([(held, name) for held in objects if name in held], chosen, without)
        selection = keep or drop
        if selection and selection.every:
            members = [(held, key) for held in objects for key in held if key not in names]
            self._replace(members, keep and keep.member(None), drop and drop.member(None))

    def _replace(
        self, members: list[tuple[dict[str, Any], str]], keep: Selection | None, drop: Selection | None
    ) -> None:
        left = self._left([held[key] for held, key in members], keep, drop)
        for (held, key), value in zip(members, left, strict=True):
            if value is None or value is UNSET:
                del held[key]
            else:
                held[key] = value

    def _arrays(
        self, arrays: list[list[Raw]], keep: Selection | None, drop: Selection | None
    ) -> Iterator[_Left]:
        """What is left of each of the arrays."""
        if not all(arrays):
            # Nothing is in them that could have had the fields, so these may well be right.
            self.found.update(keep.fields if keep else (), drop.fields if drop else ())
        if (keep and keep.indexes) or (drop and drop.indexes):
            yield from (self._array(held, keep, drop) for held in arrays)
            return
        short = [value for held in arrays if len(held) <= _BATCH for value in held]
        left = iter(self._left(short, keep and keep.element(), drop and drop.element()))
        for held in arrays:
            if len(held) > _BATCH:
                yield self._array(held, keep, drop)
            else:
                batch, matched = _gathered(list(islice(left, len(held))), in_place=bool(keep))
                yield batch if matched or not (keep and held) else None

    def _array(self, held: list[Raw], keep: Selection | None, drop: Selection | None) -> _Left:
        pieces, matched = [], not (keep and held)
        for batch, has_match in self._batches(held, keep, drop):
            pieces.append(_encoder.encode(batch)[1:-1])
            matched = matched or has_match
        return Raw(b"[%b]" % b",".join(filter(None, pieces))) if matched else None

    def _batches(
        self, values: list[Raw], keep: Selection | None, drop: Selection | None
    ) -> Iterator[tuple[list[_Left], bool]]:
        """What is left of the elements, some at a time, and whether any of these has a field that is kept."""
        elements = Elements.of(keep, drop, len(values))
        for start in range(0, len(elements.positions), _BATCH):
            positions = elements.positions[start : start + _BATCH]
            if elements.are_alike(positions):
                left = self._left([values[at] for at in positions], elements.keep, elements.drop)
            else:
                left = [self._left([values[at]], *elements.at(at))[0] for at in positions]
            yield _gathered(left, in_place=bool(elements.keep))


def _gathered(left: Sequence[_Left], *, in_place: bool) -> tuple[list[_Left], bool]:
    """The elements of what is left of an array, and whether there is anything of any of them."""
    made: list[_Left] = []
    matched = False
    for value in left:
        if value is None and in_place:
            # An element of which nothing is left keeps its place, so that the others keep theirs.
            made.append({})
        elif value is not None and value is not UNSET:
            made.append(value)
            matched = True
    return made, matched
