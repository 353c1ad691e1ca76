"""Prints the progress of long work on a terminal or into a log."""

import shutil
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from headgate.domain.terminal_text import cut_to_width, display_width, printable

# A line that is written over may change often; a log that grows must not.
_OVERWRITE_INTERVAL_SECONDS = 0.2
_NEW_LINE_INTERVAL_SECONDS = 5.0
_DEFAULT_WIDTH = 80
_BAR_WIDTH = 24
# A speed below this is told with a digit more.
_SLOW = 10


class ProgressPrinter:
    """Lines on a stream: on a terminal one that changes, elsewhere a few."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._overwrites = stream.isatty()
        self._interval_seconds = (
            _OVERWRITE_INTERVAL_SECONDS if self._overwrites else _NEW_LINE_INTERVAL_SECONDS
        )
        # What is done at once is not worth a line.
        self._next = clock() + self._interval_seconds
        self._length = 0
        # When what has a speed began.
        self._started: float | None = None

    def print_line(self, text: str) -> None:
        """Something that stays to be read."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def show_count(self, what: str, done: int, of: int) -> None:
        """So much is done of so much; not every time is told."""
        if self._clock() >= self._next:
            self._show(f"{what}: {done:,} of {of:,}")

    def show_bar(self, what: str, done: int, of: int, made: Mapping[str, int], name: str = "") -> None:
        """As `count`, with what was made since the first time and how fast, and on a terminal with a bar.

        `name` is what it is at now.
        """
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
        """Nothing is under way any more."""
        if self._length:
            self._stream.write(f"\r{' ' * self._length}\r")
            self._stream.flush()
            self._length = 0


def format_speed(per_second: float) -> str:
    """So many in a second; of few, with a digit more."""
    return f"{per_second:,.0f}" if per_second >= _SLOW else f"{per_second:.1f}"
