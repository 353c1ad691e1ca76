-- Documents in chunks with their full-text and vector indexes, and the graph of entities.
--
-- Text is compared byte by byte, as SQLite does. Columns that may be long have a hash index, which has no limit
-- on their length.

CREATE TABLE knowledge_meta (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  shape integer NOT NULL,
  revision bigint NOT NULL DEFAULT 0,
  last_source bigint NOT NULL DEFAULT 0,
  last_chunk bigint NOT NULL DEFAULT 0,
  last_entity bigint NOT NULL DEFAULT 0,
  last_relationship bigint NOT NULL DEFAULT 0,
  chunks bigint NOT NULL DEFAULT 0,
  length bigint NOT NULL DEFAULT 0,
  vectors bigint NOT NULL DEFAULT 0,
  model text NOT NULL DEFAULT '',
  dimensions integer NOT NULL DEFAULT 0,
  words_edition integer NOT NULL DEFAULT 0
);

CREATE TABLE knowledge_sources (
  id bigint PRIMARY KEY,
  file text COLLATE "C" NOT NULL,
  category text NOT NULL,
  category_key text COLLATE "C" NOT NULL,
  doc_type text NOT NULL,
  doc_type_key text COLLATE "C" NOT NULL,
  title text NOT NULL,
  date text COLLATE "C" NOT NULL,
  digest text NOT NULL,
  size_bytes bigint NOT NULL,
  chunks integer NOT NULL,
  tokens bigint NOT NULL,
  ingested double precision NOT NULL
);

CREATE INDEX knowledge_sources_file ON knowledge_sources USING hash (file);

-- `words` are those of header and text with blanks around each of them, `lexemes` the same for the index.
CREATE TABLE knowledge_chunks (
  id bigint PRIMARY KEY,
  source_id bigint NOT NULL,
  place integer NOT NULL,
  header text NOT NULL,
  text text NOT NULL,
  tokens integer NOT NULL,
  digest text NOT NULL,
  words text COLLATE "C" NOT NULL,
  lexemes tsvector NOT NULL
);

CREATE INDEX knowledge_chunks_source ON knowledge_chunks (source_id, place);

CREATE INDEX knowledge_chunks_lexemes ON knowledge_chunks USING gin (lexemes);

-- Apart from the chunks: a vector that comes later would write the chunk and all its indexes once more.
CREATE TABLE knowledge_vectors (
  chunk_id bigint PRIMARY KEY,
  source_id bigint NOT NULL,
  embedding vector NOT NULL
);

CREATE INDEX knowledge_vectors_source ON knowledge_vectors (source_id);

-- Chunks that have no vector yet.
CREATE TABLE knowledge_waiting (chunk_id bigint PRIMARY KEY);

CREATE TABLE knowledge_postings (
  stem text COLLATE "C" NOT NULL,
  block integer NOT NULL,
  entries bytea STORAGE EXTERNAL NOT NULL,
  PRIMARY KEY (stem, block)
);

CREATE TABLE knowledge_entities (
  id bigint PRIMARY KEY,
  type text COLLATE "C" NOT NULL,
  name text NOT NULL,
  aliases text NOT NULL,
  confidence double precision NOT NULL,
  mentions integer NOT NULL,
  attributes text NOT NULL,
  external_id text NOT NULL,
  imported boolean NOT NULL,
  updated double precision NOT NULL
);

CREATE TABLE knowledge_names (
  key text COLLATE "C" NOT NULL,
  entity_id bigint NOT NULL
);

CREATE INDEX knowledge_names_key ON knowledge_names USING hash (key);

CREATE INDEX knowledge_names_entity ON knowledge_names (entity_id);

-- The claims of documents and imports about entities; document is 0 for imports.
CREATE TABLE knowledge_entity_claims (
  number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  entity_id bigint NOT NULL,
  document bigint NOT NULL,
  origin text COLLATE "C" NOT NULL,
  said text NOT NULL
);

CREATE INDEX knowledge_entity_claims_entity ON knowledge_entity_claims (entity_id, number);

CREATE INDEX knowledge_entity_claims_document ON knowledge_entity_claims (document);

CREATE TABLE knowledge_mentions (
  chunk_id bigint,
  entity_id bigint,
  start integer,
  stop integer,
  confidence double precision NOT NULL,
  PRIMARY KEY (chunk_id, entity_id, start, stop)
);

CREATE INDEX knowledge_mentions_entity ON knowledge_mentions (entity_id);

CREATE TABLE knowledge_relationships (
  id bigint PRIMARY KEY,
  source_id bigint NOT NULL,
  target_id bigint NOT NULL,
  type text COLLATE "C" NOT NULL,
  confidence double precision NOT NULL,
  attributes text NOT NULL,
  updated double precision NOT NULL
);

CREATE INDEX knowledge_relationships_source ON knowledge_relationships (source_id, target_id);

CREATE INDEX knowledge_relationships_target ON knowledge_relationships (target_id);

CREATE TABLE knowledge_relationship_claims (
  number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  relationship_id bigint NOT NULL,
  document bigint NOT NULL,
  origin text COLLATE "C" NOT NULL,
  said text NOT NULL
);

CREATE INDEX knowledge_relationship_claims_one ON knowledge_relationship_claims (relationship_id);

CREATE INDEX knowledge_relationship_claims_document ON knowledge_relationship_claims (document);
