"""Pages of a JSON value: elements of an array, members of an object."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from headgate.responses.content import Content, characters
from headgate.responses.excerpt.cutting import cut_json
from headgate.responses.params import Unit
from headgate.responses.paths import below, opened
from headgate.responses.processors.places import Place
from headgate.responses.processors.read.passages import Page, Slot, told

# An envelope in an envelope is common ({"data": {"items": []}}), and more of them are rare.
_DEEPEST_ENVELOPE = 8


def value_page(value: Content | Raw, slot: Slot, place: Place, depth: int = 0) -> Page | None:
    """A page of elements or members; None of a value that has neither.

    `{"total": 3, "items": [...]}` is what most interfaces give: where it is too large for one page its items
    are paged, and the total is on every page. Raises Refused when a key is no UTF-8.
    """
    held = opened(value)
    if held is None:
        return None
    if isinstance(held, list):
        return elements_page(held, slot, place)
    main = _main(held, slot) if depth < _DEEPEST_ENVELOPE else None
    if main is None:
        return members_page(held, slot, place.path)
    around = {name: bytes(member) for name, member in held.items() if name != main}
    inner = Place(b"", below(place.path, main), gathered=False)
    left = Slot(slot.offset, slot.limit, slot.room - _size(main, around))
    made = value_page(held[main], left, inner, depth + 1)
    if made is None:
        return members_page(held, slot, place.path)
    written = (_key(name) + (made.content if name == main else around[name]) for name in held)
    return Page(b"{" + b",".join(written) + b"}", {"of": inner.path} | made.metadata)


def _main(members: Mapping[str, Raw], slot: Slot) -> str | None:
    """The member that is too large for a page, if the others are so small that they can be on each.

    Whoever begins further on means its elements too, though everything may fit on one page.
    """
    room = slot.room
    sizes = {name: len(memoryview(value)) for name, value in members.items()}
    main = max(sizes, key=sizes.__getitem__, default=None)
    if main is None or memoryview(members[main])[0] not in b"[{":
        return None
    rest = sum(sizes.values()) - sizes[main]
    if rest > min(sizes[main], room * 4):
        return None
    around = {name: bytes(value) for name, value in members.items() if name != main}
    written = _size(main, around)
    wanted = written + sizes[main] > room or (slot.offset and _has_more(members, main))
    return main if wanted and written <= room // 2 else None


def _has_more(members: Mapping[str, Raw], main: str) -> bool:
    """Whether the member has more elements than there are members."""
    held = opened(members[main])
    return isinstance(held, list) and len(held) > len(members)


def _size(main: str, around: Mapping[str, bytes]) -> int:
    """The characters that an object has without the value of its main member."""
    written = (characters(_key(name) + value) + 1 for name, value in around.items())
    return 2 + characters(_key(main)) + sum(written)


def elements_page(elements: Sequence[Raw], slot: Slot, place: Place) -> Page:
    """The elements of an array that fit; of one that fits on no page what can be cut."""
    start, stop = slot.bounds(len(elements))
    fill = _filled(((b"", elements[at]) for at in range(start, stop)), slot.room - 2)
    facts = told(Unit.ELEMENTS, start, len(fill.pieces), len(elements))
    if fill.is_cut:
        last = start + len(fill.pieces) - 1
        path = place.index_path(last)
        if path is not None:
            facts |= {"path": path, "go_on": f"element {last} is cut: read it with path {path}"}
        else:
            # A gathered array has no spaces, so its text is as long as its elements and their commas.
            before = 1 + sum(characters(bytes(element)) + 1 for element in elements[:last])
            facts["go_on"] = f"element {last} is cut: read it with unit characters, offset {before}"
    return Page(b"[" + fill.joined + b"]", facts)


def members_page(members: Mapping[str, Raw], slot: Slot, path: str) -> Page:
    """The members of an object that fit; of one that fits on no page what can be cut."""
    start, stop = slot.bounds(len(members))
    names = list(members)[start:stop]
    fill = _filled(((_key(name), members[name]) for name in names), slot.room - 2)
    facts = told(Unit.ELEMENTS, start, len(fill.pieces), len(members))
    if fill.is_cut:
        deeper = below(path, names[len(fill.pieces) - 1])
        facts |= {"path": deeper, "go_on": f"the last member is cut: read it with path {deeper}"}
    return Page(b"{" + fill.joined + b"}", facts)


def _key(name: str) -> bytes:
    return msgspec.json.encode(name) + b":"


class _Fill(NamedTuple):
    pieces: list[bytes]
    # Whether the last piece is not the whole of it.
    is_cut: bool

    @property
    def joined(self) -> bytes:
        # Of a cut one nothing may be left.
        return b",".join(piece for piece in self.pieces if piece)


def _filled(pieces: Iterator[tuple[bytes, Raw]], room: int) -> _Fill:
    """Each key with its value, until there is no room for the next; what fits on no page is cut."""
    filled: list[bytes] = []
    left = room
    for key, value in pieces:
        size = _capped_size(key, value, room)
        if size <= left:
            filled.append(key + bytes(value))
            # And the comma behind it.
            left -= size + 1
        elif size > room and left > room // 2:
            return _Fill([*filled, _cut(key, value, left)], is_cut=True)
        else:
            break
    return _Fill(filled, is_cut=False)


def _capped_size(key: bytes, value: Raw, room: int) -> int:
    """How many characters the two have; of what cannot fit anyway only that it does not."""
    # No character has more than four bytes; this way nothing large is copied to be measured.
    if len(memoryview(value)) > room * 4:
        return room + 1
    return characters(key + bytes(value))


def _cut(key: bytes, value: Raw, room: int) -> bytes:
    """What fits of a value behind its key; nothing where the key alone is too long."""
    left = room - characters(key)
    cut = cut_json(bytes(value), left).content
    return key + cut if characters(cut) <= left else b""
