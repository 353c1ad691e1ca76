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

from headgate.documents.formats import parse
from headgate.documents.limits import MIB, MOST_MEMORY_BYTES, MOST_SECONDS
from headgate.documents.talk import Answer, Order, receive, send
from headgate.knowledge.reading import Unreadable

# Where whoever asked is gone nobody else would end it.
_ABANDONED_SECONDS = int(MOST_SECONDS) + 10

_order = msgspec.msgpack.Decoder(Order)


def main() -> None:
    """Serve the socket whose number is the first argument, until the other side closes it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    # What parsers complain about is meant for those who write them.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _confine()
    while (order := receive(channel)) is not None:
        signal.alarm(_ABANDONED_SECONDS)
        answer = _answer(order)
        del order
        send(channel, answer)
        signal.alarm(0)


def _answer(order: bytes) -> bytes:
    try:
        asked = _order.decode(order)
        return msgspec.msgpack.encode(Answer(parsed=parse(asked.extension, asked.content)))
    except Unreadable as unreadable:
        answer = Answer(reason=str(unreadable))
    except MemoryError:
        answer = Answer(
            reason=f"needs more than {MOST_MEMORY_BYTES // MIB} MiB of memory to be read; split it"
        )
    except RecursionError:
        answer = Answer(reason="is nested too deeply to be read")
    except Exception:  # noqa: BLE001 (whoever asked logs it)
        answer = Answer(
            reason="is broken, or written in a way that nobody here reads; save it again",
            trouble=traceback.format_exc(limit=-20),
        )
    return msgspec.msgpack.encode(answer)


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
