"""A call of a knowledge tool: its arguments, read as the tool's schema declares them, and its page."""

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeVar

import msgspec

from headgate.domain.identity import Identity
from headgate.domain.tool_arguments import (
    lenient_value,
    list_in_text,
    unknown_argument_message,
    unknown_names,
)
from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.search.filters import widen_filters
from headgate.knowledge.search.query import LONGEST_QUERY
from headgate.knowledge.tools.cursor_pagination import CursorPager, OpenedSnapshot, PageSnapshot
from headgate.knowledge.tools.definitions import INPUT_SCHEMAS, MOST_CHUNKS
from headgate.knowledge.tools.token_budget import TokenBudget

T = TypeVar("T")

# No store takes them: the one ends a text in C, the others are halves of characters.
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
# The largest integer of a store.
_HIGHEST_ID: Final = 2**63 - 1
_LONGEST_SHOWN: Final = 60
_LONGEST_WORD: Final = 1000
_MOST_WORDS: Final = 50
# A pattern of files is compiled, and that takes long when it is.
_LONGEST_TOGETHER: Final = 2000
# What an argument must be, where its type says too little.
_MEANINGS: Final = {
    "query": f"a text of 1 to {LONGEST_QUERY} characters",
    "vendor_name": "the name of a vendor",
    "entity": "the name or id of an entity",
    "chunk_id": "the id of a chunk, as semantic_search gives it",
    "chunk_ids": f"a list of 1 to {MOST_CHUNKS} ids",
    "cursor": "the text that the page before gave",
    "fields": "a list of names of fields",
}
# Names of arguments in other tools; of several the first that the tool has.
_ARGUMENT_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    word: meant
    for words, meant in {
        "limit top top_k count size n k num_results max_results per_page": ("page_size",),
        "q text question search search_query": ("query",),
        "name vendor company supplier": ("vendor_name", "entity"),
        "entity_name vendor_name entity": ("entity", "vendor_name"),
        "mode detail": ("response_mode",),
        "format response_format": ("response_format",),
        "id ids": ("chunk_id", "chunk_ids"),
        "offset page next next_cursor": ("cursor",),
        "category": ("source_category", "filters"),
        "file path filename source": ("source_file", "filters"),
        "type types": ("doc_type", "entity_types", "filters"),
        "from since after": ("date_from",),
        "to until before": ("date_to",),
        "source_category source_file doc_type date_from date_to": ("filters",),
        "depth": ("hops",),
        "confidence threshold": ("min_confidence", "min_score"),
    }.items()
    for word in words.split()
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool: who calls with which arguments, and what it is paged and paid with."""

    # Every argument of the tool, with its default.
    arguments: Mapping[str, Any]
    caller: Identity
    budget: TokenBudget
    pager: CursorPager[Any]
    clock: Callable[[], float]
    began: float

    @property
    def elapsed_ms(self) -> float:
        return round((self.clock() - self.began) * 1000, 2)

    async def open(
        self, bound: Mapping[str, object], make: Callable[[], Awaitable[PageSnapshot[T]]]
    ) -> OpenedSnapshot[T]:
        return await self.pager.open(self.arguments["cursor"], self.caller, bound, make)

    def pagination(
        self,
        opened: OpenedSnapshot[Any],
        bound: Mapping[str, object],
        following: Sequence[int | None],
        *,
        page_size: int,
        total: int,
    ) -> dict[str, Any]:
        """The pagination object of an answer; the next page begins at `following`, unless that is None."""
        cursor = None
        if places := [place for place in following if place is not None]:
            cursor = self.pager.cursor(opened.snapshot, self.caller, bound, places)
        return {
            "cursor": cursor,
            "page_size": page_size,
            "has_more": cursor is not None,
            "total_available": total,
        }


def read_arguments(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of the tool: what was given, or the default of its schema where it is absent or null.

    A number, a flag, a list or an object may come as a text that holds it. Texts lose the space around
    them, lists become tuples, and filters DocumentFilters. Raises InvalidKnowledgeArgument.
    """
    schema = INPUT_SCHEMAS[tool]
    known: dict[str, dict[str, Any]] = schema["properties"]
    if unknown := unknown_names(given, known):
        raise _refusal(unknown_argument_message(tool, unknown[:1], tuple(known), _ARGUMENT_ALIASES))
    for name in schema.get("required", ()):
        if given.get(name) is None:
            raise _refusal(f"{name} is missing; it must be {_MEANINGS[name]}")
    return {
        name: own.get("default") if (value := given.get(name)) is None else _read(name, value, own)
        for name, own in known.items()
    }


