"""The lexical index: every tool of the catalog, searched by the words that describe it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from headgate.catalog.search.blend import Placed, Verdict, blended
from headgate.catalog.search.confidence import confidence
from headgate.catalog.search.document import Document, Key
from headgate.catalog.search.gist import Gist, gist_of_fields
from headgate.catalog.search.hit import Contribution, Explanation, Hit
from headgate.catalog.search.impact import FIELDS, field_terms, impacts
from headgate.catalog.search.lexicon import lexicon
from headgate.catalog.search.nearness import nearness
from headgate.catalog.search.postings import Postings
from headgate.catalog.search.ranking import ranked
from headgate.catalog.search.request import Request, request_of
from headgate.catalog.search.senses import Senses, Wanted, answered
from headgate.catalog.search.sight import Allowed, Sight

# Found with less confidence, nothing is shown.
FLOOR: Final = 0.08
# Against the best: what comes no closer shares a word with the request by chance.
_FAINT: Final = 0.15


class LexicalIndex:
    """Searches documents by words. For one thread: what it does takes well under a millisecond a step."""

    def __init__(self) -> None:
        self._postings = Postings()
        self._senses = Senses(self._postings)
        self._documents: dict[int, Document] = {}
        self._gists: dict[int, Gist | None] = {}
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
        sight = None
        if allowed is not None or servers is not None or read_only:
            sight = Sight(self._documents, allowed, servers, read_only=read_only)
        verdict = self._verdict(request_of(query), sight)
        if verdict is None or verdict.sure < floor:
            return []
        return [self._hit(one, verdict) for one in self._ordered(verdict.placed)[:limit]]

    def document(self, key: Key) -> Document | None:
        """The document of a tool, if it is indexed."""
        number = self._servers.get(key[0], {}).get(key)
        return None if number is None else self._documents[number]

    def explain(self, query: str, key: Key) -> Explanation | None:
        """Why the tool is found by this query or not; None when there is no such tool."""
        number = self._servers.get(key[0], {}).get(key)
        if number is None:
            return None
        request = request_of(query)
        words = self._senses.wanted(request)
        contributions = self._contributions(words, number)
        seen = {one.word for one in contributions}
        verdict = self._verdict(request, None)
        placed = {one.number: one for one in verdict.placed}.get(number) if verdict else None
        shown = verdict is not None and placed is not None and verdict.sure >= FLOOR
        return Explanation(
            key=key,
            score=self._hit(placed, verdict).score if verdict and placed and shown else 0.0,
            contributions=contributions,
            missing=tuple(word.term for word in words if word.term not in seen),
            clause=_best_clause(request, contributions),
            confidence=round(verdict.sure, 4) if verdict else 0.0,
            words=round(placed.words, 4) if placed else 0.0,
            meaning=round(placed.meaning, 4) if placed and placed.meaning is not None else None,
            meaning_share=round(verdict.meaning_share, 4) if verdict else 0.0,
        )

    def _add(self, document: Document) -> int:
        number = self._next
        self._next += 1
        fields = field_terms(document)
        found = impacts(fields)
        self._postings.add(number, found)
        self._documents[number] = document
        self._gists[number] = gist_of_fields(fields, lexicon())
        return number

    def _discard(self, number: int) -> None:
        self._postings.discard(number)
        del self._documents[number], self._gists[number]

    def _verdict(self, request: Request, sight: Sight | None) -> Verdict | None:
        """What answers the request, and how sure that is; None when nothing has any of its words."""
        words = self._senses.wanted(request)
        found = ranked(request, words, self._postings, sight)
        if not found:
            return None
        best = max(found, key=lambda one: (one.value, self._documents[one.number].key))
        gists = {one.number: self._gists[one.number] for one in found if one.value >= _FAINT * best.value}
        return blended(
            [one for one in found if one.number in gists],
            nearness(request, gists, lexicon()),
            confidence(words, self._postings, best.number),
        )

    def _ordered(self, placed: Sequence[Placed]) -> list[Placed]:
        return sorted(placed, key=lambda one: (-one.value, self._documents[one.number].key))

    def _hit(self, placed: Placed, verdict: Verdict) -> Hit:
        document = self._documents[placed.number]
        # Whether anything answers is decided by the best; the others follow it by how close they come.
        score = verdict.sure * placed.value / verdict.best
        return Hit(document.key, document.public_name, round(score, 4))

    def _contributions(self, words: Sequence[Wanted], number: int) -> tuple[Contribution, ...]:
        whole = sum(word.worth for word in words)
        fields = list(zip(FIELDS, field_terms(self._documents[number]), strict=True))
        found = [
            Contribution(
                word=word.term,
                term=sense.term,
                kind=sense.kind,
                fields=tuple(field.name for field, own in fields if sense.term in own),
                share=round(gain / whole, 4),
            )
            for word, sense, gain in answered(words, self._postings, number)
        ]
        return tuple(sorted(found, key=lambda one: (-one.share, one.word)))


def _best_clause(request: Request, answered: Sequence[Contribution]) -> tuple[str, ...]:
    """The words of the clause to which the tool answers most."""
    if not answered:
        return ()
    return max(
        request.clauses,
        key=lambda clause: sum(one.share for one in answered if one.word in clause),
        default=(),
    )
