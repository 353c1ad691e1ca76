"""The modes of tools/list, and what an operator pins, hides and renames."""

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from headgate.domain.wildcards import matches_any


class ListingMode(StrEnum):
    """How much of the catalog clients see; whatever it is, every tool can be called by its name."""

    # The fullest of full, slim and budget that fits the budget and the client.
    AUTO = "auto"
    # Every tool as its server defined it.
    FULL = "full"
    # Every tool with its whole description and its top-level arguments; expandSchema gives the nested parts.
    PARTITIONED = "partitioned"
    # Every tool in a few words, with what expands it.
    SLIM = "slim"
    # The gateway's own tools, which find and call the others.
    SEARCH = "search"
    # The search tool, and the tools that it has found for this client.
    DYNAMIC = "dynamic"
    # As much as fits a number of tokens.
    BUDGET = "budget"


# The modes that one server can have, whatever the mode of the gateway.
SERVER_MODES = (ListingMode.FULL, ListingMode.PARTITIONED, ListingMode.SLIM, ListingMode.SEARCH)


class Curation(msgspec.Struct, frozen=True):
    """The operator's settings for the tools of one server."""

    # None where the gateway's mode decides.
    mode: ListingMode | None = None
    # Patterns of the names that the server gives its tools; `*` stands for anything, all else for itself.
    pinned: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    # Public names of tools, by their names at the server.
    renamed: Mapping[str, str] = {}

    def pins(self, tool: str) -> bool:
        """Whether the tool is listed in full before any other."""
        return matches_any(tool, self.pinned)

    def hides(self, tool: str) -> bool:
        """Whether the tool does not exist for clients: neither listed, nor found, nor called."""
        return matches_any(tool, self.hidden)

    def without_effect(self, tools: Collection[str]) -> "Curation":
        """The settings that hide or rename none of these tools."""
        return Curation(
            hidden=tuple(one for one in self.hidden if not any(matches_any(tool, (one,)) for tool in tools)),
            renamed={tool: name for tool, name in self.renamed.items() if tool not in tools},
        )


NO_CURATION = Curation()
