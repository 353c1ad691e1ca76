"""The tools that read stored results, as clients see them; every conversation pays for each word."""

from typing import Any, Final

import msgspec

from headgate.responses.params import ContextType, SearchMode, Unit
from headgate.responses.tools.names import EXPLORE, FILTER, NAMES, QUERY, READ, SEARCH

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_SWITCH: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
# Either a stored result, or a call whose result is stored and looked at at once.
# The arguments say that they are open, because pydantic-ai closes every object that does not.
_ARGUMENTS: Final = {"type": "object", "additionalProperties": True}
_SOURCE: Final = {"cache_id": _TEXT, "tool": _TEXT, "arguments": _ARGUMENTS}
_OF: Final = "of a stored result (cache_id) or of a new call (tool, arguments)"
_COMPACT: Final = {"type": "string", "enum": ["json", "compact"]}


def _tool(name: str, description: str, needed: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": _SOURCE | properties}
    if needed:
        schema["required"] = list(needed)
    return {"name": name, "description": description, "inputSchema": schema}


_TOOLS: Final = {
    FILTER: _tool(
        FILTER,
        f"Some fields, or columns of CSV, {_OF}, e.g. users.email, users[0], items.*.id.",
        (),
        fields=_TEXTS,
        exclude=_TEXTS,
        mode={"type": "string", "enum": ["include", "exclude"]},
        path=_TEXT,
        offset=_NUMBER,
        format=_COMPACT,
    ),
    SEARCH: _tool(
        SEARCH,
        f"Lines or elements {_OF} that match a pattern: RE2 regex, or words for bm25 and fuzzy. "
        "fields and exclude filter first.",
        ("pattern",),
        pattern=_TEXT,
        mode={"type": "string", "enum": [*SearchMode]},
        path=_TEXT,
        fields=_TEXTS,
        exclude=_TEXTS,
        max_results=_NUMBER,
        offset=_NUMBER,
        context_lines=_NUMBER,
        before=_NUMBER,
        after=_NUMBER,
        case_insensitive=_SWITCH,
        multiline=_SWITCH,
        threshold={"type": "number"},
        top_k=_NUMBER,
        context_type={"type": "string", "enum": [*ContextType]},
    ),
    EXPLORE: _tool(
        EXPLORE,
        f"Types, fields, counts, sizes and samples {_OF}.",
        (),
        path=_TEXT,
        max_depth=_NUMBER,
    ),
    READ: _tool(
        READ,
        f"Lines or elements {_OF} from offset on; a negative one counts from the end.",
        (),
        path=_TEXT,
        offset=_NUMBER,
        limit=_NUMBER,
        unit={"type": "string", "enum": [*Unit]},
        format=_COMPACT,
    ),
    QUERY: _tool(
        QUERY,
        f"SQLite SELECT over the table `rows` {_OF}: objects by their fields, text as n and line. "
        "To count, sum, group, sort.",
        ("sql",),
        sql=_TEXT,
        path=_TEXT,
    ),
}
_STUBBED: Final = {
    SEARCH: ("Find lines or elements in a stored result.", ("cache_id", "pattern")),
    FILTER: ("Some fields of a stored result.", ("cache_id", "fields")),
    EXPLORE: ("What a stored result consists of.", ("cache_id",)),
    READ: ("Page through a stored result.", ("cache_id", "offset")),
    QUERY: ("SQL over the table `rows` of a stored result.", ("cache_id", "sql")),
}


def _stub(name: str) -> bytes:
    """The tool with as little said of it as a model needs to use it."""
    description, arguments = _STUBBED[name]
    known = _TOOLS[name]["inputSchema"]["properties"]
    properties = {
        argument: {key: value for key, value in known[argument].items() if key != "description"}
        for argument in arguments
    }
    schema = {"type": "object", "properties": properties, "required": list(arguments[:1])}
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema})


DEFINITIONS: Final = {name: msgspec.json.encode(_TOOLS[name]) for name in NAMES}
STUBS: Final = {name: _stub(name) for name in NAMES}
