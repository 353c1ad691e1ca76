"""Which tools are called most, taken down once a day: a list must not change with every call."""

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from headgate.catalog.public_names import Key

# So that the file that remembers them stays small; with a very large budget the others are as all tools are.
_MOST: Final = 200
_DAY_SECONDS: Final = 24 * 3600.0


class MostUsedStore(Protocol):
    """Remembers across restarts, so that a listing is the same after them."""

    def favourites(self) -> tuple[float, list[Key]]:
        """When they were taken down, and the tools, the most used first."""

    def remember_favourites(self, at: float, tools: list[Key]) -> None:
        """These they are now."""


class MostUsedTools:
    """The most used tools as they were when they were last taken down."""

    def __init__(self, memory: MostUsedStore, now: Callable[[], float] = time.time) -> None:
        self._memory = memory
        self._now = now
        self._at, tools = memory.favourites()
        self.ranks: Mapping[Key, int] = _ranks(tools)

    @property
    def is_due(self) -> bool:
        """Whether it is time to take them down again; a clock may have been set back."""
        return not 0 <= self._now() - self._at < _DAY_SECONDS

    def update(self, calls: Mapping[Key, int]) -> bool:
        """Take down what was called how often; tells whether that changes anything.

        Where nothing was, they stay as they are: a file that is lost or cannot be read has no calls either.
        """
        used = sorted((key for key, count in calls.items() if count > 0), key=lambda key: (-calls[key], key))
        before, self.ranks = self.ranks, _ranks(used[:_MOST]) or self.ranks
        # Also when there are none: a restart an hour later must not change a list.
        self._at = self._now()
        self._memory.remember_favourites(self._at, list(self.ranks))
        return dict(before) != dict(self.ranks)


def _ranks(tools: list[Key]) -> dict[Key, int]:
    return {key: position for position, key in enumerate(tools)}
