"""The small forms of tools (slim, stub, partitioned, adapted to a dialect) and their cache."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headgate.catalog.definition_text import LenientTool, read_tool
from headgate.catalog.short_description import argument_keywords, sentences, shorten_description
from headgate.catalog.tool_dialects import AdaptedTool, Dialect, adapt_tool, is_restorable
from headgate.domain.item import Item
from headgate.schema.keywords import (
    COMBINING_KEYWORDS,
    CONDITIONAL_KEYWORDS,
    as_object,
    properties_of,
)
from headgate.schema.reduction import flatten_arguments, optional_arguments, partition_schema, stub_names

# Fewer tools share nothing that is worth a sentence.
_FEWEST_TOOLS: Final = 5
# A sentence that this share of the tools has is not distinctive; with the larger share it is summarised.
_REPEATED: Final = 0.1
_SUMMARISED: Final = 0.3
_MOST_ARGUMENTS: Final = 10
_LONGEST_NAME: Final = 32
# Of an argument.
_LONGEST_TEXT: Final = 1_000
# Bytes of a definition; parsing a larger one again takes longer than it is worth.
_LONGEST_READ: Final = 256 * 1024
_SENTENCE_LENGTHS: Final = range(20, 160)
_LONGEST_SUMMARY: Final = 400
# For the words in between.
_SPACE: Final = 40


class SharedText(msgspec.Struct, frozen=True):
    """Text that the tools of one server repeat, and a summary of it."""

    # Sentences of descriptions and texts of arguments that are not distinctive.
    repeated: frozenset[str] = frozenset()
    # The most common first.
    arguments: tuple[str, ...] = ()
    summary: str = ""


NOTHING_SHARED: Final = SharedText()


def find_shared_text(definitions: Sequence[bytes]) -> SharedText:
    """The text that the tools of one server repeat; independent of their order."""
    if len(definitions) < _FEWEST_TOOLS:
        return NOTHING_SHARED
    sentence_counts: Counter[str] = Counter()
    argument_counts: Counter[str] = Counter()
    argument_text_counts: Counter[str] = Counter()
    for definition in definitions:
        tool = _read_named(definition) if len(definition) <= _LONGEST_READ else None
        if tool is not None:
            sentence_counts.update(set(sentences(tool.text)))
            argument_counts.update(optional_arguments(tool.inputSchema))
            arguments = properties_of(tool.inputSchema).values()
            texts = (as_object(one).get("description") for one in arguments)
            argument_text_counts.update(
                {text for text in texts if isinstance(text, str) and len(text) <= _LONGEST_TEXT}
            )
    count = len(definitions)
    often = max(_FEWEST_TOOLS, count * _REPEATED)
    repeated = _at_least(sentence_counts, often)
    worth_saying = [one for one in repeated if sentence_counts[one] >= count * _SUMMARISED]
    common = _at_least(argument_counts, count // 2 + 1)
    common = [one for one in common if len(one) <= _LONGEST_NAME and one.isprintable()][:_MOST_ARGUMENTS]
    dropped_texts = frozenset([*repeated, *_at_least(argument_text_counts, often)])
    return SharedText(dropped_texts, tuple(common), _summary(worth_saying, common))


def _read_named(definition: bytes) -> LenientTool | None:
    tool = read_tool(definition)
    return tool if isinstance(tool.name, str) else None


def _at_least(counted: Counter[str], times: float) -> list[str]:
    """The texts that occur so often, the most frequent first."""
    found = [one for one, count in counted.items() if count >= times]
    return sorted(found, key=lambda one: (-counted[one], one))


def _summary(repeated: list[str], common: list[str]) -> str:
    arguments = f"Most tools also take {', '.join(common)}." if common else ""
    kept: list[str] = []
    for sentence in repeated:
        # Not cut, because half a sentence may state the opposite of the whole.
        whole = len(sentence) in _SENTENCE_LENGTHS and not sentence.endswith(":")
        if whole and len(arguments) + sum(map(len, kept)) + len(sentence) + _SPACE <= _LONGEST_SUMMARY:
            kept.append(sentence)
    sentence_counts = f"Of many tools: {'. '.join(kept)}." if kept else ""
    return " ".join(part for part in (arguments, sentence_counts) if part)


# Of a description; nearly all first sentences are shorter.
_LONGEST: Final = 120
_LONGEST_STUB: Final = 48
# Of all argument names of a stub: room for two or three, which most calls need.
_STUB_LETTERS: Final = 24


class SlimForms(NamedTuple):
    """The slim form and the stub of one tool."""

    slim: bytes
    stub: bytes


def make_slim_forms(
    definition: bytes, shared: SharedText = NOTHING_SHARED, *, every_type: bool = False
) -> SlimForms:
    """The tool with its arguments and its distinctive words, and with a few words and some argument names.

    Each is the definition itself if that is not smaller. The schema of the slim form names every argument,
    and accepts whatever the full schema accepts. With `every_type` every argument has a type, for clients
    that cannot write others.
    """
    tool = _read_named(definition)
    if tool is None:
        return SlimForms(definition, definition)
    slim, stub = _slim(tool, shared, every_type=every_type), _stub(tool, shared)
    return SlimForms(min(definition, slim, key=len), min(definition, stub, key=len))


def _slim(tool: LenientTool, shared: SharedText, *, every_type: bool) -> bytes:
    arguments = flatten_arguments(tool.inputSchema, shared.arguments, every_type=every_type)
    words = shorten_description(tool.text, _LONGEST, shared.repeated)
    properties = arguments.schema.get("properties", {})
    choices = [choice for one in properties.values() for choice in one.get("enum", ())]
    known = " ".join([tool.name, words, *properties, *choices])
    room = _LONGEST - len(words)
    # Words about its arguments that occur nowhere else.
    more = argument_keywords(arguments.arguments.values(), known, room, shared.repeated)
    if more:
        words = f"{words} [{more}]".lstrip()
    if arguments.left_out:
        words = f"{words} (+{arguments.left_out} args)".lstrip()
    # The hints that change how a client treats the tool: without any it counts as destructive.
    annotations = as_object(tool.annotations)
    hints: dict[str, bool] = {}
    if annotations.get("readOnlyHint") is True:
        hints = {"readOnlyHint": True}
    elif annotations.get("destructiveHint") is False:
        hints = {"destructiveHint": False}
    return _encoded(tool, words, arguments.schema, hints)


def _stub(tool: LenientTool, shared: SharedText) -> bytes:
    """Never larger than the slim form."""
    words = shorten_description(tool.text, _LONGEST_STUB, shared.repeated)
    schema: dict[str, Any] = {"type": "object"}
    named = stub_names(tool.inputSchema, _STUB_LETTERS)
    if named:
        schema["properties"] = {name: {} for name in named}
    return _encoded(tool, words, schema)


def _encoded(
    tool: LenientTool, words: str, schema: dict[str, Any], hints: dict[str, bool] | None = None
) -> bytes:
    short: dict[str, Any] = {"name": tool.name}
    if words:
        short["description"] = words
    short["inputSchema"] = schema
    if hints:
        short["annotations"] = hints
    return msgspec.json.encode(short)


# Of a tool; its output schema, icons and metadata are left to expandSchema.
_PARTITIONED_MEMBERS: Final = frozenset(["name", "title", "description", "inputSchema", "annotations"])
# Each may name arguments that the root does not.
_BRANCH_KEYWORDS: Final = frozenset(
    [
        "$ref",
        "$dynamicRef",
        "dependentSchemas",
        "patternProperties",
        *COMBINING_KEYWORDS,
        *CONDITIONAL_KEYWORDS,
    ]
)


def partition_tool(definition: bytes) -> bytes:
    """The tool with its full description and its top-level arguments; the definition if that is smaller.

    A schema with arguments in branches or behind a reference is not partitioned.
    """
    tool = _read_named(definition)
    if tool is None or not isinstance(tool.inputSchema, dict):
        return definition
    given, others = tool.inputSchema, as_object(tool.inputSchema.get("additionalProperties"))
    if not isinstance(given.get("properties", {}), dict) or others or not _BRANCH_KEYWORDS.isdisjoint(given):
        return definition
    schema = partition_schema(given)
    whole = msgspec.json.decode(definition, type=dict[str, msgspec.Raw])
    if schema is given and _PARTITIONED_MEMBERS.issuperset(whole):
        return definition
    short: dict[str, Any] = {key: value for key, value in whole.items() if key in _PARTITIONED_MEMBERS}
    short["inputSchema"] = schema
    return min(definition, msgspec.json.encode(short), key=len)


# Of definitions, per server and profile; a server may list something new every second.
MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_ADAPTED: Final = 40_000


class ReducedTools(msgspec.Struct, frozen=True):
    """The slim forms and stubs of one server's tools."""

    shared_text: str
    slims: dict[bytes, bytes]
    stubs: dict[bytes, bytes]


