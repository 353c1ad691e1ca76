"""Tells a person who waits how far something is."""

import time
from collections.abc import Callable
from typing import TextIO

# A line that is written over may change often; a log that grows must not.
_OVER_SECONDS = 0.2
_ANEW_SECONDS = 5.0


class Progress:
    """Lines on a stream: on a terminal one that changes, elsewhere a few."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._over = stream.isatty()
        self._pause = _OVER_SECONDS if self._over else _ANEW_SECONDS
        # What is done at once is not worth a line.
        self._next = clock() + self._pause
        self._length = 0

    def say(self, text: str) -> None:
        """Something that stays to be read."""
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def count(self, what: str, done: int, of: int) -> None:
        """So much is done of so much; not every time is told."""
        if self._clock() < self._next:
            return
        text = f"{what}: {done:,} of {of:,}"
        if self._over:
            self._stream.write(f"\r{text.ljust(self._length)}")
            self._stream.flush()
            self._length = len(text)
        else:
            self.say(text)
        self._next = self._clock() + self._pause

    def clear(self) -> None:
        """Nothing is under way any more."""
        if self._length:
            self._stream.write(f"\r{' ' * self._length}\r")
            self._stream.flush()
            self._length = 0
