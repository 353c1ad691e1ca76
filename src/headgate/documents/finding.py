"""Finds the files below what was asked for; links that lead out of it are not followed."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headgate.documents.exclusion import Exclusion
from headgate.documents.formats import extension_of, is_known
from headgate.knowledge.reading import Failure, Root

# Nobody's own documents.
_PASSED_OVER: Final = frozenset(["node_modules", "__pycache__"])


class File(NamedTuple):
    """A file that can be read, and what changes when it is edited, replaced or removed."""

    path: Path
    size_bytes: int
    modified_ns: int
    inode: int

    @property
    def looks(self) -> tuple[int, int, int]:
        """Differs when the file was changed."""
        return self.modified_ns, self.size_bytes, self.inode


class Found:
    """What is there; files by their names in the store."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.skipped: Counter[str] = Counter()
        self.failed: list[Failure] = []


def root_of(path: Path) -> Root:
    """The root that a path is, by its own name; `path` is resolved."""
    return Root(readable(path.name) or "root", str(path), is_file=path.is_file())


def readable(name: str) -> str:
    """A file name that every store can keep, also where it is no UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "")


def find(roots: Sequence[tuple[Path, Root]], exclusion: Exclusion) -> Found:
    """All files below these; this blocks."""
    found = Found()
    for path, root in roots:
        if root.is_file:
            _take(found, root.name, path, path)
        else:
            _walk(found, path, root.name, exclusion)
    return found


def _walk(found: Found, top: Path, name: str, exclusion: Exclusion) -> None:
    # Without recursion: a tree can be deeper than Python's stack.
    waiting = [(top, "")]
    while waiting:
        directory, below = waiting.pop()
        try:
            entries = list(_entries(directory))
        except OSError as error:
            # One that went away meanwhile is gone, but a root may be a disk that is not there now.
            if below == "" or not isinstance(error, FileNotFoundError):
                reason = f"cannot be looked through: {error.strerror}"
                found.failed.append(Failure(readable(f"{name}/{below}".rstrip("/")), reason))
            continue
        for entry, is_directory in entries:
            relative = f"{below}{entry.name}"
            if _is_hidden(entry.name) or exclusion.covers(relative, is_directory=is_directory):
                continue
            if is_directory:
                waiting.append((Path(entry.path), f"{relative}/"))
            else:
                _take(found, readable(f"{name}/{relative}"), Path(entry.path), top)


def _entries(directory: Path) -> Iterator[tuple[os.DirEntry[str], bool]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            yield entry, entry.is_dir(follow_symlinks=False)


def _is_hidden(name: str) -> bool:
    # Word leaves the last kind beside each document that is open.
    return name.startswith((".", "~$")) or name in _PASSED_OVER


def _take(found: Found, file: str, path: Path, top: Path) -> None:
    try:
        # Only links are followed to their end: above the file there are none any more.
        real = path.resolve(strict=True) if path.is_symlink() else path
        status = real.stat()
    except (OSError, RuntimeError):
        # Gone meanwhile, or a link to nowhere or to itself.
        return
    if not stat.S_ISREG(status.st_mode) or not real.is_relative_to(top):
        return
    extension = extension_of(path.name)
    if not is_known(extension):
        found.skipped[readable(extension)] += 1
        return
    found.files.setdefault(file, File(real, status.st_size, status.st_mtime_ns, status.st_ino))
