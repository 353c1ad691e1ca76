"""Circuit breaker: refuses calls to an upstream that keeps failing, then probes it with one call."""

from collections import deque
from collections.abc import Callable
from typing import Literal

from headgate.domain.upstream_policy import BreakerSettings

MAX_OPEN_SECONDS = 300.0
# Half of at least so many calls that fail within so many seconds open it too.
ENOUGH_CALLS = 20
WITHIN_SECONDS = 10.0
# `retry_after_seconds` of the calls that are refused while the probe is in flight.
_PROBING_SECONDS = 1.0
# The resolution of the window.
_SLICE_SECONDS = 1.0

_DEFAULT_BREAKER_SETTINGS = BreakerSettings()


class CircuitBreaker:
    """Closed, it lets calls pass; open, it refuses them; half-open, it lets one pass as a probe."""

    def __init__(
        self, now: Callable[[], float], breaker_settings: BreakerSettings = _DEFAULT_BREAKER_SETTINGS
    ) -> None:
        self.breaker_settings = breaker_settings
        # An attribute, because every call reads it.
        self.is_open = False
        self._now = now
        self._consecutive_failures = 0
        self._openings = 0
        self._open_until = 0.0
        self._probing = False
        # Past slices: start, answers and failures of each.
        self._slices: deque[tuple[float, int, int]] = deque()
        self._slice_ends = now() + _SLICE_SECONDS
        self._answers = self._failures = 0

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """The state that a call meets now."""
        if not self.is_open:
            return "closed"
        return "open" if self._open_until > self._now() else "half_open"

    def retry_after_seconds(self) -> float | None:
        """Seconds until a call may pass, or None when one may pass now."""
        if not self.is_open:
            return None
        left = self._open_until - self._now()
        if left > 0:
            return left
        return _PROBING_SECONDS if self._probing else None

    def begin_probe(self) -> bool:
        """Let a call pass; True when it is the probe, whose outcome must be recorded or abandoned."""
        self._probing = self.is_open
        return self._probing

    def record_success(self) -> None:
        """Count a call that was answered, whatever the answer is."""
        self._consecutive_failures = 0
        at = self._now()
        if at >= self._slice_ends:
            self._start_slice(at)
        self._answers += 1
        if self.is_open:
            self.is_open = self._probing = False
            self._openings = 0

    def record_failure(self, *, probe: bool = False) -> None:
        """Count a call that was sent and not answered."""
        if self.is_open and not probe:
            # It was sent before the breaker opened.
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
        """End a probe that says nothing about the connection; another call may probe."""
        self._probing = False

    def allow_probe(self) -> None:
        """Let the next call probe at once, because there is a new connection."""
        if self.is_open:
            self._open_until = self._now()
            self._probing = False

    def _open(self, at: float) -> None:
        self._openings += 1
        self._open_until = at + min(MAX_OPEN_SECONDS, self.breaker_settings.rest_seconds * self._openings)
        self.is_open = True
        self._probing = False
        # Counts from before the pause say nothing about the time after it.
        self._slices.clear()
        self._consecutive_failures = self._answers = self._failures = 0

    def _start_slice(self, at: float) -> None:
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
