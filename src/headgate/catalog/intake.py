"""Takes in one upstream's listing, leniently: a tool that is odd is repaired, or left out with a reason."""

import logging
from collections.abc import Iterable

import msgspec

from headgate.domain.tool import UpstreamTool
from headgate.wire.members import Member, insert_first, members, replace

log = logging.getLogger("headgate.catalog")


class Intake(msgspec.Struct, frozen=True):
    """The tools of one upstream that can be served, and why others cannot."""

    tools: tuple[UpstreamTool, ...]
    left_out: dict[str, str]


class Unusable(ValueError):
    """A definition that no client could use."""


def take_in(server: str, definitions: Iterable[bytes]) -> Intake:
    """Every definition that can be served, in the upstream's order."""
    tools: dict[str, UpstreamTool] = {}
    left_out: dict[str, str] = {}
    for position, definition in enumerate(definitions):
        try:
            tool = _take_in_one(server, definition)
            if tool.name in tools:
                raise Unusable(f"a second tool is called {tool.name!r}")
        except (ValueError, RecursionError) as error:
            label = f"#{position + 1}"
            left_out[label] = str(error)[:200]
            log.warning("tool left out", extra={"server": server, "tool": label, "reason": str(error)[:200]})
            continue
        tools[tool.name] = tool
    return Intake(tuple(tools.values()), left_out)


def _take_in_one(server: str, definition: bytes) -> UpstreamTool:
    text = definition.decode()
    text = _repaired(server, text)
    name = _only(text, "name")
    if name is None:
        raise Unusable("it has no name")
    called = msgspec.json.decode(text[name.start : name.end])
    if not isinstance(called, str) or not called:
        raise Unusable("its name is not a text")
    return UpstreamTool(called, text, name.start, name.end)


def _only(text: str, key: str) -> Member | None:
    found = [member for member in members(text) if member.key == key]
    if len(found) > 1:
        raise Unusable(f"it has {key!r} twice")
    return found[0] if found else None


def _repaired(server: str, text: str) -> str:
    """The definition with the `type: object` that its input schema must have."""
    schema = _only(text, "inputSchema")
    if schema is None:
        repaired = insert_first(text, '"inputSchema":{"type":"object"}')
    else:
        inner = text[schema.start : schema.end]
        if not inner.startswith("{"):
            raise Unusable("its inputSchema is not an object")
        kind = _only(inner, "type")
        if kind is not None:
            return text
        repaired = replace(text, schema, insert_first(inner, '"type":"object"'))
    log.info("tool repaired", extra={"server": server, "repair": "inputSchema has no type: object"})
    return repaired
