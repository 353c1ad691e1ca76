"""The PostgreSQL of the campaign, with pgvector; it can be killed and started again."""

import contextlib
import os
import signal
from pathlib import Path

from testkit import procfs
from testkit.postgres import Server, server


def new_database() -> str:
    """The URL of a database with nothing in it."""
    return server().new_database()


def kill(one: Server) -> int:
    """End all of its processes at once, as a machine does that loses power; returns how many there were."""
    postmaster = int((Path(one.directory) / "postmaster.pid").read_text().split()[0])
    all_of_it = [postmaster, *procfs.descendants(postmaster)]
    for pid in all_of_it:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(all_of_it)
