"""Errors of connections to upstream servers, and the reason shown for a server that is down."""

import errno
import re
import signal
from collections.abc import Sequence
from urllib.parse import urlsplit

from headgate.domain.errors import MAX_CAUSE, Effect, HeadgateError, UpstreamError, quoted
from headgate.domain.known_secrets import redact_values
from headgate.domain.redaction import REDACTED, redact


class UpstreamNack(UpstreamError):
    """The server sent a NACK: it did not process the call; nothing happened."""

    code = "TEMPORARY_FAILURE"

    def __init__(self, upstream: str, what: str, code: str) -> None:
        self.upstream_code = code
        super().__init__(
            f"{upstream!r} did not accept {what!r} ({quoted(code) or 'without a reason'})",
            hint="look at the code that it gave, and try again if that may help",
        )


class UpstreamOutcomeUnknown(UpstreamError):
    """The server is a gateway itself, and does not know the outcome of the call."""

    code = "NETWORK_ERROR"
    effect = Effect.UNKNOWN
    may_still_run = True

    def __init__(self, upstream: str, what: str, code: str) -> None:
        super().__init__(
            f"{upstream!r} does not know what became of {what!r} ({quoted(code) or 'without a reason'}), "
            "so it may have been carried out",
            hint="check whether it was carried out before trying again",
        )


class TransferIntegrityError(HeadgateError):
    """A chunk of a large result does not match its hash; the call itself was executed."""

    code = "INTEGRITY_ERROR"
    retryable = True
    effect = Effect.DONE

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} does not match its sha-256", hint="fetch that part again")


class VersionMismatch(UpstreamError):
    """The server speaks no protocol version of the gateway."""

    code = "VERSION_MISMATCH"

    def __init__(self, upstream: str, theirs: str) -> None:
        super().__init__(
            f"{upstream!r} speaks {theirs}, which this gateway does not",
            hint="update the gateway or the server",
        )


class UpstreamAuthRefused(UpstreamError):
    """The server refused the gateway's credentials; nothing happened."""

    code = "AUTH_INVALID"

    def __init__(self, upstream: str, status: int) -> None:
        super().__init__(
            f"{upstream!r} refused the gateway with HTTP {status}",
            hint=f"check the headers configured for {upstream!r}",
        )


class UpstreamRequestRefused(UpstreamError):
    """The server refused the request as such; nothing happened."""

    code = "CONNECTION_ERROR"

    def __init__(self, upstream: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} refused the request: {quoted(reason)}", hint="check the server's URL and headers"
        )


class UpstreamRateLimited(UpstreamError):
    """The server limits the rate of requests; nothing happened."""

    code = "RATE_LIMIT"
    retryable = True

    def __init__(self, upstream: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"{upstream!r} is asked too often",
            hint=f"try again in {retry_after_seconds:g} s",
            retry_after_seconds=retry_after_seconds,
        )


_STDERR = "last lines on stderr:"
# Package runners end with a line about their log file, after the line with the cause.
_LINES = 5
# The end of these lines; together with the reason they fit into a cause.
_MOST_STDERR = 400
# How much of one line is shown.
_LINE_CHARACTERS = 500
# How much is read: the first lines of a private key tell what the others are.
_READ_LINES = 60
_READ_CHARACTERS = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_KEY_BEGIN = "-----BEGIN"
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,80}PRIVATE KEY")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{1,80}")
# A long segment of a path with a digit may be a key.
_KEY_IN_PATH = re.compile(r"(?=[^/]*\d)[^/]{20,}")


def exit_reason(code: int | None) -> str:
    """How a process ended, by its return code as the standard library gives it."""
    if code is None:
        return "it ended"
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


def system_error_reason(error: Exception, otherwise: str) -> str:
    """Why the system refused something: the gateway has run out of descriptors, or `otherwise`."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "the gateway has no file descriptor left; raise its limit of open files (ulimit -n)"
    return otherwise


def with_stderr(reason: str, lines: Sequence[str], secrets: Sequence[str] = ()) -> str:
    """The reason, followed by the last lines that the server wrote to stderr, unless it has them already."""
    last_lines = [line for line in redacted_lines(lines, secrets) if line.strip()][-_LINES:]
    if not last_lines or _STDERR in reason:
        return reason
    text = " | ".join(last_lines)
    return f"{reason}; {_STDERR} {text if len(text) <= _MOST_STDERR else f'…{text[1 - _MOST_STDERR :]}'}"


def with_url(reason: str, url: str) -> str:
    """The reason with the URL of the server, without what may be a key in it."""
    return f"{reason} ({redacted_url(url)})" if url else reason


def redacted_url(url: str) -> str:
    """Scheme, host, port and path; a user, a query and long segments of the path may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{_KEY_IN_PATH.sub(REDACTED, parts.path)}"


def redacted_lines(lines: Sequence[str], secrets: Sequence[str] = ()) -> list[str]:
    """Lines of stderr without secrets, colours and control characters; `secrets` are removed literally."""
    # They are redacted together, because a private key has many lines.
    last = list(lines)[-_READ_LINES:]
    plain = [_plain(line[:_READ_CHARACTERS]) for line in _without_end_of_key(last)]
    text = redact(redact_values("\n".join(plain), secrets))
    return [line[:_LINE_CHARACTERS] for line in text.split("\n")] if plain else []


def _plain(line: str) -> str:
    return "".join(one if one.isprintable() else " " for one in _ESCAPES.sub("", line))


def _without_end_of_key(lines: Sequence[str]) -> list[str]:
    """The lines without those of a private key whose first lines are gone."""
    ends = [at for at, line in enumerate(lines) if _KEY_END.search(line)]
    if not ends or any(_KEY_BEGIN in line for line in lines[: ends[0] + 1]):
        return list(lines)
    first = ends[0]
    while first and _KEY_LINE.fullmatch(lines[first - 1].strip()):
        first -= 1
    return [*lines[:first], REDACTED, *lines[ends[0] + 1 :]]


def bounded_reason(reason: str, secrets: Sequence[str] = ()) -> str:
    """The reason without secrets, and no longer than an error may quote."""
    text = redact(redact_values(reason, secrets))
    return text if len(text) <= MAX_CAUSE else f"{text[: MAX_CAUSE - 1]}…"
