-- Recorded calls, and the transactions that they are steps of.

CREATE TABLE operations (
  number          INTEGER PRIMARY KEY,
  op_id           TEXT NOT NULL UNIQUE,
  tenant          TEXT NOT NULL,
  principal       TEXT NOT NULL,
  key             TEXT NOT NULL,
  fingerprint     BLOB NOT NULL,
  server          TEXT NOT NULL,
  tool            TEXT NOT NULL,
  public_name     TEXT NOT NULL,
  kind            TEXT NOT NULL,
  state           TEXT NOT NULL,
  fence           INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  created         REAL NOT NULL,
  updated         REAL NOT NULL,
  lease_until     REAL NOT NULL,
  owner           TEXT NOT NULL,
  transaction_id  TEXT NOT NULL,
  error_code      TEXT NOT NULL DEFAULT '',
  error           TEXT NOT NULL DEFAULT '',
  resolved_by     TEXT NOT NULL DEFAULT '',
  answered        INTEGER NOT NULL DEFAULT 0,
  doubted         INTEGER NOT NULL DEFAULT 0,
  typed           INTEGER NOT NULL DEFAULT 0,
  -- Of a result in a file: its name and size.
  body            TEXT NOT NULL DEFAULT '',
  body_size       INTEGER NOT NULL DEFAULT 0,
  arguments       BLOB NOT NULL,
  answer_error    BLOB NOT NULL DEFAULT x'',
  result          BLOB NOT NULL DEFAULT x'',
  UNIQUE (tenant, principal, key)
);

CREATE INDEX operations_by_state ON operations (state, updated);

CREATE TABLE transactions (
  number      INTEGER PRIMARY KEY,
  tenant      TEXT NOT NULL,
  principal   TEXT NOT NULL,
  id          TEXT NOT NULL,
  phase       TEXT NOT NULL,
  on_failure  TEXT NOT NULL,
  timed_out   INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  created     REAL NOT NULL,
  updated     REAL NOT NULL,
  deadline    REAL NOT NULL,
  revision    INTEGER NOT NULL,
  -- The gateway that changed it last; empty after a decision of an operator.
  owner       TEXT NOT NULL,
  UNIQUE (tenant, principal, id)
);

CREATE INDEX transactions_by_phase ON transactions (phase, updated);

CREATE TABLE steps (
  whose           INTEGER NOT NULL REFERENCES transactions (number),
  number          INTEGER NOT NULL,
  owner           TEXT NOT NULL,
  tool            TEXT NOT NULL,
  arguments       BLOB NOT NULL,
  state           TEXT NOT NULL,
  remedy          TEXT NOT NULL,
  named           TEXT NOT NULL,
  client          TEXT NOT NULL,
  op_id           TEXT NOT NULL,
  undo_tool       TEXT NOT NULL,
  undo_template   BLOB NOT NULL,
  undo_arguments  BLOB NOT NULL,
  undo_op_id      TEXT NOT NULL,
  undo_round      INTEGER NOT NULL,
  error           TEXT NOT NULL,
  PRIMARY KEY (whose, number)
) WITHOUT ROWID;

CREATE TABLE history (
  number  INTEGER PRIMARY KEY,
  whose   INTEGER NOT NULL REFERENCES transactions (number),
  at      REAL NOT NULL,
  text    TEXT NOT NULL
);

CREATE INDEX history_by_transaction ON history (whose, number);
