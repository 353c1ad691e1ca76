-- The statements of `knowledge.stores` for SQLite. A list is one value: a JSON array.

-- name: sources_by_id
SELECT id, file, category, doc_type, title, date, digest, size_bytes, chunks, ingested
FROM sources
WHERE id IN (SELECT value FROM json_each(?));

-- name: chunks_by_id
SELECT c.id, c.source_id, s.file, s.category, s.doc_type, s.date, c.place, s.chunks, c.text, c.header, c.tokens
FROM chunks AS c JOIN sources AS s ON s.id = c.source_id
WHERE c.id IN (SELECT value FROM json_each(?));

-- name: source_digests
SELECT file, digest FROM sources ORDER BY file;

-- name: find_source
SELECT id FROM sources WHERE file = ?;

-- name: find_sources
SELECT s.id, c.id
FROM sources AS s LEFT JOIN chunks AS c ON c.source_id = s.id
WHERE s.file IN (SELECT value FROM json_each(?))
ORDER BY s.id;

-- name: save_source
-- ?4 and ?6 are keys of category and type, which PostgreSQL filters by.
INSERT OR REPLACE INTO sources
  (id, file, category, doc_type, title, date, digest, size_bytes, chunks, tokens, ingested)
VALUES (?1, ?2, ?3, ?5, ?7, ?8, ?9, ?10, ?11, ?12, ?13);

-- name: delete_sources
DELETE FROM sources WHERE id IN (SELECT value FROM json_each(?));

-- name: chunk_digests
SELECT id, digest FROM chunks WHERE source_id = ? ORDER BY place;

-- name: move_chunks
UPDATE chunks SET place = ?, tokens = ? WHERE id = ?;

-- name: chunks_without_vector
SELECT id, header, text FROM waiting JOIN chunks ON id = chunk_id ORDER BY chunk_id LIMIT ?;

-- name: statistics
-- Each chunk has a vector or waits for one. An entity counts its own mentions, of which there are many more.
SELECT
  (SELECT count(*) FROM sources),
  coalesce((SELECT value FROM meta WHERE key = 'chunks'), 0),
  coalesce((SELECT value FROM meta WHERE key = 'chunks'), 0) - (SELECT count(*) FROM waiting),
  coalesce((SELECT value FROM meta WHERE key = 'model'), ''),
  (SELECT coalesce(sum(tokens), 0) FROM sources),
  (SELECT coalesce(sum(mentions), 0) FROM entities),
  (SELECT coalesce(min(date), '') FROM sources WHERE date <> ''),
  (SELECT coalesce(max(date), '') FROM sources),
  coalesce((SELECT value FROM meta WHERE key = 'revision'), 0),
  (SELECT page_count * page_size FROM pragma_page_count, pragma_page_size);

-- name: count_entity_types
SELECT type, count(*) FROM entities GROUP BY type ORDER BY type;

-- name: count_relationship_types
SELECT type, count(*) FROM relationships GROUP BY type ORDER BY type;

-- name: count_categories
SELECT category, count(*) FROM sources GROUP BY category ORDER BY category;

-- name: count_doc_types
SELECT doc_type, count(*) FROM sources GROUP BY doc_type ORDER BY doc_type;

-- name: entities_by_id
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM entities
WHERE id IN (SELECT value FROM json_each(?));

-- name: entities_by_key
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM entities
WHERE id IN (SELECT entity_id FROM names WHERE key IN (SELECT value FROM json_each(?)))
ORDER BY id;

-- name: entity_ids
SELECT id FROM entities ORDER BY id;

-- name: list_names
SELECT id, type, name, aliases FROM entities ORDER BY id;

