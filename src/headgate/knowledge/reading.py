"""Documents on their way in: what a library of files has to offer, and what is in one of them."""

from typing import NamedTuple, Protocol

import msgspec


class Section(msgspec.Struct, frozen=True):
    """A part of a document; the texts of all sections, one after the other, are the whole text."""

    # The headings it stands under, the outermost first; empty before the first heading.
    path: tuple[str, ...]
    text: str


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a parser found; what the document does not say is empty."""

    sections: tuple[Section, ...]
    doc_type: str
    title: str = ""
    # A day such as 2026-11-16.
    date: str = ""
    category: str = ""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read."""

    parsed: Parsed
    # SHA-256 of its bytes.
    digest: str
    size_bytes: int


class Listed(NamedTuple):
    """A file that can be read."""

    # `<root name>/<relative path>`; of a single file its name.
    file: str
    size_bytes: int
    # In seconds since 1970.
    modified: float


class Root(NamedTuple):
    """A directory or a file that was asked for."""

    name: str
    # Differs for two places of the same name.
    place: str
    is_file: bool = False

    def holds(self, file: str) -> bool:
        """Whether a source with this name came from here, or from another root of the same name."""
        return file == self.name if self.is_file else file.startswith(f"{self.name}/")


class Failure(NamedTuple):
    """A file, or a directory, that could not be read, and why."""

    file: str
    reason: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to read."""

    roots: tuple[Root, ...]
    files: tuple[Listed, ...]
    # Files that nobody reads, by their extension.
    skipped: dict[str, int] = {}
    # Directories and files that could not be looked at: nothing is known of what is below them.
    failed: tuple[Failure, ...] = ()


class Unreadable(Exception):
    """A file that cannot be read; the message is the end of a sentence that begins with its name."""


class Library(Protocol):
    """Files as ingestion sees them."""

    @property
    def edition(self) -> str:
        """Changes when the same bytes would give other sections."""

    async def inventory(self) -> Inventory:
        """What there is now, by name."""

    async def read(self, file: str, known: str) -> Reading | None:
        """The file, or None when the SHA-256 of its bytes is `known`; raises Unreadable."""
