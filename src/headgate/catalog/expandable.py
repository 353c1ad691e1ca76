"""Everything that expandSchema can give the whole of: the tools of the servers, and the gateway's own."""

from collections.abc import Sequence
from typing import Protocol

from headgate.catalog.names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.catalog.own import CALL_DEFINITION, EXPAND_DEFINITION, Reader, retrieve_definition
from headgate.domain.call import Caller
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.profile import Profile


class Tools(Protocol):
    """The tools of the servers."""

    def find(self, name: str, caller: Caller, profile: Profile) -> Item | None:
        """The tool of that name, in any spelling, if clients of that profile see it."""

    def nearest(self, name: str) -> list[str]:
        """The names that are most like it."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""


class Access(Protocol):
    """Decides who may see what."""

    def may_see(self, caller: Caller, item: Item) -> bool:
        """Whether the tool is shown to the caller at all."""


class Expandable:
    """A small budget says little of the gateway's own tools too."""

    def __init__(self, tools: Tools, access: Access, readers: Sequence[Reader] = ()) -> None:
        """`readers` are those of the gateway's own tools that are listed behind those of servers."""
        self._tools = tools
        self._readers = {reader.name: reader.whole for reader in readers}
        self._access = access
        self.nearest = tools.nearest

    def find(self, name: str, caller: Caller, profile: Profile) -> Item | None:
        """The tool of that name, if the client sees it."""
        item = self._tools.find(name, caller, profile)
        if item is not None and self._access.may_see(caller, item):
            return item
        return self._own(name)

    def _own(self, name: str) -> Item | None:
        own = {
            RETRIEVE_TOOLS: retrieve_definition(self._tools.servers()),
            CALL_TOOL: CALL_DEFINITION,
            EXPAND_SCHEMA: EXPAND_DEFINITION,
            **self._readers,
        }
        definition = own.get(name)
        return Item(Kind.TOOLS, "", name, name, definition) if definition is not None else None