-- name: save_entities
INSERT INTO entities
  (id, type, name, aliases, confidence, mentions, attributes, external_id, imported, updated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
  type = excluded.type, name = excluded.name, aliases = excluded.aliases,
  confidence = excluded.confidence, mentions = excluded.mentions, attributes = excluded.attributes,
  external_id = excluded.external_id, imported = excluded.imported, updated = excluded.updated;

-- name: toggle_imported
UPDATE entities SET imported = 1 - imported WHERE id IN (SELECT value FROM json_each(?));

-- name: delete_entities
DELETE FROM entities WHERE id IN (SELECT value FROM json_each(?));

-- name: delete_names
DELETE FROM names WHERE entity_id IN (SELECT value FROM json_each(?));

-- name: insert_names
INSERT INTO names (key, entity_id) VALUES (?, ?);

-- name: mentions_of_chunks
SELECT chunk_id, entity_id, start, stop, confidence
FROM mentions
WHERE chunk_id IN (SELECT value FROM json_each(?));

-- name: insert_mentions
INSERT INTO mentions (chunk_id, entity_id, start, stop, confidence) VALUES (?, ?, ?, ?, ?);

-- name: delete_mentions
DELETE FROM mentions WHERE chunk_id = ? AND entity_id = ? AND start = ? AND stop = ?;

-- name: delete_mentions_of_entities
DELETE FROM mentions WHERE entity_id IN (SELECT value FROM json_each(?));

-- name: mentioned_entities
SELECT DISTINCT chunk_id, entity_id FROM mentions WHERE chunk_id IN (SELECT value FROM json_each(?));

-- name: chunks_mentioning
SELECT DISTINCT chunk_id FROM mentions WHERE entity_id = ? ORDER BY chunk_id LIMIT ?;

-- name: relationships_by_id
SELECT id, source_id, target_id, type, confidence, attributes, updated
FROM relationships
WHERE id IN (SELECT value FROM json_each(?));

-- name: find_relationships
SELECT source_id, target_id, type, id
FROM relationships
WHERE source_id = ? AND target_id = ? AND type = ?;

-- name: insert_relationships
INSERT INTO relationships (id, source_id, target_id, type, confidence, attributes, updated)
VALUES (?, ?, ?, ?, 0, '{}', ?);

-- name: update_relationships
UPDATE relationships SET confidence = ?, attributes = ?, updated = ? WHERE id = ?;

-- name: delete_relationships
DELETE FROM relationships WHERE id IN (SELECT value FROM json_each(?));

-- name: edges
SELECT id, source_id, target_id, type, confidence
FROM relationships
WHERE source_id IN (SELECT value FROM json_each(?))
UNION
SELECT id, source_id, target_id, type, confidence
FROM relationships
WHERE target_id IN (SELECT value FROM json_each(?))
ORDER BY id;

-- name: neighbours
SELECT id, type, name, confidence, mentions, updated
FROM entities
WHERE id IN (
    SELECT target_id FROM relationships WHERE source_id = ?
    UNION SELECT source_id FROM relationships WHERE target_id = ?
  ) AND id <> ?
ORDER BY id;

-- name: neighbour_changes
SELECT updated FROM relationships WHERE source_id = ?
UNION SELECT updated FROM relationships WHERE target_id = ?;

-- name: entity_claims_by_owner
SELECT number, entity_id, said FROM entity_claims WHERE document = ? AND origin = ? ORDER BY number;

-- name: entity_claims_by_id
SELECT entity_id, said, document = 0
FROM entity_claims
WHERE entity_id IN (SELECT value FROM json_each(?))
ORDER BY document > 0, origin, number;

-- name: insert_entity_claims
INSERT INTO entity_claims (entity_id, document, origin, said) VALUES (?, ?, ?, ?);

-- name: delete_entity_claims
DELETE FROM entity_claims WHERE number IN (SELECT value FROM json_each(?));

-- name: relationship_claims_by_owner
SELECT number, relationship_id, said
FROM relationship_claims
WHERE document = ? AND origin = ?
ORDER BY number;

-- name: relationship_claims_by_id
SELECT relationship_id, said, document = 0
FROM relationship_claims
WHERE relationship_id IN (SELECT value FROM json_each(?))
ORDER BY document > 0, origin, number;

-- name: insert_relationship_claims
INSERT INTO relationship_claims (relationship_id, document, origin, said) VALUES (?, ?, ?, ?);

-- name: delete_relationship_claims
DELETE FROM relationship_claims WHERE number IN (SELECT value FROM json_each(?));

-- name: delete_claims_of_relationships
DELETE FROM relationship_claims WHERE relationship_id IN (SELECT value FROM json_each(?));

-- name: imported_entity_claims
SELECT entity_id, said FROM entity_claims WHERE document = 0 ORDER BY origin, number;

-- name: imported_relationship_claims
SELECT id, source_id, target_id, type, said
FROM relationship_claims JOIN relationships ON id = relationship_id
WHERE document = 0
ORDER BY origin, number;

-- name: graph_origins
SELECT origin FROM entity_claims WHERE document = 0
UNION SELECT origin FROM relationship_claims WHERE document = 0
ORDER BY origin;

-- name: all_sources
SELECT id, file, category, doc_type, title, date, digest, size_bytes, chunks, ingested
FROM sources
ORDER BY id;

-- name: all_chunks
SELECT c.id, c.source_id, s.file, s.category, s.doc_type, s.date, c.place, s.chunks, c.text, c.header, c.tokens
FROM chunks AS c JOIN sources AS s ON s.id = c.source_id
ORDER BY c.id;

-- name: all_entities
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM entities
ORDER BY id;

-- name: all_relationships
SELECT id, source_id, target_id, type, confidence, attributes, updated FROM relationships ORDER BY id;

-- name: all_mentions
-- CROSS JOIN fixes the order of the tables, so that mentions are read by their own key without a sort.
SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence
FROM mentions AS m CROSS JOIN entities AS e ON e.id = m.entity_id
ORDER BY m.chunk_id, m.entity_id, m.start, m.stop;

-- name: postings
SELECT stem, block, entries FROM postings WHERE stem = ? ORDER BY block;

-- name: posting_sizes
SELECT stem, sum(length(entries)) FROM postings WHERE stem IN (SELECT value FROM json_each(?)) GROUP BY stem;

-- name: find_postings
SELECT stem, block, entries FROM postings WHERE stem = ? AND block = ?;

-- name: save_postings
INSERT OR REPLACE INTO postings VALUES (?, ?, ?);

-- name: delete_postings
DELETE FROM postings WHERE stem = ? AND block = ?;

-- name: chunk_texts
SELECT id, header, text FROM chunks WHERE id BETWEEN ? AND ?;
