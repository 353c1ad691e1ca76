-- Calls are counted in a table of their own, so that the counts survive a listing that drops the tool.

CREATE TABLE calls (
  server_name  TEXT NOT NULL,
  name         TEXT NOT NULL,
  calls        INTEGER NOT NULL,
  last_called  REAL NOT NULL,
  PRIMARY KEY (server_name, name)
) WITHOUT ROWID;

INSERT INTO calls
SELECT server_name, name, calls, coalesce(last_called, last_seen) FROM tools WHERE calls > 0;

-- Not kept: after an update of the gateway every server is listed again.
DROP TABLE tools;

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
  UNIQUE (server_name, name)
);

CREATE INDEX idx_tools_hash ON tools(hash);
