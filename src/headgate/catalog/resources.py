"""What a resource and a resource template must be, so that clients can read the page they are on."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headgate.catalog.definition import OPTIONAL, Parts, definition, only, without_wrong_members
from headgate.domain.item import Source
from headgate.domain.kind import Kind
from headgate.protocol.json_members import insert_first_member, replace_member

_TIME = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
    r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
)
_ANNOTATIONS = Parts(
    {
        "audience": list[Literal["user", "assistant"]],
        "priority": Annotated[float, Meta(ge=0, le=1)],
        "lastModified": Annotated[str, Meta(pattern=_TIME)],
    }
)
_OPTIONAL: dict[str, Any] = OPTIONAL | {"mimeType": str, "size": int, "annotations": _ANNOTATIONS}


def take_in_resource(text: str) -> tuple[Source, list[str]]:
    """The resource, and what had to be mended; raises ValueError when it cannot be served."""
    return _take_in(text, Kind.RESOURCES)


def take_in_template(text: str) -> tuple[Source, list[str]]:
    """The template, and what had to be mended; raises ValueError when it cannot be served."""
    return _take_in(text, Kind.TEMPLATES)


def _take_in(text: str, kind: Kind) -> tuple[Source, list[str]]:
    repairs: list[str] = []
    text = without_wrong_members(text, _OPTIONAL, repairs)
    uri, found = definition(text, kind.key)
    named = _with_name(text, uri, repairs)
    if named != text:
        uri, found = definition(named, kind.key)
    return Source(uri, found), repairs


def _with_name(text: str, uri: str, repairs: list[str]) -> str:
    """Clients need a name to show; what a person can tell it by is its URI."""
    name = only(text, "name")
    quoted = msgspec.json.encode(uri).decode()
    if name is None:
        repairs.append("name was missing")
        return insert_first_member(text, f'"name":{quoted}')
    if text[name.start] != '"':
        repairs.append("name was not a text")
        return replace_member(text, name, quoted)
    return text
