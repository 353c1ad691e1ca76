"""Puts what was found in a JSON document together again: each part in its place, and nothing else."""

import msgspec
from msgspec import Raw

from headgate.responses.content import characters
from headgate.responses.patterns import Pattern
from headgate.responses.processors.search.findings import Container, Finding
from headgate.responses.processors.search.hit_lines import around

# A longer string is not unescaped, and only this much of it on each side of the hit is looked at.
_LONGEST_STRING_BYTES = 16 * 1024 * 1024
_REACH_BYTES = 64 * 1024


class Assembly:
    """A JSON document that grows by one part after the other, as long as there is room."""

    def __init__(self, pattern: Pattern, *, is_object: bool, room: int) -> None:
        self._pattern = pattern
        self._is_object = is_object
        self._left = room - 2
        self._root: Container | None = None
        self._parts: dict[Container, list[tuple[str | None, bytes | Container]]] = {}

    def add(self, finding: Finding, *, cut: bool = False) -> bool:
        """Take it in; false if there is no room for it. A long string may be `cut` to what fits."""
        new = self._new_containers(finding.container)
        cost = sum(_name_size(container.key) + 3 for container in new if container.parent is not None)
        cost += _name_size(finding.key) + 1
        value = self._value(finding.value, self._left - cost, cut=cut)
        if value is None:
            return False
        for container in reversed(new):
            self._parts[container] = []
            if container.parent is None:
                self._root = container
            else:
                self._parts[container.parent].append((container.key, container))
        self._parts[finding.container].append((finding.key, value))
        self._left -= cost + characters(value)
        return True

    def _new_containers(self, container: Container | None) -> list[Container]:
        """Those that nothing is in yet, from the inside out."""
        new = []
        while container is not None and container not in self._parts:
            new.append(container)
            container = container.parent
        return new

    def _value(self, value: Raw, room: int, *, cut: bool) -> bytes | None:
        if len(value) <= 4 * max(room, 0):
            data = bytes(value)
            if characters(data) <= room:
                return data
        return self.cut_string(value, room) if cut else None

    def cut_string(self, value: Raw, room: int) -> bytes | None:
        """As much of a string as fits, around what matches in it; None if nothing does, or it is none."""
        if memoryview(value)[0] != ord('"'):
            return None
        text = self._text(value)
        hit = self._pattern.of_values.first(text) or (0, 0)
        size = room - 2
        while size > 0:
            shown = around(text, (0, len(text)), hit, size).decode(errors="replace")
            written = msgspec.json.encode(shown)
            if characters(written) <= room:
                return written
            # Escapes made it longer.
            size //= 2
        return None

    def _text(self, value: Raw) -> bytes:
        """What a string says; of a very long one, what is written around the hit."""
        if len(value) <= _LONGEST_STRING_BYTES:
            try:
                return msgspec.json.decode(value, type=str).encode()
            except UnicodeDecodeError:
                pass
        at, _ = self._pattern.first(value) or (1, 1)
        inside = memoryview(value)[1:-1]
        return bytes(inside[max(at - _REACH_BYTES, 0) : at + _REACH_BYTES])

    def json(self) -> bytes:
        """The document; an empty one of the same kind if there is nothing in it."""
        if self._root is None:
            return b"{}" if self._is_object else b"[]"
        return self._written(self._root)

    def _written(self, container: Container) -> bytes:
        parts = []
        for key, part in self._parts[container]:
            value = self._written(part) if isinstance(part, Container) else part
            parts.append(value if key is None else b"%b:%b" % (msgspec.json.encode(key), value))
        return (b"{%b}" if container.is_object else b"[%b]") % b",".join(parts)


def _name_size(key: str | None) -> int:
    return 0 if key is None else characters(msgspec.json.encode(key)) + 1
