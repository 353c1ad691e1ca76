"""The program of a worker process for large results: runs jobs and keeps parsed results between them."""

import gc
import logging
import mmap
import secrets
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
from headgate.workers.child import ProcessLimits, serve_jobs
from headgate.workers.sql.query_processor import QueryProcessor
from headgate.workers.worker_protocol import WorkerJob

# A pattern, table or query that needs more than 10 s of the processor has to be made smaller.
_LIMITS = ProcessLimits(memory_bytes=3 * 1024 * 1024 * 1024, cpu_seconds=10, orphan_seconds=60)
# An agent often reads the same result several times in a row.
_MAX_CACHED_RESULTS = 4
# A larger result is cached alone; the store may evict it at any time, so little is kept beside it.
_MAX_CACHED_BYTES = 32 * 1024 * 1024
# Larger intermediate texts go to a temporary file.
_MAX_MEMORY_SCRATCH_BYTES = 8 * 1024 * 1024

log = logging.getLogger("headgate.workers")

_job = msgspec.msgpack.Decoder(Job)


def main() -> None:
    """Run jobs on large results; the second argument is the directory for temporary files."""
    executor = JobExecutor(sys.argv[2])
    encode = msgspec.msgpack.encode
    # A job makes millions of small objects that become garbage together: collect them between jobs.
    gc.disable()
    serve_jobs(lambda job: encode(executor.run_job(job)), _LIMITS, after_reply=gc.collect)


class JobExecutor:
    """Runs jobs and caches the results that they parse."""

    def __init__(self, directory: str) -> None:
        self._scratch = _FileScratch(directory)
        self._parsed: OrderedDict[str, tuple[ParsedResult, int]] = OrderedDict()
        self._query = QueryProcessor(scratch=self._scratch)

    def run_job(self, worker_job: WorkerJob) -> JobResult:
        """The result of one job; a job that fails has the reason in `error`."""
        try:
            job = _job.decode(worker_job.job)
            return run_job(job, self._parse(worker_job), self._query)
        except ProcessingError as error:
            return JobResult(error=str(error))
        except MemoryError:
            self._parsed.clear()
            return JobResult(error="this needs more memory than one job may take; ask for a smaller part")
        except OSError as error:
            return JobResult(error=f"what is too large for memory cannot be written down: {error.strerror}")
        except Exception:
            # The process serves other clients too, so it survives; the log has the traceback.
            entry = secrets.token_hex(6)
            log.exception("internal error %s", entry)
            return JobResult(error=f"internal error {entry}: look for it in the gateway's log and report it")

    def _parse(self, worker_job: WorkerJob) -> ParsedResult:
        known = self._parsed.pop(worker_job.entry, None)
        parsed = known[0] if known is not None else ParsedResult(worker_job.content, self._scratch)
        self._parsed[worker_job.entry] = parsed, len(worker_job.content)
        while len(self._parsed) > _MAX_CACHED_RESULTS or (
            len(self._parsed) > 1 and sum(size for _, size in self._parsed.values()) > _MAX_CACHED_BYTES
        ):
            self._parsed.popitem(last=False)
        return parsed


class _FileScratch:
    """Scratch space in memory for small texts, in unnamed temporary files for large ones."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def store(self, chunks: Iterable[bytes]) -> Content:
        head = bytearray()
        rest = iter(chunks)
        for chunk in rest:
            head += chunk
            if len(head) > _MAX_MEMORY_SCRATCH_BYTES:
                break
        else:
            return bytes(head)
        with tempfile.TemporaryFile(dir=self._directory) as file:
            file.write(head)
            file.writelines(rest)
            file.flush()
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


if __name__ == "__main__":
    main()
