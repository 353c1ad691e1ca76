"""Parses JSON level by level, each value as its bytes, within a budget of work."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from msgspec import DecodeError, Raw, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple

from headgate.protocol.json_scan import array_elements, object_members

# A few nanoseconds each: some tens of milliseconds in all.
_MOST_UNITS: Final = 8_000_000
# Reserved for the description of a part after a search has used up the rest.
_RESERVE: Final = 2_000_000
# For the exact path, however large the rest is: a few levels of some megabytes.
_MOST_EXACT_PATH_UNITS: Final = 32_000_000
_UNITS_A_MEMBER: Final = 200
_UNITS_AN_ELEMENT: Final = 10
# For each byte that only the slow parser accepts.
_UNITS_A_SLOW_BYTE: Final = 30

# In a larger object one member is looked up without decoding the others.
_LARGE: Final = 64 * 1024
# For more members, decoding the whole object is faster.
_MOST_PICKED: Final = 4

# The slow parser gives bytes where these give Raw.
_object = cast("Decoder[dict[str, Raw | bytes]]", Decoder(dict[str, Raw]))
_array = cast("Decoder[Sequence[Raw | bytes]]", Decoder(list[Raw]))
_Opened = TypeVar("_Opened")


class BoundedJson:
    """The parsed parts of one schema and the remaining budget."""

    def __init__(self) -> None:
        self._units_left = _MOST_UNITS
        self._units_left_for_exact_path = _MOST_EXACT_PATH_UNITS
        # A value becomes bytes when it is first read; most never are.
        self._objects: dict[bytes, dict[str, Raw | bytes]] = {}
        self._arrays: dict[bytes, Sequence[Raw | bytes]] = {}
        self._picked: dict[bytes, dict[str, bytes]] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the search has stopped early, so that a part may exist although it was not found."""
        return self._units_left < _RESERVE or self._units_left_for_exact_path < 0

    def spend(self, units: int) -> bool:
        """Spend units on a search; False if the budget does not allow it."""
        self._units_left -= units
        return self._units_left >= _RESERVE

    @contextmanager
    def exact_path_budget(self) -> Iterator[None]:
        """Charge the work in this context to the exact path instead of the search."""
        self._units_left, self._units_left_for_exact_path = self._units_left_for_exact_path, self._units_left
        try:
            yield
        finally:
            self._units_left, self._units_left_for_exact_path = (
                self._units_left_for_exact_path,
                self._units_left,
            )

    def names(self, value: bytes) -> Iterable[str]:
        """The names of an object's members; none for any other value."""
        return self._object(value)

    def member(self, value: bytes, name: str) -> bytes:
        """One member of an object; empty if there is none."""
        opened = self._object(value)
        found = opened.get(name, b"")
        if isinstance(found, Raw):
            # Stored as bytes, so that they are hashed once.
            found = opened[name] = bytes(found)
        return found

    def pick(self, value: bytes, name: str) -> bytes:
        """The same for an object that may have a hundred thousand other members."""
        if len(value) <= _LARGE or value[:1] != b"{" or value in self._objects:
            return self.member(value, name)
        picked = self._picked.setdefault(value, {})
        if name in picked:
            return picked[name]
        if len(picked) >= _MOST_PICKED:
            return self.member(value, name)
        if not self._affords(len(value)):
            return b""
        try:
            one = defstruct("One", [("member", Raw, Raw(b""))], rename={"member": name})
            (found,) = astuple(Decoder(one).decode(value))
        except (ValueError, DecodeError, RecursionError):
            # A name with a quote, or input that only the slow parser accepts.
            return self.member(value, name)
        picked[name] = bytes(found)
        return picked[name]

    def count(self, value: bytes) -> int:
        """The number of elements of an array; 0 for any other value."""
        return len(self._array(value))

    def element(self, value: bytes, position: int) -> bytes:
        """One element of an array; empty if there is none."""
        opened = self._array(value)
        return bytes(opened[position]) if position < len(opened) else b""

    def elements(self, value: bytes, most: int) -> list[bytes]:
        """The first elements of an array; none for any other value."""
        return [bytes(element) for element in self._array(value)[:most]]

    def _object(self, value: bytes) -> dict[str, Raw | bytes]:
        if value[:1] != b"{":
            return {}
        if value not in self._objects:
            opened = self._open(value, _object.decode, _scan_object)
            if opened is None:
                # Not cached: the exact path may still afford it.
                return {}
            self._objects[value] = opened
            self._units_left -= _UNITS_A_MEMBER * len(opened)
        return self._objects[value]

    def _array(self, value: bytes) -> Sequence[Raw | bytes]:
        if value[:1] != b"[":
            return []
        if value not in self._arrays:
            opened = self._open(value, _array.decode, array_elements)
            if opened is None:
                return []
            self._arrays[value] = opened
            self._units_left -= _UNITS_AN_ELEMENT * len(opened)
        return self._arrays[value]

    def _open(
        self, value: bytes, decode: Callable[[bytes], _Opened], scan: Callable[[bytes], _Opened]
    ) -> _Opened | None:
        """The members or elements, none of broken JSON; None if the budget does not allow it."""
        if not self._affords(len(value)):
            return None
        try:
            return decode(value)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            # Some servers send half of a surrogate pair, which this parser refuses.
            pass
        if not self._affords(_UNITS_A_SLOW_BYTE * len(value)):
            return None
        try:
            return scan(value)
        except (ValueError, RecursionError):
            return decode(b"{}" if value[:1] == b"{" else b"[]")

    def _affords(self, units: int) -> bool:
        self._units_left -= units
        return self._units_left >= 0


def _scan_object(value: bytes) -> dict[str, Raw | bytes]:
    text = value.decode()
    return {one.key: text[one.start : one.end].encode() for one in object_members(text)}
