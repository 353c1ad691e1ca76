"""Where the documents of a store came from, so that one file is one document, whichever path leads to it."""

import hashlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple


class Root(NamedTuple):
    """A directory or a file that was asked for, or such a part of one that was asked for before."""

    # A part of another begins with that one's name: `<root name>/<relative path>`.
    name: str
    # Where it is, or of which one it is a part; differs for two places of the same name.
    place: str
    is_file: bool = False

    def holds(self, file: str) -> bool:
        """Whether a source with this name came from here, or from another root of the same name."""
        return file == self.name if self.is_file else file.startswith(f"{self.name}/")


class Digest(NamedTuple):
    """What the store remembers of a file; no path of a machine gets into it."""

    # SHA-256 of its bytes.
    content: str = ""
    # Of how they are read.
    edition: str = ""
    # Of its root, and of the directory that this is in.
    place: str = ""
    above: str = ""

    @classmethod
    def of(cls, written: str) -> "Digest":
        """All parts are empty where it was written by somebody else."""
        parts = written.split("-")
        # At first there was nothing above the place.
        return cls(*parts) if len(parts) in (len(cls._fields) - 1, len(cls._fields)) else cls()

    @classmethod
    def made(cls, content: str, edition: str, place: str) -> "Digest":
        """Of a file whose root is at this place."""
        return cls(content, edition, short_hash(place), short_hash(str(PurePath(place).parent)))

    def __str__(self) -> str:
        return "-".join(self)


def short_hash(text: str) -> str:
    """Enough to tell two texts apart."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


class Places:
    """The documents of a store by the roots that they came from."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        """`digests` is what the store remembers of each file."""
        self._files: dict[str, dict[str, list[str]]] = {}
        self._inside: dict[str, set[str]] = {}
        for file, written in digests.items():
            digest = Digest.of(written)
            name = file.partition("/")[0]
            self._files.setdefault(name, {}).setdefault(digest.place, []).append(file)
            self._inside.setdefault(digest.above, set()).add(name)

    def documents_of(self, root: Root) -> list[str]:
        """Those that were ingested from this root, or from the part of a root that it is."""
        of_name = self._files.get(root.name.partition("/")[0])
        if of_name is None:
            return []
        return [file for file in of_name.get(short_hash(root.place), ()) if root.holds(file)]

    def names_in(self, directory: str) -> list[str]:
        """What the roots are called that are, or were, in this directory."""
        return sorted(self._inside.get(short_hash(directory), ()))


NOWHERE = Places({})
