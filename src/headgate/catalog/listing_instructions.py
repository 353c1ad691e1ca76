"""The `instructions` that explain the list of tools to a model, so that it can use every tool."""

from collections.abc import Sequence
from typing import Final

import msgspec

from headgate.catalog.listing_budget import DetailLevel
from headgate.catalog.listing_builder import BuiltListing
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.domain.listing_mode import ListingMode

_FIND: Final = f"Describe a task to {RETRIEVE_TOOLS} to find tools for it"
_FIND_AND_CALL: Final = f"{_FIND}, then call them with {CALL_TOOL}."
_EXPAND: Final = (
    f"Some tools have a reduced description or schema. {EXPAND_SCHEMA} returns the full schema of a tool."
)
_MODE_INSTRUCTIONS: Final = {
    ListingMode.SEARCH: f"Most tools are not listed. {_FIND_AND_CALL}",
    ListingMode.DYNAMIC: (
        f"Most tools are not listed. {_FIND}. "
        f"{RETRIEVE_TOOLS} adds them to the tool list, and you call them by name."
    ),
}
# All servers together; every conversation pays for it.
_LONGEST_SHARED_TEXT: Final = 4_000
_MOST_NAMED: Final = 20


class MissingServers(msgspec.Struct, frozen=True):
    """The servers whose tools are missing from the list, because they have never been connected."""

    starting: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


NOTHING_MISSING: Final = MissingServers()


def mode_instructions(
    requested: ListingMode,
    resulting: ListingMode,
    built: BuiltListing | None = None,
    missing: MissingServers = NOTHING_MISSING,
) -> str:
    """The sentences on the mode, the missing servers, and the shared text of each server's tools.

    While servers are starting, the list is about to change, so the sentences hold for any outcome.
    """
    growing = bool(missing.starting) and built is not None and requested is not ListingMode.FULL
    levels = built.levels.keys() if built is not None else set()
    parts = [_MODE_INSTRUCTIONS.get(resulting, "")]
    if growing or levels & {DetailLevel.PARTITIONED, DetailLevel.SLIM, DetailLevel.STUB}:
        parts.append(_EXPAND)
    if growing and requested in (ListingMode.AUTO, ListingMode.BUDGET):
        parts.append(f"If {RETRIEVE_TOOLS} is listed, there are tools that are not listed. {_FIND_AND_CALL}")
    elif built is not None and built.unlisted_count:
        more = "1 more tool is" if built.unlisted_count == 1 else f"{built.unlisted_count} more tools are"
        parts.append(f"{more} not listed. {_FIND_AND_CALL}")
    if requested is ListingMode.AUTO and not growing:
        parts.append(f"Listing: {resulting} (auto).")
    parts.append(_incomplete(missing))
    lines = [" ".join(part for part in parts if part)]
    room = _LONGEST_SHARED_TEXT
    for server, shared_text in (built.shared_texts if built is not None else {}).items():
        line = f"{server}: {shared_text}"
        if len(line) <= room:
            room -= len(line)
            lines.append(line)
    return "\n".join(line for line in lines if line)


def _incomplete(missing: MissingServers) -> str:
    """The missing servers, and what the model can do about them."""
    parts = []
    if missing.starting:
        parts.append(f"Still starting: {_named(missing.starting)}.")
    if missing.unavailable:
        parts.append(f"Not reachable: {_named(missing.unavailable)}.")
    if not parts:
        return ""
    return f"The list of tools is incomplete. {' '.join(parts)} List the tools again later to see theirs."


def _named(servers: Sequence[str]) -> str:
    more = len(servers) - _MOST_NAMED
    named = ", ".join(servers[:_MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named
