"""Reads one definition as text: finds members, splits off the input schema, removes wrong members."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.item import DefinitionText
from headgate.protocol.json_scan import (
    JsonMember,
    array_elements,
    object_members,
    remove_member,
    replace_member,
)
from headgate.schema.keywords import as_text


class LenientTool(msgspec.Struct):
    """A tool definition with members of any type, so that a malformed one does not cost the others."""

    name: Any = None
    title: Any = None
    description: Any = None
    inputSchema: Any = None  # noqa: N815 (the protocol's spelling)
    annotations: Any = None

    @property
    def text(self) -> str:
        """The description; empty if it is no text."""
        return as_text(self.description)


_lenient_tool = msgspec.json.Decoder(LenientTool)


def read_tool(definition: bytes) -> LenientTool:
    """The tool; without any member if the definition is no JSON object."""
    try:
        return _lenient_tool.decode(definition)
    except (DecodeError, UnicodeError, RecursionError):
        return LenientTool()


class UnusableDefinition(ValueError):
    """A definition that no client could use."""


class IconDefinition(msgspec.Struct, rename="camel"):
    """An icon as clients read it."""

    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: Literal["light", "dark"] = "light"


class RepairableObject(msgspec.Struct, frozen=True):
    """An object that is repaired member by member, provided that it has the needed ones."""

    optional: Mapping[str, Any]
    needed: Mapping[str, Any] = {}


class RepairableList(msgspec.Struct, frozen=True):
    """A list of such objects; one that cannot be repaired is removed."""

    parts: RepairableObject


# The optional members of any definition, with their types.
OPTIONAL_MEMBERS: dict[str, Any] = {
    "title": str,
    "description": str,
    "icons": list[IconDefinition],
    "_meta": dict[str, Raw],
}


def keyed_definition(text: str, key: str) -> tuple[str, DefinitionText]:
    """The name in the definition, and its position; raises UnusableDefinition without one."""
    member = single_member(text, key)
    if member is None:
        raise UnusableDefinition(f"it has no {key}")
    called = msgspec.json.decode(text[member.start : member.end])
    if not isinstance(called, str) or not called:
        raise UnusableDefinition(f"its {key} is not a text")
    return called, DefinitionText(text, member.start, member.end)


# One text is read several times in a row, and most texts are not changed.
@lru_cache(maxsize=4)
def definition_members(text: str) -> tuple[JsonMember, ...]:
    """The members of the object; raises ValueError if it is none."""
    return tuple(object_members(text))


def single_member(text: str, key: str) -> JsonMember | None:
    """The member of that key, if any; raises UnusableDefinition if there are two."""
    found = [member for member in definition_members(text) if member.key == key]
    if len(found) > 1:
        raise UnusableDefinition(f"it has {key!r} twice")
    return found[0] if found else None


def without_wrong_members(text: str, types: Mapping[str, Any], repairs: list[str], where: str = "") -> str:
    """The object without members that do not have the `types`; each removal is added to `repairs`."""
    # From last to first, so that the positions of the others stay valid.
    for member in reversed(definition_members(text)):
        kind = types.get(member.key)
        if kind is None:
            continue
        value = text[member.start : member.end]
        repaired: str | None
        if isinstance(kind, RepairableObject):
            repaired = _repaired_object(value, kind, repairs, where + member.key)
        elif isinstance(kind, RepairableList):
            repaired = _repaired_list(value, kind.parts, repairs, where + member.key)
        else:
            repaired = value if _decodes_as(value, kind) else None
        if repaired is None:
            text = remove_member(text, member)
            repairs.append(f"{where}{member.key} was not what it must be and was taken out")
        elif repaired != value:
            text = replace_member(text, member, repaired)
    return text


def _repaired_object(value: str, parts: RepairableObject, repairs: list[str], where: str) -> str | None:
    if not value.startswith("{"):
        return None
    for key, kind in parts.needed.items():
        found = [one for one in definition_members(value) if one.key == key]
        if not found or not all(_decodes_as(value[one.start : one.end], kind) for one in found):
            return None
    return without_wrong_members(value, parts.optional, repairs, f"{where}.")


def _repaired_list(value: str, parts: RepairableObject, repairs: list[str], where: str) -> str | None:
    if not value.startswith("["):
        return None
    before = [element.decode() for element in array_elements(value.encode())]
    after = []
    for position, element in enumerate(before):
        repaired = _repaired_object(element, parts, repairs, f"{where}[{position}]")
        if repaired is None:
            repairs.append(f"{where}[{position}] was not what it must be and was taken out")
        else:
            after.append(repaired)
    return value if before == after else f"[{','.join(after)}]"


def _decodes_as(value: str, kind: Any) -> bool:
    try:
        msgspec.json.decode(value, type=kind)
    except (DecodeError, RecursionError):
        return False
    return True


class SplitDefinition(NamedTuple):
    """A definition in two texts."""

    schema: str
    docs: str


def split_definition(definition: str) -> SplitDefinition | None:
    """The inputSchema, and the definition without it; None if it cannot be parsed."""
    try:
        found = [member for member in definition_members(definition) if member.key == "inputSchema"]
    except (ValueError, RecursionError):
        return None
    if not found:
        return None
    return SplitDefinition(definition[found[0].start : found[0].end], remove_member(definition, found[0]))
