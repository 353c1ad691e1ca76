"""Circuit breaker: refuses calls to an upstream that keeps failing, then probes it with one call."""

from collections import deque
from collections.abc import Callable
from typing import Literal

from headgate.domain.upstream_policy import BreakerSettings

MAX_OPEN_SECONDS = 300.0
# At least so many calls within so many seconds, of which half failed, open it too.
ENOUGH_CALLS = 20
WITHIN_SECONDS = 10.0
# While the one call is out that finds out, the others are told to come back after this.
_PROBING_SECONDS = 1.0
# Calls are counted together for so long; the window is as exact as that.
_SLICE_SECONDS = 1.0

_DEFAULT_BREAKER_SETTINGS = BreakerSettings()


class CircuitBreaker:
    """Closed lets calls through, open refuses them, half-open lets one through to see."""

    def __init__(
        self, now: Callable[[], float], breaker_settings: BreakerSettings = _DEFAULT_BREAKER_SETTINGS
    ) -> None:
        self.breaker_settings = breaker_settings
        # Asked before every call.
        self.is_open = False
        self._now = now
        self._consecutive_failures = 0
        self._openings = 0
        self._open_until = 0.0
        self._probing = False
        # Slices that are over: when each began, its answers and its failures.
        self._slices: deque[tuple[float, int, int]] = deque()
        self._slice_ends = now() + _SLICE_SECONDS
        self._answers = self._failures = 0

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """What it does with a call that comes now."""
        if not self.is_open:
            return "closed"
        return "open" if self._open_until > self._now() else "half_open"

    def retry_after_seconds(self) -> float | None:
        """Seconds until the next try, or None when a call may pass."""
        if not self.is_open:
            return None
        left = self._open_until - self._now()
        if left > 0:
            return left
        return _PROBING_SECONDS if self._probing else None

    def begin_probe(self) -> bool:
        """A call passes: whether it is the one that finds out, of whose end the breaker must hear."""
        self._probing = self.is_open
        return self._probing

    def record_success(self) -> None:
        """An answer came, whatever it says."""
        self._consecutive_failures = 0
        at = self._now()
        if at >= self._slice_ends:
            self._start_slice(at)
        self._answers += 1
        if self.is_open:
            self.is_open = self._probing = False
            self._openings = 0

    def record_failure(self, *, probe: bool = False) -> None:
        """No answer came; calls that were never sent do not count."""
        if self.is_open and not probe:
            # Sent before it opened.
            return
        at = self._now()
        if at >= self._slice_ends:
            self._start_slice(at)
        self._consecutive_failures += 1
        self._failures += 1
        if (
            self.is_open
            or self._consecutive_failures >= self.breaker_settings.failures
            or self._half_failed(at)
        ):
            self._open(at)

    def abandon_probe(self) -> None:
        """The probe ended without a verdict on the connection; another one may be it."""
        self._probing = False

    def allow_probe(self) -> None:
        """A new connection stands, so the next call decides."""
        if self.is_open:
            self._open_until = self._now()
            self._probing = False

    def _open(self, at: float) -> None:
        self._openings += 1
        self._open_until = at + min(MAX_OPEN_SECONDS, self.breaker_settings.rest_seconds * self._openings)
        self.is_open = True
        self._probing = False
        # What was before the rest says nothing about what is after it.
        self._slices.clear()
        self._consecutive_failures = self._answers = self._failures = 0

    def _start_slice(self, at: float) -> None:
        """A new slice begins."""
        if self._answers or self._failures:
            self._slices.append((self._slice_ends - _SLICE_SECONDS, self._answers, self._failures))
        self._drop_old_slices(at)
        self._slice_ends = at + _SLICE_SECONDS
        self._answers = self._failures = 0

    def _drop_old_slices(self, at: float) -> None:
        while self._slices and self._slices[0][0] < at - WITHIN_SECONDS:
            self._slices.popleft()

    def _half_failed(self, at: float) -> bool:
        self._drop_old_slices(at)
        failures = self._failures + sum(failed for _, _, failed in self._slices)
        calls = failures + self._answers + sum(answered for _, answered, _ in self._slices)
        return calls >= ENOUGH_CALLS and 2 * failures >= calls
