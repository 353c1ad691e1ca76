"""Opens only regular files: a named pipe in their place would hold up the process for ever."""

import os
import stat
from collections.abc import Iterable
from errno import EINVAL
from pathlib import Path
from typing import BinaryIO, Final

_KINDS: Final = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has neither of them.
_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class NotRegularFile(OSError):
    """Something else than a file has this name."""


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o600) -> BinaryIO:
    """The open file, without waiting for another process; raises OSError."""
    # A pipe without a reader or writer blocks in open() itself, so the kind is checked on the open file.
    descriptor = os.open(path, flags | _AT_ONCE, mode)
    try:
        _check(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path | str, most_bytes: int = -1) -> bytes:
    """The content of the file, or so much of it; raises OSError."""
    with open_regular(path) as file:
        return file.read(most_bytes)


def check_regular(path: Path | str, allowed: Iterable[int] = ()) -> None:
    """Raise OSError if something else than a file, or than the allowed kinds, has this name.

    For files that a library opens. A name that does not exist is left to it.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_IFMT(mode) not in allowed:
        _check(path, mode)


def _check(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotRegularFile(EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
