-- Gateways with different definitions of a server share the file: each definition (`spec`) has its rows.

-- Not kept: after an update of the gateway every server is listed again.
DROP TABLE servers;

DROP TABLE tools;

DROP TABLE listings;

CREATE TABLE servers (
  name       TEXT NOT NULL,
  spec       TEXT NOT NULL,
  last_used  REAL NOT NULL,
  PRIMARY KEY (name, spec)
);

CREATE TABLE tools (
  id             INTEGER PRIMARY KEY,
  server_name    TEXT NOT NULL,
  spec           TEXT NOT NULL,
  position       INTEGER NOT NULL,
  name           TEXT NOT NULL,
  description    TEXT,
  hash           TEXT NOT NULL,
  approval_hash  TEXT NOT NULL,
  definition     BLOB NOT NULL,
  first_seen     REAL NOT NULL,
  last_seen      REAL NOT NULL,
  UNIQUE (server_name, spec, name)
);

CREATE INDEX idx_tools_hash ON tools(hash);

CREATE TABLE listings (
  server_name  TEXT NOT NULL,
  spec         TEXT NOT NULL,
  kind         TEXT NOT NULL,
  definitions  BLOB NOT NULL,
  places       BLOB NOT NULL,
  ttl_ms       INTEGER NOT NULL,
  public       INTEGER NOT NULL,
  PRIMARY KEY (server_name, spec, kind)
);
