"""Looks a store over from outside: nothing half, nothing left behind, and scores as they must be."""

import contextlib
import hashlib
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from campaign.knowledge.knowledge_process import FILE, Place
from campaign.knowledge.versioned_documents import editions_in
from headgate.knowledge.data_model import (
    NO_FILTERS,
    ChunkRecord,
    DocumentFilters,
    IngestedDocument,
    NewChunk,
    SourceRecord,
)
from headgate.knowledge.interfaces import KnowledgeStore
from headgate.knowledge.stores.sqlite.store import open_sqlite_store
from headgate.search.text_analysis import terms, words

# As many as there are in the case at most.
_ALL = 1_000_000
# Questions whose scores are compared.
_QUESTIONS = 25
# What must be nowhere, in words that both stores understand; {} is the prefix of the tables.
_ORPHANS = (
    ("vectors", "chunk_id", "chunks", "id"),
    ("waiting", "chunk_id", "chunks", "id"),
    ("chunks", "source_id", "sources", "id"),
    ("mentions", "chunk_id", "chunks", "id"),
    ("mentions", "entity_id", "entities", "id"),
    ("names", "entity_id", "entities", "id"),
    ("entities", "id", "entity_claims", "entity_id"),
    ("relationships", "source_id", "entities", "id"),
    ("relationships", "target_id", "entities", "id"),
)
_STRAY = {
    f"{table}.{column} that are no {other}.{key}":
        f"SELECT count(*) FROM {{}}{table} WHERE {column} NOT IN (SELECT {key} FROM {{}}{other})"
    for table, column, other, key in _ORPHANS
} | {
    "chunks that have a vector and wait for one":
        "SELECT count(*) FROM {}waiting WHERE chunk_id IN (SELECT chunk_id FROM {}vectors)",
    "chunks without a vector that wait for none": "SELECT count(*) FROM {}chunks"
        " WHERE id NOT IN (SELECT chunk_id FROM {}vectors) AND id NOT IN (SELECT chunk_id FROM {}waiting)",
    "claims of a document that is gone": "SELECT count(*) FROM {}entity_claims WHERE document <> 0"
        " AND document NOT IN (SELECT id FROM {}sources)",
}  # fmt: skip


async def faults(place: Place) -> list[str]:
    """What is wrong with a store, one sentence each."""
    found = list(_stray(place))
    async with place.open() as store:
        chunks = [chunk async for chunk in store.iter_chunks()]
        sources = [source async for source in store.iter_sources()]
        found += _torn(sources, chunks)
        found += await _misjudged(store, chunks)
    return found


def _stray(place: Place) -> Iterator[str]:
    with _connected(place) as (execute, prefix):
        if not place.url:
            for (said,) in execute("PRAGMA integrity_check"):
                if said != "ok":
                    yield f"integrity: {said}"
        for what, statement in _STRAY.items():
            ((count,),) = execute(statement.replace("{}", prefix))
            if count:
                yield f"{count} {what}"


@contextlib.contextmanager
def _connected(place: Place) -> Iterator[tuple[Any, str]]:
    connection: Any
    if place.url:
        connection = psycopg.connect(place.url, autocommit=True)
    else:
        connection = sqlite3.connect(f"file:{place.data / FILE}?mode=ro", uri=True, timeout=30)
    try:
        yield connection.execute, "knowledge_" if place.url else ""
    finally:
        connection.close()


def _torn(sources: list[SourceRecord], chunks: list[ChunkRecord]) -> Iterator[str]:
    by_file: dict[str, list[ChunkRecord]] = defaultdict(list)
    for chunk in chunks:
        by_file[chunk.file].append(chunk)
    for file in by_file.keys() - {source.file for source in sources}:
        yield f"{file} has chunks and is no source"
    for source in sources:
        own = sorted(by_file[source.file], key=lambda chunk: chunk.index)
        if [chunk.index for chunk in own] != list(range(source.chunks)):
            yield f"{source.file} has chunks {[chunk.index for chunk in own]} of {source.chunks}"
        if len(set().union(*(editions_in(chunk.text) for chunk in own))) > 1:
            yield f"{source.file} is of two editions"


