"""Cache of the reduced and dialect-adapted forms of tool definitions."""

from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.catalog.slim_tools import (
    SharedText,
    SlimForms,
    find_shared_text,
    make_slim_forms,
    partition_tool,
)
from headgate.catalog.tool_dialects import AdaptedTool, Dialect, adapt_tool, is_restorable
from headgate.domain.item import Item

# Of definitions, each server's as clients of a profile see it; a server may list something new every second.
MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_ADAPTED: Final = 40_000


class ReducedTools(msgspec.Struct, frozen=True):
    """The tools of one server in few words."""

    shared_text: str
    slims: dict[bytes, bytes]
    stubs: dict[bytes, bytes]


class ToolForms:
    """What was put into words before, so that a change of one server costs nothing for the others."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """What was not asked for the longest is forgotten beyond `most_bytes` of definitions."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._servers: dict[tuple[bool, tuple[bytes, ...]], ReducedTools] = {}
        self._partitioned: dict[tuple[bool, bytes], bytes] = {}
        self._adapted: dict[tuple[Dialect, bytes], AdaptedTool] = {}

    def reduced(self, items: Sequence[Item], dialect: Dialect = Dialect.PLAIN) -> dict[str, ReducedTools]:
        """By server, still to be adapted to the dialect; what takes long is done here."""
        definitions: dict[str, list[bytes]] = {}
        for item in items:
            definitions.setdefault(item.server, []).append(item.definition)
        strict = dialect is Dialect.OPENAI
        return {server: self._reduced(tuple(own), strict=strict) for server, own in definitions.items()}

    def _reduced(self, definitions: tuple[bytes, ...], *, strict: bool) -> ReducedTools:
        key = (strict, definitions)
        reduced_tools = self._servers.pop(key, None)
        if reduced_tools is None:
            reduced_tools = _reduced_tools(definitions, strict=strict)
            self._bytes += _size(definitions)
        # To the end, where it is not dropped.
        self._servers[key] = reduced_tools
        while self._bytes > self._most_bytes and len(self._servers) > 1:
            oldest = next(iter(self._servers))
            del self._servers[oldest]
            self._bytes -= _size(oldest[1])
        return reduced_tools

    def partitioned(self, definition: bytes, dialect: Dialect = Dialect.PLAIN) -> bytes:
        """The definition with its top-level arguments, still to be adapted to the dialect."""
        key = (dialect is Dialect.OPENAI, definition)
        form = self._partitioned.get(key)
        if form is None:
            form = partition_tool(definition)
            # A strict client fills in what the schema says, and the tool must be able to read it.
            if dialect is Dialect.OPENAI and not is_restorable(form, definition):
                form = definition
            # Another thread may do the same meanwhile, so nothing is read again.
            if len(self._partitioned) >= _MOST_ADAPTED:
                self._partitioned.clear()
            self._partitioned[key] = form
        return form

    def adapted(self, definition: bytes, dialect: Dialect) -> AdaptedTool:
        """The definition in that dialect, and what was changed."""
        if dialect is Dialect.PLAIN:
            return AdaptedTool(definition, ())
        key = (dialect, definition)
        adapted = self._adapted.get(key)
        if adapted is None:
            adapted = adapt_tool(definition, dialect)
            # Another thread may do the same meanwhile, so nothing is read again.
            if len(self._adapted) >= _MOST_ADAPTED:
                self._adapted.clear()
            self._adapted[key] = adapted
        return adapted


def _size(definitions: tuple[bytes, ...]) -> int:
    return sum(map(len, definitions))


def _reduced_tools(definitions: tuple[bytes, ...], *, strict: bool) -> ReducedTools:
    common: SharedText = find_shared_text(definitions)
    formed = {definition: _forms(definition, common, strict=strict) for definition in definitions}
    return ReducedTools(
        common.summary,
        {definition: both.slim for definition, both in formed.items()},
        {definition: both.stub for definition, both in formed.items()},
    )


def _forms(definition: bytes, common: SharedText, *, strict: bool) -> SlimForms:
    # A strict client cannot give an argument without a type.
    both = make_slim_forms(definition, common, every_type=strict)
    if strict and not is_restorable(both.slim, definition):
        # What it writes for the few words could not be read by the tool's own schema.
        return SlimForms(definition, both.stub)
    return both
