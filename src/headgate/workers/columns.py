"""What a table is: named columns, and rows that are made only when they are read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Value = str | int | float | None

# SQLite takes it for NULL, and Python hands it over many times faster than None; JSON has no such number.
NULL = float("nan")
# Nobody names more, and a row stays small.
MOST_COLUMNS = 200
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows, column by column."""

    count: int
    columns: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Table:
    """A result as rows and columns."""

    columns: tuple[str, ...]
    # All rows, some at a time, each with the values of the columns at the given places only.
    rows: Callable[[Sequence[int]], Iterator[Rows]]
    # The SQL types of the columns; without them each value keeps its own.
    types: tuple[str, ...] = ()
    # Where in the result it was found.
    path: str = ""
    # How many columns there were besides, as far as they were counted.
    left_out: int = 0
    # What names in the statement stand for that are no columns as they are written.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # Columns of text that are read as numbers, each with one of its texts; known when the rows are read.
    readings: dict[str, str] = field(default_factory=dict)


def column_names(wished: Sequence[str], later: Sequence[bool] = ()) -> tuple[str, ...]:
    """A name for each column, near to the wished one, that SQLite can tell from all others.

    Those that are `later` yield to the others where two wish the same.
    """
    taken: set[str] = set()
    names = [""] * len(wished)
    for at in sorted(range(len(wished)), key=later.__getitem__ if later else None):
        wish = wished[at].replace("\0", "").encode(errors="replace").decode()[:_LONGEST_NAME]
        names[at] = _free(wish or "_", taken)
        taken.add(names[at].lower())
    return tuple(names)


def quoted(name: str) -> str:
    """The name as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _free(name: str, taken: set[str]) -> str:
    number, free = 2, name
    # SQLite does not tell upper case from lower case.
    while free.lower() in taken:
        free, number = f"{name}_{number}", number + 1
    return free
