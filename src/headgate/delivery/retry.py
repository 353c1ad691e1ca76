"""Whether and when a failed call is retried, and the retry budget of an upstream."""

from headgate.domain.errors import Effect, HeadgateError, UpstreamError
from headgate.domain.upstream_policy import RetrySettings, ToolClass

# Beyond it `longest_seconds` is the bound in any case, and the power too large for a float.
_MOST_DOUBLINGS = 60


def retry_delay_seconds(
    retry_settings: RetrySettings,
    failures: int,
    error: HeadgateError,
    kind: ToolClass,
    *,
    chance: float,
    seconds_left: float | None,
) -> float | None:
    """Seconds to wait before the next attempt, or None to give up; `chance` lies between 0 and 1."""
    if failures >= retry_settings.attempts or not is_retry_safe(error, kind):
        return None
    floor = error.retry_after_seconds or 0.0
    if floor > retry_settings.longest_seconds:
        # The caller gets `retry_after_seconds` instead of a long wait.
        return None
    # Full jitter: callers that failed together do not come back together.
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    wait = floor + chance * min(retry_settings.longest_seconds, retry_settings.base_seconds * 2.0**doublings)
    if seconds_left is not None and wait >= seconds_left:
        return None
    return wait


def is_retry_safe(error: HeadgateError, kind: ToolClass) -> bool:
    """Whether a second attempt does no harm, and may help."""
    if not isinstance(error, UpstreamError):
        # The gateway's own limits: another attempt would only add load.
        return False
    match error.effect:
        case Effect.NONE:
            return error.retryable
        case Effect.UNKNOWN:
            # It may have been executed and only the answer lost: a second attempt could pay twice.
            return kind.repeatable
        case Effect.DONE:
            return False


# In tenths of a retry, so that nothing is lost in sums.
_FULL_BUDGET = 100
_PER_RETRY = 10
_PER_ANSWER = 1


class RetryBudget:
    """Each answer earns a tenth of a retry, up to ten retries, which are available at the start."""

    def __init__(self) -> None:
        self._tenths = _FULL_BUDGET
        # An attribute, because every call reads it.
        self.is_full = True

    def record_answer(self) -> None:
        self._set(self._tenths + _PER_ANSWER)

    def try_spend(self) -> bool:
        """Use one retry; False when none is left."""
        if self._tenths < _PER_RETRY:
            return False
        self._set(self._tenths - _PER_RETRY)
        return True

    def refund(self) -> None:
        """Return a retry that was not sent."""
        self._set(self._tenths + _PER_RETRY)

    def _set(self, tenths: int) -> None:
        self._tenths = min(_FULL_BUDGET, tenths)
        self.is_full = self._tenths == _FULL_BUDGET

    @property
    def available(self) -> float:
        return self._tenths / _PER_RETRY
