-- Every row gets a checksum, every key a second record, and the file an identity, so that damage is found.

-- A file in which no transaction was ever recorded may lack these tables.
CREATE TABLE IF NOT EXISTS transactions (
  number, tenant, principal, id, phase, on_failure, timed_out, reason, created, updated, deadline, revision,
  owner
);

CREATE TABLE IF NOT EXISTS steps (
  whose, number, owner, tool, arguments, state, remedy, named, client, op_id, undo_tool, undo_template,
  undo_arguments, undo_op_id, undo_round, error
);

DROP INDEX IF EXISTS operations_by_state;

DROP INDEX IF EXISTS transactions_by_phase;

-- So that history goes on to refer to transactions, and not to old_transactions.
PRAGMA legacy_alter_table = ON;

ALTER TABLE operations RENAME TO old_operations;

ALTER TABLE transactions RENAME TO old_transactions;

ALTER TABLE steps RENAME TO old_steps;

PRAGMA legacy_alter_table = OFF;

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
  attempts        INTEGER NOT NULL,
  created         REAL NOT NULL,
  updated         REAL NOT NULL,
  lease_until     REAL NOT NULL,
  owner           TEXT NOT NULL,
  transaction_id  TEXT NOT NULL,
  error_code      TEXT NOT NULL,
  error           TEXT NOT NULL,
  resolved_by     TEXT NOT NULL,
  answered        INTEGER NOT NULL,
  -- Whether the answer was removed to make room.
  dropped         INTEGER NOT NULL,
  doubted         INTEGER NOT NULL,
  typed           INTEGER NOT NULL,
  -- Of a result in a file: its name, size and checksum.
  body            TEXT NOT NULL,
  body_size       INTEGER NOT NULL,
  body_checksum   INTEGER NOT NULL,
  -- Of the last two columns.
  answer_checksum INTEGER NOT NULL,
  arguments       BLOB NOT NULL,
  -- Of all columns before it but the number.
  checksum        INTEGER NOT NULL,
  answer_error    BLOB NOT NULL,
  result          BLOB NOT NULL,
  UNIQUE (tenant, principal, key)
);

CREATE INDEX operations_by_state ON operations (state, updated);

CREATE INDEX operations_by_body ON operations (updated, body_size) WHERE body <> '';

-- The keys of all calls and transactions as hashes; each bucket always exists.
CREATE TABLE key_hashes (
  bucket    INTEGER PRIMARY KEY,
  checksum  INTEGER NOT NULL,
  hashes    BLOB NOT NULL
);

-- Which ledger this is, and how many commits it has.
CREATE TABLE identity (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  id        BLOB NOT NULL,
  commits   INTEGER NOT NULL,
  checksum  INTEGER NOT NULL
);

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
  -- How many steps it has.
  steps       INTEGER NOT NULL,
  checksum    INTEGER NOT NULL,
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
  checksum        INTEGER NOT NULL,
  PRIMARY KEY (whose, number)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS history (
  number  INTEGER PRIMARY KEY,
  whose   INTEGER NOT NULL REFERENCES transactions (number),
  at      REAL NOT NULL,
  text    TEXT NOT NULL
);

CREATE INDEX IF NOT EXISTS history_by_transaction ON history (whose, number);
