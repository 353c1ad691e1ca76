"""The lexical index: every tool of the catalog, searched by the words that describe it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from headgate.catalog.search.confidence import confidence
from headgate.catalog.search.document import Document, Key
from headgate.catalog.search.hit import Contribution, Explanation, Hit
from headgate.catalog.search.impact import FIELDS, field_terms, impacts
from headgate.catalog.search.postings import Postings
from headgate.catalog.search.ranking import Ranked, ranked
from headgate.catalog.search.request import Request, request_of
from headgate.catalog.search.senses import Wanted, best_sense, gain_of, wanted

Allowed = Callable[[Key], bool]
# Found with less confidence, nothing is shown.
FLOOR: Final = 0.08
# Against the best: what comes no closer shares a word with the request by chance.
_FAINT: Final = 0.15


class LexicalIndex:
    """Searches documents by words. For one thread: what it does takes well under a millisecond a step."""

    def __init__(self) -> None:
        self._postings = Postings()
        self._documents: dict[int, Document] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._servers: dict[str, dict[Key, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._documents)

    def put(self, server: str, documents: Sequence[Document]) -> None:
        """Make these the documents of the server; what did not change is left alone."""
        for _ in self.put_in_steps(server, documents):
            pass

    def put_in_steps(self, server: str, documents: Sequence[Document]) -> Iterator[None]:
        """The same one document at a time, so that others may run in between and search meanwhile."""
        known = self._servers.setdefault(server, {})
        kept = {document.key: document for document in documents}
        for key in [key for key, number in known.items() if self._documents[number] != kept.get(key)]:
            self._discard(known.pop(key))
            yield
        for key, document in kept.items():
            if key not in known:
                known[key] = self._add(document)
                yield

    def remove(self, server: str) -> None:
        """Forget a server with all its documents."""
        for number in self._servers.pop(server, {}).values():
            self._discard(number)

    def search(
        self,
        query: str,
        limit: int = 5,
        *,
        allowed: Allowed | None = None,
        servers: Collection[str] | None = None,
        read_only: bool = False,
        floor: float = FLOOR,
    ) -> list[Hit]:
        """The tools that answer the query, best first, equals by name.

        None when the best is found with less confidence than `floor`.
        """
        visible = self._visible(allowed, servers, read_only=read_only)
        request = request_of(query)
        words = wanted(request, self._postings)
        found = ranked(request, words, self._postings, visible)
        return [
            Hit(document.key, document.public_name, score)
            for document, score in self._scored(words, found, floor)[:limit]
        ]

    def explain(self, query: str, key: Key) -> Explanation | None:
        """Why the tool is found by this query or not; None when there is no such tool."""
        number = self._servers.get(key[0], {}).get(key)
        if number is None:
            return None
        request = request_of(query)
        words = wanted(request, self._postings)
        whole = sum(word.worth for word in words)
        answered = [one for word in words if (one := self._contribution(word, number, whole))]
        seen = {one.word for one in answered}
        return Explanation(
            key=key,
            score=next((hit.score for hit in self.search(query, len(self)) if hit.key == key), 0.0),
            contributions=tuple(sorted(answered, key=lambda one: (-one.share, one.word))),
            missing=tuple(word.term for word in words if word.term not in seen),
            clause=_best_clause(request, answered),
        )

    def _add(self, document: Document) -> int:
        number = self._next
        self._next += 1
        found = impacts(document)
        self._postings.add(number, found)
        self._documents[number] = document
        self._terms[number] = tuple(found)
        return number

    def _discard(self, number: int) -> None:
        self._postings.discard(number, self._terms.pop(number))
        del self._documents[number]

    def _visible(
        self, allowed: Allowed | None, servers: Collection[str] | None, *, read_only: bool
    ) -> Callable[[int], bool] | None:
        """Whether a document may be shown; None when all may."""
        if allowed is None and servers is None and not read_only:
            return None
        decided: dict[int, bool] = {}

        def visible(number: int) -> bool:
            # A document comes up once for each of its words.
            if number not in decided:
                document = self._documents[number]
                decided[number] = (
                    (servers is None or document.key[0] in servers)
                    and (not read_only or document.read_only)
                    and (allowed is None or allowed(document.key))
                )
            return decided[number]

        return visible

    def _scored(self, words: list[Wanted], found: list[Ranked], floor: float) -> list[tuple[Document, float]]:
        if not found:
            return []
        ordered = sorted(found, key=lambda one: (-one.value, self._documents[one.number].key))
        first = ordered[0]
        sure = confidence(words, self._postings, first.number)
        # Whether anything answers is decided by the best; the others follow it by how close they come.
        if sure < floor:
            return []
        return [
            (self._documents[one.number], round(sure * one.value / first.value, 4))
            for one in ordered
            if one.value >= _FAINT * first.value
        ]

    def _contribution(self, word: Wanted, number: int, whole: float) -> Contribution | None:
        sense = best_sense(word, self._postings, number)
        if sense is None:
            return None
        fields = zip(FIELDS, field_terms(self._documents[number]), strict=True)
        return Contribution(
            word=word.term,
            term=sense.term,
            kind=sense.kind,
            fields=tuple(field.name for field, found in fields if sense.term in found),
            share=round(gain_of(word, self._postings, number) / whole, 4),
        )


def _best_clause(request: Request, answered: Sequence[Contribution]) -> tuple[str, ...]:
    """The words of the clause to which the tool answers most."""
    if not answered:
        return ()
    return max(
        request.clauses,
        key=lambda clause: sum(one.share for one in answered if one.word in clause),
        default=(),
    )