async def _misjudged(store: KnowledgeStore, chunks: list[ChunkRecord]) -> list[str]:
    """Where a store that was made at once of the same chunks gives another score."""
    with tempfile.TemporaryDirectory(prefix="campaign-twin-") as directory:
        async with open_sqlite_store(Path(directory) / FILE) as twin:
            by_file: dict[str, list[ChunkRecord]] = defaultdict(list)
            for chunk in chunks:
                by_file[chunk.file].append(chunk)
            for file, own in by_file.items():
                await twin.replace_document(_document(file, own))
            places = {chunk.id: (chunk.file, chunk.index) for chunk in chunks}
            twins = {chunk.id: (chunk.file, chunk.index) async for chunk in twin.iter_chunks()}
            wrong = []
            for question, filters in _questions(chunks):
                ours = await store.match_terms(question, _ALL, filters)
                theirs = await twin.match_terms(question, _ALL, filters)
                if {places.get(found.chunk_id): found.score for found in ours} != {
                    twins[found.chunk_id]: found.score for found in theirs
                }:
                    wrong.append(f"other scores for {question} {filters.phrases}: {len(ours)}, {len(theirs)}")
            return wrong


def _document(file: str, chunks: list[ChunkRecord]) -> IngestedDocument:
    new = tuple(
        NewChunk(
            text=chunk.text,
            header=chunk.header,
            tokens=chunk.tokens,
            digest=hashlib.sha256(f"{chunk.header}\n{chunk.text}".encode()).hexdigest(),
        )
        for chunk in sorted(chunks, key=lambda chunk: chunk.index)
    )
    return IngestedDocument(source=SourceRecord(file=file, chunks=len(new)), chunks=new)


def _questions(chunks: list[ChunkRecord]) -> Iterator[tuple[list[str], DocumentFilters]]:
    """The commonest stems, rare ones, some of them together, and words in a row."""
    counts = Counter(stem for chunk in chunks for stem in set(terms(f"{chunk.header}\n{chunk.text}")))
    ordered = [stem for stem, _ in counts.most_common()]
    step = max(1, len(ordered) // _QUESTIONS)
    for stem in ordered[::step]:
        yield [stem], NO_FILTERS
    yield ordered[:4], NO_FILTERS
    yield ordered[-4:], NO_FILTERS
    for chunk in chunks[:: max(1, len(chunks) // 5)]:
        row = words(chunk.text)[5:8]
        yield terms(chunk.text)[:3], DocumentFilters(phrases=(tuple(row),))


async def content(place: Place) -> dict[str, object]:
    """What is in a store without ids and times, to be compared with another."""
    async with place.open() as store:
        sources = [source async for source in store.iter_sources()]
        chunks = [chunk async for chunk in store.iter_chunks()]
        entities = [entity async for entity in store.iter_entities()]
        relationships = [one async for one in store.iter_relationships()]
        statistics = await store.statistics()
    names = {entity.id: (entity.type, entity.name) for entity in entities}
    return {
        "sources": sorted((one.file, one.digest, one.chunks, one.category, one.title) for one in sources),
        "chunks": sorted((one.file, one.index, one.total, one.header, one.text) for one in chunks),
        "entities": sorted(
            (one.type, one.name, tuple(sorted(one.aliases)), round(one.confidence, 9), one.mentions)
            for one in entities
        ),
        "relationships": sorted(
            (names[one.source_id], one.type, names[one.target_id], round(one.confidence, 9))
            for one in relationships
        ),
        "vectors": statistics.vectors,
        "tokens": statistics.tokens,
        "mentions": statistics.mentions,
    }


def differences(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """In which parts two contents differ, with the first of what differs."""
    found = []
    for part, ours in one.items():
        theirs = other[part]
        if ours != theirs:
            if isinstance(ours, list) and isinstance(theirs, list):
                only = [row for row in ours if row not in theirs][:1]
                missing = [row for row in theirs if row not in ours][:1]
                found.append(f"{part}: {len(ours)} and {len(theirs)}, only here {only}, only there {missing}")
            else:
                found.append(f"{part}: {ours} and {theirs}")
    return found


async def stored_editions(place: Place) -> dict[str, int]:
    """Of which edition each document in the store is."""
    async with place.open() as store:
        found: dict[str, int] = {}
        async for chunk in store.iter_chunks():
            found[chunk.file] = max(editions_in(chunk.text) or {0})
        return found


@contextlib.contextmanager
def revisions(place: Place) -> Iterator[Callable[[], int]]:
    """Tells how often the store has changed, from outside."""
    with _connected(place) as (execute, prefix):
        query = (
            "SELECT revision FROM knowledge_meta" if prefix else "SELECT value FROM meta WHERE key='revision'"
        )

        def revision() -> int:
            ((number,),) = execute(query)
            return int(number)

        yield revision
