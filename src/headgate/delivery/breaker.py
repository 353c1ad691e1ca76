"""A circuit breaker: an upstream that keeps failing is left alone for a while, then tried with one call."""

from collections.abc import Callable

# Transport failures in a row that open it.
FAILURES = 5
FIRST_REST_SECONDS = 30.0
LONGEST_REST_SECONDS = 300.0


class Breaker:
    """Closed lets calls through, open refuses them, half-open lets one through to see."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._openings = 0
        self._open_until: float | None = None
        self._probing = False

    def refusal(self) -> float | None:
        """Seconds until the next try, or None when a call may pass."""
        if self._open_until is None:
            return None
        left = self._open_until - self._now()
        if left > 0:
            return left
        if self._probing:
            return 1.0
        self._probing = True
        return None

    def succeeded(self) -> None:
        """An answer came, whatever it says."""
        self._failures = self._openings = 0
        self._open_until = None
        self._probing = False

    def failed(self) -> None:
        """No answer came; calls that were never sent do not count."""
        if self._open_until is not None and not self._probing:
            # Sent before it opened.
            return
        self._failures += 1
        if self._failures >= FAILURES or self._probing:
            self._openings += 1
            rest = min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * self._openings)
            self._open_until = self._now() + rest
            self._probing = False

    def abandoned(self) -> None:
        """The call ended without a verdict on the connection; another one may be the probe."""
        self._probing = False

    def recovered(self) -> None:
        """A new connection stands, so the next call decides."""
        if self._open_until is not None:
            self._open_until = self._now()
            self._probing = False
