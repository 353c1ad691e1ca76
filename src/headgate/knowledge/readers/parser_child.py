"""The program of the process that parses documents, one at a time."""

import logging
import traceback
import warnings

import msgspec
from msgspec import structs

from headgate.knowledge.ingestion.document_source import DocumentUnreadable, ParsedDocument
from headgate.knowledge.readers.format_registry import parse
from headgate.knowledge.readers.limits import MIB, MOST_MEMORY_BYTES, MOST_SECONDS
from headgate.workers.child import ProcessLimits, serve_jobs
from headgate.workers.worker_protocol import WorkerJob

log = logging.getLogger("headgate.knowledge.readers")

# The parent gives up after MOST_SECONDS.
_LIMITS = ProcessLimits(memory_bytes=MOST_MEMORY_BYTES, orphan_seconds=int(MOST_SECONDS) + 10)

# Each of thousands of pages may be broken in the same way.
_MOST_LOG_RECORDS = 10


class ParseReply(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed document, or the reason why there is none; `trouble` is for the parent's log."""

    parsed: ParsedDocument | None = None
    reason: str = ""
    trouble: str = ""


def main() -> None:
    """Parse the files that the parent sends; the job is a file's extension, the content its bytes."""
    collector = _LogCollector()
    # Our own warnings only: those of parsing libraries are for their developers.
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    log.setLevel(logging.WARNING)
    log.propagate = False
    log.addHandler(collector)
    warnings.simplefilter("ignore")
    serve_jobs(lambda job: _parse(job, collector.messages), _LIMITS)


class _LogCollector(logging.Handler):
    """Collects warnings about the current document for the parent, which has the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.messages) < _MOST_LOG_RECORDS:
            self.messages.append(self.format(record))


def _parse(job: WorkerJob, messages: list[str]) -> bytes:
    messages.clear()
    try:
        reply = ParseReply(parsed=parse(job.job.decode(), bytes(job.content)))
    except DocumentUnreadable as unreadable:
        reply = ParseReply(reason=str(unreadable))
    except MemoryError:
        reply = ParseReply(
            reason=f"needs more than {MOST_MEMORY_BYTES // MIB} MiB of memory to be read; split it"
        )
    except RecursionError:
        reply = ParseReply(reason="is nested too deeply to be read")
    except Exception:  # noqa: BLE001 (the parent logs it)
        reply = ParseReply(reason="is broken, or written in a way that nobody here reads; save it again")
        log.warning(traceback.format_exc(limit=-20))
    return msgspec.msgpack.encode(structs.replace(reply, trouble="\n".join(messages)))


if __name__ == "__main__":
    main()
