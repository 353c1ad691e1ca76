"""Counts the matches that a search finds and shows, and computes the next offset."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from headgate.results.jobs import SearchMode, SearchParams

FoundT = TypeVar("FoundT")


class MatchCounter:
    """How many were found, which of them are shown, and where the next page begins."""

    def __init__(
        self, mode: SearchMode, params: SearchParams, *, most: int, most_shown: int | None = None
    ) -> None:
        self._mode = mode
        self._offset = max(params.offset, 0)
        # So that the pages behind the first can be reached, but not at any cost.
        self._most = most + min(self._offset, most)
        self._most_shown = most_shown if params.max_results is None else params.max_results
        self._more = False
        self._full = False
        self._left_out = 0
        self.found = 0
        self.shown = 0

    def count(self, findings: Iterable[FoundT]) -> Iterator[FoundT]:
        """Each of them, until there are too many to count."""
        left = iter(findings)
        for finding in islice(left, self._most):
            self.found += 1
            yield finding
            if self._is_over:
                # The others are counted only.
                self.found += sum(1 for _ in islice(left, self._most - self.found))
                break
        self._more = next(left, None) is not None

    @property
    def _is_over(self) -> bool:
        taken = self.shown + self._left_out
        return self._full or (self._most_shown is not None and taken >= self._most_shown)

    @property
    def is_on_page(self) -> bool:
        """Whether the one that was counted last belongs on the page."""
        return self.found > self._offset and not self._is_over

    def record_fit(self, fits: bool) -> bool:  # noqa: FBT001 (it is all that is said)
        """Note whether the page took it; the first that does not fit ends the page."""
        if fits:
            self.shown += 1
        else:
            self._full = True
        return fits

    def skip(self) -> None:
        """Go on behind one that would fit no page."""
        self._full = False
        self._left_out += 1

    def metadata(self, further: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What is said of the search."""
        facts: dict[str, Any] = {"mode": self._mode.value, "matches": self.found, "shown": self.shown}
        if self._more:
            facts["at_least"] = True
        if self._left_out:
            facts["too_large_to_show"] = self._left_out
        taken = self.shown + self._left_out
        following = self._offset + taken
        if taken and (following < self.found or (self._more and following == self.found)):
            facts["next_offset"] = following
        return {**facts, **(further or {})}
