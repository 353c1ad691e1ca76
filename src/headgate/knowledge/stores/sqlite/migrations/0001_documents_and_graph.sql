-- Documents in chunks with their full-text and vector indexes, and the graph of entities.

-- Counters, and the model that the vectors are of.
CREATE TABLE meta (
  key  TEXT PRIMARY KEY,
  value
) WITHOUT ROWID;

CREATE TABLE sources (
  id          INTEGER PRIMARY KEY,
  file        TEXT NOT NULL UNIQUE,
  category    TEXT NOT NULL,
  doc_type    TEXT NOT NULL,
  title       TEXT NOT NULL,
  date        TEXT NOT NULL,
  digest      TEXT NOT NULL,
  size_bytes  INTEGER NOT NULL,
  chunks      INTEGER NOT NULL,
  tokens      INTEGER NOT NULL,
  ingested    REAL NOT NULL
);

CREATE TABLE chunks (
  id         INTEGER PRIMARY KEY,
  source_id  INTEGER NOT NULL,
  place      INTEGER NOT NULL,
  tokens     INTEGER NOT NULL,
  digest     TEXT NOT NULL,
  header     TEXT NOT NULL,
  text       TEXT NOT NULL
);

CREATE INDEX chunks_of_source ON chunks (source_id, place);

-- The number grows with each vector, so that a process that holds the earlier ones reads only the new.
CREATE TABLE vectors (
  number    INTEGER PRIMARY KEY,
  chunk_id  INTEGER NOT NULL UNIQUE,
  vector    BLOB NOT NULL
);

-- The signs of each vector, which are read into memory.
CREATE TABLE codes (
  number    INTEGER PRIMARY KEY,
  chunk_id  INTEGER NOT NULL,
  code      BLOB NOT NULL
);

-- Chunks that have no vector yet.
CREATE TABLE waiting (
  chunk_id  INTEGER PRIMARY KEY
);

CREATE TABLE postings (
  stem     TEXT NOT NULL,
  block    INTEGER NOT NULL,
  entries  BLOB NOT NULL,
  PRIMARY KEY (stem, block)
) WITHOUT ROWID;

-- Words come cut and in lower case already: this tokenizer leaves everything beyond ASCII as it is.
CREATE VIRTUAL TABLE plain USING fts5(words, content='', columnsize=0, tokenize='ascii');

CREATE TABLE entities (
  id           INTEGER PRIMARY KEY,
  type         TEXT NOT NULL,
  name         TEXT NOT NULL,
  aliases      TEXT NOT NULL,
  confidence   REAL NOT NULL,
  mentions     INTEGER NOT NULL,
  attributes   TEXT NOT NULL,
  external_id  TEXT NOT NULL,
  imported     INTEGER NOT NULL,
  updated      REAL NOT NULL
);

CREATE TABLE names (
  key        TEXT,
  entity_id  INTEGER,
  PRIMARY KEY (key, entity_id)
) WITHOUT ROWID;

CREATE INDEX names_of_entity ON names (entity_id);

-- What a document, or else an import, says of an entity; document is 0 for imports.
CREATE TABLE entity_claims (
  number     INTEGER PRIMARY KEY,
  entity_id  INTEGER NOT NULL,
  document   INTEGER NOT NULL,
  origin     TEXT NOT NULL,
  said       TEXT NOT NULL
);

CREATE INDEX entity_claims_of_entity ON entity_claims (entity_id);

CREATE INDEX entity_claims_of_owner ON entity_claims (document, origin);

CREATE TABLE mentions (
  chunk_id    INTEGER,
  entity_id   INTEGER,
  start       INTEGER,
  stop        INTEGER,
  confidence  REAL NOT NULL,
  PRIMARY KEY (chunk_id, entity_id, start, stop)
) WITHOUT ROWID;

CREATE INDEX mentions_of_entity ON mentions (entity_id);

CREATE TABLE relationships (
  id          INTEGER PRIMARY KEY,
  source_id   INTEGER NOT NULL,
  target_id   INTEGER NOT NULL,
  type        TEXT NOT NULL,
  confidence  REAL NOT NULL,
  attributes  TEXT NOT NULL,
  updated     REAL NOT NULL,
  UNIQUE (source_id, target_id, type)
);

CREATE INDEX relationships_of_target ON relationships (target_id);

CREATE TABLE relationship_claims (
  number           INTEGER PRIMARY KEY,
  relationship_id  INTEGER NOT NULL,
  document         INTEGER NOT NULL,
  origin           TEXT NOT NULL,
  said             TEXT NOT NULL
);

CREATE INDEX relationship_claims_of_one ON relationship_claims (relationship_id);

CREATE INDEX relationship_claims_of_owner ON relationship_claims (document, origin);
