"""The gateway's own tools, as clients see them."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.catalog.names import CALL_TOOL, RETRIEVE_TOOLS

MOST_FOUND: Final = 50
# Each is a search of its own.
MOST_QUERIES: Final = 10
# Names of servers in a description that every conversation pays for.
_LONGEST_NAMES: Final = 300
_LONGEST_NAME: Final = 60

_RETRIEVE: Final[dict[str, Any]] = {
    "name": RETRIEVE_TOOLS,
    "title": "Find tools",
    "description": (
        "Find tools of the connected servers by what they do. "
        "Say in plain words what you want to get done; use queries for several things at once."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool should do."},
            "queries": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_QUERIES},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND},
            "servers": {"type": "array", "items": {"type": "string"}, "description": "Only of these."},
            "read_only": {"type": "boolean", "description": "Only tools that change nothing."},
            "detail": {
                "type": "string",
                "enum": ["brief", "full", "explain"],
                "description": "full: whole schemas; explain: why each tool was found.",
            },
        },
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}
_CALL: Final[dict[str, Any]] = {
    "name": CALL_TOOL,
    "title": "Call a tool",
    "description": f"Call a tool that {RETRIEVE_TOOLS} has found.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": f"As {RETRIEVE_TOOLS} names it."},
            "args": {"type": "object", "description": "As its input_schema says."},
        },
        "required": ["name"],
    },
}

CALL_DEFINITION: Final = msgspec.json.encode(_CALL)


def retrieve_definition(servers: Sequence[str]) -> bytes:
    """The tool that finds others; a model looks for a tool only if it knows what there is to find."""
    if not servers:
        return msgspec.json.encode(_RETRIEVE)
    named: list[str] = []
    for server in servers:
        if named and len(", ".join([*named, server])) > _LONGEST_NAMES:
            break
        named.append(server[:_LONGEST_NAME])
    more = len(servers) - len(named)
    behind = f"Servers: {', '.join(named)}{f' and {more} more' if more else ''}."
    return msgspec.json.encode({**_RETRIEVE, "description": f"{_RETRIEVE['description']} {behind}"})
