"""How often a server that keeps saying that its tools changed is asked for them."""

_SHORTEST_SECONDS = 1.0
_LONGEST_SECONDS = 30.0
# A server that said nothing for so long after it was asked has come to rest.
_QUIET_SECONDS = 60.0
# Timers of the loop may be that much too early.
_EARLY_SECONDS = 0.01


class Pace:
    """The first time at once, then after a gap that doubles for as long as there is no rest."""

    def __init__(self) -> None:
        self._gap = _SHORTEST_SECONDS
        self._last: float | None = None

    def wait(self, now: float) -> float:
        """Seconds until the server may be asked again."""
        if self._last is None:
            return 0.0
        left = self._last + self._gap - now
        return left if left > _EARLY_SECONDS else 0.0

    def count(self, now: float) -> None:
        """It is asked now."""
        if self._last is None or now - self._last > _QUIET_SECONDS:
            self._gap = _SHORTEST_SECONDS
        else:
            self._gap = min(_LONGEST_SECONDS, self._gap * 2)
        self._last = now
