"""Stores documents in any store and removes them again, with their chunks and their part of the graph."""

from collections import defaultdict
from collections.abc import Sequence

from headgate.knowledge.data_model import IngestedDocument, ReplaceResult, SourceRecord
from headgate.knowledge.search.analyzer import ANALYZER_VERSION
from headgate.knowledge.stores import graph_writes
from headgate.knowledge.stores.store_connection import WriteConnection


async def replace_document(
    connection: WriteConnection, document: IngestedDocument, now: float
) -> ReplaceResult:
    """Store the current version of a document; an unchanged chunk keeps its id and its vector."""
    await _upgrade_index(connection)
    source_id = await _save_source(connection, document)
    before: dict[int, str] = dict(await connection.fetch("chunk_digests", source_id))
    free: defaultdict[str, list[int]] = defaultdict(list)
    for id, digest in before.items():
        free[digest].append(id)
    # Each stored chunk is used once; None is a new one.
    matched = [free[chunk.digest].pop(0) if free[chunk.digest] else None for chunk in document.chunks]
    gone = sorted(set(before).difference(matched))
    await connection.delete_chunks(gone)
    kept = sum(id is not None for id in matched)
    fresh = iter(await connection.new_ids("chunk", len(matched) - kept))
    ids = [id if id is not None else next(fresh) for id in matched]
    placed = list(enumerate(zip(ids, document.chunks, strict=True)))
    await connection.execute_rows(
        "move_chunks",
        [(position, chunk.tokens, id) for position, (id, chunk) in placed if id in before],
    )
    await connection.insert_chunks(
        source_id, [(id, position, chunk) for position, (id, chunk) in placed if id not in before]
    )
    await graph_writes.update_document_graph(connection, source_id, document, list(before), ids, now)
    await connection.bump_revision()
    return ReplaceResult(len(ids) - kept, kept, len(gone))


async def remove_sources(connection: WriteConnection, files: Sequence[str], now: float) -> int:
    """Remove sources and everything that only they support; returns how many chunks they had."""
    chunks_by_source: dict[int, list[int]] = {}
    for source_id, chunk_id in await connection.fetch("find_sources", connection.listed(files)):
        chunks_by_source.setdefault(source_id, []).extend([] if chunk_id is None else [chunk_id])
    if not chunks_by_source:
        return 0
    await _upgrade_index(connection)
    nothing = IngestedDocument(source=SourceRecord(file=""))
    for source_id, chunk_ids in chunks_by_source.items():
        await graph_writes.update_document_graph(connection, source_id, nothing, chunk_ids, [], now)
    gone = [id for chunk_ids in chunks_by_source.values() for id in chunk_ids]
    await connection.delete_chunks(gone)
    await connection.execute("delete_sources", connection.listed(chunks_by_source))
    await connection.bump_revision()
    return len(gone)


async def reindex(connection: WriteConnection) -> int:
    """Index all chunks again if an older analyzer did it; returns how many."""
    names, chunks = await _upgrade_index(connection)
    if names or chunks:
        await connection.bump_revision()
    return chunks


async def _upgrade_index(connection: WriteConnection) -> tuple[int, int]:
    """Bring names and terms up to date with the analyzer; returns how many entities and chunks changed."""
    if await connection.analyzer_version() == ANALYZER_VERSION:
        return 0, 0
    return await graph_writes.rebuild_name_keys(connection), await connection.reindex_chunks()


async def _save_source(connection: WriteConnection, document: IngestedDocument) -> int:
    source = document.source
    known = await connection.fetch("find_source", source.file)
    source_id = int(known[0][0]) if known else (await connection.new_ids("source", 1))[0]
    tokens = sum(chunk.tokens for chunk in document.chunks)
    await connection.execute(
        "save_source",
        *(source_id, source.file, source.category, source.category.casefold()),
        *(source.doc_type, source.doc_type.casefold(), source.title, source.date, source.digest),
        *(source.size_bytes, len(document.chunks), tokens, source.ingested),
    )
    return source_id
