"""Restricts a search to the tools that the client may see, by server and by read-only hint."""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.search.inverted_index import Entries, InvertedIndex, by_impact

Allowed = Callable[[ToolKey], bool]
# After so many entries, it takes less time to find out about all documents than to go on one by one.
_SCAN_BUDGET: Final = 1600


class SearchFilter:
    """What one request may see, decided once for each document."""

    def __init__(
        self,
        documents: Mapping[int, ToolDocument],
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
        self._visible_numbers: set[int] | None = None
        self._scan_budget = _SCAN_BUDGET

    def top_visible_entries(self, term: str, most: int, postings: InvertedIndex) -> Entries:
        """The visible documents about which a term says most, and those that equal the last.

        What may not be seen must not take the place of what may.
        """
        found = self._scan_entries(*postings.top_entries(term, postings.size), most)
        if found is not None:
            return found
        posting = postings.posting(term) or {}
        numbers, impacts = by_impact(
            {number: posting[number] for number in self._all_visible() & posting.keys()}
        )
        end = min(most, len(impacts))
        while 0 < end < len(impacts) and impacts[end] == impacts[end - 1]:
            end += 1
        return numbers[:end], impacts[:end]

    def _scan_entries(self, numbers: Sequence[int], impacts: bytes, most: int) -> Entries | None:
        """The first of the entries that may be seen, entry by entry; None when that takes too long."""
        kept: list[int] = []
        theirs: list[int] = []
        for number, impact in zip(numbers, impacts, strict=True):
            if len(kept) >= most and impact != theirs[-1]:
                break
            if self._scan_budget <= 0:
                return None
            self._scan_budget -= 1
            if self._is_visible(number):
                kept.append(number)
                theirs.append(impact)
        return array("L", kept), bytes(theirs)

    def _is_visible(self, number: int) -> bool:
        known = self._decided.get(number)
        if known is None:
            known = self._decided[number] = self._admits(self._documents[number])
        return known

    def _admits(self, document: ToolDocument) -> bool:
        return (
            (self._servers is None or document.key[0] in self._servers)
            and (not self._read_only or document.read_only)
            and (self._allowed is None or self._allowed(document.key))
        )

    def _all_visible(self) -> set[int]:
        if self._visible_numbers is None:
            self._visible_numbers = {number for number, one in self._documents.items() if self._admits(one)}
        return self._visible_numbers
