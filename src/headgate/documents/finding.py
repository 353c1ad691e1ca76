"""Finds the files below what was asked for; links that lead out of it are not followed."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headgate.documents.exclusion import Exclusion
from headgate.documents.formats import extension_of, is_known
from headgate.knowledge.places import Places, Root
from headgate.knowledge.reading import Failure

# Nobody's own documents.
_PASSED_OVER: Final = frozenset(["node_modules", "__pycache__"])
# Gone meanwhile, or a link to nowhere or to itself.
_NOT_THERE: Final = frozenset([errno.ENOENT, errno.ENOTDIR, errno.ELOOP])


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


class Seen(NamedTuple):
    """What a directory that was looked through, or a file that was taken, is called in the store."""

    name: str
    is_file: bool


class Found:
    """What is there; files by their names in the store."""

    def __init__(self) -> None:
        # Without those that are inside of another.
        self.roots: list[Root] = []
        self.files: dict[str, File] = {}
        self.skipped: Counter[str] = Counter()
        self.failed: list[Failure] = []
        self.seen: dict[Path, Seen] = {}
        # Each with its name and its top: a file that is there itself is not taken by a link too.
        self.links: list[tuple[str, Path, Path]] = []
        # Roots of which a pattern left something out.
        self.excluded_from: set[str] = set()


def root_of(path: Path) -> Root:
    """The root that a path is, by its own name; `path` is resolved."""
    return Root(_name(path), str(path), is_file=path.is_file())


def part_of_known(path: Path, root: Root, known: Places) -> Root:
    """The root as a part of the outermost one above it that has documents of it, or else as it is."""
    for above in reversed(path.parents):
        below = readable(path.relative_to(above).as_posix())
        part = Root(f"{_name(above)}/{below}", str(above), is_file=root.is_file)
        if known.documents_of(part):
            return part
    return root


def _name(path: Path) -> str:
    return readable(path.name) or "root"


def readable(name: str) -> str:
    """A file name that every store can keep, also where it is no UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "")


def find(roots: Sequence[tuple[Path, Root]], exclusion: Exclusion) -> Found:
    """All files below these, each once; this blocks."""
    found = Found()
    # The outermost first: what is inside of it comes with it, unless it is excluded there.
    for path, root in sorted(roots, key=lambda given: len(given[0].parts)):
        if path in found.seen:
            continue
        found.roots.append(root)
        if not root.is_file:
            _walk(found, path, root.name, exclusion)
        # A shell may have named it, with all others of its kind.
        elif not exclusion.covers(path.name, is_directory=False):
            _take(found, root.name, path, path)
    for file, path, top in found.links:
        _take(found, file, path, top)
    return found


def taken_over(found: Found, known: Places) -> dict[str, str]:
    """The documents that came by paths inside of these: what they are called, and what from now on."""
    return {
        file: called + file.removeprefix(root.name)
        for root, called in _inside(found, known)
        if root not in found.roots
        for file in known.documents_of(root)
    }


def _inside(found: Found, known: Places) -> Iterator[tuple[Root, str]]:
    """What may be a root by itself, and what it is called now; also such that are gone from a directory."""
    for path, seen in found.seen.items():
        yield Root(_name(path), str(path), is_file=seen.is_file), seen.name
        for name in () if seen.is_file else known.names_in(str(path)):
            gone = path / name
            if not os.path.lexists(gone):
                yield Root(name, str(gone)), f"{seen.name}/{name}"
                yield Root(name, str(gone), is_file=True), f"{seen.name}/{name}"


def _walk(found: Found, top: Path, name: str, exclusion: Exclusion) -> None:
    # Without recursion: a tree can be deeper than Python's stack.
    waiting = [(top, "")]
    while waiting:
        directory, below = waiting.pop()
        called = readable(f"{name}/{below}".rstrip("/"))
        try:
            entries = list(_entries(directory))
        except OSError as error:
            # One that went away meanwhile is gone, but a root may be a disk that is not there now.
            if below == "" or not isinstance(error, FileNotFoundError):
                found.failed.append(Failure(called, f"cannot be looked through: {error.strerror}"))
            continue
        found.seen[directory] = Seen(called, is_file=False)
        for entry, is_directory in entries:
            relative = f"{below}{entry.name}"
            if _is_hidden(entry.name):
                continue
            if exclusion.covers(relative, is_directory=is_directory):
                found.excluded_from.add(name)
            elif is_directory:
                waiting.append((Path(entry.path), f"{relative}/"))
            elif entry.is_symlink():
                found.links.append((readable(f"{name}/{relative}"), Path(entry.path), top))
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
    extension = extension_of(path.name)
    try:
        # Only links are followed to their end: above the file there are none any more.
        real = path.resolve(strict=True) if path.is_symlink() else path
        status = real.stat()
    except RuntimeError:
        # A link that leads to itself.
        return
    except OSError as error:
        if error.errno not in _NOT_THERE and is_known(extension):
            found.failed.append(Failure(file, f"cannot be looked at: {error.strerror}"))
        return
    if not stat.S_ISREG(status.st_mode) or not real.is_relative_to(top) or real in found.seen:
        return
    if not is_known(extension):
        found.skipped[readable(extension)] += 1
        return
    if file not in found.files:
        found.files[file] = File(real, status.st_size, status.st_mtime_ns, status.st_ino)
        found.seen[real] = Seen(file, is_file=True)
