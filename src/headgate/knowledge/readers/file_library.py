"""The files of an ingestion: found, read, parsed in another process, remembered when they fail, polled."""

import asyncio
import hashlib
import logging
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from headgate.domain.errors import ConfigError
from headgate.domain.regular_file import read_regular
from headgate.knowledge.ingestion.document_source import (
    NO_ROOTS,
    DocumentUnreadable,
    FileInventory,
    ListedFile,
    ParsedDocument,
    ReadDocument,
    SourceRoot,
    SourceRoots,
)
from headgate.knowledge.readers.file_discovery import (
    DiscoveredFile,
    ExclusionPatterns,
    discover_files,
    part_of_known,
    renamed_sources,
    root_of,
)
from headgate.knowledge.readers.format_registry import PACKAGE_MISSING, PARSER_VERSION, extension_of
from headgate.knowledge.readers.limits import MIB, MOST_FILE_BYTES, MOST_SECONDS
from headgate.knowledge.readers.parser_child import ParseReply
from headgate.knowledge.readers.text import day_in_name
from headgate.workers.process_pool import ProcessPool, ProcessStartError

log = logging.getLogger("headgate.knowledge.readers")

FAILED_FILES_NAME: Final = "knowledge-failed.json"
# The extension of a file, which chooses its parser, and the SHA-256 of its bytes.
FileContentKey = tuple[str, str]


class FailedFilesRecord(msgspec.Struct, frozen=True):
    """By a hash of the paths that were ingested: each file with the SHA-256 of its bytes and the reason."""

    edition: str = PARSER_VERSION
    failures: dict[str, dict[str, tuple[str, str]]] = {}


class FailedFiles:
    """Remembers the failures of each set of paths; another edition of the parsers forgets all of them."""

    def __init__(self, directory: Path, paths: tuple[Path, ...]) -> None:
        self._path = directory / FAILED_FILES_NAME
        named = "\n".join(sorted(os.fsdecode(path.resolve()) for path in paths))
        # No path of the machine is written down.
        self._key = hashlib.sha256(named.encode(errors="surrogateescape")).hexdigest()

    def read(self) -> dict[FileContentKey, str]:
        """Why each content failed, whichever paths led to it; none where the record is missing or older."""
        return {
            (extension_of(file), digest): reason
            for files in self._record().failures.values()
            for file, (digest, reason) in files.items()
        }

    def write(self, failures: dict[str, tuple[str, str]]) -> None:
        """Replace them; where that is not possible the files are parsed again next time."""
        record = self._record()
        if record.failures.get(self._key, {}) == failures:
            return
        kept = {key: value for key, value in record.failures.items() if key != self._key}
        if failures:
            kept[self._key] = failures
        written = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(msgspec.json.encode(FailedFilesRecord(failures=kept)))
            written.replace(self._path)
        except OSError as error:
            log.warning("failed files cannot be remembered: %s", error.strerror)

    def _record(self) -> FailedFilesRecord:
        with suppress(OSError, msgspec.MsgspecError):
            record = msgspec.json.decode(read_regular(self._path), type=FailedFilesRecord)
            if record.edition == PARSER_VERSION:
                return record
        return FailedFilesRecord()


# A file that changes all the time delays the others by at most so many polls.
_MOST_POLLS: Final = 10

FileFingerprints = Mapping[str, object]
PollFiles = Callable[[], Awaitable[FileFingerprints]]
Sleep = Callable[[float], Awaitable[object]]


