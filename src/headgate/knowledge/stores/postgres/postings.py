"""Keeps the postings of words in step with the chunks, and what phrases are found by."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headgate.knowledge.search.analyzer import ANALYZER_VERSION, index_terms
from headgate.knowledge.stores.postgres.chunk_queries import lexeme, padded_words, stem_key
from headgate.knowledge.stores.postgres.statements import StoreCounters, execute, fetch_rows
from headgate.search import block_postings
from headgate.search.text_analysis import words
from headgate.storage.postgres.connection_pool import Connection

# One stem in 4,096 chunks that follow each other.
_BlockKey = tuple[str, int]


class ChunkTerms(NamedTuple):
    """What is searched of a chunk."""

    stems: list[str]
    words: str
    lexemes: str


async def analyze_chunks(chunks: Sequence[tuple[str, str]]) -> list[ChunkTerms]:
    """The words of each of them, given as header and text."""
    return await asyncio.to_thread(lambda: [_analyze(header, text) for header, text in chunks])


def _analyze(header: str, text: str) -> ChunkTerms:
    searched = f"{header}\n{text}"
    found = words(searched)
    return ChunkTerms(index_terms(searched), padded_words(found), " ".join(map(lexeme, sorted(set(found)))))


class PostingsUpdate:
    """What changes in the postings, collected, so that each block is read and written once."""

    def __init__(self) -> None:
        self._added: defaultdict[_BlockKey, list[block_postings.Posting]] = defaultdict(list)
        self._removed: defaultdict[_BlockKey, list[int]] = defaultdict(list)

    def add(self, added: Mapping[int, Sequence[str]]) -> None:
        """These chunks with these stems are new."""
        for id, stems in added.items():
            for stem, entry in block_postings.postings_of(id, stems).items():
                self._added[stem_key(stem), block_postings.block_of(id)].append(entry)

    def remove(self, removed: Mapping[int, Sequence[str]]) -> None:
        """These chunks with these stems leave."""
        for id, stems in removed.items():
            for stem in set(stems):
                self._removed[stem_key(stem), block_postings.block_of(id)].append(id)

    async def save(self, connection: Connection) -> None:
        """Write all of it."""
        places = sorted({*self._added, *self._removed})
        if not places:
            return
        known = await _blocks(connection, places)
        after = await asyncio.to_thread(self._after, places, known)
        await _save_blocks(connection, {place: block for place, block in after.items() if block})
        await _delete_blocks(connection, [place for place, block in after.items() if not block])

    def _after(self, places: Iterable[_BlockKey], known: Mapping[_BlockKey, bytes]) -> dict[_BlockKey, bytes]:
        after = {}
        for place in places:
            block = known.get(place, b"")
            if place in self._removed:
                block = block_postings.remove_chunks(block, self._removed[place])
            if place in self._added:
                block = block_postings.add_postings(block, self._added[place])
            after[place] = block
        return after


async def reindex_chunks(connection: Connection, now: StoreCounters) -> int:
    """Make the terms of all chunks again; returns how many. The caller saves the counters."""
    now.words_edition = ANALYZER_VERSION
    # Saved here too: a store without a chunk changes nothing that a reader could see.
    await execute(connection, "UPDATE knowledge_meta SET words_edition = %s", ANALYZER_VERSION)
    if now.chunks == 0:
        return 0
    # Not TRUNCATE, which nobody could search beside.
    await execute(connection, "DELETE FROM knowledge_postings")
    now.length = 0
    # One block after the other, so that each is written once and only its texts are in memory.
    for block in range(block_postings.block_of(now.last_chunk) + 1):
        first = block * block_postings.BLOCK_CHUNKS
        stored = await fetch_rows(
            connection,
            "SELECT id, header, text FROM knowledge_chunks WHERE id BETWEEN %s AND %s",
            first,
            first + block_postings.BLOCK_CHUNKS - 1,
        )
        if stored:
            now.length += await _reindex_block(connection, stored)
    return now.chunks


async def _reindex_block(connection: Connection, stored: Sequence[tuple[int, str, str]]) -> int:
    """Cut the words of these; returns how many stems they have in all."""
    ids = [id for id, _, _ in stored]
    found = await analyze_chunks([(header, text) for _, header, text in stored])
    await execute(
        connection,
        "UPDATE knowledge_chunks c SET words = n.words, lexemes = n.lexemes::tsvector"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (id, words, lexemes) WHERE c.id = n.id",
        ids,
        [one.words for one in found],
        [one.lexemes for one in found],
    )
    postings = PostingsUpdate()
    postings.add({id: one.stems for id, one in zip(ids, found, strict=True)})
    await postings.save(connection)
    return sum(len(one.stems) for one in found)


async def _blocks(connection: Connection, places: Sequence[_BlockKey]) -> dict[_BlockKey, bytes]:
    found = await fetch_rows(
        connection,
        "SELECT stem, block, entries FROM knowledge_postings"
        " JOIN unnest(%s::text[], %s::integer[]) AS wanted (stem, block) USING (stem, block)",
        [stem for stem, _ in places],
        [block for _, block in places],
        binary=True,
    )
    return {(stem, block): entries for stem, block, entries in found}


async def _save_blocks(connection: Connection, blocks: Mapping[_BlockKey, bytes]) -> None:
    await execute(
        connection,
        "INSERT INTO knowledge_postings (stem, block, entries)"
        " SELECT * FROM unnest(%s::text[], %s::integer[], %b::bytea[])"
        " ON CONFLICT (stem, block) DO UPDATE SET entries = excluded.entries",
        [stem for stem, _ in blocks],
        [block for _, block in blocks],
        list(blocks.values()),
    )


async def _delete_blocks(connection: Connection, places: Sequence[_BlockKey]) -> None:
    if places:
        await execute(
            connection,
            "DELETE FROM knowledge_postings USING unnest(%s::text[], %s::integer[]) AS gone (stem, block)"
            " WHERE knowledge_postings.stem = gone.stem AND knowledge_postings.block = gone.block",
            [stem for stem, _ in places],
            [block for _, block in places],
        )
