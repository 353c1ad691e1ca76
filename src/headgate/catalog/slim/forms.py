"""The small forms of a tool: slim, from which it can be called, and a stub that says that it is there."""

from typing import Any, Final, NamedTuple

import msgspec

from headgate.catalog.slim.flat import Flat, flat, stub_names
from headgate.catalog.slim.keywords import keywords
from headgate.catalog.slim.reading import Tool, read
from headgate.catalog.slim.shared import NOTHING_SHARED, Shared
from headgate.catalog.slim.wording import told_briefly

# Of a description; nearly all first sentences are shorter.
_LONGEST: Final = 120
_FEW_WORDS: Final = 48
# Of the names of a stub's arguments together: room for two or three, of which a call mostly needs no more.
_STUB_LETTERS: Final = 24


class Forms(NamedTuple):
    """Both small forms of one tool."""

    slim: bytes
    stub: bytes


def forms(definition: bytes, shared: Shared = NOTHING_SHARED, *, every_type: bool = False) -> Forms:
    """What `slim` and `stub` give, from a definition that is read once."""
    tool = read(definition)
    if tool is None:
        return Forms(definition, definition)
    return Forms(
        _smaller(_slim(tool, shared, every_type=every_type), definition),
        _smaller(_stub(tool, shared), definition),
    )


def slim(definition: bytes, shared: Shared = NOTHING_SHARED, *, every_type: bool = False) -> bytes:
    """The tool with its arguments and the words that tell it apart; the definition where that is not smaller.

    Its schema names every argument, and accepts whatever the definition's accepts. With `every_type` it types
    them all, for clients that write nothing else.
    """
    tool = read(definition)
    if tool is None:
        return definition
    return _smaller(_slim(tool, shared, every_type=every_type), definition)


def _slim(tool: Tool, shared: Shared, *, every_type: bool) -> bytes:
    arguments = flat(tool.inputSchema, shared.arguments, every_type=every_type)
    words = told_briefly(tool.text, _LONGEST, shared.repeated)
    more = _more(tool, words, arguments, shared)
    if more:
        words = f"{words} [{more}]".lstrip()
    if arguments.left_out:
        words = f"{words} (+{arguments.left_out} args)".lstrip()
    return _encoded(tool, words, arguments.schema, _hints(tool.annotations))


def _more(tool: Tool, words: str, arguments: Flat, shared: Shared) -> str:
    """Words about its arguments that are shown nowhere else."""
    shown = arguments.schema.get("properties", {})
    choices = [choice for one in shown.values() for choice in one.get("enum", ())]
    known = " ".join([tool.name, words, *shown, *choices])
    return keywords(arguments.arguments.values(), known, _LONGEST - len(words), shared.repeated)


def stub(definition: bytes, shared: Shared = NOTHING_SHARED) -> bytes:
    """The tool with a few words and the names of some arguments; never larger than its slim form."""
    tool = read(definition)
    if tool is None:
        return definition
    return _smaller(_stub(tool, shared), definition)


def _stub(tool: Tool, shared: Shared) -> bytes:
    words = told_briefly(tool.text, _FEW_WORDS, shared.repeated)
    schema: dict[str, Any] = {"type": "object"}
    named = stub_names(tool.inputSchema, _STUB_LETTERS)
    if named:
        schema["properties"] = {name: {} for name in named}
    return _encoded(tool, words, schema)


def _encoded(tool: Tool, words: str, schema: dict[str, Any], hints: dict[str, bool] | None = None) -> bytes:
    short: dict[str, Any] = {"name": tool.name}
    if words:
        short["description"] = words
    short["inputSchema"] = schema
    if hints:
        short["annotations"] = hints
    return msgspec.json.encode(short)


def _hints(annotations: Any) -> dict[str, bool] | None:
    """What changes how a client treats the tool: without hints it counts as one that may destroy."""
    own = annotations if isinstance(annotations, dict) else {}
    if own.get("readOnlyHint") is True:
        return {"readOnlyHint": True}
    return {"destructiveHint": False} if own.get("destructiveHint") is False else None


def _smaller(form: bytes, definition: bytes) -> bytes:
    return form if len(form) < len(definition) else definition
