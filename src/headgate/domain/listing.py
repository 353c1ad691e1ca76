"""What tools/list shows."""

from enum import StrEnum


class Mode(StrEnum):
    """How much of the catalog clients see; whatever it is, every tool can be called by its name."""

    # Every tool.
    FULL = "full"
    # The gateway's own tools, which find and call the others.
    SEARCH = "search"
    # What finds tools, and those that it has found for this client so far.
    DYNAMIC = "dynamic"
