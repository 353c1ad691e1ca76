"""The lexical index of all tools of the catalog: search by words and word vectors, with explanations."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

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
    ParsedQuery,
    QueryTerm,
    SearchFilter,
    TermMatcher,
    blend_scores,
    confidence,
    matched_query_terms,
    parse_query,
    rank_by_words,
    vector_similarity,
)
from headgate.search.inverted_index import InvertedIndex
from headgate.search.lexicon import TextVector, load_lexicon


class ToolHit(msgspec.Struct, frozen=True):
    """One found tool; a score of 1 is a certain match."""

    key: ToolKey
    public_name: str
    score: float


class TermContribution(msgspec.Struct, frozen=True):
    """One word of the query that a tool matches, and how."""

    word: str
    # The matching word of the tool: the same, a related one, or one of similar spelling.
    term: str
    # "same", "related" or "alike".
    kind: str
    fields: tuple[str, ...]
    # Its share of the highest score that the words of the query could give.
    share: float


class SearchExplanation(msgspec.Struct, frozen=True):
    """Why a tool was found or not."""

    key: ToolKey
    score: float
    contributions: tuple[TermContribution, ...]
    # Words of the query that the tool does not match.
    missing: tuple[str, ...]
    # The clause of a long query that it matches best.
    clause: tuple[str, ...] = ()
    # The confidence that the best tool found is a right one.
    confidence: float = 0.0
    # The scores by words and by meaning, 1 for the best, None without a vector; the share of meaning.
    words: float = 0.0
    meaning: float | None = None
    meaning_share: float = 0.0


# Below this confidence nothing is returned.
CONFIDENCE_FLOOR: Final = 0.08
# Relative to the best: a lower score is a chance match of a word.
_LEAST_SHARE_OF_BEST: Final = 0.15


class LexicalIndex:
    """Searches documents by words. Not thread-safe; each step takes well under a millisecond."""

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
        """Set the documents of the server; unchanged ones are kept."""
        for _ in self.put_in_steps(server, documents):
            pass

    def put_in_steps(self, server: str, documents: Sequence[ToolDocument]) -> Iterator[None]:
        """The same one document per step, so that searches can run in between."""
        known = self._servers.setdefault(server, {})
        kept = {document.key: document for document in documents}
        for key in [key for key, number in known.items() if self._documents[number] != kept.get(key)]:
            self._discard(known.pop(key))
            yield
        for key, document in kept.items():
            if key not in known:
                known[key] = number = self._next
                self._next += 1
                fields = field_terms(document)
                self._postings.add(number, term_impacts(fields))
                self._documents[number] = document
                self._vectors[number] = vector_of_fields(fields, load_lexicon())
                yield

    def remove(self, server: str) -> None:
        for number in self._servers.pop(server, {}).values():
            self._discard(number)

    def search(
        self,
        query: str,
        limit: int = 5,
        *,
        allowed: Allowed | None = None,
        floor: float = CONFIDENCE_FLOOR,
    ) -> list[ToolHit]:
        """The matching tools, best first, equal ones by name; none if the confidence is below `floor`."""
        visible = SearchFilter(self._documents, allowed) if allowed is not None else None
        ranking = self._rank(parse_query(query), visible)
        if ranking is None or ranking.confidence < floor:
            return []
        ordered = sorted(ranking.scores, key=lambda one: (-one.value, self._documents[one.number].key))
        return [self._hit(one, ranking) for one in ordered[:limit]]

    def document(self, key: ToolKey) -> ToolDocument | None:
        number = self._servers.get(key[0], {}).get(key)
        return None if number is None else self._documents[number]

    def explain(self, query: str, key: ToolKey) -> SearchExplanation | None:
        """Why the query finds the tool or not; None if there is no such tool."""
        number = self._servers.get(key[0], {}).get(key)
        if number is None:
            return None
        parsed_query = parse_query(query)
        words = self._term_matcher.match_terms(parsed_query)
        contributions = self._contributions(words, number)
        seen = {one.word for one in contributions}
        ranking = self._rank(parsed_query, None)
        placed = {one.number: one for one in ranking.scores}.get(number) if ranking else None
        is_found = ranking is not None and placed is not None and ranking.confidence >= CONFIDENCE_FLOOR
        return SearchExplanation(
            key=key,
            score=self._hit(placed, ranking).score if ranking and placed and is_found else 0.0,
            contributions=contributions,
            missing=tuple(word.term for word in words if word.term not in seen),
            # The words of the clause that the tool matches best.
            clause=max(
                parsed_query.clauses if contributions else (),
                key=lambda clause: sum(one.share for one in contributions if one.word in clause),
                default=(),
            ),
            confidence=round(ranking.confidence, 4) if ranking else 0.0,
            words=round(placed.words, 4) if placed else 0.0,
            meaning=round(placed.meaning, 4) if placed and placed.meaning is not None else None,
            meaning_share=round(ranking.meaning_share, 4) if ranking else 0.0,
        )

    def _discard(self, number: int) -> None:
        self._postings.discard(number)
        del self._documents[number], self._vectors[number]

    def _rank(self, parsed_query: ParsedQuery, visible: SearchFilter | None) -> BlendedRanking | None:
        """The ranking and its confidence; None if no document has any word of the query."""
        words = self._term_matcher.match_terms(parsed_query)
        found = rank_by_words(parsed_query, words, self._postings, visible)
        if not found:
            return None
        best = max(found, key=lambda number: (found[number], self._documents[number].key))
        least = _LEAST_SHARE_OF_BEST * found[best]
        likely = {number: value for number, value in found.items() if value >= least}
        vectors = {number: self._vectors[number] for number in likely}
        return blend_scores(
            likely,
            vector_similarity(parsed_query, vectors, load_lexicon()),
            confidence(words, self._postings, best),
        )

    def _hit(self, placed: BlendedScore, ranking: BlendedRanking) -> ToolHit:
        document = self._documents[placed.number]
        # The confidence depends on the best; the others are limited relative to it.
        score = ranking.confidence * placed.value / ranking.best_value
        return ToolHit(document.key, document.public_name, round(score, 4))

    def _contributions(self, words: Sequence[QueryTerm], number: int) -> tuple[TermContribution, ...]:
        whole = sum(word.max_gain for word in words)
        fields = list(zip(SEARCH_FIELDS, field_terms(self._documents[number]), strict=True))
        found = [
            TermContribution(
                word=word.term,
                term=match.term,
                kind=match.kind,
                fields=tuple(field.name for field, own in fields if match.term in own),
                share=round(gain / whole, 4),
            )
            for word, match, gain in matched_query_terms(words, self._postings, number)
        ]
        return tuple(sorted(found, key=lambda one: (-one.share, one.word)))
