"""A table of text with separators, where it is beyond doubt that the text is one."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest

from headgate.workers.columns import MOST_COLUMNS, NULL, Rows, Table, Value, column_names

_SEPARATORS = ",\t;"
_SAMPLE = 50
_BATCH = 500
# What people call columns: it begins with a letter and is no sentence.
_NAME = re.compile(r"[^\W\d][\w .()/#%:-]{0,60}")
_MOST_WORDS = 4
_TYPES = ("INTEGER", "REAL", "TEXT")
# Numbers within 64 bits and without needless zeros, since those are parts of codes.
_WHOLE = r"-?(?:0|[1-9][0-9]{0,17})"
_NUMBER = _WHOLE + r"(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?"
# The fields of a column of each of the first two types, one on each line.
_COLUMNS = tuple(re.compile(rf"(?:(?:{field})?\n)*") for field in (_WHOLE, _NUMBER))

# The lines with their ends, from the first on.
Lines = Callable[[], Iterator[str]]
Records = list[list[str]]


def delimited_table(lines: Lines, *, small: bool) -> Table | None:
    """A column for each name in the first line; None if the text may be something else.

    Columns of numbers have numbers, with NULL for empty fields. Fields beyond the last name are in `rest`.
    What is small is read once and kept.
    """
    for separator in _SEPARATORS:
        if _is_certain(lines, separator):
            try:
                return _table(lines, separator, small=small)
            # A quotation mark that is never closed, or a field too long to be one.
            except csv.Error:
                return None
    return None


def _is_certain(lines: Lines, separator: str) -> bool:
    try:
        sample = list(islice(_records(lines(), separator), _SAMPLE))
    except csv.Error:
        return False
    if len(sample) < 2 or len(sample[0]) < 2:
        return False
    header, *others = sample
    return _is_header(header) and all(
        len(record) == len(header) and not any(map(str.__eq__, header, record)) for record in others
    )


def _is_header(names: list[str]) -> bool:
    plain = all(_NAME.fullmatch(name.strip()) and len(name.split()) <= _MOST_WORDS for name in names)
    return plain and len({name.strip().lower() for name in names}) == len(names)


def _records(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    return filter(None, csv.reader(lines, delimiter=separator))


def _table(lines: Lines, separator: str, *, small: bool) -> Table:
    names = [name.strip() for name in next(_records(lines(), separator))]
    batches: Callable[[], Iterator[Records]] = partial(_batches, lines, separator)
    if small:
        batches = list(batches()).__iter__
    types, longest = _surveyed(batches(), len(names))
    if longest > len(names):
        names.append("rest")
        types.append("TEXT")
    return Table(
        column_names(names[:MOST_COLUMNS]),
        partial(_rows, batches, separator, types),
        tuple(types[:MOST_COLUMNS]),
        left_out=max(0, len(names) - MOST_COLUMNS),
    )


def _batches(lines: Lines, separator: str) -> Iterator[Records]:
    records = islice(_records(lines(), separator), 1, None)
    while batch := list(islice(records, _BATCH)):
        yield batch


def _surveyed(batches: Iterable[Records], count: int) -> tuple[list[str], int]:
    """The narrowest type that has every field of each column, and the length of the longest record."""
    ranks, longest, has_fields = [0] * count, 0, [False] * count
    for batch in batches:
        longest = max(longest, *map(len, batch))
        for at, fields in enumerate(islice(zip_longest(*batch, fillvalue=""), count)):
            has_fields[at] = has_fields[at] or any(fields)
            ranks[at] = _rank(fields, ranks[at])
    return [_TYPES[rank if known else -1] for rank, known in zip(ranks, has_fields, strict=True)], longest


def _rank(fields: Iterable[str], rank: int) -> int:
    """Where among the types the narrowest is that has all the fields, and is no narrower than `rank`."""
    if rank == len(_COLUMNS):
        return rank
    column = "\n".join(fields) + "\n"
    while rank < len(_COLUMNS) and not _COLUMNS[rank].fullmatch(column):
        rank += 1
    return rank


def _rows(
    batches: Callable[[], Iterator[Records]], separator: str, types: Sequence[str], wanted: Sequence[int]
) -> Iterator[Rows]:
    for batch in batches():
        filled: Iterable[tuple[Value, ...]] = zip_longest(
            *_folded(batch, separator, len(types)), fillvalue=NULL
        )
        columns = list(filled)
        columns += [(NULL,) * len(batch)] * (len(types) - len(columns))
        yield Rows(len(batch), [_typed(columns[at], types[at]) for at in wanted])


def _folded(batch: Records, separator: str, most: int) -> Records:
    """The records, with all fields of the longer ones that are too many in the last."""
    if max(map(len, batch)) <= most:
        return batch
    return [
        [*record[: most - 1], separator.join(record[most - 1 :])] if len(record) > most else record
        for record in batch
    ]


def _typed(fields: Sequence[Value], kind: str) -> Sequence[Value]:
    return fields if kind == "TEXT" else [field or NULL for field in fields]
