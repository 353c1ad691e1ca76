"""After any history the scores of a search by words are those of what is there; in every store."""

import math
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.search.analyzer import index_terms
from headgate.search.block_postings import BM25
from tests.knowledge.stores.sample_documents import all_chunks, document, found

K1, B = BM25
WORDS = ("pump", "valve", "hose", "gauge", "東京", "Zürich")
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
files = st.sampled_from(["a.md", "b.md", "c.md"])
# A document that comes or changes, or None when it leaves.
steps = st.lists(st.tuples(files, st.none() | st.lists(texts, max_size=4)), min_size=1, max_size=8)


def expected(chunks: Mapping[int, str], query: str) -> dict[int, float]:
    """What the definition of BM25 says, chunk by chunk."""
    stems = {id: Counter(index_terms(text)) for id, text in chunks.items()}
    average = sum(count.total() for count in stems.values()) / max(1, len(stems))
    scores: Counter[int] = Counter()
    for term in index_terms(query):
        having = [id for id, count in stems.items() if count[term]]
        rarity = math.log(1 + (len(stems) - len(having) + 0.5) / (len(having) + 0.5))
        for id in having:
            times, length = stems[id][term], stems[id].total()
            scores[id] += rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * length / average))  # type: ignore[assignment]
    return dict(scores)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
async def test_scores_are_exact_after_any_history(
    store: KnowledgeStore, steps: list[tuple[str, list[str] | None]]
) -> None:
    await store.remove_sources(list(await store.source_digests()))
    for file, content in steps:
        if content is None:
            await store.remove_sources([file])
        else:
            await store.replace_document(document(file, *content))
    chunks = {chunk.id: f"{chunk.header}\n{chunk.text}" for chunk in await all_chunks(store)}
    for query in ("pump", "pump valve hose 東京", "Zürich zurich md"):
        scores = await found(store, query)
        assert scores == pytest.approx(expected(chunks, query), abs=1e-6)
        assert list(scores) == sorted(scores, key=lambda id: (-scores[id], id))
