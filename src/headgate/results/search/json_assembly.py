"""Assembles matched parts into a JSON document of the same shape, within a size."""

import msgspec

from headgate.results.content import character_count, fits
from headgate.results.search.json_matches import JsonMatch, MatchContainer, StringMatch, TruncatedString
from headgate.results.search.match_page import WindowWidths, window_widths


class JsonAssembler:
    """A JSON document that grows part by part, as long as they fit."""

    def __init__(self, *, is_object: bool, room: int, before: int = 0, after: int = 0) -> None:
        """`before` and `after` are lines of context around a match in a long string."""
        self._is_object = is_object
        self._left = room - 2
        self._widths = window_widths(room, before, after)
        self._root: MatchContainer | None = None
        self._parts: dict[
            MatchContainer, list[tuple[str | None, bytes | TruncatedString | MatchContainer]]
        ] = {}
        self._last: JsonMatch | None = None

    def add(self, finding: JsonMatch) -> bool:
        """Add the match; false if it does not fit."""
        string = self._string_of_last(finding)
        if string is not None and finding.part is not None:
            return self._extend(string, finding.part)
        new = self._new_containers(finding.container)
        cost = sum(_name_size(container.key) + 3 for container in new if container.parent is not None)
        cost += _name_size(finding.key) + 1
        value = self._value(finding, self._left - cost)
        if value is None:
            return False
        for container in reversed(new):
            self._parts[container] = []
            if container.parent is None:
                self._root = container
            else:
                self._parts[container.parent].append((container.key, container))
        self._parts[finding.container].append((finding.key, value))
        self._left -= cost + _size(value)
        self._last = finding
        return True

    def _string_of_last(self, finding: JsonMatch) -> TruncatedString | None:
        """The last string, if this is another match in it."""
        last = self._last
        if (
            last is None
            or finding.part is None
            or last.part is None
            or last.part.text is not finding.part.text
        ):
            return None
        _, value = self._parts[last.container][-1]
        return value if isinstance(value, TruncatedString) else None

    def _extend(self, string: TruncatedString, part: StringMatch) -> bool:
        extended = string.with_hit(part, self._widths)
        more = _size(extended) - _size(string)
        if more > self._left or self._last is None:
            return False
        parts = self._parts[self._last.container]
        parts[-1] = (parts[-1][0], extended)
        self._left -= more
        return True

    def _new_containers(self, container: MatchContainer | None) -> list[MatchContainer]:
        """The containers that are not in the document yet, from the inside out."""
        new = []
        while container is not None and container not in self._parts:
            new.append(container)
            container = container.parent
        return new

    def _value(self, finding: JsonMatch, room: int) -> bytes | TruncatedString | None:
        if finding.part is not None:
            return self._truncate(finding.part, room)
        return bytes(finding.value) if fits(finding.value, room) else None

    def _truncate(self, part: StringMatch, room: int) -> TruncatedString | None:
        """The context of the match; on an empty page less of it, if escapes make it too long."""
        width: WindowWidths | None = self._widths
        while width is not None:
            string = TruncatedString(part.text).with_hit(part, width)
            if _size(string) <= room:
                return string
            width = width.narrower() if self._root is None else None
        return None

    def json(self) -> bytes:
        """The document; an empty one of the same type if it has no parts."""
        if self._root is None:
            return b"{}" if self._is_object else b"[]"
        return self._encode(self._root)

    def _encode(self, container: MatchContainer) -> bytes:
        parts = []
        for key, part in self._parts[container]:
            match part:
                case MatchContainer():
                    value = self._encode(part)
                case TruncatedString():
                    value = part.json()
                case _:
                    value = part
            parts.append(value if key is None else b"%b:%b" % (msgspec.json.encode(key), value))
        return (b"{%b}" if container.is_object else b"[%b]") % b",".join(parts)


def _size(value: bytes | TruncatedString) -> int:
    return character_count(value if isinstance(value, bytes) else value.json())


def _name_size(key: str | None) -> int:
    return 0 if key is None else character_count(msgspec.json.encode(key)) + 1
