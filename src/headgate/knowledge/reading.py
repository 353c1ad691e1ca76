"""Documents on their way in: what a library of files has to offer, and what is in one of them."""

from typing import NamedTuple, Protocol

import msgspec

from headgate.knowledge.places import Places, Root


class Section(msgspec.Struct, frozen=True):
    """A part of a document; the texts of all sections, one after the other, are the whole text."""

    # The headings it stands under, the outermost first; empty before the first heading.
    path: tuple[str, ...]
    text: str
    # Whether each paragraph is a record, of which nothing may be read without the rest.
    records: bool = False
    # Whether its path tells what its text does not, such as the number of a page.
    apart: bool = False


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
    # Documents that came by a path inside of these roots: what they are called in the store, and from now on.
    taken_over: dict[str, str] = {}
    # The names of the roots of which a pattern left something out.
    excluded_from: frozenset[str] = frozenset()


class Unreadable(Exception):
    """A file that cannot be read; the message is the end of a sentence that begins with its name."""


class Library(Protocol):
    """Files as ingestion sees them."""

    @property
    def edition(self) -> str:
        """Changes when the same bytes would give other sections."""

    async def inventory(self, known: Places) -> Inventory:
        """What there is now, by name; what is `known` as a part of another root is called as that part."""

    async def read(self, file: str, known: str) -> Reading | None:
        """The file, or None when the SHA-256 of its bytes is `known`; raises Unreadable."""
