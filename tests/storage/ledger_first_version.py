"""Ledgers as the first version wrote them, without checksums."""

import sqlite3
from contextlib import closing
from pathlib import Path

from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS


def write_first_shape(path: Path, *, calls: int, transactions: int | None) -> None:
    """A ledger of version 1 with so many done calls, one that failed, and transactions of two steps each.

    None is a file of which no part ever wrote transactions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as old, old:
        LEDGER_MIGRATIONS.apply(old, up_to=1)
        if transactions is None:
            for table in ("history", "steps", "transactions"):
                old.execute(f"DROP TABLE {table}")
        for number in range(calls + 1):
            state = "done" if number < calls else "failed"
            old.execute(_CALL, (f"{number:032x}", f"order-{number}", state, b'{"paid":%d}' % number))
        for number in range(transactions or 0):
            old.execute(_TRANSACTION, (number + 1, f"t{number}"))
            for step in (1, 2):
                old.execute(_STEP, (number + 1, step))
            old.execute("INSERT INTO history (whose, at, text) VALUES (?, 1.0, 'begun')", (number + 1,))
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
