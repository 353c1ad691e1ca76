"""Why a server is down, in the words that the pages, the log and the errors of calls share."""

import re
import signal
from collections.abc import Sequence
from urllib.parse import urlsplit

from headgate.domain.errors import LONGEST_CAUSE
from headgate.domain.redaction import REDACTED, cleaned

_STDERR = "last lines on stderr:"
# Package runners end with a line about their log file, below the line that says what is wrong.
_LINES = 5
# The end of these lines; the reason stands before them, and both fit into a cause.
_MOST_STDERR = 400
# How much of one line an operator is shown.
_LINE_CHARACTERS = 500
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# A part of a path that is long and holds a digit may be a key.
_KEY_IN_PATH = re.compile(r"(?=[^/]*\d)[^/]{20,}")


def ended(code: int | None) -> str:
    """How a process ended, by its return code as the standard library gives it."""
    if code is None:
        return "it ended"
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


def with_stderr(reason: str, lines: Sequence[str]) -> str:
    """The reason, followed by the last lines that the server wrote to stderr, unless it has them already."""
    said = [line for line in map(shown_line, list(lines)[-_LINES:]) if line.strip()]
    if not said or _STDERR in reason:
        return reason
    text = " | ".join(said)
    return f"{reason}; {_STDERR} {text if len(text) <= _MOST_STDERR else f'…{text[1 - _MOST_STDERR :]}'}"


def with_url(reason: str, url: str) -> str:
    """The reason with the address of the server, without what may be a key in it."""
    return f"{reason} ({shown_url(url)})" if url else reason


def shown_url(url: str) -> str:
    """Scheme, host, port and path: a user, a query and a long part of the path may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{_KEY_IN_PATH.sub(REDACTED, parts.path)}"


def shown_line(line: str) -> str:
    """A line of stderr without secrets, colours and control characters."""
    plain = _ESCAPES.sub("", line)
    return cleaned("".join(one if one.isprintable() else " " for one in plain))[:_LINE_CHARACTERS]


def as_cause(reason: str) -> str:
    """The reason as everybody reads it: without secrets, and no longer than an error may quote."""
    text = cleaned(reason)
    return text if len(text) <= LONGEST_CAUSE else f"{text[: LONGEST_CAUSE - 1]}…"
