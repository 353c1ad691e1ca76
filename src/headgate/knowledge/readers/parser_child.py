"""The process that parses documents: it takes one after the other, and a hostile one ends only it."""

import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import traceback
import warnings

import msgspec
from msgspec import structs

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers.format_registry import parse
from headgate.knowledge.readers.limits import MIB, MOST_MEMORY_BYTES, MOST_SECONDS
from headgate.knowledge.readers.parser_protocol import ParseReply, ParseRequest, receive, send

log = logging.getLogger("headgate.knowledge.readers")

# Where whoever asked is gone nobody else would end it.
_ABANDONED_SECONDS = int(MOST_SECONDS) + 10

# The first are enough: each of thousands of pages may be broken in the same way.
_MOST_LOG_RECORDS = 10

_order = msgspec.msgpack.Decoder(ParseRequest)


def main() -> None:
    """Serve the socket whose number is the first argument, until the other side closes it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    troubles = _LogCollector()
    troubles.install()
    warnings.simplefilter("ignore")
    _confine()
    while (order := receive(channel)) is not None:
        signal.alarm(_ABANDONED_SECONDS)
        answer = _answer(order, troubles)
        del order
        send(channel, answer)
        signal.alarm(0)


class _LogCollector(logging.Handler):
    """What was logged about the document that is being read: whoever asked has the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told: list[str] = []

    def install(self) -> None:
        """To nobody but us: what parsers complain about is meant for those who write them."""
        logging.getLogger().setLevel(logging.CRITICAL + 1)
        log.setLevel(logging.WARNING)
        log.propagate = False
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._told) < _MOST_LOG_RECORDS:
            self._told.append(self.format(record))

    def drain(self) -> str:
        """All of them, once."""
        told, self._told = self._told, []
        return "\n".join(told)


def _answer(order: bytes, troubles: _LogCollector) -> bytes:
    try:
        asked = _order.decode(order)
        answer = ParseReply(parsed=parse(asked.extension, asked.content))
    except DocumentUnreadable as unreadable:
        answer = ParseReply(reason=str(unreadable))
    except MemoryError:
        answer = ParseReply(
            reason=f"needs more than {MOST_MEMORY_BYTES // MIB} MiB of memory to be read; split it"
        )
    except RecursionError:
        answer = ParseReply(reason="is nested too deeply to be read")
    except Exception:  # noqa: BLE001 (whoever asked logs it)
        answer = ParseReply(reason="is broken, or written in a way that nobody here reads; save it again")
        log.warning(traceback.format_exc(limit=-20))
    return msgspec.msgpack.encode(structs.replace(answer, trouble=troubles.drain()))


def _confine() -> None:
    """Whoever wants more than this gets none of it, and whoever serves clients comes first."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(5)


if __name__ == "__main__":
    # The parent ends it; an interrupt from the terminal is meant for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