def _read(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    match schema:
        case {"enum": [str(), *_] as words}:
            if not isinstance(value, str) or value not in words:
                raise _wrong(name, f"{', '.join(words[:-1])} or {words[-1]}", value)
            return value
        case {"type": "integer"}:
            return _whole(name, value, schema.get("maximum", max(schema.get("enum", [_HIGHEST_ID]))))
        case {"type": "number"}:
            number = lenient_value(value, float)
            if number is None or not 0 <= number <= 1:
                raise _wrong(name, "a number from 0 to 1", value)
            return number
        case {"type": "boolean"}:
            flag = lenient_value(value, bool)
            if flag is None:
                raise _wrong(name, "true or false", value)
            return flag
        case {"type": "object"}:
            return _filters(value, tuple(schema["properties"]))
        case {"type": "array"}:
            return _list(name, value, schema)
        case {"type": "string"}:
            return _string(name, value, schema)
    return _words(name, value)


def _string(name: str, value: Any, schema: Mapping[str, Any]) -> str:
    is_query = name == "query"
    if "maxLength" in schema and not is_query and type(value) is int and 0 < value <= _HIGHEST_ID:
        # A number in place of a name is an id.
        return f"id {value}"
    text = _text(name, value, _MEANINGS[name]).strip()
    if name == "cursor" and not text:
        raise _refusal("cursor is empty; leave it out to start at the beginning")
    longest = schema.get("maxLength", math.inf)
    # The tool itself refuses an empty and a long query.
    if not is_query and not 1 <= len(text) <= longest:
        problem = f"of 1 to {longest} characters, not of {len(text)} ({_shown(text)})"
        raise _refusal(f"{name} must be {_MEANINGS[name]} {problem}")
    return text


def _list(name: str, value: Any, schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """Ids or names of fields, each once."""
    # Some clients send a list as a text.
    held = list_in_text(value, list[Any]) if isinstance(value, str) else None
    found: Any = value if held is None else held
    is_list = isinstance(found, list | tuple)
    if name == "fields":
        if not is_list or not all(isinstance(field, str) for field in found):
            raise _wrong(name, _MEANINGS[name], found)
        if not found:
            raise InvalidKnowledgeArgument(
                "fields list cannot be empty (use None to return all fields)",
                hint="leave out fields to get all of them, or name at least one",
            )
        return tuple(dict.fromkeys(found))
    if not is_list or not 1 <= len(found) <= schema["maxItems"]:
        raise _wrong(name, _MEANINGS[name], found)
    return tuple(dict.fromkeys(_whole(f"{name}[{at}]", one, _HIGHEST_ID) for at, one in enumerate(found)))


def _whole(name: str, value: object, highest: int) -> int:
    number = lenient_value(value, int)
    if number is None or not 1 <= number <= highest:
        is_too_high = number is not None and number > highest
        open_ended = highest == _HIGHEST_ID and not is_too_high
        raise _wrong(name, f"a whole number from 1 {'on' if open_ended else f'to {highest}'}", value)
    return number


def _words(name: str, value: object) -> tuple[str, ...]:
    """A text or several, sorted."""
    what = f"a text or a list of 1 to {_MOST_WORDS} texts"
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not 1 <= len(several) <= _MOST_WORDS:
        raise _wrong(name, what, value)
    texts = {_text(name, one, what).strip() for one in several}
    if not all(1 <= len(text) <= _LONGEST_WORD for text in texts):
        raise _wrong(name, f"{what}, 1 to {_LONGEST_WORD} characters each", value)
    if (together := sum(map(len, texts))) > _LONGEST_TOGETHER:
        raise _wrong(name, f"{what}, at most {_LONGEST_TOGETHER} characters together", together)
    return tuple(sorted(texts))


def _filters(value: object, known: tuple[str, ...]) -> DocumentFilters:
    # The clients that send a list as a text send an object so too.
    given = value
    if isinstance(value, str):
        with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
            given = msgspec.json.decode(value)
    if not isinstance(given, Mapping):
        raise _wrong("filters", 'an object such as {"source_category": "contracts"}', value)
    if unknown := [name for name in given if name not in known]:
        raise _refusal(unknown_argument_message("filters", unknown[:1], known, _ARGUMENT_ALIASES, what=""))
    there = {name: one for name, one in given.items() if one is not None}
    first, last = (_day(f"filters.{name}", there.get(name)) for name in ("date_from", "date_to"))
    if first and last and first > last:
        raise _refusal(f"filters.date_from {first} is after date_to {last}; swap them")
    categories, files, doc_types = (
        _words(f"filters.{name}", there[name]) if name in there else ()
        for name in ("source_category", "source_file", "doc_type")
    )
    return widen_filters(
        DocumentFilters(
            categories=categories, files=files, doc_types=doc_types, date_from=first, date_to=last
        )
    )


def _day(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and _DAY.fullmatch(value.strip()):
        with suppress(ValueError):
            return date.fromisoformat(value.strip()).isoformat()
    raise _wrong(name, "a day such as 2026-11-16", value)


def _text(name: str, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, what, value)
    if _UNSTORABLE.search(value):
        raise _wrong(name, f"{what} without NUL or halves of characters", value)
    return value


def _wrong(name: str, what: str, value: object) -> InvalidKnowledgeArgument:
    return _refusal(f"{name} must be {what}, not {_shown(value)}")


def _refusal(problem: str) -> InvalidKnowledgeArgument:
    return InvalidKnowledgeArgument(problem, hint="call again with what is allowed")


def _shown(value: object) -> str:
    """The received value as JSON, abbreviated for an error message."""
    match value:
        case list() | tuple():
            # Lists within lists may go deeper than a call of a function can.
            first = ["a list" if isinstance(one, list | tuple) else _shown(one) for one in value[:3]]
            text = f"[{', '.join(first)}{', …' if len(value) > 3 else ''}]"
        case Mapping():
            text = "an object"
        case str():
            text = repr(value[: 2 * _LONGEST_SHOWN])
        case int() if value.bit_length() > 64:
            text = "a number with very many digits"
        case float() if not math.isfinite(value):
            text = str(value)
        case _:
            try:
                text = msgspec.json.encode(value).decode()
            except TypeError:
                text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
