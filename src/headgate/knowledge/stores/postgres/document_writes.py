"""Stores documents, and takes them out again."""

from collections.abc import Sequence

from headgate.knowledge.data_model import IngestedDocument, NewChunk, ReplaceResult, SourceRecord
from headgate.knowledge.graph import entity_resolution
from headgate.knowledge.search.analyzer import ANALYZER_VERSION
from headgate.knowledge.stores.postgres import graph_updates
from headgate.knowledge.stores.postgres.postings import ChunkTerms, PostingsUpdate, analyze_chunks
from headgate.knowledge.stores.postgres.postings import reindex_chunks as cut_all_again
from headgate.knowledge.stores.postgres.statements import (
    StoreCounters,
    execute,
    fetch_rows,
    lock_counters,
    save_counters,
    storable,
)
from headgate.storage.postgres.connection_pool import Connection


async def replace_document(
    connection: Connection, document: IngestedDocument, cut_chunks: Sequence[ChunkTerms], time: float
) -> ReplaceResult:
    """The document is stored as it is now, see `Intake.replace`; its chunks have been cut into words."""
    now = await lock_counters(connection)
    await _upgrade_index(connection, now)
    source_id = await _save_source(connection, now, document)
    before = dict(
        await fetch_rows(
            connection,
            "SELECT id, digest FROM knowledge_chunks WHERE source_id = %s ORDER BY place",
            source_id,
        )
    )
    ids = entity_resolution.match_chunks_by_digest(before, [chunk.digest for chunk in document.chunks])
    gone = sorted(set(before).difference(ids))
    postings = PostingsUpdate()
    await _delete_chunks(connection, now, postings, gone)
    kept = sum(id is not None for id in ids)
    fresh = iter(now.new_ids("chunk", len(ids) - kept))
    placed = [(id if id is not None else next(fresh), id is None) for id in ids]
    await _insert_chunks(connection, now, postings, source_id, document.chunks, cut_chunks, placed)
    await postings.save(connection)
    await graph_updates.update_document_graph(
        connection, now, source_id, document, list(before), [id for id, _ in placed], time
    )
    await save_counters(connection, now)
    return ReplaceResult(len(ids) - kept, kept, len(gone))


async def remove_sources(connection: Connection, files: Sequence[str], time: float) -> int:
    """These sources leave, see `Intake.remove`."""
    now = await lock_counters(connection)
    names = list(map(storable, files))
    found = await fetch_rows(
        connection, "SELECT id FROM knowledge_sources WHERE file = ANY(%s) ORDER BY id", names
    )
    if not found:
        return 0
    await _upgrade_index(connection, now)
    postings = PostingsUpdate()
    removed = 0
    for (source_id,) in found:
        chunks = await fetch_rows(
            connection, "SELECT id FROM knowledge_chunks WHERE source_id = %s", source_id
        )
        ids = [id for (id,) in chunks]
        await graph_updates.update_document_graph(
            connection, now, source_id, IngestedDocument(source=SourceRecord(file="")), ids, [], time
        )
        await _delete_chunks(connection, now, postings, ids)
        await execute(connection, "DELETE FROM knowledge_sources WHERE id = %s", source_id)
        removed += len(chunks)
    await postings.save(connection)
    await save_counters(connection, now)
    return removed


async def reindex(connection: Connection) -> int:
    """Cut the words of all chunks anew, see `Intake.cut_again`."""
    now = await lock_counters(connection)
    edition = now.words_edition
    names, chunks = await _upgrade_index(connection, now)
    if names or chunks:
        await save_counters(connection, now)
    elif now.words_edition != edition:
        # Nothing that anybody could have read is otherwise now.
        await execute(connection, "UPDATE knowledge_meta SET words_edition = %s", now.words_edition)
    return chunks


async def _upgrade_index(connection: Connection, now: StoreCounters) -> tuple[int, int]:
    """Bring names and words up to date that an older version kept otherwise; returns how many there are."""
    if now.words_edition == ANALYZER_VERSION:
        return 0, 0
    return await graph_updates.rebuild_name_keys(connection), await cut_all_again(connection, now)


