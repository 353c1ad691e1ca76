"""Short descriptions and schemas of found tools, and how many of them fit a reply."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headgate.catalog.definition_text import LenientTool
from headgate.schema.keywords import properties_of, required_names

# Of one schema; a larger one has less about each argument.
_ENOUGH_CHARACTERS: Final = 420
_MOST_CHOICES: Final = 8
_LONGEST_CHOICE: Final = 40
# Of a description; the first sentence mostly states the purpose.
_LONGEST_BRIEF: Final = 160
# A full stop that ends a sentence, not an abbreviation.
_END: Final = re.compile(r"(?<!\be\.g)(?<!\bi\.e)\. ", re.IGNORECASE)


def schema_of(tool: LenientTool) -> dict[str, Any]:
    """The schema of its arguments as its server wrote it."""
    return tool.inputSchema if isinstance(tool.inputSchema, dict) else {"type": "object"}


def brief(description: str) -> str:
    """The first sentence of a description, or as many words as fit."""
    text = " ".join(description.split())
    end = _END.search(text, 1, _LONGEST_BRIEF + 1)
    if end is not None:
        return text[: end.start() + 1]
    if len(text) <= _LONGEST_BRIEF:
        return text
    return text[:_LONGEST_BRIEF].rsplit(" ", 1)[0] + "…"


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of the names and types of the arguments, with the required ones.

    If that is too long, choices are dropped first, then optional arguments; `omitted` counts these.
    """
    properties = properties_of(schema)
    required = [name for name in required_names(schema) if name in properties]
    for choices in (True, False):
        short = _built(
            {name: _argument(inner, choices=choices) for name, inner in properties.items()}, required
        )
        if len(msgspec.json.encode(short)) <= _ENOUGH_CHARACTERS:
            return short
    needed = {name: _argument(properties[name], choices=False) for name in required}
    left_out = len(properties) - len(needed)
    return _built(needed, required) | ({"omitted": left_out} if left_out else {})


def _built(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    built: dict[str, Any] = {"type": "object"}
    if properties:
        built["properties"] = properties
    if required:
        built["required"] = required
    return built


def _argument(schema: Any, *, choices: bool) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    short: dict[str, Any] = {}
    kind = schema.get("type") or _types_of_branches(schema)
    if isinstance(kind, str | list):
        short["type"] = kind
    values = schema.get("enum")
    if choices and isinstance(values, list) and len(values) <= _MOST_CHOICES:
        sized = (value for value in values if isinstance(value, str | list | dict))
        if all(len(value) <= _LONGEST_CHOICE for value in sized):
            short["enum"] = values
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and isinstance(items.get("type"), str):
        short["items"] = {"type": items["type"]}
    return short


def _types_of_branches(schema: dict[str, Any]) -> str | list[str] | None:
    """The types of the alternatives of an argument."""
    branches = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(branches, list):
        return None
    types = dict.fromkeys(
        branch["type"]
        for branch in branches[:_MOST_CHOICES]
        if isinstance(branch, dict) and isinstance(branch.get("type"), str)
    )
    # A nullable argument can be omitted as well.
    found = [kind for kind in types if kind != "null"]
    return found[0] if len(found) == 1 else found or None


# Of the text of a reply, about 8,000 tokens (decision 0080).
MOST_CHARACTERS: Final = 32_000
# The largest part of it for tools of which only the name is given.
_NAMES_SHARE: Final = 4
_AROUND_NAME: Final = len('"",')
_AROUND_MARK: Final = len(',"brief":true')


class ReplyEntry(NamedTuple):
    """One tool: its name, its brief form, and its requested form if that is longer."""

    name: str
    brief: dict[str, Any]
    whole: Callable[[], dict[str, Any]] | None


class FittedReply(NamedTuple):
    """The tools of a reply, in order."""

    tools: list[dict[str, Any]]
    # The number of tools in brief instead of the requested form.
    brief: int
    # Tools with only their name, and the number of tools without even that.
    named: list[str]
    unnamed: int

    @property
    def found(self) -> int:
        """The number of all found tools."""
        return len(self.tools) + len(self.named) + self.unnamed


def fit_reply(entries: Sequence[ReplyEntry], room: int) -> FittedReply:
    """As many brief entries as fit, best first; then as many of these in full, best first."""
    fitting, named, left = list[ReplyEntry](), list[str](), room
    names = sum(len(entry.name) + _AROUND_NAME for entry in entries)
    for entry in entries:
        names -= len(entry.name) + _AROUND_NAME
        size = size_of(entry.brief) + (_AROUND_MARK if entry.whole else 0)
        if size <= left - min(names, room // _NAMES_SHARE):
            fitting.append(entry)
            left -= size
        else:
            named.append(entry.name)
    first = list[str]()
    for name in named:
        if len(name) + _AROUND_NAME > left:
            break
        left -= len(name) + _AROUND_NAME
        first.append(name)
    tools, brief = _completed(fitting, left)
    return FittedReply(tools, brief, first, len(named) - len(first))


def size_of(part: object) -> int:
    """The characters of a part of a reply, with a comma."""
    return len(msgspec.json.encode(part).decode()) + 1


def _completed(entries: Sequence[ReplyEntry], room: int) -> tuple[list[dict[str, Any]], int]:
    """The entries in full while they fit, others marked as brief, and the number of these."""
    tools, brief = list[dict[str, Any]](), 0
    for entry in entries:
        if entry.whole is None:
            tools.append(entry.brief)
            continue
        whole = entry.whole()
        more = size_of(whole) - size_of(entry.brief)
        if more <= room:
            room -= max(more, 0)
            tools.append(whole)
        else:
            brief += 1
            tools.append(entry.brief | {"brief": True})
    return tools, brief
