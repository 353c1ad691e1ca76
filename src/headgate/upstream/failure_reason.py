"""Why a server is down, worded once for the console, the log and the errors of calls, without secrets."""

import errno
import re
import signal
from collections.abc import Sequence
from urllib.parse import urlsplit

from headgate.domain.errors import MAX_CAUSE
from headgate.domain.known_secrets import redact_values
from headgate.domain.redaction import REDACTED, redact

_STDERR = "last lines on stderr:"
# Package runners end with a line about their log file, below the line that says what is wrong.
_LINES = 5
# The end of these lines; the reason stands before them, and both fit into a cause.
_MOST_STDERR = 400
# How much of one line an operator is shown.
_LINE_CHARACTERS = 500
# How much is read for that: the first lines of a private key say what the others are.
_READ_LINES = 60
_READ_CHARACTERS = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_KEY_BEGIN = "-----BEGIN"
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,80}PRIVATE KEY")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{1,80}")
# A part of a path that is long and holds a digit may be a key.
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
    said = [line for line in redacted_lines(lines, secrets) if line.strip()][-_LINES:]
    if not said or _STDERR in reason:
        return reason
    text = " | ".join(said)
    return f"{reason}; {_STDERR} {text if len(text) <= _MOST_STDERR else f'…{text[1 - _MOST_STDERR :]}'}"


def with_url(reason: str, url: str) -> str:
    """The reason with the address of the server, without what may be a key in it."""
    return f"{reason} ({redacted_url(url)})" if url else reason


def redacted_url(url: str) -> str:
    """Scheme, host, port and path: a user, a query and a long part of the path may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{_KEY_IN_PATH.sub(REDACTED, parts.path)}"


def redacted_lines(lines: Sequence[str], secrets: Sequence[str] = ()) -> list[str]:
    """Lines of stderr without secrets, colours and control characters; `secrets` are removed literally.

    They are read together, because a private key has many lines.
    """
    last = list(lines)[-_READ_LINES:]
    plain = [_plain(line[:_READ_CHARACTERS]) for line in _without_end_of_key(last)]
    text = redact(redact_values("\n".join(plain), secrets))
    return [line[:_LINE_CHARACTERS] for line in text.split("\n")] if plain else []


def _plain(line: str) -> str:
    return "".join(one if one.isprintable() else " " for one in _ESCAPES.sub("", line))


def _without_end_of_key(lines: Sequence[str]) -> list[str]:
    """The lines without those of a private key whose beginning is not kept any more."""
    ends = [at for at, line in enumerate(lines) if _KEY_END.search(line)]
    if not ends or any(_KEY_BEGIN in line for line in lines[: ends[0] + 1]):
        return list(lines)
    first = ends[0]
    while first and _KEY_LINE.fullmatch(lines[first - 1].strip()):
        first -= 1
    return [*lines[:first], REDACTED, *lines[ends[0] + 1 :]]


def bounded_reason(reason: str, secrets: Sequence[str] = ()) -> str:
    """The reason as pages and errors show it: without secrets, and no longer than an error may quote."""
    text = redact(redact_values(reason, secrets))
    return text if len(text) <= MAX_CAUSE else f"{text[: MAX_CAUSE - 1]}…"
