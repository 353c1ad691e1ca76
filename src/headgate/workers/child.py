"""The child's side of a confined process: limits of memory, CPU and time, and the loop that runs jobs."""

import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from headgate.workers.worker_protocol import WorkerJob, receive_job, send_reply

# The event loop of the parent goes first where the processor is contended.
_NICENESS = 5


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What a child process may take; one that takes more fails or is killed by the kernel."""

    # Of address space: programs, libraries and mapped files count too.
    memory_bytes: int
    # Of wall-clock time for one job. The parent usually gives up earlier; without a parent nothing else
    # ends a job that does not end by itself.
    orphan_seconds: int
    # Of processor time for one job, None for no bound of its own.
    cpu_seconds: float | None = None


def serve_jobs(
    run: Callable[[WorkerJob], bytes],
    limits: ProcessLimits,
    *,
    after_reply: Callable[[], object] | None = None,
) -> None:
    """Run the jobs of the parent, one at a time, until it closes its socket or dies.

    The socket's descriptor is the first argument of the program. A job that exceeds its CPU or wall-clock
    limit kills the process. `after_reply` runs while no caller waits.
    """
    # An interrupt from the terminal is for the parent, which ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    _confine(limits.memory_bytes)
    while (job := receive_job(channel)) is not None:
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds or 0)
        signal.alarm(limits.orphan_seconds)
        reply = run(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Sending blocks when the parent is stuck, so the alarm still runs.
        send_reply(channel, reply)
        signal.alarm(0)
        del job, reply
        if after_reply is not None:
            after_reply()


def _confine(memory_bytes: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
