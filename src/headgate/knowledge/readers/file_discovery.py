"""Finds the files below the given paths, without excluded ones; links out of a root are not followed."""

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from headgate.knowledge.ingestion.document_source import SourceRoot, SourceRoots, UnreadableFile
from headgate.knowledge.readers.format_registry import extension_of, is_known

_DIRECTORIES: Final = r"(?:[^/]+/)*"
_WILDCARDS: Final = {"**/": _DIRECTORIES, "**": ".*", "*": "[^/]*", "?": "[^/]"}
# The longest first: two stars cross directories, one does not.
_GLOB_PART: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?[^\]]+\]|.", re.DOTALL)


# An expression, whether it excludes, and whether it is for directories only.
_ExclusionRule = tuple[re.Pattern[str], bool, bool]


class ExclusionPatterns:
    """Patterns; the last that fits decides, and one that begins with `!` takes a file in again."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._rules = [
            _exclusion_rule(pattern)
            for pattern in map(str.strip, patterns)
            if pattern.strip("/!") and not pattern.startswith("#")
        ]

    def covers(self, path: str, *, is_directory: bool) -> bool:
        """Whether this path, relative to its root and with slashes, is left out."""
        for expression, excludes, directories_only in reversed(self._rules):
            if (is_directory or not directories_only) and expression.fullmatch(path):
                return excludes
        return False


def _exclusion_rule(pattern: str) -> _ExclusionRule:
    excludes = not pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    directories_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    # Without a slash it is a name that may stand anywhere.
    anywhere = "" if "/" in pattern else _DIRECTORIES
    parts = (
        _WILDCARDS.get(part) or (_one_of(part) if len(part) > 1 else re.escape(part))
        for part in _GLOB_PART.findall(pattern.removeprefix("/"))
    )
    return re.compile(anywhere + "".join(parts), re.DOTALL), excludes, directories_only


def _one_of(letters: str) -> str:
    """A choice of characters; a range that runs backwards stands for itself."""
    inside = letters[1:-1].replace("\\", r"\\").replace("[", r"\[")
    choice = f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    try:
        re.compile(choice)
    except re.error:
        return re.escape(letters)
    return choice


# Generated files and dependencies.
_SKIPPED_DIRECTORIES: Final = frozenset(["node_modules", "__pycache__"])
# As a byte that is no UTF-8 is written.
_ESCAPED: Final = re.compile(r"\\x[89a-f][0-9a-f]")
# Gone meanwhile, or a link to nowhere or to itself.
_NOT_THERE: Final = frozenset([errno.ENOENT, errno.ENOTDIR, errno.ELOOP])


class DiscoveredFile(NamedTuple):
    """A file that can be read, and what changes when it is edited, replaced or removed."""

    path: Path
    size_bytes: int
    modified_ns: int
    # Differs when the file was changed. The time of the change cannot be set back, and differs with other
    # permissions too: the file may be readable now.
    fingerprint: tuple[int, ...]


class _FileEntry(NamedTuple):
    """A directory entry with its root, and the directory that a link must not leave."""

    file: str
    path: Path
    root: str
    top: Path


class DiscoveredFiles:
    def __init__(self) -> None:
        # Without those that are inside of another.
        self.roots: list[SourceRoot] = []
        self.files: dict[str, DiscoveredFile] = {}
        self.skipped: Counter[str] = Counter()
        self.failed: list[UnreadableFile] = []
        # The name of each in the store, and whether it is a file.
        self.scanned: dict[Path, tuple[str, bool]] = {}
        # They come last: a file that is there itself is not taken by a link too.
        self.links: list[_FileEntry] = []
        # Roots of which a pattern left something out.
        self.excluded_from: set[str] = set()


def root_of(path: Path) -> SourceRoot:
    """The root that a path is, by its own name; `path` is resolved."""
    return SourceRoot(_name(path), str(path), is_file=path.is_file())


def part_of_known(path: Path, root: SourceRoot, known: SourceRoots) -> SourceRoot:
    """The root as a part of the outermost one above it that has documents of it, or else as it is."""
    for above in reversed(path.parents):
        below = readable(path.relative_to(above).as_posix())
        part = SourceRoot(f"{_name(above)}/{below}", str(above), is_file=root.is_file)
        if known.documents_of(part):
            return part
    return root


def _name(path: Path) -> str:
    return readable(path.name) or "root"


def readable(path: str) -> str:
    """A path that every store can keep, also where a name in it is no UTF-8; no two become the same."""
    names = []
    for name in path.split("/"):
        raw = name.encode("utf-8", "surrogateescape")
        text = raw.decode("utf-8", "backslashreplace")
        if _ESCAPED.search(text):
            # Names that look alike are only distinguished where one was written with a backslash.
            text = raw.replace(b"\\", rb"\\").decode("utf-8", "backslashreplace")
        names.append(text)
    return "/".join(names)


def discover_files(roots: Sequence[tuple[Path, SourceRoot]], exclusion: ExclusionPatterns) -> DiscoveredFiles:
    """All files below these, each once; this blocks."""
    found = DiscoveredFiles()
    # The outermost first: what is inside of it comes with it, unless it is excluded there.
    for path, root in sorted(roots, key=lambda given: len(given[0].parts)):
        if path in found.scanned:
            continue
        found.roots.append(root)
        if not root.is_file:
            _walk(found, path, root.name, exclusion)
        # A shell may have named it, with all others of its kind.
        elif not exclusion.covers(path.name, is_directory=False):
            _add_file(found, _FileEntry(root.name, path, root.name, path), exclusion)
    for link in found.links:
        _add_file(found, link, exclusion)
    return found


def renamed_sources(found: DiscoveredFiles, known: SourceRoots) -> dict[str, str]:
    """The documents that came by paths inside of these: what they are called, and what from now on."""
    renamed = {}
    for path, (called, is_file) in found.scanned.items():
        inside = [(SourceRoot(_name(path), str(path), is_file=is_file), called)]
        for name in () if is_file else known.names_in(str(path)):
            gone = path / name
            if not os.path.lexists(gone):
                inside.append((SourceRoot(name, str(gone)), f"{called}/{name}"))
                inside.append((SourceRoot(name, str(gone), is_file=True), f"{called}/{name}"))
        for root, now_called in inside:
            if root not in found.roots:
                for file in known.documents_of(root):
                    renamed[file] = now_called + file.removeprefix(root.name)
    return renamed


def _walk(found: DiscoveredFiles, top: Path, name: str, exclusion: ExclusionPatterns) -> None:
    # Without recursion: a tree can be deeper than Python's stack.
    waiting = [(top, "")]
    while waiting:
        directory, below = waiting.pop()
        called = f"{name}/{readable(below)}".rstrip("/")
        try:
            with os.scandir(directory) as scanned:
                entries = [(entry, entry.is_dir(follow_symlinks=False)) for entry in scanned]
        except OSError as error:
            # One that went away meanwhile is gone, but a root may be a disk that is not there now.
            if below == "" or not isinstance(error, FileNotFoundError):
                found.failed.append(UnreadableFile(called, f"cannot be looked through: {error.strerror}"))
            continue
        found.scanned[directory] = called, False
        for entry, is_directory in sorted(entries, key=lambda one: one[0].name):
            relative = f"{below}{entry.name}"
            if _is_hidden(entry.name):
                continue
            if exclusion.covers(relative, is_directory=is_directory):
                found.excluded_from.add(name)
            elif is_directory:
                waiting.append((Path(entry.path), f"{relative}/"))
            else:
                file = _FileEntry(f"{name}/{readable(relative)}", Path(entry.path), name, top)
                if entry.is_symlink():
                    found.links.append(file)
                else:
                    _add_file(found, file, exclusion)


def _is_hidden(name: str) -> bool:
    # Word leaves the last kind beside each document that is open.
    return name.startswith((".", "~$")) or name in _SKIPPED_DIRECTORIES


def _add_file(found: DiscoveredFiles, entry: _FileEntry, exclusion: ExclusionPatterns) -> None:
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
            found.failed.append(UnreadableFile(entry.file, f"cannot be looked at: {error.strerror}"))
        return
    if not stat.S_ISREG(status.st_mode) or not real.is_relative_to(entry.top) or real in found.scanned:
        return
    if real != entry.path and _is_left_out(found, entry, real, exclusion):
        return
    if not is_known(extension):
        found.skipped[readable(extension)] += 1
    elif entry.file in found.files:
        reason = "is called as another file that was found; rename one of the two"
        found.failed.append(UnreadableFile(entry.file, reason))
    else:
        fingerprint = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        found.files[entry.file] = DiscoveredFile(real, status.st_size, status.st_mtime_ns, fingerprint)
        found.scanned[real] = entry.file, True


def _is_left_out(found: DiscoveredFiles, link: _FileEntry, real: Path, exclusion: ExclusionPatterns) -> bool:
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
