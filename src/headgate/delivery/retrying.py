"""Whether a call that failed is made again, and how long to wait before."""

from headgate.domain.care import Retrying, ToolClass
from headgate.domain.errors import Effect, HeadgateError, UpstreamError

# Beyond it the bound is `longest_seconds` in any case, and the power too large for a float.
_MOST_DOUBLINGS = 60


def wait_after(
    retrying: Retrying,
    failures: int,
    error: HeadgateError,
    kind: ToolClass,
    *,
    chance: float,
    seconds_left: float | None,
) -> float | None:
    """Seconds to wait before the next attempt, or None to give up.

    `chance` lies between 0 and 1. Without `seconds_left` the caller has no deadline.
    """
    if failures >= retrying.attempts or not may_repeat(error, kind):
        return None
    floor = error.retry_after_seconds or 0.0
    if floor > retrying.longest_seconds:
        # Whoever called is told when to come back, rather than kept waiting.
        return None
    # Full jitter: callers that failed together do not come back together.
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    wait = floor + chance * min(retrying.longest_seconds, retrying.base_seconds * 2.0**doublings)
    if seconds_left is not None and wait >= seconds_left:
        return None
    return wait


def may_repeat(error: HeadgateError, kind: ToolClass) -> bool:
    """Whether a second attempt does no harm, and may help."""
    if not isinstance(error, UpstreamError):
        # Our own limits: another attempt would only press harder.
        return False
    match error.effect:
        case Effect.NONE:
            return error.retryable
        case Effect.UNKNOWN:
            # It may have been carried out and only the answer lost: a second attempt could pay twice.
            return kind.repeatable
        case Effect.DONE:
            return False
