"""Keeps the postings of words in step with the chunks, and what phrases are found by."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headgate.knowledge import bm25
from headgate.knowledge.index_terms import EDITION, index_terms
from headgate.search.text_analysis import words
from headgate.storage.postgres.knowledge.passages import stem_key
from headgate.storage.postgres.knowledge.rows import Numbers, done, rows
from headgate.storage.postgres.knowledge.selecting import in_words, lexeme
from headgate.storage.postgres.pool import Connection

# One stem in 4,096 chunks that follow each other.
_Place = tuple[str, int]


class Words(NamedTuple):
    """What is searched of a chunk."""

    stems: list[str]
    words: str
    lexemes: str


async def cut(chunks: Sequence[tuple[str, str]]) -> list[Words]:
    """The words of each of them, given as header and text."""
    return await asyncio.to_thread(lambda: [_cut(header, text) for header, text in chunks])


def _cut(header: str, text: str) -> Words:
    searched = f"{header}\n{text}"
    found = words(searched)
    return Words(index_terms(searched), in_words(found), " ".join(map(lexeme, sorted(set(found)))))


class Postings:
    """What changes in the postings, collected, so that each block is read and written once."""

    def __init__(self) -> None:
        self._added: defaultdict[_Place, list[bm25.Entry]] = defaultdict(list)
        self._removed: defaultdict[_Place, list[int]] = defaultdict(list)

    def add(self, added: Mapping[int, Sequence[str]]) -> None:
        """These chunks with these stems are new."""
        for id, stems in added.items():
            for stem, entry in bm25.entries_of(id, stems).items():
                self._added[stem_key(stem), bm25.block_of(id)].append(entry)

    def remove(self, removed: Mapping[int, Sequence[str]]) -> None:
        """These chunks with these stems leave."""
        for id, stems in removed.items():
            for stem in set(stems):
                self._removed[stem_key(stem), bm25.block_of(id)].append(id)

    async def keep(self, connection: Connection) -> None:
        """Write all of it."""
        places = sorted({*self._added, *self._removed})
        if not places:
            return
        known = await _blocks(connection, places)
        after = await asyncio.to_thread(self._after, places, known)
        await _keep(connection, {place: block for place, block in after.items() if block})
        await _drop(connection, [place for place, block in after.items() if not block])

    def _after(self, places: Iterable[_Place], known: Mapping[_Place, bytes]) -> dict[_Place, bytes]:
        after = {}
        for place in places:
            block = known.get(place, b"")
            if place in self._removed:
                block = bm25.without_chunks(block, self._removed[place])
            if place in self._added:
                block = bm25.with_entries(block, self._added[place])
            after[place] = block
        return after


async def cut_again(connection: Connection, now: Numbers) -> int:
    """All chunks as if they were put in now, where an older version cut their words otherwise.

    Returns how many that were; the caller keeps the numbers.
    """
    if now.words_edition == EDITION:
        return 0
    now.words_edition = EDITION
    if now.chunks == 0:
        return 0
    # Not TRUNCATE, which nobody could search beside.
    await done(connection, "DELETE FROM knowledge_postings")
    now.length = 0
    # One block after the other, so that each is written once and only its texts are in memory.
    for block in range(bm25.block_of(now.last_chunk) + 1):
        first = block * bm25.BLOCK_CHUNKS
        stored = await rows(
            connection,
            "SELECT id, header, text FROM knowledge_chunks WHERE id BETWEEN %s AND %s",
            first,
            first + bm25.BLOCK_CHUNKS - 1,
        )
        if stored:
            now.length += await _cut_block(connection, stored)
    return now.chunks


async def _cut_block(connection: Connection, stored: Sequence[tuple[int, str, str]]) -> int:
    """Cut the words of these; returns how many stems they have in all."""
    ids = [id for id, _, _ in stored]
    found = await cut([(header, text) for _, header, text in stored])
    await done(
        connection,
        "UPDATE knowledge_chunks c SET words = n.words, lexemes = n.lexemes::tsvector"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS n (id, words, lexemes) WHERE c.id = n.id",
        ids,
        [one.words for one in found],
        [one.lexemes for one in found],
    )
    postings = Postings()
    postings.add({id: one.stems for id, one in zip(ids, found, strict=True)})
    await postings.keep(connection)
    return sum(len(one.stems) for one in found)


async def _blocks(connection: Connection, places: Sequence[_Place]) -> dict[_Place, bytes]:
    found = await rows(
        connection,
        "SELECT stem, block, entries FROM knowledge_postings"
        " JOIN unnest(%s::text[], %s::integer[]) AS wanted (stem, block) USING (stem, block)",
        [stem for stem, _ in places],
        [block for _, block in places],
        binary=True,
    )
    return {(stem, block): entries for stem, block, entries in found}


async def _keep(connection: Connection, blocks: Mapping[_Place, bytes]) -> None:
    await done(
        connection,
        "INSERT INTO knowledge_postings (stem, block, entries)"
        " SELECT * FROM unnest(%s::text[], %s::integer[], %b::bytea[])"
        " ON CONFLICT (stem, block) DO UPDATE SET entries = excluded.entries",
        [stem for stem, _ in blocks],
        [block for _, block in blocks],
        list(blocks.values()),
    )


async def _drop(connection: Connection, places: Sequence[_Place]) -> None:
    if places:
        await done(
            connection,
            "DELETE FROM knowledge_postings USING unnest(%s::text[], %s::integer[]) AS gone (stem, block)"
            " WHERE knowledge_postings.stem = gone.stem AND knowledge_postings.block = gone.block",
            [stem for stem, _ in places],
            [block for _, block in places],
        )
