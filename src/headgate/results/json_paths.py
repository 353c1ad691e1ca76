"""Dotted paths, JSONPath and JSON Pointer: parsing, formatting, and the value that a path selects."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain, islice
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.results.content import (
    Content,
    MemoryScratch,
    Scratch,
    first_byte,
    join_windows,
    json_lines,
    windows,
)
from headgate.results.embedded_json import json_in_string
from headgate.results.pipeline import ProcessingError


class PathWildcard(Enum):
    """The step to every element of an array, or to every member of an object."""

    EVERY = "[]"


WILDCARD: Final = PathWildcard.EVERY

# A name, an index, or the wildcard; a name that is a number is an index where there is an array.
PathStep = str | int | PathWildcard
JsonPath = tuple[PathStep, ...]

_MOST_CHARACTERS = 1_000
_MOST_STEPS = 64
# How many keys are compared for suggestions; more would only make the error slow.
_MOST_KEYS = 10_000
# How many objects of each level are searched, and how deep, for a name that exists further down.
_FEW = 5
_MOST_LEVELS = 4
_MOST_SAMPLES = 1_000

_POINTER = ("/", "#/")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NAME = re.compile(r"[^.\[\]]+")
_BRACKET = re.compile(r"\[\s*(?:\*?|(?P<index>-?[0-9]+)|'(?P<quoted>(?:[^'\\]|\\.)*)')\s*\]", re.DOTALL)
# The first bytes of strings, numbers, true, false and null.
_PLAIN = frozenset(b'"-0123456789tfn')
_PLAIN_KEY = re.compile(r"[\w@-][\w@$:-]*")
_strings = json.JSONDecoder(strict=False)
_container: msgspec.json.Decoder[dict[str, Raw] | list[Raw]] = msgspec.json.Decoder(
    dict[str, Raw] | list[Raw]
)


def parse_path(text: str) -> JsonPath:
    """The steps of a dotted path, a simple JSONPath, or a JSON Pointer; raises ProcessingError."""
    if len(text) > _MOST_CHARACTERS:
        raise ProcessingError(
            f"A path of {len(text)} characters is too long: use at most {_MOST_CHARACTERS}."
        )
    text = _trim(text)
    steps = tuple(_pointer_steps(text) if text.startswith(_POINTER) else _dotted_steps(text))
    if len(steps) > _MOST_STEPS:
        raise ProcessingError(f"A path of {len(steps)} steps is too long: use at most {_MOST_STEPS}.")
    return steps


def _trim(text: str) -> str:
    # The last key of a JSON Pointer may end with a space, and cannot be written otherwise.
    start = text.lstrip()
    return start if start.startswith(_POINTER) else start.rstrip()


def _pointer_steps(text: str) -> Iterator[PathStep]:
    written = "#" + unquote(text[1:], errors="replace") if text.startswith("#") else text
    wrong = re.search(r"~(?![01])", written)
    if wrong:
        raise _syntax_error(text, wrong.start(), "write ~0 for '~' and ~1 for '/' in a JSON Pointer")
    for name in written.split("/")[1:]:
        yield name.replace("~1", "/").replace("~0", "~")


def _dotted_steps(text: str) -> Iterator[PathStep]:
    if text in ("", "$", "#", "."):
        return
    at = 1 if text.startswith(("$.", "$[")) else 0
    # Only at the start the dot before a name is optional.
    if text[at] not in ".[":
        step, at = _name_step(text, at)
        yield step
    while at < len(text):
        if text[at] == "." and text[at + 1 : at + 2] != "[":
            step, at = _name_step(text, at + 1)
        else:
            step, at = _bracket_step(text, at + (text[at] == "."))
        yield step


def _name_step(text: str, at: int) -> tuple[PathStep, int]:
    found = _NAME.match(text, at)
    if found is None:
        raise _syntax_error(text, at, "a name is missing")
    return WILDCARD if found[0] == "*" else found[0], found.end()


def _bracket_step(text: str, at: int) -> tuple[PathStep, int]:
    if text[at] != "[":
        raise _syntax_error(text, at, "only '.' or '[' can follow here")
    if text[at + 1 : at + 2] == '"':
        try:
            key, end = _strings.raw_decode(text, at + 1)
        except ValueError as error:
            raise _syntax_error(text, at + 1, "the quoted key does not end or has a wrong escape") from error
        if text[end : end + 1] != "]":
            raise _syntax_error(text, end, "after a quoted key comes ']'")
        return str(key), end + 1
    found = _BRACKET.match(text, at)
    if found is None:
        raise _syntax_error(text, at, 'brackets are [], [*], an index as in [0], or a key as in ["a.b"]')
    if found["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.DOTALL), found.end()
    return WILDCARD if found["index"] is None else int(found["index"]), found.end()


def _syntax_error(text: str, at: int, reason: str) -> ProcessingError:
    return ProcessingError(
        f"The path {quote_for_message(text)} cannot be read at position {at + 1}: {reason}."
    )


def quote_for_message(text: str) -> str:
    """The text in quotes for a message: shortened, with escapes for control characters."""
    short = (text if len(text) <= 80 else f"{text[:77]}...").encode(errors="replace").decode()
    return f"'{short}'" if short.isprintable() else ascii(short)


def member_path(path: str, key: str) -> str:
    start = _normalised(path)
    if not _PLAIN_KEY.fullmatch(key):
        return f"{start}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{start}.{key}" if start else key


def elements_path(path: str) -> str:
    """The path of every element or member of the value at `path`."""
    return f"{_normalised(path)}[]"


def join_paths(above: str, below: str) -> str:
    return above + (below if not above or below.startswith("[") else f".{below}")


def _normalised(path: str) -> str:
    path = _trim(path)
    if path.startswith(_POINTER):
        return format_path(parse_path(path))
    return "" if path in ("$", "#", ".") else path


def format_path(path: Iterable[PathStep]) -> str:
    text = ""
    for step in path:
        if isinstance(step, str):
            text = member_path(text, step)
        else:
            text += "[]" if step is WILDCARD else f"[{step}]"
    return text


class PathTarget(msgspec.Struct, frozen=True):
    """A part of a content."""

    value: Content
    path: str
    # Whether `value` is an array of all selected values, so that `path` is the path of its elements.
    gathered: bool

    @property
    def element_path(self) -> str:
        """The path of its elements, if it is an array."""
        return self.path if self.gathered else elements_path(self.path)

    def index_path(self, index: int) -> str | None:
        """The path of one element of an array; None where no path selects it alone."""
        return None if self.gathered else f"{self.path}[{index}]"


def resolve_path(content: Content, path: str, scratch: Scratch | None = None) -> PathTarget:
    """The part that the path selects: a value, byte for byte, or an array of all selected values.

    A name steps through arrays, and a step into a string steps into the JSON inside it. Raises
    ProcessingError when nothing is at the path.
    """
    steps = parse_path(path)
    if not steps:
        return PathTarget(content, "", gathered=False)
    store = (scratch or MemoryScratch()).store
    lines = json_lines(content)
    if lines is not None and len(lines) > 1:
        content = store(join_windows(lines[at] for at in range(len(lines))))
    no_json = ProcessingError(
        "The content is no JSON, so that a path leads nowhere in it: leave the path out."
    )
    if first_byte(content) not in (b"{", b"["):
        raise no_json
    try:
        values, many = _follow(Raw(memoryview(content)), steps)
    except RecursionError:
        raise nesting_error() from None
    except DecodeError:
        raise no_json from None
    value = store(join_windows(values) if many else windows(values[0]))
    return PathTarget(value, format_path(steps), gathered=many)


def nesting_error() -> ProcessingError:
    return ProcessingError("The content nests too deeply to follow a path through it: leave the path out.")


def _follow(content: Raw, steps: JsonPath) -> tuple[list[Raw], bool]:
    values, many = [content], False
    for count, step in enumerate(steps):
        if not many:
            by_name = array_index(step) is None
            many = step is WILDCARD or (by_name and isinstance(decode_container_or_string(values[0]), list))
        found = [taken for value in values for taken in _step_into(value, step)]
        if not found and not (many and all(_is_empty_for(value, step) for value in values)):
            raise ProcessingError(_missing_message(values, steps, count))
        values = found
    return values, many


def _step_into(value: Raw, step: PathStep) -> Iterable[Raw]:
    container = decode_container_or_string(value)
    if container is None:
        return ()
    if isinstance(container, dict):
        if step is WILDCARD:
            return container.values()
        return (container[str(step)],) if str(step) in container else ()
    if step is WILDCARD:
        return container
    index = array_index(step)
    if index is None:
        return [found for element in container for found in _step_into(element, step)]
    return (container[index],) if -len(container) <= index < len(container) else ()


def decode_container(value: Raw | Content) -> dict[str, Raw] | list[Raw] | None:
    """The members or elements; None for a scalar. Raises ProcessingError when a key is no UTF-8."""
    if isinstance(value, Raw) and is_scalar(value):
        return None
    try:
        return _container.decode(value)
    except ValidationError:
        return None
    except UnicodeDecodeError as error:
        raise undecodable_key_error() from error


def decode_container_or_none(value: Raw | Content) -> dict[str, Raw] | list[Raw] | None:
    """As `decode_container`, but None also for a value that cannot be decoded."""
    try:
        return decode_container(value)
    except (ProcessingError, RecursionError, DecodeError):
        return None


def decode_container_or_string(value: Raw | Content) -> dict[str, Raw] | list[Raw] | None:
    """As `decode_container`, and for a string the members or elements of the JSON inside it."""
    container = decode_container(value)
    if container is None and isinstance(value, Raw):
        inner = json_in_string(value)
        return None if inner is None else decode_container(inner)
    return container


def is_scalar(value: Raw) -> bool:
    """Whether the value is a string, number or literal, by its first byte: cheaper than an exception."""
    return memoryview(value)[0] in _PLAIN


def undecodable_key_error() -> ProcessingError:
    return ProcessingError(
        "A key in the content is no UTF-8, so that no path can name it: leave the path out."
    )


def array_index(step: PathStep) -> int | None:
    """The array index that the step can mean, or None."""
    if isinstance(step, str):
        return int(step) if _NUMBER.fullmatch(step) else None
    return step if isinstance(step, int) else None


def _is_empty_for(value: Raw, step: PathStep) -> bool:
    """Whether it is empty, so that the step may well exist elsewhere, as in an array of no users."""
    container = decode_container_or_string(value)
    if isinstance(container, dict):
        return step is WILDCARD and not container
    return container is not None and all(_is_empty_for(element, step) for element in container)


def _missing_message(values: list[Raw], steps: JsonPath, count: int) -> str:
    step, place = steps[count], quote_for_message(format_path(steps[:count])) if count else "the top"
    start = f"Nothing is at {quote_for_message(format_path(steps[: count + 1]))}: "
    if array_index(step) is not None:
        containers = map(decode_container_or_string, values)
        longest = max((len(one) for one in containers if isinstance(one, list)), default=None)
        if longest is not None:
            return f"{start}the longest array at {place} has {longest} elements, counted from 0."
    keys = _nearest(str(step), chain.from_iterable(map(_objects_in, values)))
    if not keys:
        return f"{start}what is at {place} has no members, so take a shorter path."
    return f"{start}the nearest keys at {place} are {', '.join(map(quote_for_message, keys))}."


def nearest_paths(values: Iterable[Raw], path: JsonPath) -> list[str]:
    """At most five existing paths that are similar to one that selects nothing."""
    for count, step in enumerate(path):
        if not isinstance(step, str) or array_index(step) is not None:
            inner = chain.from_iterable(_step_into(value, step) for value in values)
            values = list(islice(inner, _MOST_SAMPLES))
            continue
        objects = list(islice(chain.from_iterable(map(_objects_in, values)), _MOST_SAMPLES))
        values = [container[step] for container in objects if step in container]
        if not values:
            deeper = _ending_in(step, objects)
            near = [*deeper, *((key,) for key in _nearest(step, objects))][:5]
            return [format_path((*path[:count], *rest)) for rest in near]
    return []


def _ending_in(name: str, objects: list[dict[str, Raw]]) -> list[tuple[str, ...]]:
    """At most three paths to members of that name further down, the nearest first."""
    found: dict[tuple[str, ...], None] = {}
    level: list[tuple[tuple[str, ...], dict[str, Raw]]] = [((), container) for container in objects[:_FEW]]
    for _ in range(_MOST_LEVELS):
        inner = [
            ((*at, key), container)
            for at, outer in level
            for key, value in outer.items()
            for container in islice(_objects_in(value), _FEW)
        ]
        found |= {(*at, name): None for at, container in inner if name in container}
        level = inner[:_MOST_SAMPLES]
        if found:
            break
    return list(found)[:3]


def _objects_in(value: Raw) -> Iterator[dict[str, Raw]]:
    container = decode_container_or_string(value)
    if isinstance(container, dict):
        yield container
    for element in container if isinstance(container, list) else ():
        yield from _objects_in(element)


def _nearest(name: str, objects: Iterable[dict[str, Raw]]) -> list[str]:
    return nearest_names(name, list(dict.fromkeys(islice(chain.from_iterable(objects), _MOST_KEYS))))


def nearest_names(name: str, names: Sequence[str], limit: int = 5) -> list[str]:
    """At most `limit` of the names, the most similar first."""
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415 (only who spells a name wrong pays for it)

    found = process.extract(name, names, scorer=fuzz.ratio, processor=utils.default_process, limit=limit)
    return [near for near, _, _ in found]
