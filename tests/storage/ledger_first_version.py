"""Ledgers as the first version wrote them: the tables of shape 1, without checksums."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

CALLS: Final = (
    """
    CREATE TABLE IF NOT EXISTS operations (
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
    )
    """,
    "CREATE INDEX IF NOT EXISTS operations_by_state ON operations (state, updated)",
)

TRANSACTIONS: Final = (
    """
    CREATE TABLE IF NOT EXISTS transactions (
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
    )
    """,
    "CREATE INDEX IF NOT EXISTS transactions_by_phase ON transactions (phase, updated)",
    """
    CREATE TABLE IF NOT EXISTS steps (
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
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS history (
      number  INTEGER PRIMARY KEY,
      whose   INTEGER NOT NULL REFERENCES transactions (number),
      at      REAL NOT NULL,
      text    TEXT NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS history_by_transaction ON history (whose, number)",
)


def write_first_shape(path: Path, *, calls: int, transactions: int | None) -> None:
    """A ledger of shape 1 with so many done calls, one that failed, and transactions of two steps each.

    None is a file of which no part ever wrote transactions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as old, old:
        for table in (*CALLS, *(TRANSACTIONS if transactions is not None else ())):
            old.execute(table)
        for number in range(calls + 1):
            state = "done" if number < calls else "failed"
            old.execute(_CALL, (f"{number:032x}", f"order-{number}", state, b'{"paid":%d}' % number))
        for number in range(transactions or 0):
            old.execute(_TRANSACTION, (number + 1, f"t{number}"))
            for step in (1, 2):
                old.execute(_STEP, (number + 1, step))
            old.execute("INSERT INTO history (whose, at, text) VALUES (?, 1.0, 'begun')", (number + 1,))
        old.execute("PRAGMA user_version = 1")
        old.commit()
        old.execute("PRAGMA journal_mode = WAL")


_CALL = """
    INSERT INTO operations (op_id, tenant, principal, key, fingerprint, server, tool, public_name, kind,
      state, fence, attempts, created, updated, lease_until, owner, transaction_id, arguments,
      answered, result)
    VALUES (?1, '', 'local', ?2, x'6f6e652063616c6c', 'bank', 'pay', 'bank__pay', 'unsafe', ?3,
      1, 1, 1800000000.0, 1800000000.5, 1800000060.0, 'gone', '', x'', ?3 = 'done', ?4)
"""
_TRANSACTION = """
    INSERT INTO transactions
    VALUES (?, 'shop', 'ann', ?, 'running', 'rollback', 0, '', 1.0, 2.0, 300.0, 3, '')
"""
_STEP = """
    INSERT INTO steps VALUES (?, ?, '', 'bank_pay', x'7b7d', 'done', 'compensation', '', '', 'op',
      'bank_refund', x'', x'', '', 1, '')
"""
