"""Files that could not be parsed, kept in the data directory from one ingestion to the next."""

import hashlib
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from headgate.documents.formats import EDITION, extension_of
from headgate.domain.regular_file import read_regular

log = logging.getLogger("headgate.documents")

FILE: Final = "knowledge-failed.json"
# The extension of a file, which chooses its parser, and the SHA-256 of its bytes.
Content = tuple[str, str]


class FailedFilesRecord(msgspec.Struct, frozen=True):
    """By a hash of the paths that were ingested: each file with the SHA-256 of its bytes and the reason."""

    edition: str = EDITION
    failures: dict[str, dict[str, tuple[str, str]]] = {}


class FailedFiles:
    """Remembers the failures of each set of paths; another edition of the parsers forgets all of them."""

    def __init__(self, directory: Path, paths: tuple[Path, ...]) -> None:
        self._path = directory / FILE
        named = "\n".join(sorted(os.fsdecode(path.resolve()) for path in paths))
        # No path of the machine is written down.
        self._key = hashlib.sha256(named.encode(errors="surrogateescape")).hexdigest()

    def read(self) -> dict[Content, str]:
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
        try:
            record = msgspec.json.decode(read_regular(self._path), type=FailedFilesRecord)
        except (OSError, msgspec.MsgspecError):
            return FailedFilesRecord()
        return record if record.edition == EDITION else FailedFilesRecord()
