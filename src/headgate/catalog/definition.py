"""Looks at one definition as text: finds its members, and takes out those that would cost a client the page.

SDK clients refuse a whole page for one member of the wrong type, so what they cannot read is not served.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.item import Definition
from headgate.protocol.json_members import JsonMember, remove_member, replace_member
from headgate.protocol.json_members import object_members as scanned
from headgate.protocol.json_scan import array_elements


class Unusable(ValueError):
    """A definition that no client could use."""


class Icon(msgspec.Struct, rename="camel"):
    """An icon as clients read it."""

    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: Literal["light", "dark"] = "light"


class Parts(msgspec.Struct, frozen=True):
    """An object that is mended member by member, as far as it has those that it needs."""

    optional: Mapping[str, Any]
    needed: Mapping[str, Any] = {}


class Each(msgspec.Struct, frozen=True):
    """A list of such objects; one that cannot be mended is taken out of it."""

    parts: Parts


# What any definition may have, and what it must be then.
OPTIONAL: dict[str, Any] = {
    "title": str,
    "description": str,
    "icons": list[Icon],
    "_meta": dict[str, Raw],
}


def definition(text: str, key: str) -> tuple[str, Definition]:
    """What the definition is called, and where that stands in it; raises Unusable when it is not called."""
    member = only(text, key)
    if member is None:
        raise Unusable(f"it has no {key}")
    called = msgspec.json.decode(text[member.start : member.end])
    if not isinstance(called, str) or not called:
        raise Unusable(f"its {key} is not a text")
    return called, Definition(text, member.start, member.end)


# Several questions are asked of one text after the other, and most texts stay as they are.
@lru_cache(maxsize=4)
def members(text: str) -> tuple[JsonMember, ...]:
    """The members of the object; raises ValueError when it is none."""
    return tuple(scanned(text))


def only(text: str, key: str) -> JsonMember | None:
    """The member of that key, if the object has it; raises Unusable when it has two."""
    found = [member for member in members(text) if member.key == key]
    if len(found) > 1:
        raise Unusable(f"it has {key!r} twice")
    return found[0] if found else None


def without_wrong_members(text: str, wanted: Mapping[str, Any], repairs: list[str], where: str = "") -> str:
    """The object without members that are not what `wanted` says; each change is noted in `repairs`."""
    # From the last to the first, so that the places of the others stay right.
    for member in reversed(members(text)):
        kind = wanted.get(member.key)
        if kind is None:
            continue
        value = text[member.start : member.end]
        mended = _mended(value, kind, repairs, where + member.key)
        if mended is None:
            text = remove_member(text, member)
            repairs.append(f"{where}{member.key} was not what it must be and was taken out")
        elif mended != value:
            text = replace_member(text, member, mended)
    return text


def _mended(value: str, kind: Any, repairs: list[str], where: str) -> str | None:
    """The value as far as it can be kept, or None."""
    if isinstance(kind, Parts):
        return _mended_object(value, kind, repairs, where)
    if isinstance(kind, Each):
        return _mended_list(value, kind.parts, repairs, where)
    return value if _is(value, kind) else None


def _mended_object(value: str, parts: Parts, repairs: list[str], where: str) -> str | None:
    if not value.startswith("{"):
        return None
    for key, kind in parts.needed.items():
        found = [value[member.start : member.end] for member in members(value) if member.key == key]
        if not found or not all(_is(one, kind) for one in found):
            return None
    return without_wrong_members(value, parts.optional, repairs, f"{where}.")


def _mended_list(value: str, parts: Parts, repairs: list[str], where: str) -> str | None:
    if not value.startswith("["):
        return None
    before = [element.decode() for element in array_elements(value.encode())]
    after = []
    for position, element in enumerate(before):
        mended = _mended_object(element, parts, repairs, f"{where}[{position}]")
        if mended is None:
            repairs.append(f"{where}[{position}] was not what it must be and was taken out")
        else:
            after.append(mended)
    return value if before == after else f"[{','.join(after)}]"


def _is(value: str, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except (DecodeError, RecursionError):
        return False
    return True
