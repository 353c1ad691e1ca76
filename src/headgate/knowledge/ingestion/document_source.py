"""What ingestion reads from: root paths, file inventories, parsed documents, and a document library."""

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple, Protocol

import msgspec


class SourceRoot(NamedTuple):
    """A directory or a file to ingest, or a part of one that was ingested before."""

    # A part of another begins with that one's name: `<root name>/<relative path>`.
    name: str
    # A digest of its location, or of the root that it is a part of; distinguishes equal names.
    place: str
    is_file: bool = False

    def contains(self, file: str) -> bool:
        """Whether a source with this name came from here, or from another root of the same name."""
        return file == self.name if self.is_file else file.startswith(f"{self.name}/")


class SourceDigest(NamedTuple):
    """The digest that the store has of a file; it contains no path of the machine."""

    # SHA-256 of its bytes.
    content: str = ""
    # The versions of the readers.
    edition: str = ""
    # Digests of its root, and of the directory of the root.
    place: str = ""
    above: str = ""

    @classmethod
    def of(cls, written: str) -> "SourceDigest":
        """All parts are empty for a digest of another program."""
        parts = written.split("-")
        # At first there was nothing above the place.
        return cls(*parts) if len(parts) in (len(cls._fields) - 1, len(cls._fields)) else cls()

    @classmethod
    def made(cls, content: str, edition: str, place: str) -> "SourceDigest":
        return cls(content, edition, short_hash(place), short_hash(str(PurePath(place).parent)))

    def __str__(self) -> str:
        return "-".join(self)


def short_hash(text: str) -> str:
    """A short digest that distinguishes texts."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


class SourceRoots:
    """The documents of a store by the roots that they came from."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        """`digests` is what the store remembers of each file."""
        self._files: dict[str, dict[str, list[str]]] = {}
        self._inside: dict[str, set[str]] = {}
        for file, written in digests.items():
            digest = SourceDigest.of(written)
            name = file.partition("/")[0]
            self._files.setdefault(name, {}).setdefault(digest.place, []).append(file)
            self._inside.setdefault(digest.above, set()).add(name)

    def documents_of(self, root: SourceRoot) -> list[str]:
        """The files that were ingested from this root, or from this part of a root."""
        of_name = self._files.get(root.name.partition("/")[0])
        if of_name is None:
            return []
        return [file for file in of_name.get(short_hash(root.place), ()) if root.contains(file)]

    def names_in(self, directory: str) -> list[str]:
        """The names of the current and former roots in this directory."""
        return sorted(self._inside.get(short_hash(directory), ()))


NO_ROOTS = SourceRoots({})


class DocumentSection(msgspec.Struct, frozen=True):
    """A part of a document; the texts of all sections, one after the other, are the whole text."""

    # The headings it stands under, the outermost first; empty before the first heading.
    path: tuple[str, ...]
    text: str
    # Whether each paragraph is a record, of which nothing may be read without the rest.
    records: bool = False
    # Whether its path has information that its text lacks, such as the number of a page.
    apart: bool = False


class ParsedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a parser; missing metadata is empty."""

    sections: tuple[DocumentSection, ...]
    doc_type: str
    title: str = ""
    # A day such as 2026-11-16.
    date: str = ""
    category: str = ""


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    parsed: ParsedDocument
    # SHA-256 of its bytes.
    digest: str
    size_bytes: int


class ListedFile(NamedTuple):
    # `<root name>/<relative path>`; of a single file its name.
    file: str
    size_bytes: int
    # In seconds since 1970.
    modified: float


class UnreadableFile(NamedTuple):
    """A file, or a directory, that could not be read, and why."""

    file: str
    reason: str


class FileInventory(msgspec.Struct, frozen=True, kw_only=True):
    roots: tuple[SourceRoot, ...]
    files: tuple[ListedFile, ...]
    # Files without a reader, by their extension.
    skipped: dict[str, int] = {}
    # Directories and files that could not be looked at: nothing is known of what is below them.
    failed: tuple[UnreadableFile, ...] = ()
    # Documents that came by a path inside of these roots: what they are called in the store, and from now on.
    taken_over: dict[str, str] = {}
    # The names of the roots of which a pattern left something out.
    excluded_from: frozenset[str] = frozenset()


class DocumentUnreadable(Exception):
    """A file that cannot be read; the message is the end of a sentence that begins with its name."""


class DocumentLibrary(Protocol):
    """Files as ingestion sees them."""

    @property
    def parser_version(self) -> str:
        """Changes when the same bytes would give other sections."""

    async def inventory(self, known: SourceRoots) -> FileInventory:
        """The current files by name; a `known` part of another root keeps its name."""

    async def read(self, file: str, known: str) -> ReadDocument | None:
        """The file, or None when the SHA-256 of its bytes is `known`; raises DocumentUnreadable."""
