"""A store that keeps everything in memory and answers as the real ones do; its graph is in `claims`."""

import math
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from headgate.domain.errors import StoreUnavailable
from headgate.knowledge.data_model import (
    ChunkRecord,
    DocumentFilters,
    Edge,
    Entity,
    IngestedDocument,
    Neighbour,
    Neighbourhood,
    NewChunk,
    NewEntity,
    NewRelationship,
    Relationship,
    ReplaceResult,
    SourceRecord,
    StoreStatistics,
)
from headgate.knowledge.interfaces import MentionRecord
from headgate.knowledge.search.analyzer import index_terms
from headgate.knowledge.search.filters import passes
from headgate.search.block_postings import (
    Blocks,
    CollectionStatistics,
    Posting,
    ScoredChunk,
    add_postings,
    block_of,
    chunks_in,
    postings_of,
    top_chunks,
)
from headgate.search.text_analysis import words
from tests.knowledge.memory_claims import Claims

T = TypeVar("T")


class MemoryKnowledgeStore:
    """Passages, Graph, Intake and Everything of one process.

    `away` makes every call raise StoreAway, `broken` makes it raise that; `asked` tells the calls so far.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.away = False
        self.broken: Exception | None = None
        self.asked: list[str] = []
        self._clock = clock
        self._revision = 0
        self._model, self._dimensions = "", 0
        self._sources: dict[int, SourceRecord] = {}
        self._chunks: dict[int, ChunkRecord] = {}
        self._digests: dict[int, str] = {}
        self._vectors: dict[int, bytes] = {}
        self._last_source = self._last_chunk = 0
        self._claims = Claims(clock)
        self._indexed = -1
        self._postings: dict[str, Blocks] = {}
        self._collection = CollectionStatistics(0, 0)

    # Passages.

    async def check(self) -> None:
        """It can always be read."""

    async def revision(self) -> int:
        self._ask("revision")
        return self._revision

    async def model_fingerprint(self) -> str:
        self._ask("model")
        return self._model

    async def nearest(self, vector: bytes, limit: int, filters: DocumentFilters) -> list[ScoredChunk]:
        self._ask("nearest")
        if len(vector) != 4 * self._dimensions:
            return []
        allowed = self._allowed(filters)
        scored = [
            ScoredChunk(id, _cosine(vector, kept)) for id, kept in self._vectors.items() if id in allowed
        ]
        return sorted(scored, key=lambda found: (-found.score, found.chunk_id))[:limit]

    async def match_terms(
        self, terms: Sequence[str], limit: int, filters: DocumentFilters
    ) -> list[ScoredChunk]:
        self._ask("containing")
        if self._indexed != self._revision:
            self._index()
        return top_chunks(terms, self._postings, self._collection, limit, self._allowed(filters))

    async def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        self._ask("frequencies")
        if self._indexed != self._revision:
            self._index()
        sizes = {term: sum(len(block) for _, block in self._postings.get(term, ())) for term in terms}
        return {term: chunks_in(size) for term, size in sizes.items() if size}

    async def chunks(self, ids: Sequence[int]) -> dict[int, ChunkRecord]:
        self._ask("chunks")
        return _those(self._chunks, ids)

    async def source_ids(self, filters: DocumentFilters) -> list[int]:
        self._ask("source_ids")
        passing = [source for source in self._sources.values() if _passes(source, filters)]
        return [source.id for source in sorted(passing, key=lambda source: source.file)]

    async def sources(self, ids: Sequence[int]) -> dict[int, SourceRecord]:
        self._ask("sources")
        return _those(self._sources, ids)

    async def statistics(self) -> StoreStatistics:
        self._ask("statistics")
        return StoreStatistics(
            sources=len(self._sources),
            chunks=len(self._chunks),
            vectors=len(self._vectors),
            model=self._model,
            tokens=sum(chunk.tokens for chunk in self._chunks.values()),
            entities=dict(Counter(entity.type for entity in self._claims.entities.values())),
            relationships=dict(Counter(one.type for one in self._claims.relationships.values())),
            mentions=sum(entity.mentions for entity in self._claims.entities.values()),
            categories=dict(Counter(source.category for source in self._sources.values())),
            doc_types=dict(Counter(source.doc_type for source in self._sources.values())),
            first_date=min((source.date for source in self._sources.values() if source.date), default=""),
            last_date=max((source.date for source in self._sources.values()), default=""),
            revision=self._revision,
            size_bytes=sum(len(chunk.text) for chunk in self._chunks.values()),
        )

    # Graph.

    async def find_by_keys(self, keys: Sequence[str]) -> list[Entity]:
        self._ask("named")
        return self._claims.named(keys)

    async def list_names(self, types: Sequence[str]) -> list[tuple[int, str]]:
        self._ask("names")
        return [
            (id, name)
            for id, entity in sorted(self._claims.entities.items())
            if not types or entity.type.upper() in {kind.upper() for kind in types}
            for name in (entity.name, *entity.aliases)
        ]

    async def entities(self, ids: Sequence[int]) -> dict[int, Entity]:
        self._ask("entities")
        return _those(self._claims.entities, ids)

    async def relationships(self, ids: Sequence[int]) -> dict[int, Relationship]:
        self._ask("relationships")
        return _those(self._claims.relationships, ids)

    async def edges(self, entity_ids: Sequence[int]) -> list[Edge]:
        self._ask("edges")
        ends = set(entity_ids)
        return [
            Edge(one.id, one.source_id, one.target_id, one.type, one.confidence)
            for _, one in sorted(self._claims.relationships.items())
            if ends & {one.source_id, one.target_id}
        ]

    async def neighbourhood(self, entity_id: int) -> Neighbourhood:
        self._ask("around")
        edges = await self.edges([entity_id])
        ends = {end for edge in edges for end in (edge.source_id, edge.target_id)} - {entity_id}
        near = [self._claims.entities[id] for id in sorted(ends)]
        changes = [one.updated for one in near]
        changes += [self._claims.relationships[edge.id].updated for edge in edges]
        return Neighbourhood(
            [Neighbour(one.id, one.type, one.name, one.confidence, one.mentions) for one in near],
            edges,
            max(changes, default=0.0),
        )

    async def mentioned_entities(self, chunk_ids: Sequence[int]) -> dict[int, frozenset[int]]:
        self._ask("mentioned")
        return self._claims.mentioned(chunk_ids)

    async def chunks_mentioning(self, entity_id: int, limit: int) -> list[int]:
        self._ask("mentioning")
        return self._claims.mentioning(entity_id, limit)

    # Intake.

    async def source_digests(self) -> dict[str, str]:
        self._ask("digests")
        return {source.file: source.digest for source in self._sources.values()}

    async def reindex(self) -> int:
        self._ask("cut_again")
        return 0

    async def replace_document(self, document: IngestedDocument) -> ReplaceResult:
        self._ask("replace")
        before = self._source_of(document.source.file)
        old = [
            chunk for chunk in self._chunks.values() if before is not None and chunk.source_id == before.id
        ]
        source = msgspec.structs.replace(
            document.source, id=before.id if before else self._new_source(), chunks=len(document.chunks)
        )
        self._sources[source.id] = source
        left: dict[str, list[int]] = {}
        for chunk in old:
            left.setdefault(self._digests[chunk.id], []).append(chunk.id)
        placed = [self._place(source, index, chunk, left) for index, chunk in enumerate(document.chunks)]
        gone = [id for ids in left.values() for id in ids]
        self._drop(gone)
        self._claims.of_document(source.id, placed, document.entities, document.relationships)
        self._revision += 1
        kept = len(old) - len(gone)
        return ReplaceResult(len(placed) - kept, kept, len(gone))

    async def remove_sources(self, files: Sequence[str]) -> int:
        self._ask("remove")
        leaving = [source.id for source in self._sources.values() if source.file in set(files)]
        gone = [chunk.id for chunk in self._chunks.values() if chunk.source_id in leaving]
        self._drop(gone)
        for id in leaving:
            del self._sources[id]
            self._claims.of_document(id, [], (), ())
        self._revision += bool(leaving)
        return len(gone)

    async def set_model(self, model: str, dimensions: int) -> int:
        self._ask("use_model")
        if (model, dimensions) == (self._model, self._dimensions):
            return 0
        dropped = len(self._vectors)
        self._vectors.clear()
        self._model, self._dimensions = model, dimensions
        self._revision += 1
        return dropped

    async def chunks_without_vector(self, limit: int) -> list[tuple[int, str]]:
        self._ask("without_vector")
        lacking = [chunk for id, chunk in sorted(self._chunks.items()) if id not in self._vectors]
        return [(chunk.id, f"{chunk.header}\n{chunk.text}") for chunk in lacking[:limit]]

    async def store_vectors(self, model: str, vectors: Mapping[int, bytes]) -> int:
        self._ask("keep_vectors")
        if model != self._model:
            return 0
        fitting = {id: vector for id, vector in vectors.items() if len(vector) == 4 * self._dimensions}
        there = {id: vector for id, vector in fitting.items() if id in self._chunks}
        self._vectors |= there
        self._revision += bool(there)
        return len(there)

    async def import_graph(
        self, origin: str, entities: Sequence[NewEntity], relationships: Sequence[NewRelationship]
    ) -> tuple[int, int]:
        self._ask("import_graph")
        counts = self._claims.of_import(origin, entities, relationships)
        self._revision += 1
        return counts

    async def delete_graph(self, origin: str) -> int:
        self._ask("forget_graph")
        if origin not in self._claims.origins():
            return 0
        self._revision += 1
        return self._claims.forget(origin)

    async def graph_origins(self) -> list[str]:
        self._ask("origins")
        return self._claims.origins()

    async def imported_entities(self) -> list[NewEntity]:
        self._ask("imported")
        return self._claims.imported()

    # Everything.

    def iter_sources(self) -> AsyncIterator[SourceRecord]:
        return _each(self._sources)

    def iter_chunks(self) -> AsyncIterator[ChunkRecord]:
        return _each(self._chunks)

    def iter_entities(self) -> AsyncIterator[Entity]:
        return _each(self._claims.entities)

    def iter_relationships(self) -> AsyncIterator[Relationship]:
        return _each(self._claims.relationships)

    async def iter_mentions(self) -> AsyncIterator[MentionRecord]:
        for one in self._claims.mentions():
            yield one

    async def imported_graph(self) -> tuple[list[Entity], list[Relationship]]:
        return self._claims.imported_graph()

    # Between them.

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise StoreUnavailable
        if self.broken is not None:
            raise self.broken

    def _source_of(self, file: str) -> SourceRecord | None:
        return next((source for source in self._sources.values() if source.file == file), None)

    def _new_source(self) -> int:
        self._last_source += 1
        return self._last_source

    def _place(self, source: SourceRecord, index: int, chunk: NewChunk, left: dict[str, list[int]]) -> int:
        same = left.get(chunk.digest)
        if same:
            id = same.pop(0)
        else:
            self._last_chunk += 1
            id = self._last_chunk
        self._digests[id] = chunk.digest
        self._chunks[id] = ChunkRecord(
            id=id,
            source_id=source.id,
            file=source.file,
            category=source.category,
            doc_type=source.doc_type,
            date=source.date,
            index=index,
            total=source.chunks,
            text=chunk.text,
            header=chunk.header,
            tokens=chunk.tokens,
        )
        return id

    def _drop(self, ids: Sequence[int]) -> None:
        for id in ids:
            del self._chunks[id], self._digests[id]
            self._vectors.pop(id, None)

    def _index(self) -> None:
        """Make the postings of all chunks, once for each revision that is searched."""
        entries: dict[tuple[str, int], list[Posting]] = {}
        length = 0
        for id, chunk in sorted(self._chunks.items()):
            stems = index_terms(f"{chunk.header}\n{chunk.text}")
            length += len(stems)
            for stem, entry in postings_of(id, stems).items():
                entries.setdefault((stem, block_of(id)), []).append(entry)
        postings: dict[str, list[tuple[int, bytes]]] = {}
        for (stem, block), own in entries.items():
            postings.setdefault(stem, []).append((block, add_postings(b"", own)))
        self._postings, self._collection = dict(postings), CollectionStatistics(len(self._chunks), length)
        self._indexed = self._revision

    def _allowed(self, filters: DocumentFilters) -> set[int]:
        sources = {source.id for source in self._sources.values() if _passes(source, filters)}
        return {
            chunk.id
            for chunk in self._chunks.values()
            if chunk.source_id in sources and _has(words(f"{chunk.header}\n{chunk.text}"), filters.phrases)
        }


def _passes(source: SourceRecord, filters: DocumentFilters) -> bool:
    return passes(filters, source.file, source.category, source.doc_type, source.date)


def _has(text: list[str], phrases: tuple[tuple[str, ...], ...]) -> bool:
    return all(
        any(tuple(text[start : start + len(phrase)]) == phrase for start in range(len(text)))
        for phrase in phrases
    )


def _cosine(one: bytes, other: bytes) -> float:
    first = struct.unpack(f"<{len(one) // 4}f", one)
    second = struct.unpack(f"<{len(other) // 4}f", other)
    lengths = math.hypot(*first) * math.hypot(*second)
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return round(dot / lengths, 6) if lengths else 0.0


def _those(kept: Mapping[int, T], ids: Sequence[int]) -> dict[int, T]:
    return {id: kept[id] for id in ids if id in kept}


async def _each(kept: Mapping[int, T]) -> AsyncIterator[T]:
    for _, one in sorted(kept.items()):
        yield one