class ToolForms:
    """Caches forms, so that a change of one server does not affect the others."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """Beyond `most_bytes` of definitions the least recently used are evicted."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._servers: dict[tuple[bool, tuple[bytes, ...]], ReducedTools] = {}
        self._partitioned: dict[tuple[bool, bytes], bytes] = {}
        self._adapted: dict[tuple[Dialect, bytes], AdaptedTool] = {}

    def reduced(self, items: Sequence[Item], dialect: Dialect = Dialect.PLAIN) -> dict[str, ReducedTools]:
        """The forms by server, before adaptation to the dialect; the slow part."""
        definitions: dict[str, list[bytes]] = {}
        for item in items:
            definitions.setdefault(item.server, []).append(item.definition)
        strict = dialect is Dialect.OPENAI
        return {server: self._reduced(tuple(own), strict=strict) for server, own in definitions.items()}

    def _reduced(self, definitions: tuple[bytes, ...], *, strict: bool) -> ReducedTools:
        key = (strict, definitions)
        reduced_tools = self._servers.pop(key, None)
        if reduced_tools is None:
            common = find_shared_text(definitions)
            # A strict client cannot pass an argument without a type.
            formed = {one: make_slim_forms(one, common, every_type=strict) for one in definitions}
            # Not slim where the tool's own schema could not read arguments for that form.
            slims = {
                one: both.slim if not strict or is_restorable(both.slim, one) else one
                for one, both in formed.items()
            }
            stubs = {one: both.stub for one, both in formed.items()}
            reduced_tools = ReducedTools(common.summary, slims, stubs)
            self._bytes += sum(map(len, definitions))
        # To the end of the dict, so that it is evicted last.
        self._servers[key] = reduced_tools
        while self._bytes > self._most_bytes and len(self._servers) > 1:
            oldest = next(iter(self._servers))
            del self._servers[oldest]
            self._bytes -= sum(map(len, oldest[1]))
        return reduced_tools

    def partitioned(self, definition: bytes, dialect: Dialect = Dialect.PLAIN) -> bytes:
        """The definition with its top-level arguments, before adaptation to the dialect."""
        key = (dialect is Dialect.OPENAI, definition)
        form = self._partitioned.get(key)
        if form is None:
            form = partition_tool(definition)
            # A strict client fills in the reduced schema, and the tool must be able to read the result.
            if dialect is Dialect.OPENAI and not is_restorable(form, definition):
                form = definition
            # Another thread may do the same meanwhile, so nothing is read again.
            if len(self._partitioned) >= _MOST_ADAPTED:
                self._partitioned.clear()
            self._partitioned[key] = form
        return form

    def adapted(self, definition: bytes, dialect: Dialect) -> AdaptedTool:
        """The definition in that dialect, and the changes."""
        if dialect is Dialect.PLAIN:
            return AdaptedTool(definition, ())
        key = (dialect, definition)
        adapted = self._adapted.get(key)
        if adapted is None:
            adapted = adapt_tool(definition, dialect)
            # Another thread may do the same meanwhile, so nothing is read again.
            if len(self._adapted) >= _MOST_ADAPTED:
                self._adapted.clear()
            self._adapted[key] = adapted
        return adapted
