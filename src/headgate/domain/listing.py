"""What tools/list shows."""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache

import msgspec


class Mode(StrEnum):
    """How much of the catalog clients see; whatever it is, every tool can be called by its name."""

    # The fullest of full, slim and budget that fits the budget and the client.
    AUTO = "auto"
    # Every tool as its server defined it.
    FULL = "full"
    # Every tool in a few words, with what expands it.
    SLIM = "slim"
    # The gateway's own tools, which find and call the others.
    SEARCH = "search"
    # What finds tools, and those that it has found for this client so far.
    DYNAMIC = "dynamic"
    # As much as fits a number of tokens.
    BUDGET = "budget"


# How the tools of one server can be shown, whatever the mode of the gateway.
SERVER_MODES = (Mode.FULL, Mode.SLIM, Mode.SEARCH)


class Curation(msgspec.Struct, frozen=True):
    """What the operator of the gateway wants of one server's tools."""

    # None where the gateway's mode decides.
    mode: Mode | None = None
    # Patterns of the names that the server gives its tools; `*` stands for anything, all else for itself.
    pinned: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    # What clients call a tool, by its name at the server.
    renamed: Mapping[str, str] = {}

    def pins(self, tool: str) -> bool:
        """Whether the tool is shown in full before any other."""
        return _fits(tool, self.pinned)

    def hides(self, tool: str) -> bool:
        """Whether the tool does not exist for clients: neither listed, nor found, nor called."""
        return _fits(tool, self.hidden)

    def idle(self, tools: Collection[str]) -> "Curation":
        """What of this hides or renames none of these tools."""
        return Curation(
            hidden=tuple(one for one in self.hidden if not any(_fits(tool, (one,)) for tool in tools)),
            renamed={tool: name for tool, name in self.renamed.items() if tool not in tools},
        )


PLAIN_CURATION = Curation()


def _fits(tool: str, patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and _compiled(patterns).fullmatch(tool) is not None


# Each tool is asked about after each change; there are a few of these for each server.
@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, patterns)), re.DOTALL)


def _expression(pattern: str) -> str:
    first, *rest = map(re.escape, pattern.split("*"))
    if not rest:
        return first
    # What stands between two stars is looked for once: `*a*a*a*b` must not take minutes for a long name.
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + f".*{rest[-1]}"