async def _save_source(connection: Connection, now: StoreCounters, document: IngestedDocument) -> int:
    source = document.source
    known = await fetch_rows(connection, "SELECT id FROM knowledge_sources WHERE file = %s", source.file)
    source_id = int(known[0][0]) if known else now.new_ids("source", 1)[0]
    await execute(
        connection,
        "INSERT INTO knowledge_sources (id, file, category, category_key, doc_type, doc_type_key, title,"
        " date, digest, size_bytes, chunks, tokens, ingested)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET category = excluded.category, category_key = excluded.category_key,"
        " doc_type = excluded.doc_type, doc_type_key = excluded.doc_type_key, title = excluded.title,"
        " date = excluded.date, digest = excluded.digest, size_bytes = excluded.size_bytes,"
        " chunks = excluded.chunks, tokens = excluded.tokens, ingested = excluded.ingested",
        source_id,
        source.file,
        source.category,
        source.category.casefold(),
        source.doc_type,
        source.doc_type.casefold(),
        source.title,
        source.date,
        source.digest,
        source.size_bytes,
        len(document.chunks),
        sum(chunk.tokens for chunk in document.chunks),
        source.ingested,
    )
    return source_id


async def _insert_chunks(
    connection: Connection,
    now: StoreCounters,
    postings: PostingsUpdate,
    source_id: int,
    chunks: Sequence[NewChunk],
    cut_chunks: Sequence[ChunkTerms],
    placed: Sequence[tuple[int, bool]],
) -> None:
    """`placed` has the id of each chunk, and whether it is new."""
    all_of_them = list(enumerate(zip(placed, chunks, cut_chunks, strict=True)))
    stay = [(id, place, chunk.tokens) for place, ((id, new), chunk, _) in all_of_them if not new]
    if stay:
        await _update_positions(connection, stay)
    come = [(id, place, chunk, words) for place, ((id, new), chunk, words) in all_of_them if new]
    if not come:
        return
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY knowledge_chunks (id, source_id, place, header, text, tokens, digest, words, lexemes)"
            " FROM STDIN"
        ) as copy,
    ):
        for id, place, chunk, words in come:
            await copy.write_row(
                (id, source_id, place, chunk.header, chunk.text, chunk.tokens, chunk.digest, *words[1:])
            )
    await execute(
        connection, "INSERT INTO knowledge_waiting SELECT unnest(%s::bigint[])", [id for id, *_ in come]
    )
    postings.add({id: words.stems for id, _, _, words in come})
    now.chunks += len(come)
    now.length += sum(len(words.stems) for *_, words in come)


async def _update_positions(connection: Connection, stay: Sequence[tuple[int, int, int]]) -> None:
    """Chunks that stay may have another place now."""
    await execute(
        connection,
        "UPDATE knowledge_chunks c SET place = n.place, tokens = n.tokens"
        " FROM unnest(%s::bigint[], %s::integer[], %s::integer[]) AS n (id, place, tokens)"
        " WHERE c.id = n.id AND (c.place, c.tokens) <> (n.place, n.tokens)",
        *([row[column] for row in stay] for column in range(3)),
    )


async def _delete_chunks(
    connection: Connection, now: StoreCounters, postings: PostingsUpdate, ids: Sequence[int]
) -> None:
    if not ids:
        return
    leaving = await fetch_rows(
        connection, "DELETE FROM knowledge_chunks WHERE id = ANY(%s) RETURNING id, header, text", list(ids)
    )
    words = await analyze_chunks([(header, text) for _, header, text in leaving])
    stems = {id: one.stems for (id, _, _), one in zip(leaving, words, strict=True)}
    postings.remove(stems)
    now.chunks -= len(stems)
    now.length -= sum(map(len, stems.values()))
    await execute(connection, "DELETE FROM knowledge_waiting WHERE chunk_id = ANY(%s)", list(ids))
    now.vectors -= await execute(
        connection, "DELETE FROM knowledge_vectors WHERE chunk_id = ANY(%s)", list(ids)
    )
