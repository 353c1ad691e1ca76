"""The process that works on large results: it takes a job, does it, and waits for the next."""

import contextlib
import gc
import logging
import mmap
import os
import resource
import secrets
import signal
import socket
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from headgate.responses.content import Content
from headgate.responses.jobs import Done, Job
from headgate.responses.opened import Opened
from headgate.responses.processing import Refused
from headgate.responses.work import perform
from headgate.workers.query import QueryProcessor
from headgate.workers.talk import Order, receive, send

# Of the processor: a job that needs more ends with its process. A pattern, a table or a question that takes
# longer is asked in a smaller way.
_CPU_SECONDS = 10
# Where the gateway is gone nobody else would end it.
_ABANDONED_SECONDS = 60
# Programs, libraries and mapped files are counted too.
_MOST_MEMORY = 3 * 1024 * 1024 * 1024
# Results that were opened: an agent looks at one several times.
_MOST_OPENED = 4
# One that is larger than this is kept alone, and what is stored no more is not kept for long.
_MOST_OPENED_BYTES = 32 * 1024 * 1024
# What is larger is written down while it is worked on.
_IN_MEMORY = 8 * 1024 * 1024

log = logging.getLogger("headgate.workers")

_job = msgspec.msgpack.Decoder(Job)


class _OnDisk:
    """Keeps what is made of a large result in files without a name."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def keep(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one, in memory as long as they are few."""
        kept = bytearray()
        rest = iter(chunks)
        for chunk in rest:
            kept += chunk
            if len(kept) > _IN_MEMORY:
                break
        else:
            return bytes(kept)
        with tempfile.TemporaryFile(dir=self._directory) as file:
            file.write(kept)
            file.writelines(rest)
            file.flush()
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


class Workplace:
    """What the process keeps from job to job."""

    def __init__(self, directory: str) -> None:
        self._scratch = _OnDisk(directory)
        self._opened: OrderedDict[str, tuple[Opened, int]] = OrderedDict()
        self._query = QueryProcessor(scratch=self._scratch)

    def carry_out(self, order: Order) -> Done:
        """What came of one job."""
        try:
            job = _job.decode(order.job)
            return perform(job, self._open(order), self._query)
        except Refused as refused:
            return Done(error=str(refused))
        except MemoryError:
            self._opened.clear()
            return Done(error="this needs more memory than one job may take; ask for a smaller part")
        except OSError as error:
            return Done(error=f"what is too large for memory cannot be written down: {error.strerror}")
        except Exception:
            # The next job is another one's; where this one failed stands in the log.
            entry = secrets.token_hex(6)
            log.exception("internal error %s", entry)
            return Done(error=f"internal error {entry}: look for it in the gateway's log and report it")

    def _open(self, order: Order) -> Opened:
        known = self._opened.pop(order.entry, None)
        opened = known[0] if known is not None else Opened(order.content, self._scratch)
        self._opened[order.entry] = opened, len(order.content)
        while len(self._opened) > 1 and self._too_much():
            self._opened.popitem(last=False)
        return opened

    def _too_much(self) -> bool:
        sizes = [size for _, size in self._opened.values()]
        return len(sizes) > _MOST_OPENED or sum(sizes) > _MOST_OPENED_BYTES


def main() -> None:
    """Serve the socket whose number is the first argument, until the other side closes it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _confine()
    workplace = Workplace(sys.argv[2])
    encode = msgspec.msgpack.encode
    # Millions of small objects are made, and all at once are garbage: they are looked for when nobody waits.
    gc.disable()
    while (order := receive(channel)) is not None:
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
        signal.alarm(_ABANDONED_SECONDS)
        done = workplace.carry_out(order)
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(channel, encode(done))
        del order, done
        gc.collect()


def _confine() -> None:
    """Whoever wants more than this gets none of it, and whoever serves clients comes first."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    with contextlib.suppress(OSError):
        os.nice(5)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    # The parent ends its workers itself; an interrupt from the terminal is meant for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