async def poll_changes(
    look: PollFiles, interval_seconds: float, *, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[frozenset[str], None]:
    """Which files are to be read anew: at first all of them, then those that changed; never ends by itself.

    `look` returns the fingerprints of the files. Changes during the caller's work are noticed afterwards.
    """
    settled = await look()
    yield frozenset(settled)
    before, looks = settled, 0
    while True:
        await sleep(interval_seconds)
        now = await look()
        changed = _differing(settled, now)
        looks = looks + 1 if changed else 0
        if changed and (not changed & _differing(before, now) or looks >= _MOST_POLLS):
            settled, before, looks = now, now, 0
            yield changed
        before = now


def _differing(one: FileFingerprints, other: FileFingerprints) -> frozenset[str]:
    return frozenset(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


_reply: Final = msgspec.msgpack.Decoder(ParseReply)


class ParserUnavailable(DocumentUnreadable):
    """No process can be started; the file itself may be readable."""


class ParserProcess:
    """Parses documents one at a time; a hostile document ends only the process, which is started again."""

    def __init__(self, processes: ProcessPool, seconds: float) -> None:
        self._processes = processes
        self._seconds = seconds
        self._lock = asyncio.Lock()

    async def parse(self, extension: str, content: bytes, *, file: str = "") -> ParsedDocument:
        """The document in a file with this extension; raises DocumentUnreadable, also on a timeout.

        Warnings of the parser are logged under the name `file`.
        """
        try:
            async with self._lock:
                encoded = await self._processes.run(extension.encode(), content, seconds=self._seconds)
        except ProcessStartError as error:
            raise ParserUnavailable(f"cannot be read now: no process can be started ({error})") from error
        except TimeoutError as error:
            raise DocumentUnreadable(f"takes longer than {self._seconds:g} s to be read; split it") from error
        except OSError as error:
            raise DocumentUnreadable(
                "ended the process that read it; it may be broken, or too large"
            ) from error
        reply = _reply.decode(encoded)
        if reply.trouble:
            log.warning("a parser stumbled over %r:\n%s", file or extension, reply.trouble)
        if reply.parsed is None:
            raise DocumentUnreadable(reply.reason)
        return reply.parsed


@asynccontextmanager
async def open_parser_process(seconds: float = MOST_SECONDS) -> AsyncIterator[ParserProcess]:
    """A process for as long as the block lasts; it is started with the first document."""
    # Parsers write warnings to standard error, which would tear a progress bar.
    processes = ProcessPool("headgate.knowledge.readers.parser_child", max_processes=1, quiet=True)
    try:
        yield ParserProcess(processes, seconds)
    finally:
        await processes.close()


class FileLibrary:
    parser_version = PARSER_VERSION

    def __init__(
        self, roots: Sequence[tuple[Path, SourceRoot]], exclusion: ExclusionPatterns, parsing: ParserProcess
    ) -> None:
        self._roots = tuple(roots)
        self._exclusion = exclusion
        self._parsing = parsing
        self._files: dict[str, DiscoveredFile] = {}
        # The SHA-256 of each file that failed and the reason.
        self._unreadable: dict[str, tuple[str, str]] = {}
        # An unreadable file is not parsed again until it changes.
        self._known_failures: dict[FileContentKey, str] = {}

    @property
    def failures(self) -> dict[str, tuple[str, str]]:
        """The files that could not be parsed, each with the SHA-256 of its bytes and the reason."""
        return dict(self._unreadable)

    def remember_failures(self, failures: Mapping[FileContentKey, str]) -> None:
        """These failed before, by this edition of the parsers."""
        self._known_failures.update(failures)

    def use_root_names(self, known: SourceRoots) -> None:
        """From now on call what is a part of a known root by its name there."""
        self._roots = tuple((path, part_of_known(path, root, known)) for path, root in self._roots)

    async def inventory(self, known: SourceRoots = NO_ROOTS) -> FileInventory:
        self.use_root_names(known)
        found = await asyncio.to_thread(discover_files, self._roots, self._exclusion)
        self._files = found.files
        return FileInventory(
            roots=tuple(found.roots),
            files=tuple(
                ListedFile(name, file.size_bytes, file.modified_ns / 1e9)
                for name, file in sorted(found.files.items())
            ),
            skipped=dict(sorted(found.skipped.items())),
            failed=tuple(found.failed),
            taken_over=await asyncio.to_thread(renamed_sources, found, known),
            excluded_from=frozenset(found.excluded_from),
        )

    async def fingerprints(self) -> dict[str, tuple[int, ...]]:
        found = await asyncio.to_thread(discover_files, self._roots, self._exclusion)
        return {name: file.fingerprint for name, file in found.files.items()}

    async def read(self, file: str, known: str) -> ReadDocument | None:
        if file not in self._files:
            raise DocumentUnreadable("is not there")
        content, digest = await asyncio.to_thread(_read, self._files[file].path)
        if digest == known:
            return None
        self._unreadable.pop(file, None)
        content_key = (extension_of(file), digest)
        try:
            if reason := self._known_failures.get(content_key):
                raise DocumentUnreadable(reason)
            parsed = await self._parsing.parse(extension_of(file), content, file=file)
        except ParserUnavailable:
            raise
        except DocumentUnreadable as unreadable:
            if not str(unreadable).startswith(PACKAGE_MISSING):
                self._unreadable[file] = (digest, str(unreadable))
                self._known_failures[content_key] = str(unreadable)
            raise
        # The document's own metadata comes first.
        parsed = structs.replace(parsed, date=parsed.date or day_in_name(file))
        return ReadDocument(parsed=parsed, digest=digest, size_bytes=len(content))


def _read(path: Path) -> tuple[bytes, str]:
    try:
        # Not to wait for a pipe, nor to follow a link that took the file's place meanwhile.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                raise DocumentUnreadable("is no file")
            # One that grows meanwhile is not read for ever.
            content = b"" if status.st_size > MOST_FILE_BYTES else file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise DocumentUnreadable(f"cannot be opened: {error.strerror}") from error
    if max(status.st_size, len(content)) > MOST_FILE_BYTES:
        raise DocumentUnreadable(f"is larger than {MOST_FILE_BYTES // MIB} MiB; split it")
    return content, hashlib.sha256(content).hexdigest()


@asynccontextmanager
async def open_library(paths: Sequence[Path], exclude: Sequence[str] = ()) -> AsyncIterator[FileLibrary]:
    """The files below these paths without those that a pattern excludes; raises ConfigError."""
    # The same one twice is one.
    roots = await asyncio.to_thread(
        lambda: [(path, root_of(path)) for path in dict.fromkeys(map(_resolved, paths))]
    )
    async with open_parser_process() as parsing:
        yield FileLibrary(roots, ExclusionPatterns(exclude), parsing)


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
