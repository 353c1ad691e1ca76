-- What each server listed, how often each tool was called, and the vectors of tool descriptions.

CREATE TABLE servers (
  name  TEXT PRIMARY KEY,
  spec  TEXT NOT NULL
);

CREATE TABLE tools (
  id             INTEGER PRIMARY KEY,
  server_name    TEXT NOT NULL,
  position       INTEGER NOT NULL,
  name           TEXT NOT NULL,
  description    TEXT,
  hash           TEXT NOT NULL,
  approval_hash  TEXT NOT NULL,
  definition     BLOB NOT NULL,
  first_seen     REAL NOT NULL,
  last_seen      REAL NOT NULL,
  calls          INTEGER NOT NULL DEFAULT 0,
  last_called    REAL,
  UNIQUE (server_name, name)
);

CREATE INDEX idx_tools_hash ON tools(hash);

CREATE TABLE listings (
  server_name  TEXT NOT NULL,
  kind         TEXT NOT NULL,
  definitions  BLOB NOT NULL,
  places       BLOB NOT NULL,
  ttl_ms       INTEGER NOT NULL,
  public       INTEGER NOT NULL,
  PRIMARY KEY (server_name, kind)
);

CREATE TABLE vectors (
  hash    TEXT NOT NULL,
  model   TEXT NOT NULL,
  vector  BLOB NOT NULL,
  PRIMARY KEY (hash, model)
) WITHOUT ROWID;
