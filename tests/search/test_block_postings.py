"""BM25 over blocks of postings: the same scores by numpy and without, and blocks that forget nothing else."""

import random
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.search import block_postings
from headgate.search.block_postings import ScoredChunk

# Around the ends of blocks too.
chunk_ids = st.integers(1, 20) | st.integers(block_postings.BLOCK_CHUNKS - 3, block_postings.BLOCK_CHUNKS + 3)
contents = st.dictionaries(chunk_ids, st.lists(st.sampled_from("abcd"), max_size=8), max_size=12)


def posted(chunks: Mapping[int, Sequence[str]]) -> dict[str, list[tuple[int, bytes]]]:
    """The postings of chunks that came one after the other."""
    blocks: dict[str, dict[int, bytes]] = {}
    for chunk_id, stems in chunks.items():
        for stem, entry in block_postings.postings_of(chunk_id, stems).items():
            own = blocks.setdefault(stem, {})
            number = block_postings.block_of(chunk_id)
            own[number] = block_postings.add_postings(own.get(number, b""), [entry])
    return {stem: sorted(own.items()) for stem, own in blocks.items()}


def collection(chunks: Mapping[int, Sequence[str]]) -> block_postings.CollectionStatistics:
    return block_postings.CollectionStatistics(len(chunks), sum(map(len, chunks.values())))


def best(terms: str, chunks: Mapping[int, Sequence[str]], limit: int = 10) -> list[ScoredChunk]:
    return block_postings.top_chunks(list(terms), posted(chunks), collection(chunks), limit)


def test_a_score_is_what_the_formula_says() -> None:
    chunks = {1: ["a", "a", "b"], 2: ["b"], 3: ["c", "c"]}
    # One of three has it, twice, in a chunk of three where two are average.
    rarity = 0.98082925
    [found] = best("a", chunks)
    assert found.chunk_id == 1
    assert found.score == pytest.approx(rarity * 2 * 3 / (2 + 2 * 1.25), abs=2e-6)


def test_what_is_asked_twice_counts_twice() -> None:
    chunks = {1: ["a"], 2: ["b"]}
    [once], [twice] = best("a", chunks), best("aa", chunks)
    assert twice.score == pytest.approx(2 * once.score, abs=2e-6)


@pytest.mark.parametrize(("terms", "limit"), [("", 10), ("z", 10), ("a", 0), ("a", -1)])
def test_nothing_is_found_for_nothing(terms: str, limit: int) -> None:
    assert best(terms, {1: ["a"]}, limit) == []


def test_a_word_of_every_chunk_still_counts_for_them() -> None:
    assert all(found.score > 0 for found in best("a", {1: ["a"], 2: ["a"], 3: ["a", "b"]}))


def test_equal_scores_go_by_id_across_blocks() -> None:
    ids = [block_postings.BLOCK_CHUNKS + 5, 3, block_postings.BLOCK_CHUNKS - 1, 9]
    found = best("a", {chunk_id: ["a"] for chunk_id in ids}, limit=3)
    assert [one.chunk_id for one in found] == sorted(ids)[:3]


@given(chunks=contents, allowed=st.none() | st.sets(chunk_ids, max_size=8), limit=st.integers(1, 12))
@settings(max_examples=40)
def test_only_the_allowed_are_found_and_with_the_same_scores(
    chunks: dict[int, list[str]], allowed: set[int] | None, limit: int
) -> None:
    every = block_postings.top_chunks(list("ab"), posted(chunks), collection(chunks), 100)
    found = block_postings.top_chunks(list("ab"), posted(chunks), collection(chunks), limit, allowed)
    assert found == [one for one in every if allowed is None or one.chunk_id in allowed][:limit]


@given(seed=st.integers(0, 10_000), limit=st.integers(1, 40), filtered=st.booleans())
@settings(max_examples=15)
def test_the_best_of_many_are_the_first_of_all_though_common_stems_are_only_looked_up(
    seed: int, limit: int, *, filtered: bool
) -> None:
    chance = random.Random(seed)
    shares = {"a": 0.02, "b": 0.1, "c": 0.5, "d": 0.9}
    chunks = {
        id: [stem for stem, share in shares.items() for _ in range(3) if chance.random() < share]
        for id in range(block_postings.BLOCK_CHUNKS - 300, block_postings.BLOCK_CHUNKS + 300)
    }
    allowed = set(chance.sample(sorted(chunks), 200)) if filtered else None
    every, found = (
        block_postings.top_chunks(list("abcd"), posted(chunks), collection(chunks), most, allowed)
        for most in (len(chunks) + 1, limit)
    )
    assert found == every[:limit]


@given(chunks=contents, gone=st.sets(chunk_ids, max_size=8))
@settings(max_examples=40)
def test_a_block_without_some_is_the_block_that_never_had_them(
    chunks: dict[int, list[str]], gone: set[int]
) -> None:
    left = {
        stem: [
            (number, block)
            for number, whole in blocks
            if (
                block := block_postings.remove_chunks(
                    whole, [id for id in gone if block_postings.block_of(id) == number]
                )
            )
        ]
        for stem, blocks in posted(chunks).items()
    }
    never = posted({chunk_id: stems for chunk_id, stems in chunks.items() if chunk_id not in gone})
    assert {stem: blocks for stem, blocks in left.items() if blocks} == never


@given(chunks=contents)
@settings(max_examples=40)
def test_a_block_is_the_same_in_whatever_order_its_chunks_came(chunks: dict[int, list[str]]) -> None:
    assert posted(chunks) == posted(dict(reversed(chunks.items())))


def test_more_than_an_entry_can_count_is_as_much_as_it_can() -> None:
    [found] = best("a", {1: ["a"] * 70_000, 2: ["b"]})
    assert 0 < found.score < 10


def test_without_numpy_the_scores_are_the_same() -> None:
    chunks = {place: ["a"] * (place % 3) + ["b"] * (place % 5) + ["c"] for place in range(4000, 4200)}
    expected = [tuple(one) for one in best("abc", chunks, 50)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY],
        input=repr((list("abc"), posted(chunks), tuple(collection(chunks)), 50)),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == repr(expected)


# Run by itself, because here numpy has been imported long since.
WITHOUT_NUMPY = """
import ast, importlib.util, sys

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "numpy" else found(name, package)
sys.modules["numpy"] = None

from headgate.search import block_postings

terms, postings, collection, limit = ast.literal_eval(sys.stdin.read())
collection = block_postings.CollectionStatistics(*collection)
print([tuple(one) for one in block_postings.top_chunks(terms, postings, collection, limit)])
"""
