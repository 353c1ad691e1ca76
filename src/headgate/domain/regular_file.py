"""Opens only regular files: a named pipe in their place would hold up the process for ever."""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
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
_OPEN_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# The names by which OpenSSL finds a certificate or a revocation list in a directory.
_HASHED_NAME: Final = re.compile(r"[0-9a-f]{8}\.r?\d+")


class NotRegularFile(OSError):
    """Something else than a file has this name."""


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = 0o600) -> BinaryIO:
    """The open file, without waiting for another process; raises OSError."""
    # A pipe without a reader or writer blocks in open() itself, so the kind is checked on the open file.
    descriptor = os.open(path, flags | _OPEN_FLAGS, mode)
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


def check_certificate_directory(directory: str) -> None:
    """Raise NotRegularFile for a certificate in it that OpenSSL would wait for in a handshake."""
    try:
        names = os.listdir(directory)
    except OSError:
        # OpenSSL passes over a directory that it cannot read.
        return
    for name in filter(_HASHED_NAME.fullmatch, names):
        with suppress(PermissionError):
            check_regular(os.path.join(directory, name))


def unusable_certificates() -> str:
    """Why OpenSSL would block on a file that its variables name; empty if it would not."""
    variable = "SSL_CERT_FILE"
    try:
        if file := os.environ.get(variable):
            check_regular(file)
        variable = "SSL_CERT_DIR"
        for directory in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            check_certificate_directory(directory)
    except OSError as error:
        return f"{variable} {error.filename} cannot be used ({error.strerror})"
    return ""


def _check(path: Path | str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotRegularFile(EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
