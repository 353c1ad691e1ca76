"""Structured logs: one line per event, readable on a terminal, JSON for machines."""

import logging
import stat
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from headgate.domain.errors import ConfigError
from headgate.domain.redaction import redact_secrets
from headgate.domain.regular_file import check_regular

_FILE_BYTES = 10 * 1024 * 1024
_FILES = 5
# A longer text would hold up the event loop while secrets are looked for in it.
_LONGEST_TEXT = 32 * 1024
# In a container they may be pipes, which have a reader.
_STREAMS = (Path("/dev/stdout"), Path("/dev/stderr"))
_STANDARD_ATTRIBUTES = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, style: str | None, file: Path | None) -> None:
    """Send every log line to stderr and, if configured, to a rotated file; raises ConfigError."""
    pretty = style == "pretty" or (style is None and sys.stderr.isatty())
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setFormatter(PrettyLogFormatter() if pretty else JsonLogFormatter())
    if file is not None:
        handlers.append(_file_handler(file))
        handlers[1].setFormatter(JsonLogFormatter())
    logging.basicConfig(level=level, handlers=handlers, force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _file_handler(file: Path) -> logging.Handler:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file not in _STREAMS:
            check_regular(file, allowed=(stat.S_IFCHR,))
        return RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the log file {file} cannot be written: {error.strerror}",
            hint="name another file with HEADGATE_LOG_FILE or logFile, or make this one writable",
        ) from error


class JsonLogFormatter(logging.Formatter):
    """One JSON object per line; line breaks and control characters in values are escaped by JSON itself."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        whole = {key: _encodable(value) if isinstance(value, str) else value for key, value in line.items()}
        return msgspec.json.encode(whole, enc_hook=_encodable).decode()


class PrettyLogFormatter(logging.Formatter):
    """One line for people; control characters in values are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        extras = "".join(f"  {key}={_quoted(value)}" for key, value in _extras(record).items())
        message = _redacted(record.getMessage())
        message = message if message.isprintable() else repr(message)
        line = f"{time} {record.levelname.lower():7} {message}{extras}"
        if not record.exc_info:
            return line
        return f"{line}\n{_redacted(self.formatException(record.exc_info))}"


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {
        key: value
        for key, value in vars(record).items()
        if key not in _STANDARD_ATTRIBUTES and value is not None
    }


def _redacted(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return redact_secrets(text)
    return f"{redact_secrets(text[:_LONGEST_TEXT])}… ({len(text):,} characters)"


def _encodable(value: object) -> str:
    """A text without secrets, and without halves of characters, which cannot be written."""
    return _redacted(str(value)).encode(errors="backslashreplace").decode()


def _quoted(value: object) -> str:
    text = _redacted(str(value))
    return repr(text) if not text.isprintable() or " " in text else text
