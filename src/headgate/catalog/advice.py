"""What the gateway tells a model about its list of tools, so that it can reach those that are not on it."""

from typing import Final

from headgate.catalog.budget import Level
from headgate.catalog.names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.catalog.views import View
from headgate.domain.listing import Mode

_FIND: Final = f"Find them with {RETRIEVE_TOOLS} by saying what you want to do"
_EXPAND: Final = f"Tools may be listed in few words: {EXPAND_SCHEMA} gives the whole of one."
_ADVICE: Final = {
    Mode.FULL: "",
    Mode.SLIM: "",
    Mode.SEARCH: f"Most tools are not listed. {_FIND}, then call them with {CALL_TOOL}.",
    Mode.DYNAMIC: (
        f"Most tools are not listed. {_FIND}; "
        "what it finds is added to the list and can be called by its name."
    ),
    Mode.BUDGET: "",
}
# All servers together; each conversation pays for it.
_LONGEST_SAID: Final = 4_000


def advice(wanted: Mode, shown: Mode, view: View | None = None) -> str:
    """The sentences for one mode; what auto came to be is said, and what tools of a server have in common."""
    parts = [_ADVICE[shown]]
    if view is not None and view.levels.keys() & {Level.SLIM, Level.STUB}:
        parts.append(_EXPAND)
    if view is not None and view.left:
        parts.append(f"{view.left} more tools are not listed. {_FIND}, then call them with {CALL_TOOL}.")
    if wanted is Mode.AUTO:
        parts.append(f"Listing: {shown} (auto).")
    lines = [" ".join(part for part in parts if part)]
    room = _LONGEST_SAID
    for server, said in (view.said if view is not None else {}).items():
        line = f"{server}: {said}"
        if len(line) <= room:
            room -= len(line)
            lines.append(line)
    return "\n".join(line for line in lines if line)
