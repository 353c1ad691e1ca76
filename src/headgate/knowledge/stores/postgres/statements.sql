-- The statements of `knowledge.stores` for PostgreSQL. A list is one array.
-- Statements for rows take one array for each column.

-- name: sources_by_id
SELECT id, file, category, doc_type, title, date, digest, size_bytes, chunks, ingested
FROM knowledge_sources
WHERE id = ANY(%s);

-- name: chunks_by_id
SELECT c.id, c.source_id, s.file, s.category, s.doc_type, s.date, c.place, s.chunks, c.text, c.header, c.tokens
FROM knowledge_chunks AS c JOIN knowledge_sources AS s ON s.id = c.source_id
WHERE c.id = ANY(%s);

-- name: source_digests
SELECT file, digest FROM knowledge_sources ORDER BY file;

-- name: find_source
SELECT id FROM knowledge_sources WHERE file = %s;

-- name: find_sources
SELECT s.id, c.id
FROM knowledge_sources AS s LEFT JOIN knowledge_chunks AS c ON c.source_id = s.id
WHERE s.file = ANY(%s)
ORDER BY s.id;

-- name: save_source
INSERT INTO knowledge_sources
  (id, file, category, category_key, doc_type, doc_type_key, title, date, digest, size_bytes, chunks, tokens,
   ingested)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET
  category = excluded.category, category_key = excluded.category_key, doc_type = excluded.doc_type,
  doc_type_key = excluded.doc_type_key, title = excluded.title, date = excluded.date,
  digest = excluded.digest, size_bytes = excluded.size_bytes, chunks = excluded.chunks,
  tokens = excluded.tokens, ingested = excluded.ingested;

-- name: delete_sources
DELETE FROM knowledge_sources WHERE id = ANY(%s);

-- name: chunk_digests
SELECT id, digest FROM knowledge_chunks WHERE source_id = %s ORDER BY place;

-- name: move_chunks
UPDATE knowledge_chunks AS c SET place = n.place, tokens = n.tokens
FROM unnest(%s::integer[], %s::integer[], %s::bigint[]) AS n (place, tokens, id)
WHERE c.id = n.id AND (c.place, c.tokens) <> (n.place, n.tokens);

-- name: chunks_without_vector
SELECT id, header, text FROM knowledge_waiting JOIN knowledge_chunks ON id = chunk_id ORDER BY chunk_id LIMIT %s;

-- name: statistics
SELECT
  (SELECT count(*) FROM knowledge_sources),
  chunks,
  vectors,
  model,
  (SELECT coalesce(sum(tokens), 0) FROM knowledge_sources),
  (SELECT coalesce(sum(mentions), 0) FROM knowledge_entities),
  (SELECT coalesce(min(date), '') FROM knowledge_sources WHERE date <> ''),
  (SELECT coalesce(max(date), '') FROM knowledge_sources),
  revision,
  (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
   WHERE relkind = 'r' AND starts_with(relname::text, 'knowledge_') AND pg_table_is_visible(oid))
FROM knowledge_meta;

-- name: count_entity_types
SELECT type, count(*) FROM knowledge_entities GROUP BY type ORDER BY type COLLATE "C";

-- name: count_relationship_types
SELECT type, count(*) FROM knowledge_relationships GROUP BY type ORDER BY type COLLATE "C";

-- name: count_categories
SELECT category, count(*) FROM knowledge_sources GROUP BY category ORDER BY category COLLATE "C";

-- name: count_doc_types
SELECT doc_type, count(*) FROM knowledge_sources GROUP BY doc_type ORDER BY doc_type COLLATE "C";

-- name: entities_by_id
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM knowledge_entities
WHERE id = ANY(%s);

-- name: entities_by_key
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM knowledge_entities
WHERE id IN (SELECT entity_id FROM knowledge_names WHERE key = ANY(%s))
ORDER BY id;

-- name: entity_ids
SELECT id FROM knowledge_entities ORDER BY id;

-- name: list_names
SELECT id, type, name, aliases FROM knowledge_entities ORDER BY id;

