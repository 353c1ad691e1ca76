"""Which part of a JSON text is a table: the array or the map with the most objects in it."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.responses.content import Content
from headgate.responses.paths import below

_OBJECT, _ARRAY, _STRING = ord("{"), ord("["), ord('"')
# Objects that are looked into; the table that somebody means is not behind so many others.
_MOST_OBJECTS = 10_000
# Each level is read once more than the one above it.
_DEEPEST = 8
# Members that are compared to tell a map of like objects from an object with parts.
_SAMPLE = 20

_opened: msgspec.json.Decoder[dict[str, Raw] | list[Raw]] = msgspec.json.Decoder(dict[str, Raw] | list[Raw])


@dataclass(frozen=True, slots=True)
class Layout:
    """The values that are rows, their keys if they are the members of a map, and where they are."""

    rows: list[Raw]
    keys: list[str] | None = None
    path: str = ""
    # False where the rows are one object with no table in it, or strings.
    has_records: bool = True


def layout_of(content: Content) -> Layout | None:
    """The rows of a JSON text; None of what is no object and no array, or has keys that are no UTF-8."""
    held = _held(content)
    if held is None:
        return None
    if isinstance(held, list):
        return Layout(held, has_records=not held or _kind(held[0]) != _STRING)
    return _largest(held) or Layout([Raw(memoryview(content))], has_records=False)


def _held(text: Content | Raw) -> dict[str, Raw] | list[Raw] | None:
    try:
        return _opened.decode(text)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _largest(members: dict[str, Raw]) -> Layout | None:
    """The shallowest first, so that of two equals the one nearer to the top is taken."""
    largest = _map("", members)
    waiting = deque([("", 1, members)])
    looked_into = 0
    while waiting and looked_into < _MOST_OBJECTS:
        above, depth, members = waiting.popleft()
        looked_into += 1
        for key, value in members.items():
            if _kind(value) not in (_OBJECT, _ARRAY):
                continue
            path, held = below(above, key), _held(value)
            found = _map(path, held) if isinstance(held, dict) else _array(path, held)
            if found and (largest is None or len(found.rows) > len(largest.rows)):
                largest = found
            if isinstance(held, dict) and depth < _DEEPEST and len(waiting) < _MOST_OBJECTS:
                waiting.append((path, depth + 1, held))
    return largest


def _kind(text: Raw) -> int:
    return memoryview(text)[0]


def _array(path: str, held: list[Raw] | None) -> Layout | None:
    return Layout(held, path=path) if held and _kind(held[0]) == _OBJECT else None


def _map(path: str, members: dict[str, Raw]) -> Layout | None:
    if len(members) < 2 or any(_kind(value) != _OBJECT for value in members.values()):
        return None
    sample = [set(_held(value) or ()) for value in islice(members.values(), _SAMPLE)]
    # Like objects: half of all their keys are keys of each.
    if 2 * len(set.intersection(*sample)) < max(1, len(set.union(*sample))):
        return None
    return Layout(list(members.values()), list(members), path)
