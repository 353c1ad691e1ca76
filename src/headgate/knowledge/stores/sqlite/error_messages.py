"""What an operator can do about a knowledge.db that cannot be used."""

import errno
import sqlite3
from typing import Final

from headgate.storage.sqlite.database_file import store_failure
from headgate.storage.sqlite.migrations import FOREIGN_FILE_MESSAGE, NEWER_VERSION_MESSAGE

REPLACED: Final = "the file was removed or replaced while this process uses it"

_ACCESS: Final = "let the user of this process read and write knowledge.db and its directory"
_ROOM: Final = "make room on the disk of the data directory"
_ANEW: Final = "move knowledge.db away and ingest again, or restore a copy of it"
_REMEDIES: Final = {
    "the disk is full": _ROOM,
    "another process keeps the file locked": "wait until it is done, or end it",
    "the file cannot be written": _ACCESS,
    "the file cannot be opened": _ACCESS,
    "the file is not a database": _ANEW,
    # Whoever has it open would go on with the damaged one.
    "the file is damaged": f"end every process that uses it, {_ANEW}",
    "the file cannot be read or written": "see that knowledge.db is a file, and that its disk is well",
    NEWER_VERSION_MESSAGE: "update this Headgate, or name another --data-dir",
    FOREIGN_FILE_MESSAGE: "name another --data-dir",
    REPLACED: "restart this process",
}
# What the system says before SQLite is asked.
_OF_THE_SYSTEM: Final = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: _ACCESS,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "let this process open more files (ulimit -n)",
    errno.ENAMETOOLONG: "name a shorter --data-dir",
    errno.ENOTDIR: "name a --data-dir that is a directory",
}


def explain_error(error: Exception) -> str:
    """What is wrong and what to do, in one sentence; without a path, or what SQLite said."""
    failed = store_failure(error)
    said = str(failed)
    if said in _REMEDIES:
        return f"{said}; {_REMEDIES[said]}"
    cause = failed.__cause__ or error.__cause__
    if isinstance(cause, sqlite3.Error):
        return f"knowledge.db answers {getattr(cause, 'sqlite_errorname', None) or type(cause).__name__}"
    remedy = _OF_THE_SYSTEM.get(cause.errno or 0) if isinstance(cause, OSError) else None
    return f"{said}; {remedy}" if remedy else said
