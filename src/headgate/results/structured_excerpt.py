"""Truncates structuredContent to a subset that still satisfies the output schema of its tool."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import DecodeError, Raw

from headgate.results.content import character_count, decode_elements, decode_members, decode_raw
from headgate.results.jobs import PageUnit
from headgate.results.result_structure import decode_string
from headgate.results.truncation import (
    TruncationLoss,
    element_loss,
    encoded_key,
    join_parts,
    leading_byte,
    main_loss,
    minified_if_fits,
    size_within,
    truncate_value,
)
from headgate.schema.removal_rules import NOTHING_REMOVABLE, RemovalRuleIndex, RemovalRules, Schemas

# A deeper value is kept whole: each level is one more scan of everything below it.
_DEEPEST = 20
# So many members share the room, however little each gets; more of them only if each gets enough to read.
_FEW_MEMBERS = 32
_READABLE = 64
_KINDS = {b"{": "object", b"[": "array", b'"': "string"}


def truncate_structured(value: bytes, schema: bytes, room: int) -> bytes:
    """A part of the value within `room` characters that satisfies the schema if the value does.

    Where that is impossible, the smallest such part that is found.
    """
    try:
        decoded = decode_raw(value)
        root = msgspec.json.decode(schema)
        # In a schema with an `$id` inside, references are not relative to the root.
        understood = isinstance(root, Mapping) and schema.count(b'"$id"') <= ("$id" in root)
        if not understood or leading_byte(decoded) != b"{":
            return value
        return _StructuredTruncator(RemovalRuleIndex(root)).truncate(decoded, (root,), room, 0)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return value


def truncation_loss(whole: bytes | Raw, kept: bytes | Raw) -> TruncationLoss | None:
    """What the part lacks of the whole; None where only white space is missing."""
    with memoryview(whole) as one, memoryview(kept) as other:
        if one == other:
            return None
    match leading_byte(whole):
        case b"[":
            elements, kept_elements = decode_elements(whole), decode_elements(kept)
            if len(kept_elements) < len(elements):
                return element_loss(whole, len(kept_elements), len(elements), of_array=True)
            losses = _losses(zip(elements, kept_elements, strict=False))
            return max(losses, key=lambda loss: (loss.of_array, loss.size), default=None)
        case b"{":
            members, kept_members = decode_members(whole), decode_members(kept)
            pairs = ((members[key], value) for key, value in kept_members.items() if key in members)
            return main_loss(whole, _losses(pairs), len(kept_members), len(members))
        case b'"':
            shown, total = (len(decode_string(Raw(bytes(text)))) for text in (kept, whole))
            return TruncationLoss(False, len(memoryview(whole)), shown, total, PageUnit.CHARACTERS)
    return None


def _losses(pairs: Iterable[tuple[Raw, Raw]]) -> list[TruncationLoss]:
    return [loss for pair in pairs if (loss := truncation_loss(*pair)) is not None]


class _StructuredTruncator:
    """Truncates values to their room or, where the schema forbids that, as close to it as possible."""

    def __init__(self, rule_index: RemovalRuleIndex) -> None:
        self._rule_index = rule_index

    def truncate(self, value: Raw, schemas: Schemas, room: int, depth: int) -> bytes:
        whole = minified_if_fits(value, room)
        rules = NOTHING_REMOVABLE if whole is not None else self._rules(value, schemas, depth)
        if whole is not None or rules.fixed:
            return whole or bytes(value)
        match leading_byte(value):
            case b"[":
                return self._truncate_array(decode_elements(value), rules, room, depth)
            case b"{":
                return self._truncate_object(decode_members(value), rules, room, depth)
        # An ellipsis alone is the least that indicates an omission.
        piece = truncate_value(value, max(room, 4))
        is_long_enough = piece and len(msgspec.json.decode(piece.content, type=str)) >= rules.shortest
        return piece.content if piece and is_long_enough else bytes(value)

    def _rules(self, value: Raw, schemas: Schemas, depth: int) -> RemovalRules:
        kind = _KINDS.get(leading_byte(value))
        return (
            NOTHING_REMOVABLE if kind is None or depth > _DEEPEST else self._rule_index.rules(schemas, kind)
        )

    def _truncate_array(self, elements: list[Raw], rules: RemovalRules, room: int, depth: int) -> bytes:
        kept: list[bytes] = []
        left = room - 2
        for index, element in enumerate(elements):
            needed = rules.fewest - index
            share = left // needed if needed > 1 else left
            # The first element is truncated rather than omitted.
            if rules.elements_fixed or (index and needed <= 0):
                data = minified_if_fits(element, share) or (bytes(element) if needed > 0 else None)
            else:
                data = self.truncate(element, rules.of_element(index), share, depth + 1)
            if data is None or (needed <= 0 and character_count(data) > left):
                break
            kept.append(data)
            left -= character_count(data) + 1
        return join_parts(b"[", kept, b"]")

    def _truncate_object(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> bytes:
        if rules.members_fixed:
            rules = msgspec.structs.replace(rules, required=frozenset(members))
        if room > 2:
            kept = self._share(members, rules, room - 2, depth)
            data = _object(self._first_members(members, rules, room - 2, depth) if kept is None else kept)
            if character_count(data) <= room:
                return data
        needed = {key: value for key, value in members.items() if key in rules.required}
        return _object(
            {key: self.truncate(value, rules.of_member(key), 0, depth + 1) for key, value in needed.items()}
        )

    def _share(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> dict[str, bytes] | None:
        """Small members whole and an equal share for each of the others; None where that is too little."""

        def order(key: str) -> tuple[bool, int]:
            """Required members that cannot be truncated first, then by size."""
            value = members[key]
            fixed = key in rules.required and self._rules(value, rules.of_member(key), depth + 1).fixed
            return not fixed, size_within(value, room)

        left = room + 1 - sum(character_count(encoded_key(key)) + 1 for key in members)
        kept: dict[str, bytes] = {}
        waiting = len(members)
        for key in sorted(members, key=order):
            share = left // waiting
            optional = key not in rules.required
            if (
                optional
                and waiting > _FEW_MEMBERS
                and share < min(_READABLE, size_within(members[key], room))
            ):
                return None
            data = self.truncate(members[key], rules.of_member(key), max(share, 0), depth + 1)
            waiting -= 1
            if character_count(data) <= share or not optional:
                kept[key] = data
                left -= character_count(data)
            else:
                left += character_count(encoded_key(key)) + 1
        return {key: kept[key] for key in members if key in kept}

    def _first_members(
        self, members: Mapping[str, Raw], rules: RemovalRules, room: int, depth: int
    ) -> dict[str, bytes]:
        """The required members in half of the room, then the first of the others that fit."""
        needed = {key: value for key, value in members.items() if key in rules.required}
        kept = self._share(needed, rules, room // 2, depth) or {}
        left = room + 1 - sum(character_count(encoded_key(key) + data) + 1 for key, data in kept.items())
        for key, value in members.items():
            if key in rules.required:
                continue
            left -= character_count(encoded_key(key)) + 1
            data = minified_if_fits(value, left)
            if data is None:
                break
            kept[key] = data
            left -= character_count(data)
        return {key: kept[key] for key in members if key in kept}


def _object(members: Mapping[str, bytes]) -> bytes:
    return join_parts(b"{", (encoded_key(key) + data for key, data in members.items()), b"}")
