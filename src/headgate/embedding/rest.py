"""How long nobody asks an embedder that is away: longer after each failure."""

import time
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 1.0
# Whoever mends an endpoint waits so long at most until its vectors count again.
LONGEST_SECONDS: Final = 300.0


class Rest:
    """The rest that follows a failure; several failures at once are one."""

    def __init__(
        self, first_seconds: float = FIRST_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first_seconds
        self._clock = clock
        self._next = first_seconds
        self._until = 0.0

    @property
    def left_seconds(self) -> float:
        """How long it lasts from now on; 0 when it is over."""
        return max(0.0, self._until - self._clock())

    @property
    def first(self) -> bool:
        """Whether nothing has failed since something last went well."""
        return self._next == self._first

    def begin(self, asked_seconds: float | None = None) -> float:
        """Rest, as long as the embedder asked for where it did; returns the seconds that are left."""
        if not self.left_seconds:
            wanted = max(self._next, asked_seconds or 0.0)
            self._until = self._clock() + min(wanted, LONGEST_SECONDS)
            self._next = min(2 * self._next, LONGEST_SECONDS)
        return self.left_seconds

    def end(self) -> None:
        """It answers again."""
        self._next = self._first
        self._until = 0.0
