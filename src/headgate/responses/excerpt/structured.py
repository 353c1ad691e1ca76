"""Structured content cut to a subset that still satisfies the schema that its tool has declared."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.responses.anatomy import plain_text
from headgate.responses.content import characters
from headgate.responses.excerpt.pieces import (
    Loss,
    cut_value,
    fitting,
    joined,
    kind_of,
    loss_of,
    most_telling,
    name_of,
    size_of,
)
from headgate.responses.excerpt.schemas import FIXED, RuleBook, Rules, Schemas
from headgate.responses.params import Unit

# Below this a value is kept whole: each level is one more scan of what is below it.
_DEEPEST = 20
# So many members share the room, however little each gets, and more of them only if it is enough to read.
_FEW_MEMBERS = 32
_READABLE = 64
_KINDS = {b"{": "object", b"[": "array", b'"': "string"}

_elements = msgspec.json.Decoder(list[Raw])
_members = msgspec.json.Decoder(dict[str, Raw])
_value = msgspec.json.Decoder(Raw)


def cut_structured(value: bytes, schema: bytes, room: int) -> bytes:
    """A part of the value within `room` characters that satisfies the schema if the value does.

    Where that is impossible, the smallest such part that is found.
    """
    try:
        opened = _value.decode(value)
        root = msgspec.json.decode(schema)
        # References within a schema that has an address of its own are not read from the root.
        understood = isinstance(root, Mapping) and schema.count(b'"$id"') <= ("$id" in root)
        if not understood or kind_of(opened) != b"{":
            return value
        return _Cutter(RuleBook(root)).cut(opened, (root,), room, 0)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return value


def lost(whole: bytes | Raw, kept: bytes | Raw) -> Loss | None:
    """What such a part lacks of the whole; None where nothing is missing but white space."""
    with memoryview(whole) as one, memoryview(kept) as other:
        if one == other:
            return None
    match kind_of(whole):
        case b"[":
            return _lost_of_array(whole, _elements.decode(whole), _elements.decode(kept))
        case b"{":
            return _lost_of_object(whole, _members.decode(whole), _members.decode(kept))
        case b'"':
            shown, total = (len(plain_text(Raw(bytes(text)))) for text in (kept, whole))
            return Loss(False, len(memoryview(whole)), shown, total, Unit.CHARACTERS)
    return None


def _lost_of_array(whole: bytes | Raw, elements: list[Raw], kept: list[Raw]) -> Loss | None:
    if len(kept) < len(elements):
        return loss_of(whole, len(kept), len(elements), of_array=True)
    losses = [loss for pair in zip(elements, kept, strict=False) if (loss := lost(*pair)) is not None]
    return max(losses, key=lambda loss: (loss.of_array, loss.size), default=None)


def _lost_of_object(whole: bytes | Raw, members: Mapping[str, Raw], kept: Mapping[str, Raw]) -> Loss | None:
    pairs = ((members[key], value) for key, value in kept.items() if key in members)
    losses = [loss for pair in pairs if (loss := lost(*pair)) is not None]
    return most_telling(whole, losses, len(kept), len(members))


class _Cutter:
    """Cuts values, each to its room or, where its rules forbid that, as near to it as can be."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book

    def cut(self, value: Raw, schemas: Schemas, room: int, depth: int) -> bytes:
        whole = fitting(value, room)
        rules = FIXED if whole is not None else self._rules(value, schemas, depth)
        if whole is not None or rules.fixed:
            return whole or bytes(value)
        match kind_of(value):
            case b"[":
                return self._cut_array(_elements.decode(value), rules, room, depth)
            case b"{":
                return self._cut_object(_members.decode(value), rules, room, depth)
        return _cut_string(value, rules, room)

    def _rules(self, value: Raw, schemas: Schemas, depth: int) -> Rules:
        kind = _KINDS.get(kind_of(value))
        return FIXED if kind is None or depth > _DEEPEST else self._book.rules(schemas, kind)

    def _cut_array(self, elements: list[Raw], rules: Rules, room: int, depth: int) -> bytes:
        kept: list[bytes] = []
        left = room - 2
        for index, element in enumerate(elements):
            needed = rules.fewest - index
            share = left // needed if needed > 1 else left
            # The first one rather in part than not at all.
            if rules.elements_fixed or (index and needed <= 0):
                data = fitting(element, share) or (bytes(element) if needed > 0 else None)
            else:
                data = self.cut(element, rules.of_element(index), share, depth + 1)
            if data is None or (needed <= 0 and characters(data) > left):
                break
            kept.append(data)
            left -= characters(data) + 1
        return joined(b"[", kept, b"]")

    def _cut_object(self, members: Mapping[str, Raw], rules: Rules, room: int, depth: int) -> bytes:
        if rules.members_fixed:
            rules = msgspec.structs.replace(rules, required=frozenset(members))
        if room > 2:
            kept = self._share(members, rules, room - 2, depth)
            data = _object(self._first_members(members, rules, room - 2, depth) if kept is None else kept)
            if characters(data) <= room:
                return data
        needed = {key: value for key, value in members.items() if key in rules.required}
        return _object({key: self._least(value, rules, key, depth) for key, value in needed.items()})

    def _least(self, value: Raw, rules: Rules, key: str, depth: int) -> bytes:
        return self.cut(value, rules.of_member(key), 0, depth + 1)

    def _share(
        self, members: Mapping[str, Raw], rules: Rules, room: int, depth: int
    ) -> dict[str, bytes] | None:
        """Small members whole and an equal part for each of the others; None where that is too little."""
        left = room + 1 - sum(characters(name_of(key)) + 1 for key in members)
        kept: dict[str, bytes] = {}
        waiting = len(members)
        for key in self._in_turn(members, rules, room, depth):
            share = left // waiting
            optional = key not in rules.required
            if optional and waiting > _FEW_MEMBERS and share < min(_READABLE, size_of(members[key], room)):
                return None
            data = self.cut(members[key], rules.of_member(key), max(share, 0), depth + 1)
            waiting -= 1
            if characters(data) <= share or not optional:
                kept[key] = data
                left -= characters(data)
            else:
                left += characters(name_of(key)) + 1
        return {key: kept[key] for key in members if key in kept}

    def _first_members(
        self, members: Mapping[str, Raw], rules: Rules, room: int, depth: int
    ) -> dict[str, bytes]:
        """What is required in half of the room, and the first of the others as long as they fit."""
        needed = {key: value for key, value in members.items() if key in rules.required}
        kept = self._share(needed, rules, room // 2, depth) or {}
        left = room + 1 - sum(characters(name_of(key)) + characters(data) + 1 for key, data in kept.items())
        for key, value in members.items():
            if key in rules.required:
                continue
            left -= characters(name_of(key)) + 1
            data = fitting(value, left)
            if data is None:
                break
            kept[key] = data
            left -= characters(data)
        return {key: kept[key] for key in members if key in kept}

    def _in_turn(self, members: Mapping[str, Raw], rules: Rules, room: int, depth: int) -> Iterator[str]:
        """What must stay as it is comes first, then the small before the large."""

        def turn(key: str) -> tuple[bool, int]:
            value = members[key]
            fixed = key in rules.required and self._rules(value, rules.of_member(key), depth + 1).fixed
            return not fixed, size_of(value, room)

        yield from sorted(members, key=turn)


def _object(members: Mapping[str, bytes]) -> bytes:
    return joined(b"{", (name_of(key) + data for key, data in members.items()), b"}")


def _cut_string(value: Raw, rules: Rules, room: int) -> bytes:
    # An ellipsis alone is the least that says that something is missing.
    piece = cut_value(value, max(room, 4))
    if piece is None:
        return bytes(value)
    shown: Any = msgspec.json.decode(piece.content)
    return piece.content if len(shown) >= rules.shortest else bytes(value)
