"""Finds the files below what was asked for; links that lead out of it are not followed."""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from headgate.documents.exclusion import Exclusion
from headgate.documents.formats import extension_of, is_known
from headgate.knowledge.places import Places, Root
from headgate.knowledge.reading import Failure

# Nobody's own documents.
_PASSED_OVER: Final = frozenset(["node_modules", "__pycache__"])
# As a byte that is no UTF-8 is written.
_ESCAPED: Final = re.compile(r"\\x[89a-f][0-9a-f]")
# Gone meanwhile, or a link to nowhere or to itself.
_NOT_THERE: Final = frozenset([errno.ENOENT, errno.ENOTDIR, errno.ELOOP])


class File(NamedTuple):
    """A file that can be read, and what changes when it is edited, replaced or removed."""

    path: Path
    size_bytes: int
    modified_ns: int
    # Nobody can set it back, and it changes with the rights too: the file may be readable now.
    changed_ns: int
    inode: int

    @property
    def looks(self) -> tuple[int, ...]:
        """Differs when the file was changed."""
        return self.modified_ns, self.changed_ns, self.size_bytes, self.inode


class Seen(NamedTuple):
    """What a directory that was looked through, or a file that was taken, is called in the store."""

    name: str
    is_file: bool


class _Entry(NamedTuple):
    """What may be a file or lead to one, and the root and the directory that it must not lead out of."""

    file: str
    path: Path
    root: str
    top: Path


class Found:
    """What is there; files by their names in the store."""

    def __init__(self) -> None:
        # Without those that are inside of another.
        self.roots: list[Root] = []
        self.files: dict[str, File] = {}
        self.skipped: Counter[str] = Counter()
        self.failed: list[Failure] = []
        self.seen: dict[Path, Seen] = {}
        # They come last: a file that is there itself is not taken by a link too.
        self.links: list[_Entry] = []
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


def readable(path: str) -> str:
    """A path that every store can keep, also where a name in it is no UTF-8; no two become the same."""
    return "/".join(map(_readable_name, path.split("/")))


def _readable_name(name: str) -> str:
    raw = name.encode("utf-8", "surrogateescape")
    text = raw.decode("utf-8", "backslashreplace")
    # Only where something was written with a backslash, or looks so, the others have to be told from it.
    return raw.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace") if _ESCAPED.search(text) else text


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
            _take(found, _Entry(root.name, path, root.name, path), exclusion)
    for link in found.links:
        _take(found, link, exclusion)
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
        called = f"{name}/{readable(below)}".rstrip("/")
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
                found.links.append(_Entry(f"{name}/{readable(relative)}", Path(entry.path), name, top))
            else:
                _take(found, _Entry(f"{name}/{readable(relative)}", Path(entry.path), name, top), exclusion)


def _entries(directory: Path) -> Iterator[tuple[os.DirEntry[str], bool]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            yield entry, entry.is_dir(follow_symlinks=False)


def _is_hidden(name: str) -> bool:
    # Word leaves the last kind beside each document that is open.
    return name.startswith((".", "~$")) or name in _PASSED_OVER


def _take(found: Found, entry: _Entry, exclusion: Exclusion) -> None:
    extension = extension_of(entry.path.name)
    try:
        # Only links are followed to their end: above the file there are none any more.
        real = entry.path.resolve(strict=True) if entry.path.is_symlink() else entry.path
        status = real.stat()
    except RuntimeError:
        # A link that leads to itself.
        return
    except OSError as error:
        if error.errno not in _NOT_THERE and is_known(extension):
            found.failed.append(Failure(entry.file, f"cannot be looked at: {error.strerror}"))
        return
    if not stat.S_ISREG(status.st_mode) or not real.is_relative_to(entry.top) or real in found.seen:
        return
    if real != entry.path and _is_left_out(found, entry, real, exclusion):
        return
    if not is_known(extension):
        found.skipped[readable(extension)] += 1
    elif entry.file in found.files:
        reason = "is called as another file that was found; rename one of the two"
        found.failed.append(Failure(entry.file, reason))
    else:
        found.files[entry.file] = File(
            real, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        )
        found.seen[real] = Seen(entry.file, is_file=True)


def _is_left_out(found: Found, link: _Entry, real: Path, exclusion: Exclusion) -> bool:
    """Whether a link leads to what is hidden or excluded at its own place."""
    names = real.relative_to(link.top).parts
    *directories, file = accumulate(names, "{}/{}".format)
    if exclusion.covers(file, is_directory=False) or any(
        exclusion.covers(directory, is_directory=True) for directory in directories
    ):
        found.excluded_from.add(link.root)
        return True
    # Kubernetes mounts files as links into `..data`, so that all of them change at once.
    return any(_is_hidden(name) and not name.startswith("..") for name in names)
