"""Puts what was found in a JSON document together again: each part in its place, and nothing else."""

import msgspec
from msgspec import Raw

from headgate.responses.content import characters
from headgate.responses.processors.search.findings import Container, Finding
from headgate.responses.processors.search.strings import CutString, StringHit
from headgate.responses.processors.windows import Widths, widths


class Assembly:
    """A JSON document that grows by one part after the other, as long as there is room."""

    def __init__(self, *, is_object: bool, room: int, before: int = 0, after: int = 0) -> None:
        """`before` and `after` are how many lines of context are wanted around a match in a long string."""
        self._is_object = is_object
        self._left = room - 2
        self._widths = widths(room, before, after)
        self._root: Container | None = None
        self._parts: dict[Container, list[tuple[str | None, bytes | CutString | Container]]] = {}
        self._last: Finding | None = None

    def add(self, finding: Finding) -> bool:
        """Take it in; false if there is no room for it."""
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

    def _string_of_last(self, finding: Finding) -> CutString | None:
        """The string that was shown last, if this is another match in it."""
        last = self._last
        if (
            last is None
            or finding.part is None
            or last.part is None
            or last.part.text is not finding.part.text
        ):
            return None
        _, value = self._parts[last.container][-1]
        return value if isinstance(value, CutString) else None

    def _extend(self, string: CutString, part: StringHit) -> bool:
        extended = string.with_hit(part, self._widths)
        more = _size(extended) - _size(string)
        if more > self._left or self._last is None:
            return False
        parts = self._parts[self._last.container]
        parts[-1] = (parts[-1][0], extended)
        self._left -= more
        return True

    def _new_containers(self, container: Container | None) -> list[Container]:
        """Those that nothing is in yet, from the inside out."""
        new = []
        while container is not None and container not in self._parts:
            new.append(container)
            container = container.parent
        return new

    def _value(self, finding: Finding, room: int) -> bytes | CutString | None:
        if finding.part is not None:
            return self._cut(finding.part, room)
        return _whole(finding.value, room)

    def _cut(self, part: StringHit, room: int) -> CutString | None:
        """What is around the match; on an empty page less of it, if escapes make it too long."""
        width: Widths | None = self._widths
        while width is not None:
            string = CutString(part.text).with_hit(part, width)
            if _size(string) <= room:
                return string
            width = width.narrower() if self._root is None else None
        return None

    def json(self) -> bytes:
        """The document; an empty one of the same kind if there is nothing in it."""
        if self._root is None:
            return b"{}" if self._is_object else b"[]"
        return self._written(self._root)

    def _written(self, container: Container) -> bytes:
        parts = []
        for key, part in self._parts[container]:
            match part:
                case Container():
                    value = self._written(part)
                case CutString():
                    value = part.json()
                case _:
                    value = part
            parts.append(value if key is None else b"%b:%b" % (msgspec.json.encode(key), value))
        return (b"{%b}" if container.is_object else b"[%b]") % b",".join(parts)


def _whole(value: Raw, room: int) -> bytes | None:
    # No character has more than four bytes.
    if len(value) > 4 * max(room, 0):
        return None
    data = bytes(value)
    return data if characters(data) <= room else None


def _size(value: bytes | CutString) -> int:
    return characters(value if isinstance(value, bytes) else value.json())


def _name_size(key: str | None) -> int:
    return 0 if key is None else characters(msgspec.json.encode(key)) + 1
