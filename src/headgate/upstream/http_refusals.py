"""What an HTTP status says about a request: whether it may have been carried out, and when to come back."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from headgate.upstream.http_client import Response

# Of these a server says that it did not look at what the request wants: who asks, where, how much, in which
# form, how often. Any other may have come after the work was done.
_ABOUT_THE_REQUEST = frozenset({400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})
# A gateway that has reached itself answers so (RFC 5842, section 7.2).
LOOP_DETECTED = 508
_DEFAULT_SECONDS = 1.0
# Whoever asks for more is asked again sooner.
_MOST_SECONDS = 86_400.0


def not_begun(status: int) -> bool:
    """Whether a request that was answered so was certainly not carried out."""
    return 300 <= status < 400 or status in _ABOUT_THE_REQUEST


def seconds_to_wait(response: Response) -> float:
    """How long the server wants to be left alone; a second when it does not say."""
    said = retry_after(response)
    return _DEFAULT_SECONDS if said is None else said


def retry_after(response: Response) -> float | None:
    """What the server says about it, in seconds or as a date; None when that is nothing or nonsense."""
    value = response.headers.get(b"retry-after", b"").strip()
    if value.isdigit():
        return min(float(value), _MOST_SECONDS)
    try:
        when = parsedate_to_datetime(value.decode("latin-1"))
    except ValueError:
        return None
    # A date without a zone is in that of HTTP.
    left = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)
    return min(max(left.total_seconds(), 0.0), _MOST_SECONDS)
