"""Text for terminals: printable characters, widths, tables and progress."""

import shutil
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TextIO
from unicodedata import combining

_GAP: Final = "  "
_NARROWEST: Final = 10
_CUT: Final = ".."

Row = Sequence[str]


def table_lines(head: Row, rows: Sequence[Row], width: int) -> list[str]:
    """The lines of a table no wider than `width`: numbers to the right, the last column wrapped."""
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    # The widest gives way, again and again; a name loses letters, the last column gets more lines.
    while sum(widths) > width - len(_GAP) * len(widths) and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    numeric = [all(_is_number(row[place]) for row in cells[1:]) for place in range(len(head))]
    return [line for row in cells for line in _lines(row, widths, numeric)]


def printable(text: str) -> str:
    """The text on one line; what a terminal would obey is replaced."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def wrap_text(text: str, width: int) -> list[str]:
    """The words of a text in lines no wider than `width`; a letter fits in any."""
    width = max(1, width)
    lines = [""]
    for word in text.split():
        for part in _parts(word, width):
            longer = f"{lines[-1]} {part}" if lines[-1] else part
            if display_width(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(part)
    return lines


def _parts(word: str, width: int) -> Iterator[str]:
    while display_width(word) > width:
        part = cut_to_width(word, width)
        yield part
        word = word[len(part) :]
    yield word


def cut_to_width(text: str, width: int) -> str:
    """As much of the text as fits, and at least one letter."""
    end = len(text)
    while end > 1 and display_width(text[:end]) > width:
        end -= 1
    return text[:end]


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text if not combining(letter))
    return wide + sum(not combining(letter) for letter in text)


def _is_number(cell: str) -> bool:
    return cell.replace(".", "").isdigit() or cell == "-"


def _lines(row: Row, widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    begin = _GAP
    for cell, width, right in zip(row[:-1], widths[:-1], numeric[:-1], strict=True):
        cut = cell if display_width(cell) <= width else cut_to_width(cell, width - len(_CUT)) + _CUT
        room = " " * (width - display_width(cut))
        begin += (room + cut if right else cut + room) + _GAP
    last = [row[-1].rjust(widths[-1])] if numeric[-1] else wrap_text(row[-1], widths[-1])
    lines = [begin + last[0], *(" " * display_width(begin) + more for more in last[1:])]
    return [line.rstrip() for line in lines]


# A line that is written over may change often; a log that grows must not.
_OVERWRITE_INTERVAL_SECONDS = 0.2
_NEW_LINE_INTERVAL_SECONDS = 5.0
_DEFAULT_WIDTH = 80
_BAR_WIDTH = 24
# A speed below this has a digit more.
_SLOW = 10


class ProgressPrinter:
    """Prints progress: one changing line on a terminal, a few lines elsewhere."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._overwrites = stream.isatty()
        self._interval_seconds = (
            _OVERWRITE_INTERVAL_SECONDS if self._overwrites else _NEW_LINE_INTERVAL_SECONDS
        )
        # Work that ends at once needs no line.
        self._next = clock() + self._interval_seconds
        self._length = 0
        # The beginning of the measured work.
        self._started: float | None = None

    def print_line(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def show_count(self, what: str, done: int, of: int) -> None:
        """Show how much is done, at most once in each interval."""
        if self._clock() >= self._next:
            self._show(f"{what}: {done:,} of {of:,}")

    def show_bar(self, what: str, done: int, of: int, made: Mapping[str, int], name: str = "") -> None:
        """The same with the speed of all in `made`, on a terminal with a bar and the `name` of the item."""
        now = self._clock()
        self._started = now if self._started is None else self._started
        seconds = now - self._started
        if now < self._next:
            return
        count = f"{done:,} of {of:,}"
        speeds = (
            [f"{format_speed(count / seconds)} {thing}/s" for thing, count in made.items()] if seconds else []
        )
        if not self._overwrites:
            self._show(f"{what}: {', '.join([count, *speeds])}")
            return
        filled = _BAR_WIDTH * min(done, of) // of if of else _BAR_WIDTH
        drawn = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]"
        text = "  ".join([f"{what} {drawn} {count}", *speeds, *([printable(name)] if name else [])])
        # A line that is wider than the terminal could not be written over. The last column stays free.
        width = shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns - 1
        self._show(cut_to_width(text[:width], width))

    def _show(self, text: str) -> None:
        if self._overwrites:
            self._stream.write(f"\r{text}{' ' * (self._length - display_width(text))}")
            self._stream.flush()
            self._length = display_width(text)
        else:
            self.print_line(text)
        self._next = self._clock() + self._interval_seconds

    def clear(self) -> None:
        if self._length:
            self._stream.write(f"\r{' ' * self._length}\r")
            self._stream.flush()
            self._length = 0


def format_speed(per_second: float) -> str:
    """The speed; a low one with a digit more."""
    return f"{per_second:,.0f}" if per_second >= _SLOW else f"{per_second:.1f}"
