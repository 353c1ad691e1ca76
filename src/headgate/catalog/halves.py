"""Parts a tool's definition into the schema of its arguments and everything else, as they stand there."""

from typing import NamedTuple

from headgate.protocol.json_members import object_members, remove_member


class Halves(NamedTuple):
    """Two texts that hold the whole definition between them."""

    schema: str
    docs: str


def halves(definition: str) -> Halves | None:
    """The inputSchema and the definition without it; None of what no parser takes."""
    try:
        found = [member for member in object_members(definition) if member.key == "inputSchema"]
    except (ValueError, RecursionError):
        return None
    if not found:
        return None
    return Halves(definition[found[0].start : found[0].end], remove_member(definition, found[0]))
