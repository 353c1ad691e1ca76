"""Which HTTP headers an operator may name."""

import re

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A second one beside ours would cut requests in the wrong place or contradict the protocol.
_OURS = ("content-length", "transfer-encoding", "connection")
_OUR_PREFIX = "mcp-"
# Other clients' configurations have them, and what we send says the same or is what we can read.
_NEEDLESS = ("accept", "accept-encoding", "content-type")
# They mean something already, which a key in their place would break.
_TAKEN = ("host", "last-event-id", "cache-control")


def is_header(name: str) -> bool:
    """Whether HTTP allows the name."""
    return _NAME.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Whether only the gateway may write the header."""
    return name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX)


def is_needless(name: str) -> bool:
    """Whether the gateway writes the header itself, so that another value has no effect."""
    return name.lower() in _NEEDLESS


def is_free(name: str) -> bool:
    """Whether the header can carry something of the operator's choice."""
    return is_header(name) and not is_ours(name) and not is_needless(name) and name.lower() not in _TAKEN
