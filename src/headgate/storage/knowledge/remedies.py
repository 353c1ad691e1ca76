"""What an operator can do about a knowledge.db that cannot be used."""

import sqlite3
from typing import Final

from headgate.storage.opening import failure

NEWER: Final = "the file was written by a newer version of headgate"
FOREIGN: Final = "the file is a database of something else"

_ACCESS: Final = "let the user of this process read and write knowledge.db and its directory"
_ANEW: Final = "move knowledge.db away and ingest again, or restore a copy of it"
_REMEDIES: Final = {
    "the disk is full": "make room on the disk of the data directory",
    "another process keeps the file locked": "wait until it is done, or end it",
    "the file cannot be written": _ACCESS,
    "the file cannot be opened": _ACCESS,
    "the file is not a database": _ANEW,
    # Whoever has it open would go on with the damaged one.
    "the file is damaged": f"end every process that uses it, {_ANEW}",
    "the file cannot be read or written": "see that knowledge.db is a file, and that its disk is well",
    NEWER: "update this Headgate, or name another --data-dir",
    FOREIGN: "name another --data-dir",
}


def explained(error: Exception) -> str:
    """What is wrong and what to do, in one sentence; without a path, or what SQLite said."""
    failed = failure(error)
    said = str(failed)
    if said in _REMEDIES:
        return f"{said}; {_REMEDIES[said]}"
    cause = failed.__cause__ or error.__cause__
    if isinstance(cause, sqlite3.Error):
        return f"knowledge.db answers {getattr(cause, 'sqlite_errorname', None) or type(cause).__name__}"
    return f"{said}; {_ACCESS}" if isinstance(cause, OSError) else said
