"""The worker process: receives a job, runs it within CPU and memory limits, and waits for the next."""

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

from headgate.results.content import Content
from headgate.results.job_runner import run_job
from headgate.results.jobs import Job, JobResult
from headgate.results.parsed_result import ParsedResult
from headgate.results.pipeline import ProcessingError
from headgate.workers.sql.query_processor import QueryProcessor
from headgate.workers.worker_protocol import WorkerJob, receive_job, send_reply

# Of the processor: a job that needs more ends with its process. A pattern, a table or a question that takes
# longer is asked in a smaller way.
_CPU_SECONDS = 10
# Where the gateway is gone nobody else would end it.
_ORPHAN_TIMEOUT_SECONDS = 60
# Programs, libraries and mapped files are counted too.
_MAX_MEMORY_BYTES = 3 * 1024 * 1024 * 1024
# Results that were opened: an agent looks at one several times.
_MAX_CACHED_RESULTS = 4
# One that is larger than this is kept alone, and what is stored no more is not kept for long.
_MAX_CACHED_BYTES = 32 * 1024 * 1024
# What is larger is written down while it is worked on.
_MAX_MEMORY_SCRATCH_BYTES = 8 * 1024 * 1024

log = logging.getLogger("headgate.workers")

_job = msgspec.msgpack.Decoder(Job)


class _FileScratch:
    """Keeps what is made of a large result in files without a name."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def store(self, chunks: Iterable[bytes]) -> Content:
        """The chunks as one, in memory as long as they are few."""
        kept = bytearray()
        rest = iter(chunks)
        for chunk in rest:
            kept += chunk
            if len(kept) > _MAX_MEMORY_SCRATCH_BYTES:
                break
        else:
            return bytes(kept)
        with tempfile.TemporaryFile(dir=self._directory) as file:
            file.write(kept)
            file.writelines(rest)
            file.flush()
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


class JobExecutor:
    """What the process keeps from job to job."""

    def __init__(self, directory: str) -> None:
        self._scratch = _FileScratch(directory)
        self._parsed: OrderedDict[str, tuple[ParsedResult, int]] = OrderedDict()
        self._query = QueryProcessor(scratch=self._scratch)

    def run_job(self, worker_job: WorkerJob) -> JobResult:
        """What came of one job."""
        try:
            job = _job.decode(worker_job.job)
            return run_job(job, self._parse(worker_job), self._query)
        except ProcessingError as refused:
            return JobResult(error=str(refused))
        except MemoryError:
            self._parsed.clear()
            return JobResult(error="this needs more memory than one job may take; ask for a smaller part")
        except OSError as error:
            return JobResult(error=f"what is too large for memory cannot be written down: {error.strerror}")
        except Exception:
            # The next job is another one's; where this one failed stands in the log.
            entry = secrets.token_hex(6)
            log.exception("internal error %s", entry)
            return JobResult(error=f"internal error {entry}: look for it in the gateway's log and report it")

    def _parse(self, worker_job: WorkerJob) -> ParsedResult:
        known = self._parsed.pop(worker_job.entry, None)
        parsed = known[0] if known is not None else ParsedResult(worker_job.content, self._scratch)
        self._parsed[worker_job.entry] = parsed, len(worker_job.content)
        while len(self._parsed) > 1 and self._is_over_limit():
            self._parsed.popitem(last=False)
        return parsed

    def _is_over_limit(self) -> bool:
        sizes = [size for _, size in self._parsed.values()]
        return len(sizes) > _MAX_CACHED_RESULTS or sum(sizes) > _MAX_CACHED_BYTES


def main() -> None:
    """Serve the socket whose number is the first argument, until the other side closes it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _confine()
    executor = JobExecutor(sys.argv[2])
    encode = msgspec.msgpack.encode
    # Millions of small objects are made, and all at once are garbage: they are looked for when nobody waits.
    gc.disable()
    while (worker_job := receive_job(channel)) is not None:
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
        signal.alarm(_ORPHAN_TIMEOUT_SECONDS)
        done = executor.run_job(worker_job)
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send_reply(channel, encode(done))
        del worker_job, done
        gc.collect()


def _confine() -> None:
    """Whoever wants more than this gets none of it, and whoever serves clients comes first."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    with contextlib.suppress(OSError):
        os.nice(5)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    # The parent ends its workers itself; an interrupt from the terminal is meant for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
