"""Whether a call that failed is sent again, and when; the effect decides before the policy is asked."""

from headgate.tx.config import RetryPolicy
from headgate.tx.failures import Failure

# The longest that a peer may make us wait: what asks for more is left to the caller.
_LONGEST_ASKED_SECONDS = 60.0


def is_wanted(policy: RetryPolicy, failure: Failure, attempts: int, *, retry_unknown: bool) -> bool:
    """Whether the policy would have another attempt, safe or not."""
    if attempts >= policy.max_attempts:
        return False
    if failure.is_unknown:
        return retry_unknown
    if failure.retryable and "TEMPORARY_FAILURE" in policy.retryable_errors:
        return (failure.retry_after_seconds or 0) <= _LONGEST_ASKED_SECONDS
    return failure.code in policy.retryable_errors


def wait_seconds(policy: RetryPolicy, failure: Failure, attempts: int, random: float) -> float:
    """How long to wait before the next attempt: the policy's delay, or longer when the peer asks for it."""
    return max(policy.delay_ms(attempts, random) / 1000, failure.retry_after_seconds or 0.0)
