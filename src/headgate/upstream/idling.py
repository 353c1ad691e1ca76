"""How long nobody has used an upstream, when that is long enough to stop it, and what it may be still at."""

from collections.abc import Callable

from headgate.domain.call import Call
from headgate.domain.server import ServerSpec

# A cold server whose operator names no time.
_COLD_SECONDS = 300.0
# After so much work without a word, this is the time in which it is asked whether it is there.
_LOOK_SECONDS = 35.0


class Idling:
    """Counts from the moment at which the last use ended."""

    def __init__(self, spec: ServerSpec, now: Callable[[], float]) -> None:
        limit = spec.idle_timeout_seconds
        self._limit = _COLD_SECONDS if limit is None and spec.cold else limit
        self._usual_seconds = spec.timeout_seconds
        self._longest_seconds = spec.max_timeout_seconds
        self._now = now
        self._since = 0.0
        # Calls whose answers are wanted, one after the other, may not hide for ever that nothing comes.
        self._working_since = self._working_until = float("-inf")

    def begin(self) -> None:
        """A use has just ended."""
        if self._limit is not None:
            self._since = max(self._since, self._now())

    def gave_up(self, call: Call, started: float) -> None:
        """Nobody waits for a call any more; to stop a server that is still at work on it would break that."""
        if self._limit is not None:
            self._since = max(self._since, started + self._longest_seconds)
        if call.errand is not None and call.errand.on_late is not None:
            # Its answer is still wanted, however short the time was that its client gave it.
            if started >= self._working_until + _LOOK_SECONDS:
                self._working_since = started
            latest = self._working_since + self._longest_seconds
            self._working_until = max(self._working_until, min(started + self._usual_seconds, latest))

    @property
    def may_be_working(self) -> bool:
        """Whether it may be at work on a call that was given up and whose answer is still wanted."""
        return self._now() < self._working_until

    def left(self, *, used: bool) -> float | None:
        """Seconds until it is to be looked at again, 0 when it is to be stopped now; None for never."""
        if self._limit is None:
            return None
        if used:
            self.begin()
        return max(0.0, self._since + self._limit - self._now())