-- name: save_entities
INSERT INTO knowledge_entities
  (id, type, name, aliases, confidence, mentions, attributes, external_id, imported, updated)
SELECT * FROM unnest(
  %s::bigint[], %s::text[], %s::text[], %s::text[], %s::double precision[], %s::integer[], %s::text[],
  %s::text[], %s::boolean[], %s::double precision[])
ON CONFLICT (id) DO UPDATE SET
  type = excluded.type, name = excluded.name, aliases = excluded.aliases,
  confidence = excluded.confidence, mentions = excluded.mentions, attributes = excluded.attributes,
  external_id = excluded.external_id, imported = excluded.imported, updated = excluded.updated;

-- name: toggle_imported
UPDATE knowledge_entities SET imported = NOT imported WHERE id = ANY(%s);

-- name: delete_entities
DELETE FROM knowledge_entities WHERE id = ANY(%s);

-- name: delete_names
DELETE FROM knowledge_names WHERE entity_id = ANY(%s);

-- name: insert_names
INSERT INTO knowledge_names (key, entity_id) SELECT * FROM unnest(%s::text[], %s::bigint[]);

-- name: mentions_of_chunks
SELECT chunk_id, entity_id, start, stop, confidence
FROM knowledge_mentions
WHERE chunk_id = ANY(%s);

-- name: insert_mentions
INSERT INTO knowledge_mentions (chunk_id, entity_id, start, stop, confidence)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::double precision[]);

-- name: delete_mentions
DELETE FROM knowledge_mentions
WHERE (chunk_id, entity_id, start, stop) IN (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[]));

-- name: delete_mentions_of_entities
DELETE FROM knowledge_mentions WHERE entity_id = ANY(%s);

-- name: mentioned_entities
SELECT DISTINCT chunk_id, entity_id FROM knowledge_mentions WHERE chunk_id = ANY(%s);

-- name: chunks_mentioning
SELECT DISTINCT chunk_id FROM knowledge_mentions WHERE entity_id = %s ORDER BY chunk_id LIMIT %s;

-- name: relationships_by_id
SELECT id, source_id, target_id, type, confidence, attributes, updated
FROM knowledge_relationships
WHERE id = ANY(%s);

-- name: find_relationships
SELECT DISTINCT source_id, target_id, type, id
FROM knowledge_relationships
JOIN unnest(%s::bigint[], %s::bigint[], %s::text[]) AS wanted (source_id, target_id, type)
  USING (source_id, target_id, type);

-- name: insert_relationships
INSERT INTO knowledge_relationships (id, source_id, target_id, type, updated, confidence, attributes)
SELECT *, 0, '{}'
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::double precision[]);

-- name: update_relationships
UPDATE knowledge_relationships AS r
SET confidence = n.confidence, attributes = n.attributes, updated = n.updated
FROM unnest(%s::double precision[], %s::text[], %s::double precision[], %s::bigint[])
  AS n (confidence, attributes, updated, id)
WHERE r.id = n.id;

-- name: delete_relationships
DELETE FROM knowledge_relationships WHERE id = ANY(%s);

-- name: edges
SELECT id, source_id, target_id, type, confidence
FROM knowledge_relationships
WHERE source_id = ANY(%s)
UNION
SELECT id, source_id, target_id, type, confidence
FROM knowledge_relationships
WHERE target_id = ANY(%s)
ORDER BY id;

-- name: neighbours
SELECT id, type, name, confidence, mentions, updated
FROM knowledge_entities
WHERE id IN (
    SELECT target_id FROM knowledge_relationships WHERE source_id = %s
    UNION SELECT source_id FROM knowledge_relationships WHERE target_id = %s
  ) AND id <> %s
ORDER BY id;

-- name: neighbour_changes
SELECT updated FROM knowledge_relationships WHERE source_id = %s
UNION SELECT updated FROM knowledge_relationships WHERE target_id = %s;

-- name: entity_claims_by_owner
SELECT number, entity_id, said FROM knowledge_entity_claims WHERE document = %s AND origin = %s ORDER BY number;

