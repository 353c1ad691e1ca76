"""Stores documents, takes them out again, and keeps their vectors."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from headgate.knowledge.data_model import IngestedDocument, NewChunk, ReplaceResult, SourceRecord
from headgate.knowledge.graph import entity_resolution
from headgate.knowledge.search.analyzer import ANALYZER_VERSION
from headgate.knowledge.stores.sqlite import graph_updates, postings, schema
from headgate.knowledge.stores.sqlite.chunk_queries import json_list
from headgate.knowledge.stores.sqlite.vector_index import binary_code

_BYTES_OF_A_NUMBER = 4


def replace_document(connection: sqlite3.Connection, document: IngestedDocument, now: float) -> ReplaceResult:
    """The document is stored as it is now; a chunk with an old digest keeps its id and its vector."""
    _upgrade_index(connection)
    source_id = _save_source(connection, document)
    before: dict[int, str] = dict(
        connection.execute("SELECT id, digest FROM chunks WHERE source_id = ? ORDER BY place", (source_id,))
    )
    ids = entity_resolution.match_chunks_by_digest(before, [chunk.digest for chunk in document.chunks])
    gone = sorted(set(before).difference(ids))
    _delete_chunks(connection, gone)
    kept = sum(id is not None for id in ids)
    fresh = iter(schema.new_ids(connection, "chunk", len(ids) - kept))
    placed = [(id if id is not None else next(fresh), id is None) for id in ids]
    _insert_chunks(connection, source_id, document.chunks, placed)
    graph_updates.update_document_graph(
        connection, source_id, document, list(before), [id for id, _ in placed], now
    )
    schema.bump_revision(connection)
    return ReplaceResult(len(ids) - kept, kept, len(gone))


def remove_sources(connection: sqlite3.Connection, files: Sequence[str], now: float) -> int:
    """These sources leave with all that was known only by them; returns how many chunks that was."""
    found = connection.execute(
        "SELECT id FROM sources WHERE file IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json_list(files),),
    ).fetchall()
    if not found:
        return 0
    _upgrade_index(connection)
    removed = 0
    for (source_id,) in found:
        ids = [id for (id,) in connection.execute("SELECT id FROM chunks WHERE source_id = ?", (source_id,))]
        graph_updates.update_document_graph(
            connection, source_id, IngestedDocument(source=SourceRecord(file="")), ids, [], now
        )
        _delete_chunks(connection, ids)
        connection.execute("DELETE FROM sources WHERE id = ?", (source_id,))
        removed += len(ids)
    schema.bump_revision(connection)
    return removed


def reindex(connection: sqlite3.Connection) -> int:
    """Cut the words of all chunks anew where an older version did it otherwise; returns how many."""
    names, chunks = _upgrade_index(connection)
    if names or chunks:
        schema.bump_revision(connection)
    return chunks


def _upgrade_index(connection: sqlite3.Connection) -> tuple[int, int]:
    """Bring names and words up to date that an older version kept otherwise; returns how many there are."""
    if schema.read_counter(connection, "words") == ANALYZER_VERSION:
        return 0, 0
    return graph_updates.rebuild_name_keys(connection), postings.reindex_chunks(connection)


def _save_source(connection: sqlite3.Connection, document: IngestedDocument) -> int:
    source = document.source
    known = connection.execute("SELECT id FROM sources WHERE file = ?", (source.file,)).fetchone()
    source_id = int(known[0]) if known is not None else schema.new_ids(connection, "source", 1)[0]
    connection.execute(
        "INSERT OR REPLACE INTO sources (id, file, category, doc_type, title, date, digest, size_bytes,"
        " chunks, tokens, ingested) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            source_id,
            source.file,
            source.category,
            source.doc_type,
            source.title,
            source.date,
            source.digest,
            source.size_bytes,
            len(document.chunks),
            sum(chunk.tokens for chunk in document.chunks),
            source.ingested,
        ),
    )
    return source_id


def _insert_chunks(
    connection: sqlite3.Connection,
    source_id: int,
    chunks: Sequence[NewChunk],
    placed: Sequence[tuple[int, bool]],
) -> None:
    """`placed` has the id of each chunk, and whether it is new."""
    rows = [
        (id, source_id, place, chunk.tokens, chunk.digest, chunk.header, chunk.text, new)
        for place, (chunk, (id, new)) in enumerate(zip(chunks, placed, strict=True))
    ]
    connection.executemany(
        "INSERT INTO chunks (id, source_id, place, tokens, digest, header, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [row[:-1] for row in rows if row[-1]],
    )
    connection.executemany(
        "UPDATE chunks SET place = ?, tokens = ? WHERE id = ?",
        [(place, tokens, id) for id, _, place, tokens, _, _, _, new in rows if not new],
    )
    stored = [(id, header, text) for id, _, _, _, _, header, text, new in rows if new]
    connection.executemany("INSERT INTO waiting VALUES (?)", [(id,) for id, _, _ in stored])
    postings.index_chunks(connection, stored)


def _delete_chunks(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    if not ids:
        return
    which = (json_list(ids),)
    stored = connection.execute(
        "SELECT id, header, text FROM chunks WHERE id IN (SELECT value FROM json_each(?))", which
    ).fetchall()
    postings.unindex_chunks(connection, stored)
    _drop_vectors(connection, ids)
    for table, column in (("waiting", "chunk_id"), ("chunks", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", which)


# Vectors.


def set_model(connection: sqlite3.Connection, model: str, dimensions: int) -> int:
    """From now on vectors are of this model; those of another are dropped. Returns how many."""
    if (schema.model_fingerprint(connection), schema.read_counter(connection, "dimensions")) == (
        model,
        dimensions,
    ):
        return 0
    dropped = connection.execute("DELETE FROM vectors").rowcount
    connection.execute("DELETE FROM codes")
    connection.execute("INSERT OR IGNORE INTO waiting SELECT id FROM chunks")
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", [("model", model), ("dimensions", dimensions)]
    )
    schema.bump_revision(connection)
    return dropped


def chunks_without_vector(connection: sqlite3.Connection, limit: int) -> list[tuple[int, str]]:
    """Chunks that have no vector yet, by id, each as the text that is embedded."""
    rows = connection.execute(
        "SELECT id, header, text FROM waiting JOIN chunks ON id = chunk_id ORDER BY chunk_id LIMIT ?",
        (limit,),
    )
    return [(id, f"{header}\n{text}") for id, header, text in rows]


def store_vectors(connection: sqlite3.Connection, model: str, vectors: Mapping[int, bytes]) -> int:
    """Keep the vectors of those chunks that are still there; returns how many. None of another model."""
    size = schema.read_counter(connection, "dimensions") * _BYTES_OF_A_NUMBER
    if model != schema.model_fingerprint(connection):
        return 0
    rows = connection.execute(
        "SELECT id FROM chunks WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json_list(vectors),),
    )
    there = [id for (id,) in rows if len(vectors[id]) == size]
    if not there:
        return 0
    _drop_vectors(connection, there)
    numbered = list(zip(schema.new_ids(connection, "vector", len(there)), there, strict=True))
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?, ?)", [(number, id, vectors[id]) for number, id in numbered]
    )
    connection.executemany(
        "INSERT INTO codes VALUES (?, ?, ?)",
        [(number, id, binary_code(vectors[id])) for number, id in numbered],
    )
    connection.execute(
        "DELETE FROM waiting WHERE chunk_id IN (SELECT value FROM json_each(?))", (json_list(there),)
    )
    schema.bump_revision(connection)
    return len(there)


def _drop_vectors(connection: sqlite3.Connection, chunk_ids: Iterable[int]) -> None:
    which = (json_list(chunk_ids),)
    of_chunks = "SELECT number FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE FROM codes WHERE number IN ({of_chunks})", which)
    connection.execute("DELETE FROM vectors WHERE chunk_id IN (SELECT value FROM json_each(?))", which)
