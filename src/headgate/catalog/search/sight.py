"""Which documents may be shown to whoever asks."""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headgate.catalog.search.document import Document, Key
from headgate.catalog.search.postings import Entries, Postings, in_order

Allowed = Callable[[Key], bool]
# After so many entries, it takes less time to find out about all documents than to go on one by one.
_PATIENCE: Final = 1600


class Sight:
    """What one request may see, decided once for each document."""

    def __init__(
        self,
        documents: Mapping[int, Document],
        allowed: Allowed | None,
        servers: Collection[str] | None,
        *,
        read_only: bool,
    ) -> None:
        self._documents = documents
        self._allowed = allowed
        self._servers = None if servers is None else frozenset(servers)
        self._read_only = read_only
        self._decided: dict[int, bool] = {}
        self._every: set[int] | None = None
        self._patience = _PATIENCE

    def leading(self, term: str, most: int, postings: Postings) -> Entries:
        """The visible documents about which a term says most, and those that equal the last.

        What may not be seen must not take the place of what may.
        """
        found = self._looked_for(*postings.leading(term, postings.size), most)
        if found is not None:
            return found
        posting = postings.of(term) or {}
        numbers, impacts = in_order({number: posting[number] for number in self._all() & posting.keys()})
        end = min(most, len(impacts))
        while 0 < end < len(impacts) and impacts[end] == impacts[end - 1]:
            end += 1
        return numbers[:end], impacts[:end]

    def _looked_for(self, numbers: Sequence[int], impacts: bytes, most: int) -> Entries | None:
        """The first of the entries that may be seen, entry by entry; None when that takes too long."""
        kept: list[int] = []
        theirs: list[int] = []
        for number, impact in zip(numbers, impacts, strict=True):
            if len(kept) >= most and impact != theirs[-1]:
                break
            if self._patience <= 0:
                return None
            self._patience -= 1
            if self._sees(number):
                kept.append(number)
                theirs.append(impact)
        return array("L", kept), bytes(theirs)

    def _sees(self, number: int) -> bool:
        known = self._decided.get(number)
        if known is None:
            known = self._decided[number] = self._decide(self._documents[number])
        return known

    def _decide(self, document: Document) -> bool:
        return (
            (self._servers is None or document.key[0] in self._servers)
            and (not self._read_only or document.read_only)
            and (self._allowed is None or self._allowed(document.key))
        )

    def _all(self) -> set[int]:
        if self._every is None:
            self._every = {number for number, one in self._documents.items() if self._decide(one)}
        return self._every
