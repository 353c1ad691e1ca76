"""The files that ingestion is to take in: found, opened with care, and parsed in another process."""

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from headgate.documents.dates import day_in_name
from headgate.documents.exclusion import Exclusion
from headgate.documents.failed_files import Content
from headgate.documents.finding import File, find, part_of_known, root_of, taken_over
from headgate.documents.formats import EDITION, PACKAGE_MISSING, extension_of
from headgate.documents.limits import MIB, MOST_FILE_BYTES
from headgate.documents.parsing import NotNow, Parsing, open_parsing
from headgate.domain.errors import ConfigError
from headgate.knowledge.places import NOWHERE, Places, Root
from headgate.knowledge.reading import Inventory, Listed, Parsed, Reading, Unreadable


class Files:
    """A library of the files below some paths."""

    edition = EDITION

    def __init__(self, roots: Sequence[tuple[Path, Root]], exclusion: Exclusion, parsing: Parsing) -> None:
        self._roots = tuple(roots)
        self._exclusion = exclusion
        self._parsing = parsing
        self._files: dict[str, File] = {}
        # The SHA-256 of each file that failed and the reason.
        self._unreadable: dict[str, tuple[str, str]] = {}
        # What failed once is not parsed again until it changes.
        self._known_failures: dict[Content, str] = {}

    @property
    def failures(self) -> dict[str, tuple[str, str]]:
        """The files that could not be parsed, each with the SHA-256 of its bytes and the reason."""
        return dict(self._unreadable)

    def remember(self, failures: Mapping[Content, str]) -> None:
        """These failed before, by this edition of the parsers."""
        self._known_failures.update(failures)

    def name_by(self, known: Places) -> None:
        """From now on call what is a part of a known root by its name there."""
        self._roots = tuple((path, part_of_known(path, root, known)) for path, root in self._roots)

    async def inventory(self, known: Places = NOWHERE) -> Inventory:
        """What there is now, by name; what is `known` as a part of another root is called as that part."""
        self.name_by(known)
        found = await asyncio.to_thread(find, self._roots, self._exclusion)
        self._files = found.files
        return Inventory(
            roots=tuple(found.roots),
            files=tuple(
                Listed(name, file.size_bytes, file.modified_ns / 1e9)
                for name, file in sorted(found.files.items())
            ),
            skipped=dict(sorted(found.skipped.items())),
            failed=tuple(found.failed),
            taken_over=await asyncio.to_thread(taken_over, found, known),
            excluded_from=frozenset(found.excluded_from),
        )

    async def looks(self) -> dict[str, tuple[int, ...]]:
        """What each file looks like from outside; differs when it was changed."""
        found = await asyncio.to_thread(find, self._roots, self._exclusion)
        return {name: file.looks for name, file in found.files.items()}

    async def read(self, file: str, known: str) -> Reading | None:
        """A file of the inventory, or None when the SHA-256 of its bytes is `known`; raises Unreadable."""
        if file not in self._files:
            raise Unreadable("is not there")
        content, digest = await asyncio.to_thread(_read, self._files[file].path)
        if digest == known:
            return None
        parsed = await self._parsed(file, content, digest)
        return Reading(parsed=parsed, digest=digest, size_bytes=len(content))

    async def _parsed(self, file: str, content: bytes, digest: str) -> Parsed:
        self._unreadable.pop(file, None)
        content_key = (extension_of(file), digest)
        try:
            if reason := self._known_failures.get(content_key):
                raise Unreadable(reason)
            parsed = await self._parsing.parse(extension_of(file), content, file=file)
            # What the document says of itself comes first.
            return structs.replace(parsed, date=parsed.date or day_in_name(file))
        except NotNow:
            raise
        except Unreadable as unreadable:
            if not str(unreadable).startswith(PACKAGE_MISSING):
                self._unreadable[file] = (digest, str(unreadable))
                self._known_failures[content_key] = str(unreadable)
            raise


def _read(path: Path) -> tuple[bytes, str]:
    """The bytes and their SHA-256."""
    try:
        # Not to wait for a pipe, nor to follow a link that took the file's place meanwhile.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("is no file")
            # One that grows meanwhile is not read for ever.
            content = b"" if status.st_size > MOST_FILE_BYTES else file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be opened: {error.strerror}") from error
    if max(status.st_size, len(content)) > MOST_FILE_BYTES:
        raise Unreadable(f"is larger than {MOST_FILE_BYTES // MIB} MiB; split it")
    return content, hashlib.sha256(content).hexdigest()


@asynccontextmanager
async def open_library(paths: Sequence[Path], exclude: Sequence[str] = ()) -> AsyncIterator[Files]:
    """The files below these paths without those that a pattern excludes; raises ConfigError."""
    roots = await asyncio.to_thread(_roots, paths)
    async with open_parsing() as parsing:
        yield Files(roots, Exclusion(exclude), parsing)


def _roots(paths: Sequence[Path]) -> list[tuple[Path, Root]]:
    # The same one twice is one.
    resolved = dict.fromkeys(map(_resolved, paths))
    return [(path, root_of(path)) for path in resolved]


def _resolved(path: Path) -> Path:
    """The directory or the file that is meant; raises ConfigError where there is none."""
    try:
        real = path.resolve(strict=True)
        if real.is_dir() or real.is_file():
            return real
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"{str(path)!r} does not exist", hint="name a file or a directory that does"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be looked at: {error.strerror}",
            hint="name a file or a directory that can be",
        ) from error
    except RuntimeError as error:
        raise ConfigError(f"{str(path)!r} is a link to itself", hint="mend or remove the link") from error
    raise ConfigError(f"{str(path)!r} is neither a file nor a directory", hint="name one that is")
