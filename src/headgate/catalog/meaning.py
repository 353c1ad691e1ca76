"""What search by meaning must be able to do, whoever makes the vectors."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from headgate.catalog.search.document import Document, Key
from headgate.catalog.search.sight import Allowed


class Meaning(Protocol):
    """Compares requests with tools by what they mean."""

    def put(self, server: str, documents: Sequence[Document]) -> None:
        """These are the server's tools from now on; their vectors follow in the background."""

    def remove(self, server: str) -> None:
        """The server is gone with all its tools."""

    async def cosines(
        self, query: str, limit: int, *, allowed: Allowed | None, also: Collection[Key]
    ) -> Mapping[Key, float] | None:
        """The nearest tools, and those of `also`; None while there are no vectors, or none can be had."""

    def progress(self) -> tuple[int, int]:
        """How many tools have their vector, of how many."""
