"""The lexical index: every tool of the catalog, searched by the words that describe it, with explanations."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from headgate.catalog.search.query_terms import (
    ParsedQuery,
    QueryTerm,
    TermMatcher,
    matched_query_terms,
    parse_query,
)
from headgate.catalog.search.tool_document import (
    SEARCH_FIELDS,
    ToolDocument,
    ToolKey,
    field_terms,
    term_impacts,
    vector_of_fields,
)
from headgate.catalog.search.tool_ranking import (
    Allowed,
    BlendedRanking,
    BlendedScore,
    SearchFilter,
    blend_scores,
    confidence,
    rank_by_words,
    vector_similarity,
)
from headgate.search.inverted_index import InvertedIndex
from headgate.search.lexicon import TextVector, load_lexicon


class ToolHit(msgspec.Struct, frozen=True):
    """One tool that was found; a score of 1 is a certain match."""

    key: ToolKey
    public_name: str
    score: float


class TermContribution(msgspec.Struct, frozen=True):
    """One word of the request that a tool answers, and how."""

    word: str
    # The word of the tool; the same, one that means it, or one that is spelt alike.
    term: str
    # "same", "related" or "alike".
    kind: str
    fields: tuple[str, ...]
    # Its part of all that the words of the request could add up to.
    share: float


class SearchExplanation(msgspec.Struct, frozen=True):
    """Why a tool was found or not."""

    key: ToolKey
    score: float
    contributions: tuple[TermContribution, ...]
    # Words of the request that the tool does not answer.
    missing: tuple[str, ...]
    # The clause of a long request that it answers best.
    clause: tuple[str, ...] = ()
    # How sure it is that the best tool found is one that was asked for.
    confidence: float = 0.0
    # How well it answers by words and by meaning, 1 being the best that was found; None where nothing is
    # known of what it means; and how much meaning counted beside words.
    words: float = 0.0
    meaning: float | None = None
    meaning_share: float = 0.0


# Found with less confidence, nothing is shown.
CONFIDENCE_FLOOR: Final = 0.08
# Against the best: what comes no closer shares a word with the request by chance.
_LEAST_SHARE_OF_BEST: Final = 0.15


class LexicalIndex:
    """Searches documents by words. For one thread: what it does takes well under a millisecond a step."""

    def __init__(self) -> None:
        self._postings = InvertedIndex()
        self._term_matcher = TermMatcher(self._postings)
        self._documents: dict[int, ToolDocument] = {}
        self._vectors: dict[int, TextVector | None] = {}
        self._servers: dict[str, dict[ToolKey, int]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._documents)

    def put(self, server: str, documents: Sequence[ToolDocument]) -> None:
        """Make these the documents of the server; what did not change is left alone."""
        for _ in self.put_in_steps(server, documents):
            pass

    def put_in_steps(self, server: str, documents: Sequence[ToolDocument]) -> Iterator[None]:
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
        floor: float = CONFIDENCE_FLOOR,
    ) -> list[ToolHit]:
        """The tools that answer the query, best first, equals by name.

        None when the best is found with less confidence than `floor`.
        """
        search_filter = None
        if allowed is not None or servers is not None or read_only:
            search_filter = SearchFilter(self._documents, allowed, servers, read_only=read_only)
        ranking = self._rank(parse_query(query), search_filter)
        if ranking is None or ranking.confidence < floor:
            return []
        return [self._hit(one, ranking) for one in self._ordered(ranking.scores)[:limit]]

    def document(self, key: ToolKey) -> ToolDocument | None:
        """The document of a tool, if it is indexed."""
        number = self._servers.get(key[0], {}).get(key)
        return None if number is None else self._documents[number]

    def explain(self, query: str, key: ToolKey) -> SearchExplanation | None:
        """Why the tool is found by this query or not; None when there is no such tool."""
        number = self._servers.get(key[0], {}).get(key)
        if number is None:
            return None
        parsed_query = parse_query(query)
        words = self._term_matcher.match_terms(parsed_query)
        contributions = self._contributions(words, number)
        seen = {one.word for one in contributions}
        ranking = self._rank(parsed_query, None)
        placed = {one.number: one for one in ranking.scores}.get(number) if ranking else None
        shown = ranking is not None and placed is not None and ranking.confidence >= CONFIDENCE_FLOOR
        return SearchExplanation(
            key=key,
            score=self._hit(placed, ranking).score if ranking and placed and shown else 0.0,
            contributions=contributions,
            missing=tuple(word.term for word in words if word.term not in seen),
            clause=_best_clause(parsed_query, contributions),
            confidence=round(ranking.confidence, 4) if ranking else 0.0,
            words=round(placed.words, 4) if placed else 0.0,
            meaning=round(placed.meaning, 4) if placed and placed.meaning is not None else None,
            meaning_share=round(ranking.meaning_share, 4) if ranking else 0.0,
        )

    def _add(self, document: ToolDocument) -> int:
        number = self._next
        self._next += 1
        fields = field_terms(document)
        found = term_impacts(fields)
        self._postings.add(number, found)
        self._documents[number] = document
        self._vectors[number] = vector_of_fields(fields, load_lexicon())
        return number

    def _discard(self, number: int) -> None:
        self._postings.discard(number)
        del self._documents[number], self._vectors[number]

    def _rank(self, parsed_query: ParsedQuery, search_filter: SearchFilter | None) -> BlendedRanking | None:
        """What answers the request, and how sure that is; None when nothing has any of its words."""
        words = self._term_matcher.match_terms(parsed_query)
        found = rank_by_words(parsed_query, words, self._postings, search_filter)
        if not found:
            return None
        best = max(found, key=lambda one: (one.value, self._documents[one.number].key))
        vectors = {
            one.number: self._vectors[one.number]
            for one in found
            if one.value >= _LEAST_SHARE_OF_BEST * best.value
        }
        return blend_scores(
            [one for one in found if one.number in vectors],
            vector_similarity(parsed_query, vectors, load_lexicon()),
            confidence(words, self._postings, best.number),
        )

    def _ordered(self, placed: Sequence[BlendedScore]) -> list[BlendedScore]:
        return sorted(placed, key=lambda one: (-one.value, self._documents[one.number].key))

    def _hit(self, placed: BlendedScore, ranking: BlendedRanking) -> ToolHit:
        document = self._documents[placed.number]
        # Whether anything answers is decided by the best; the others follow it by how close they come.
        score = ranking.confidence * placed.value / ranking.best_value
        return ToolHit(document.key, document.public_name, round(score, 4))

    def _contributions(self, words: Sequence[QueryTerm], number: int) -> tuple[TermContribution, ...]:
        whole = sum(word.max_gain for word in words)
        fields = list(zip(SEARCH_FIELDS, field_terms(self._documents[number]), strict=True))
        found = [
            TermContribution(
                word=word.term,
                term=sense.term,
                kind=sense.kind,
                fields=tuple(field.name for field, own in fields if sense.term in own),
                share=round(gain / whole, 4),
            )
            for word, sense, gain in matched_query_terms(words, self._postings, number)
        ]
        return tuple(sorted(found, key=lambda one: (-one.share, one.word)))


def _best_clause(parsed_query: ParsedQuery, answered: Sequence[TermContribution]) -> tuple[str, ...]:
    """The words of the clause to which the tool answers most."""
    if not answered:
        return ()
    return max(
        parsed_query.clauses,
        key=lambda clause: sum(one.share for one in answered if one.word in clause),
        default=(),
    )
