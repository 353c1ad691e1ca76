"""The postings of stems in any store: read for a search, and changed block by block."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.knowledge.stores.store_connection import Row, StoreConnection
from headgate.search import block_postings

# One stem, by its key, in 4,096 chunks that follow each other.
_BlockKey = tuple[str, int]


async def read_postings(
    connection: StoreConnection, terms: Sequence[str]
) -> dict[str, list[tuple[int, bytes]]]:
    """The blocks of each term that any chunk has."""
    stems = {connection.posting_key(term): term for term in terms}
    postings: defaultdict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for key, block, entries in await connection.fetch_matching("postings", [(key,) for key in stems]):
        postings[stems[key]].append((block, entries))
    return dict(postings)


async def document_frequencies(connection: StoreConnection, terms: Sequence[str]) -> dict[str, int]:
    # By the sizes of the blocks, which are not read for that.
    stems = {connection.posting_key(term): term for term in terms}
    rows = await connection.fetch("posting_sizes", connection.listed(stems))
    return {stems[key]: block_postings.chunks_in(int(size)) for key, size in rows}


class PostingsUpdate:
    """Collects changes of postings; each has the stems of a chunk by its id."""

    def __init__(self, posting_key: Callable[[str], str]) -> None:
        self._key = posting_key
        self._added: defaultdict[_BlockKey, list[block_postings.Posting]] = defaultdict(list)
        self._removed: defaultdict[_BlockKey, list[int]] = defaultdict(list)

    def add(self, added: Mapping[int, Sequence[str]]) -> None:
        for id, stems in added.items():
            block = block_postings.block_of(id)
            for stem, entry in block_postings.postings_of(id, stems).items():
                self._added[self._key(stem), block].append(entry)

    def remove(self, removed: Mapping[int, Sequence[str]]) -> None:
        for id, stems in removed.items():
            block = block_postings.block_of(id)
            for stem in set(stems):
                self._removed[self._key(stem), block].append(id)

    async def save(self, connection: StoreConnection) -> None:
        places = sorted({*self._added, *self._removed})
        if not places:
            return
        stored = await connection.fetch_matching("find_postings", places)
        after = await connection.compute(self._after, stored)
        # In their order, in which the engines write them faster.
        kept = [(*place, after[place]) for place in places if after[place]]
        await connection.execute_rows("save_postings", kept)
        await connection.execute_rows("delete_postings", [place for place in places if not after[place]])
        self._added.clear()
        self._removed.clear()

    def _after(self, stored: Iterable[Row]) -> dict[_BlockKey, bytes]:
        after: dict[_BlockKey, bytes] = {(key, block): entries for key, block, entries in stored}
        for place, gone in self._removed.items():
            after[place] = block_postings.remove_chunks(after.get(place, b""), gone)
        for place, added in self._added.items():
            after[place] = block_postings.add_postings(after.get(place, b""), added)
        return after