-- name: entity_claims_by_id
SELECT entity_id, said, document = 0
FROM knowledge_entity_claims
WHERE entity_id = ANY(%s)
ORDER BY document > 0, origin, number;

-- name: insert_entity_claims
INSERT INTO knowledge_entity_claims (entity_id, document, origin, said)
SELECT about, document, origin, said
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[])
  WITH ORDINALITY AS new (about, document, origin, said, position)
ORDER BY position;

-- name: delete_entity_claims
DELETE FROM knowledge_entity_claims WHERE number = ANY(%s);

-- name: relationship_claims_by_owner
SELECT number, relationship_id, said
FROM knowledge_relationship_claims
WHERE document = %s AND origin = %s
ORDER BY number;

-- name: relationship_claims_by_id
SELECT relationship_id, said, document = 0
FROM knowledge_relationship_claims
WHERE relationship_id = ANY(%s)
ORDER BY document > 0, origin, number;

-- name: insert_relationship_claims
INSERT INTO knowledge_relationship_claims (relationship_id, document, origin, said)
SELECT about, document, origin, said
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[])
  WITH ORDINALITY AS new (about, document, origin, said, position)
ORDER BY position;

-- name: delete_relationship_claims
DELETE FROM knowledge_relationship_claims WHERE number = ANY(%s);

-- name: delete_claims_of_relationships
DELETE FROM knowledge_relationship_claims WHERE relationship_id = ANY(%s);

-- name: imported_entity_claims
SELECT entity_id, said FROM knowledge_entity_claims WHERE document = 0 ORDER BY origin, number;

-- name: imported_relationship_claims
SELECT id, source_id, target_id, type, said
FROM knowledge_relationship_claims JOIN knowledge_relationships ON id = relationship_id
WHERE document = 0
ORDER BY origin, number;

-- name: graph_origins
SELECT origin FROM knowledge_entity_claims WHERE document = 0
UNION SELECT origin FROM knowledge_relationship_claims WHERE document = 0
ORDER BY origin;

-- name: all_sources
SELECT id, file, category, doc_type, title, date, digest, size_bytes, chunks, ingested
FROM knowledge_sources
ORDER BY id;

-- name: all_chunks
SELECT c.id, c.source_id, s.file, s.category, s.doc_type, s.date, c.place, s.chunks, c.text, c.header, c.tokens
FROM knowledge_chunks AS c JOIN knowledge_sources AS s ON s.id = c.source_id
ORDER BY c.id;

-- name: all_entities
SELECT id, type, name, aliases, confidence, mentions, attributes, external_id, updated, imported
FROM knowledge_entities
ORDER BY id;

-- name: all_relationships
SELECT id, source_id, target_id, type, confidence, attributes, updated FROM knowledge_relationships ORDER BY id;

-- name: all_mentions
SELECT m.chunk_id, m.entity_id, e.name, m.start, m.stop, m.confidence
FROM knowledge_mentions AS m JOIN knowledge_entities AS e ON e.id = m.entity_id
ORDER BY m.chunk_id, m.entity_id, m.start, m.stop;

-- name: postings
SELECT stem, block, entries FROM knowledge_postings WHERE stem = ANY(%s) ORDER BY stem, block;

-- name: posting_sizes
SELECT stem, sum(length(entries)) FROM knowledge_postings WHERE stem = ANY(%s) GROUP BY stem;

-- name: find_postings
SELECT stem, block, entries
FROM knowledge_postings JOIN unnest(%s::text[], %s::integer[]) AS wanted (stem, block) USING (stem, block);

-- name: save_postings
INSERT INTO knowledge_postings (stem, block, entries)
SELECT * FROM unnest(%s::text[], %s::integer[], %b::bytea[])
ON CONFLICT (stem, block) DO UPDATE SET entries = excluded.entries;

-- name: delete_postings
DELETE FROM knowledge_postings USING unnest(%s::text[], %s::integer[]) AS gone (stem, block)
WHERE knowledge_postings.stem = gone.stem AND knowledge_postings.block = gone.block;

-- name: chunk_texts
SELECT id, header, text FROM knowledge_chunks WHERE id BETWEEN %s AND %s;
