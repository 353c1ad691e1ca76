"""Reads the arguments of the knowledge tools leniently; an error is one sentence."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from headgate.domain.tool_arguments import lenient_value, unknown_argument_message, unknown_names
from headgate.knowledge.data_model import DocumentFilters
from headgate.knowledge.errors import InvalidKnowledgeArgument
from headgate.knowledge.search.filters import widen_filters

_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST_SHOWN: Final = 60
_LONGEST_WORD: Final = 1000
_MOST_WORDS: Final = 50
# A pattern of files is compiled, and that takes long when it is.
_LONGEST_TOGETHER: Final = 2000
_FILTERS: Final = ("date_from", "date_to", "doc_type", "source_category", "source_file")

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

D = TypeVar("D", int, None)
W = TypeVar("W", bound=StrEnum)


class KnowledgeArguments:
    """The arguments of one call; every method raises InvalidKnowledgeArgument, and null counts as absent."""

    def __init__(self, tool: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
        self._given = given
        unknown = unknown_names(given, known)
        if unknown:
            raise _refusal(unknown_argument_message(tool, unknown[:1], known, _ARGUMENT_ALIASES))

    def has(self, name: str) -> bool:
        """Whether it was given."""
        return self._given.get(name) is not None

    def name(self, name: str, longest: int, *, what: str) -> str:
        """A text that has to be given, without the space around it; a number is an id."""
        value = self._given.get(name)
        if value is None:
            raise _refusal(f"{name} is missing; it must be {what}")
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _HIGHEST_ID:
            return f"id {value}"
        text = _text(name, value, what).strip()
        if not 1 <= len(text) <= longest:
            raise _refusal(
                f"{name} must be {what} of 1 to {longest} characters, "
                f"not of {len(text)} ({abbreviated_json(text)})"
            )
        return text

    def text(self, name: str, *, what: str) -> str:
        """A text that has to be given, however long, without the space around it."""
        value = self._given.get(name)
        if value is None:
            raise _refusal(f"{name} is missing; it must be {what}")
        return _text(name, value, what).strip()

    def cursor(self) -> str | None:
        """The cursor of the page."""
        value = self._given.get("cursor")
        if value is None:
            return None
        text = _text("cursor", value, "the text that the page before gave").strip()
        if not text:
            raise _refusal("cursor is empty; leave it out to start at the beginning")
        return text

    def whole(self, name: str, default: D, highest: int) -> int | D:
        """A whole number from 1 on, or the default."""
        value = self._given.get(name)
        return default if value is None else parse_whole(name, value, 1, highest)

    def share(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        value = self._given.get(name)
        if value is None:
            return default
        number = lenient_value(value, float)
        if number is None or not 0 <= number <= 1:
            raise _refusal(f"{name} must be a number from 0 to 1, not {abbreviated_json(value)}")
        return number

    def switch(self, name: str, *, default: bool) -> bool:
        """A boolean argument."""
        value = self._given.get(name)
        if value is None:
            return default
        flag = lenient_value(value, bool)
        if flag is None:
            raise _refusal(f"{name} must be true or false, not {abbreviated_json(value)}")
        return flag

    def word(self, name: str, default: W) -> W:
        """One of the words that there are for it."""
        value = self._given.get(name)
        allowed = type(default)
        if value is None:
            return default
        if not isinstance(value, str) or value not in list(allowed):
            raise _refusal(f"{name} must be {_either(list(allowed))}, not {abbreviated_json(value)}")
        return allowed(value)

    def fields(self) -> tuple[str, ...] | None:
        """The requested fields; None is all."""
        value = _list(self._given.get("fields"))
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(field, str) for field in value):
            raise _refusal(f"fields must be a list of names of fields, not {abbreviated_json(value)}")
        if not value:
            raise InvalidKnowledgeArgument(
                "fields list cannot be empty (use None to return all fields)",
                hint="leave out fields to get all of them, or name at least one",
            )
        return tuple(dict.fromkeys(value))

    def words(self, name: str) -> tuple[str, ...]:
        """A text or several, sorted; none when it was not given."""
        value = self._given.get(name)
        return () if value is None else parse_words(name, value)

    def ids(self, name: str, most: int) -> tuple[int, ...]:
        """A list of ids, each once."""
        value = _list(self._given.get(name))
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= most:
            what = f"a list of 1 to {most} ids"
            problem = "is missing; it must be" if value is None else "must be"
            received = "" if value is None else f", not {abbreviated_json(value)}"
            raise _refusal(f"{name} {problem} {what}{received}")
        return tuple(
            dict.fromkeys(parse_whole(f"{name}[{at}]", one, 1, _HIGHEST_ID) for at, one in enumerate(value))
        )

    def id(self, name: str) -> int:
        """An id that has to be given."""
        value = self._given.get(name)
        if value is None:
            raise _refusal(f"{name} is missing; it must be the id of a chunk, as semantic_search gives it")
        return parse_whole(name, value, 1, _HIGHEST_ID)

    def filters(self) -> DocumentFilters:
        """Which documents are looked at."""
        value = self._given.get("filters")
        if value is None:
            return DocumentFilters()
        given = _object("filters", value)
        unknown = [name for name in given if name not in _FILTERS]
        if unknown:
            raise _refusal(
                unknown_argument_message("filters", unknown[:1], _FILTERS, _ARGUMENT_ALIASES, what="")
            )
        there = {name: one for name, one in given.items() if one is not None}
        first, last = (_day(name, there.get(name)) for name in ("date_from", "date_to"))
        if first and last and first > last:
            raise _refusal(f"filters.date_from {first} is after date_to {last}; swap them")
        return widen_filters(
            DocumentFilters(
                categories=_filter(there, "source_category"),
                files=_filter(there, "source_file"),
                doc_types=_filter(there, "doc_type"),
                date_from=first,
                date_to=last,
            )
        )


# The largest integer of a store.
_HIGHEST_ID: Final = 2**63 - 1


def parse_whole(name: str, value: object, lowest: int, highest: int) -> int:
    """The value as an integer, also from a string; raises InvalidKnowledgeArgument."""
    number = lenient_value(value, int)
    if number is None or not lowest <= number <= highest:
        is_too_high = number is not None and number > highest
        open_ended = highest == _HIGHEST_ID and not is_too_high
        allowed = f"from {lowest} on" if open_ended else f"from {lowest} to {highest}"
        raise _refusal(f"{name} must be a whole number {allowed}, not {abbreviated_json(value)}")
    return number


def parse_words(name: str, value: object) -> tuple[str, ...]:
    """A string or a list of strings as a sorted tuple; raises InvalidKnowledgeArgument."""
    what = f"a text or a list of 1 to {_MOST_WORDS} texts"
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not 1 <= len(several) <= _MOST_WORDS:
        raise _refusal(f"{name} must be {what}, not {abbreviated_json(value)}")
    texts = {_text(name, one, what).strip() for one in several}
    if not all(1 <= len(text) <= _LONGEST_WORD for text in texts):
        raise _refusal(
            f"{name} must be {what}, 1 to {_LONGEST_WORD} characters each, not {abbreviated_json(value)}"
        )
    if (together := sum(map(len, texts))) > _LONGEST_TOGETHER:
        raise _refusal(
            f"{name} must be {what}, at most {_LONGEST_TOGETHER} characters together, not {together}"
        )
    return tuple(sorted(texts))


def abbreviated_json(value: object) -> str:
    """The received value as JSON, abbreviated for an error message."""
    if isinstance(value, list | tuple):
        # Lists within lists may go deeper than a call of a function can.
        first = ["a list" if isinstance(one, list | tuple) else abbreviated_json(one) for one in value[:3]]
        return _shortened(f"[{', '.join(first)}{', …' if len(value) > 3 else ''}]")
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, str):
        return _shortened(repr(value[: 2 * _LONGEST_SHOWN]))
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return "a number with very many digits"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        return _shortened(msgspec.json.encode(value).decode())
    except TypeError:
        return f"a {type(value).__name__}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _text(name: str, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise _refusal(f"{name} must be {what}, not {abbreviated_json(value)}")
    # No store takes them: the one ends a text in C, the others are no characters.
    if "\0" in value or not _is_whole(value):
        raise _refusal(
            f"{name} must be {what} without NUL or halves of characters, not {abbreviated_json(value)}"
        )
    return value


def _is_whole(text: str) -> bool:
    """Whether it has no halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _filter(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return parse_words(f"filters.{name}", given[name]) if name in given else ()


def _day(name: str, value: object) -> str:
    if value is None:
        return ""
    try:
        if isinstance(value, str) and _DAY.fullmatch(value.strip()):
            return date.fromisoformat(value.strip()).isoformat()
    except ValueError:
        pass
    raise _refusal(f"filters.{name} must be a day such as 2026-11-16, not {abbreviated_json(value)}")


def _list(value: object) -> object:
    # Some clients send a list as a text.
    if isinstance(value, str) and value.lstrip().startswith("["):
        return _decoded(value)
    return value


def _object(name: str, value: object) -> Mapping[str, Any]:
    # The same clients send an object so.
    found = _decoded(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise _refusal(
            f'{name} must be an object such as {{"source_category": "contracts"}}, '
            f"not {abbreviated_json(value)}"
        )
    return found


def _decoded(text: str) -> object:
    """The text decoded as JSON; the text itself where it is none."""
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    return found


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _refusal(problem: str) -> InvalidKnowledgeArgument:
    return InvalidKnowledgeArgument(problem, hint="call again with what is allowed")
