"""Paths as people write them, and the part of a JSON text that a path leads to."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final
from urllib.parse import unquote

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from headgate.responses.content import Content, InMemory, Scratch, first_sign
from headgate.responses.embedded import json_in_string
from headgate.responses.processing import Refused


class Every(Enum):
    """The step to every element of an array, or to every member of an object."""

    EVERY = "[]"


EVERY: Final = Every.EVERY

# A name, an index, or everything; a name that is a number is an index where there is an array.
Step = str | int | Every
Path = tuple[Step, ...]

_MOST_CHARACTERS = 1_000
_MOST_STEPS = 64
# Of so many keys the nearest are looked for; more would only make a refusal slow.
_MOST_KEYS = 10_000
# Objects of each kind that are looked into, and how deep, for a name that may stand further down.
_FEW = 5
_MOST_LEVELS = 4
_MOST_SAMPLES = 1_000
_CHUNK_BYTES = 1024 * 1024

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NAME = re.compile(r"[^.\[\]]+")
_BRACKET = re.compile(r"\[\s*(?:\*?|(?P<index>-?[0-9]+)|'(?P<quoted>(?:[^'\\]|\\.)*)')\s*\]", re.DOTALL)
# What strings, numbers, true, false and null begin with.
_PLAIN = frozenset(b'"-0123456789tfn')
_PLAIN_KEY = re.compile(r"[\w@-][\w@$:-]*")
_strings = json.JSONDecoder(strict=False)
_opened: msgspec.json.Decoder[dict[str, Raw] | list[Raw]] = msgspec.json.Decoder(dict[str, Raw] | list[Raw])


def parse(text: str) -> Path:
    """The steps of a dotted path, a JSONPath of names and indexes, or a JSON Pointer. Raises Refused."""
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"A path of {len(text)} characters is too long: use at most {_MOST_CHARACTERS}.")
    text = _trimmed(text)
    steps = tuple(_pointed(text) if text.startswith(("/", "#/")) else _dotted(text))
    if len(steps) > _MOST_STEPS:
        raise Refused(f"A path of {len(steps)} steps is too long: use at most {_MOST_STEPS}.")
    return steps


def _trimmed(text: str) -> str:
    # The last key of a JSON Pointer may end with a space, and there is no other way to write it there.
    start = text.lstrip()
    return start if start.startswith(("/", "#/")) else start.rstrip()


def _pointed(text: str) -> Iterator[Step]:
    written = "#" + unquote(text[1:], errors="replace") if text.startswith("#") else text
    wrong = re.search(r"~(?![01])", written)
    if wrong:
        raise _unreadable(text, wrong.start(), "write ~0 for '~' and ~1 for '/' in a JSON Pointer")
    for name in written.split("/")[1:]:
        yield name.replace("~1", "/").replace("~0", "~")


def _dotted(text: str) -> Iterator[Step]:
    if text in ("", "$", "#", "."):
        return
    at = 1 if text.startswith(("$.", "$[")) else 0
    # Only at the start may the dot be left out before a name.
    if text[at] not in ".[":
        step, at = _named(text, at)
        yield step
    while at < len(text):
        if text[at] == "." and text[at + 1 : at + 2] != "[":
            step, at = _named(text, at + 1)
        else:
            step, at = _bracketed(text, at + (text[at] == "."))
        yield step


def _named(text: str, at: int) -> tuple[Step, int]:
    found = _NAME.match(text, at)
    if found is None:
        raise _unreadable(text, at, "a name is missing")
    return EVERY if found[0] == "*" else found[0], found.end()


def _bracketed(text: str, at: int) -> tuple[Step, int]:
    if text[at] != "[":
        raise _unreadable(text, at, "only '.' or '[' can follow here")
    if text[at + 1 : at + 2] == '"':
        return _quoted(text, at + 1)
    found = _BRACKET.match(text, at)
    if found is None:
        raise _unreadable(text, at, 'brackets are [], [*], an index as in [0], or a key as in ["a.b"]')
    if found["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", found["quoted"], flags=re.DOTALL), found.end()
    return EVERY if found["index"] is None else int(found["index"]), found.end()


def _quoted(text: str, at: int) -> tuple[str, int]:
    try:
        key, end = _strings.raw_decode(text, at)
    except ValueError as error:
        raise _unreadable(text, at, "the quoted key does not end or has a wrong escape") from error
    if text[end : end + 1] != "]":
        raise _unreadable(text, end, "after a quoted key comes ']'")
    return str(key), end + 1


def _unreadable(text: str, at: int, reason: str) -> Refused:
    return Refused(f"The path {shown(text)} cannot be read at position {at + 1}: {reason}.")


def shown(text: str) -> str:
    """The text in quotes for a sentence: short, and with escapes for what a terminal would act on."""
    short = (text if len(text) <= 80 else f"{text[:77]}...").encode(errors="replace").decode()
    return f"'{short}'" if short.isprintable() else ascii(short)


def below(path: str, key: str) -> str:
    """The path of a member of what is at the path."""
    start = _start(path)
    if not _PLAIN_KEY.fullmatch(key):
        return f"{start}[{json.dumps(key, ensure_ascii=False)}]"
    return f"{start}.{key}" if start else key


def each(path: str) -> str:
    """The path of every element or member of what is at the path."""
    return f"{_start(path)}[]"


def _start(path: str) -> str:
    path = _trimmed(path)
    if path in ("$", "#", "."):
        return ""
    return spelled(parse(path)) if path.startswith(("/", "#/")) else path


def spelled(path: Iterable[Step]) -> str:
    """The dotted path with these steps."""
    text = ""
    for step in path:
        if isinstance(step, str):
            text = below(text, step)
        else:
            text += "[]" if step is EVERY else f"[{step}]"
    return text


def part(content: Content, path: str, scratch: Scratch | None = None) -> Content:
    """The value that the path leads to, byte for byte, or the array of all the values that it leads to.

    Names walk through arrays by themselves, and steps into a string walk into the JSON that it holds.
    Raises Refused when nothing is there.
    """
    steps = parse(path)
    if not steps:
        return content
    if first_sign(content) not in (b"{", b"["):
        raise _no_json()
    try:
        values, many = _reached(Raw(memoryview(content)), steps)
    except RecursionError:
        raise too_deep() from None
    except DecodeError:
        raise _no_json() from None
    keep = (scratch or InMemory()).keep
    return keep(_array(values)) if many else keep(_pieces(values[0]))


def _no_json() -> Refused:
    return Refused("The content is no JSON, so that a path leads nowhere in it: leave the path out.")


def too_deep() -> Refused:
    """What is said of JSON that nests deeper than any path needs."""
    return Refused("The content nests too deeply to follow a path through it: leave the path out.")


def _reached(content: Raw, steps: Path) -> tuple[list[Raw], bool]:
    values, many = [content], False
    for count, step in enumerate(steps):
        many = many or step is EVERY or (index_of(step) is None and isinstance(entered(values[0]), list))
        found = [taken for value in values for taken in _taken(value, step)]
        if not found and not (many and all(_is_hollow(value, step) for value in values)):
            raise Refused(_missing(values, steps, count))
        values = found
    return values, many


def _taken(value: Raw, step: Step) -> Iterable[Raw]:
    held = entered(value)
    if held is None:
        return ()
    if isinstance(held, dict):
        if step is EVERY:
            return held.values()
        return (held[str(step)],) if str(step) in held else ()
    if step is EVERY:
        return held
    index = index_of(step)
    if index is None:
        return [found for element in held for found in _taken(element, step)]
    return (held[index],) if -len(held) <= index < len(held) else ()


def opened(value: Raw | Content) -> dict[str, Raw] | list[Raw] | None:
    """The members or elements, or None of a value that has none. Raises Refused when a key is no UTF-8."""
    if isinstance(value, Raw) and is_plain(value):
        return None
    try:
        return _opened.decode(value)
    except ValidationError:
        return None
    except UnicodeDecodeError as error:
        raise not_named() from error


def entered(value: Raw | Content) -> dict[str, Raw] | list[Raw] | None:
    """The same, and of a string the members or elements of the JSON that it holds."""
    held = opened(value)
    if held is None and isinstance(value, Raw):
        inner = json_in_string(value)
        return None if inner is None else opened(inner)
    return held


def is_plain(value: Raw) -> bool:
    """Whether it is a string, a number or a word, by its first byte, without the cost of an exception."""
    return memoryview(value)[0] in _PLAIN


def not_named() -> Refused:
    """What is said of JSON whose keys no path can name."""
    return Refused("A key in the content is no UTF-8, so that no path can name it: leave the path out.")


def index_of(step: Step) -> int | None:
    """Which element of an array the step means, if it can mean one."""
    if isinstance(step, str):
        return int(step) if _NUMBER.fullmatch(step) else None
    return step if isinstance(step, int) else None


def _is_hollow(value: Raw, step: Step) -> bool:
    """Whether there is nothing in it that could have had the step, as in the array of no users."""
    held = entered(value)
    if isinstance(held, dict):
        return step is EVERY and not held
    return held is not None and all(_is_hollow(element, step) for element in held)


def _missing(values: list[Raw], steps: Path, count: int) -> str:
    step, place = steps[count], shown(spelled(steps[:count])) if count else "the top"
    start = f"Nothing is at {shown(spelled(steps[: count + 1]))}: "
    if index_of(step) is not None:
        arrays = (held for held in map(entered, values) if isinstance(held, list))
        longest = max(map(len, arrays), default=None)
        if longest is not None:
            return f"{start}the longest array at {place} has {longest} elements, counted from 0."
    keys = _nearest(str(step), (members for value in values for members in _objects_in(value)))
    if not keys:
        return f"{start}what is at {place} has no members, so take a shorter path."
    return f"{start}the nearest keys at {place} are {', '.join(map(shown, keys))}."


def nearest_paths(values: Iterable[Raw], path: Path) -> list[str]:
    """At most five paths that lead somewhere from the first of the values, for one that leads nowhere."""
    for count, step in enumerate(path):
        if isinstance(step, str) and index_of(step) is None:
            objects = list(islice((held for value in values for held in _objects_in(value)), _MOST_SAMPLES))
            values = [held[step] for held in objects if step in held]
            if not values:
                deeper = _ending_in(step, objects)
                near = [*deeper, *((key,) for key in _nearest(step, objects))][:5]
                return [spelled((*path[:count], *rest)) for rest in near]
        else:
            values = list(islice((found for value in values for found in _taken(value, step)), _MOST_SAMPLES))
    return []


def _ending_in(name: str, objects: list[dict[str, Raw]]) -> list[tuple[str, ...]]:
    """Where members of that name are further down, at most three of the nearest."""
    found: dict[tuple[str, ...], None] = {}
    level: list[tuple[tuple[str, ...], dict[str, Raw]]] = [((), held) for held in objects[:_FEW]]
    for _ in range(_MOST_LEVELS):
        inner = [
            ((*at, key), held)
            for at, outer in level
            for key, value in outer.items()
            for held in islice(_objects_in(value), _FEW)
        ]
        found |= {(*at, name): None for at, held in inner if name in held}
        level = inner[:_MOST_SAMPLES]
        if found:
            break
    return list(found)[:3]


def _objects_in(value: Raw) -> Iterator[dict[str, Raw]]:
    held = entered(value)
    if isinstance(held, dict):
        yield held
    for element in held if isinstance(held, list) else ():
        yield from _objects_in(element)


def _nearest(name: str, objects: Iterable[dict[str, Raw]]) -> list[str]:
    keys = dict.fromkeys(islice((key for held in objects for key in held), _MOST_KEYS))
    return nearest_names(name, list(keys))


def nearest_names(name: str, names: Sequence[str]) -> list[str]:
    """At most five of the names, the nearest first."""
    from rapidfuzz import fuzz, process, utils  # noqa: PLC0415 (only who spells a name wrong pays for it)

    found = process.extract(name, names, scorer=fuzz.ratio, processor=utils.default_process, limit=5)
    return [near for near, _, _ in found]


def _array(values: list[Raw]) -> Iterator[bytes]:
    yield b"["
    for at, value in enumerate(values):
        if at:
            yield b","
        yield from _pieces(value)
    yield b"]"


def _pieces(value: Raw) -> Iterator[bytes]:
    view = memoryview(value)
    for start in range(0, len(view), _CHUNK_BYTES):
        yield bytes(view[start : start + _CHUNK_BYTES])
