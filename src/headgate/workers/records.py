"""A table of JSON values: a column for each key, those of nested objects included."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from types import NoneType
from typing import Any

import msgspec
from msgspec import DecodeError, Raw

from headgate.workers.columns import MOST_COLUMNS, NULL, Rows, Table, Value, column_names

# One JSON value, not parsed.
Text = Raw | bytes
# The keys that lead to a value; none lead to an element that is no object.
Steps = tuple[str, ...]
# Some values as they are written, and the same parsed.
Batch = tuple[Sequence[Text], list[Any]]
Batches = Callable[[], Iterator[Batch]]
Levels = tuple[dict[Steps, None], ...]

_DEEPEST = 3
# Keys beyond are not even counted, so that an object used as a map does not fill the memory.
_MOST_KEYS = 5_000
_BATCH = 500
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_NESTED = (dict, list)

_value = msgspec.json.Decoder()
_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


def record_table(
    texts: Callable[[], Iterable[Text]], *, keys: Sequence[str] | None = None, small: bool, path: str = ""
) -> Table:
    """A row for each text, with the key of each in a column of its own where there are keys.

    What is small is parsed once and kept, anything else as often as it is read.
    """
    batches: Batches = partial(_batches, texts)
    if small:
        batches = list(batches()).__iter__
    found = _ways(batches())
    ways = found[: MOST_COLUMNS - (keys is not None)]
    names = [".".join(steps) if steps else "value" for steps in ways]
    rows = partial(_rows, batches, ways)
    if keys is not None:
        names.insert(0, "key")
        rows = partial(_keyed_rows, rows, keys)
    return Table(column_names(names), rows, path=path, left_out=len(found) - len(ways))


def _batches(texts: Callable[[], Iterable[Text]]) -> Iterator[Batch]:
    remaining = iter(texts())
    while batch := list(islice(remaining, _BATCH)):
        yield batch, _parsed(batch)


def _parsed(batch: list[Text]) -> list[Any]:
    try:
        return list(map(_value.decode, batch))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return list(map(_tolerated, batch))


def _tolerated(text: Text) -> Any:
    """The value; what Python cannot hold of it, such as half of a surrogate pair, as it is written."""
    try:
        return _value.decode(text)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return {key: _tolerated(value) for key, value in _members.decode(text).items()}
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return _written(text)


def _written(text: Text) -> str:
    written = bytes(text).decode(errors="replace").strip()
    is_string = len(written) > 1 and written[0] == written[-1] == '"'
    return written[1:-1] if is_string else written


def _ways(batches: Iterable[Batch]) -> list[Steps]:
    """Every way to a value: those of one step first, in the order in which they are seen."""
    levels: Levels = tuple({} for _ in range(_DEEPEST))
    has_plain = False
    for _, elements in batches:
        objects = [element for element in elements if type(element) is dict]
        has_plain = has_plain or len(objects) < len(elements)
        _note(objects, (), levels)
    found = list(chain.from_iterable(levels))
    return [*found, ()] if has_plain or not found else found


def _note(objects: list[dict[str, Any]], above: Steps, levels: Levels) -> None:
    # Most have the same keys in the same order, and their values then stand in columns.
    shapes: dict[Steps, list[dict[str, Any]]] = defaultdict(list)
    for each in objects:
        shapes[tuple(each)].append(each)
    level = levels[len(above)]
    for keys, alike in shapes.items():
        if len(level) < _MOST_KEYS:
            level.update(dict.fromkeys((*above, key) for key in keys))
        if len(above) + 1 == _DEEPEST:
            continue
        for key, values in zip(keys, zip(*map(dict.values, alike), strict=True), strict=True):
            if dict in set(map(type, values)):
                _note([value for value in values if type(value) is dict], (*above, key), levels)


def _rows(batches: Batches, ways: Sequence[Steps], wanted: Sequence[int]) -> Iterator[Rows]:
    for batch in batches():
        yield Rows(len(batch[0]), [_column(batch, ways[at]) for at in wanted])


def _keyed_rows(
    rows: Callable[[Sequence[int]], Iterator[Rows]], keys: Sequence[str], wanted: Sequence[int]
) -> Iterator[Rows]:
    start = 0
    for some in rows([at - 1 for at in wanted if at > 0]):
        columns = list(some.columns)
        if 0 in wanted:
            columns.insert(wanted.index(0), keys[start : start + some.count])
        yield Rows(some.count, columns)
        start += some.count


def _column(batch: Batch, steps: Steps) -> list[Value]:
    texts, values = batch
    for step in steps:
        values = [value.get(step, NULL) if type(value) is dict else NULL for value in values]
    if not steps:
        values = [NULL if type(value) is dict else value for value in values]
    kinds = set(map(type, values))
    if int in kinds:
        values = [_number(value) if type(value) is int else value for value in values]
    if not kinds.isdisjoint(_NESTED):
        values = [
            _json_text(text, steps) if type(value) in _NESTED else value
            for text, value in zip(texts, values, strict=True)
        ]
    return [NULL if value is None else value for value in values] if NoneType in kinds else values


def _number(value: int) -> int | str:
    return value if _SMALLEST <= value <= _LARGEST else str(value)


def _json_text(text: Text, steps: Steps) -> str:
    for step in steps:
        text = _members.decode(text)[step]
    return bytes(text).decode(errors="replace").strip()
