"""The rows of the ledger: their table, and what is read from it and written to it in one step."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from headgate.delivery.ledger import Intent, Operation, Outcome, State
from headgate.domain.care import ToolClass

TABLES: Final = (
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

# In the order of the fields of `Operation`.
_COLUMNS = """
  op_id, tenant, principal, key, fingerprint, server, tool, public_name, kind, state, fence, attempts,
  created, updated, lease_until, owner, arguments, transaction_id, error_code, error, resolved_by, answered,
  doubted
"""


def insert(connection: sqlite3.Connection, intent: Intent, owner: str, now: float) -> Operation | None:
    """Record a new INTENT; None when its key is taken."""
    added = connection.execute(
        """
        INSERT INTO operations
          (op_id, tenant, principal, key, fingerprint, server, tool, public_name, kind, state, fence,
           created, updated, lease_until, owner, transaction_id, arguments)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'intent', 1, ?10, ?10, ?11, ?12, ?13, ?14)
        ON CONFLICT (tenant, principal, key) DO NOTHING
        """,
        (
            intent.op_id,
            intent.tenant,
            intent.principal,
            intent.key,
            intent.fingerprint,
            intent.server,
            intent.tool,
            intent.public_name,
            intent.kind.value,
            now,
            intent.lease_until,
            owner,
            intent.transaction,
            intent.arguments,
        ),
    )
    return _first(intent, owner, now) if added.rowcount == 1 else None


def _first(intent: Intent, owner: str, now: float) -> Operation:
    return Operation(
        op_id=intent.op_id,
        tenant=intent.tenant,
        principal=intent.principal,
        key=intent.key,
        fingerprint=intent.fingerprint,
        server=intent.server,
        tool=intent.tool,
        public_name=intent.public_name,
        kind=intent.kind,
        state=State.INTENT,
        fence=1,
        attempts=0,
        created=now,
        updated=now,
        lease_until=intent.lease_until,
        owner=owner,
        arguments=intent.arguments,
        transaction=intent.transaction,
    )


def grant(connection: sqlite3.Connection, known: Operation, intent: Intent, owner: str, now: float) -> None:
    """Make a known operation an INTENT again, without what it was answered before."""
    connection.execute(
        """
        UPDATE operations SET
          state = 'intent', fence = fence + 1, public_name = ?2, kind = ?3, updated = ?4, lease_until = ?5,
          owner = ?6, transaction_id = ?7, arguments = ?8, error_code = '', error = '', resolved_by = '',
          answered = 0, typed = 0, body = '', body_size = 0, answer_error = x'', result = x'',
          doubted = doubted OR state IN ('intent', 'in_doubt')
        WHERE op_id = ?1
        """,
        (
            known.op_id,
            intent.public_name,
            intent.kind.value,
            now,
            intent.lease_until,
            owner,
            intent.transaction,
            intent.arguments,
        ),
    )


def hold(connection: sqlite3.Connection, op_id: str, lease_until: float, owner: str, now: float) -> None:
    """Give an INTENT to another owner."""
    connection.execute(
        """
        UPDATE operations SET fence = fence + 1, lease_until = ?2, owner = ?3, updated = ?4, doubted = 1
        WHERE op_id = ?1
        """,
        (op_id, lease_until, owner, now),
    )


def doubt(connection: sqlite3.Connection, op_id: str, reason: str, now: float) -> None:
    """Write down that nobody knows what became of an INTENT; whoever holds it may still tell."""
    connection.execute(
        "UPDATE operations SET state = 'in_doubt', error = ?2, updated = ?3 WHERE op_id = ?1",
        (op_id, reason, now),
    )


def finish(
    connection: sqlite3.Connection,
    op_id: str,
    fence: int,
    outcome: Outcome,
    body: tuple[str, int],
    now: float,
) -> bool:
    """Record how it ended; False when the fence is old or there is nothing to end. `body` has its result."""
    answer = outcome.answer
    inline = answer.result if answer is not None and not body[0] and isinstance(answer.result, bytes) else b""
    ended = connection.execute(
        """
        UPDATE operations SET
          state = ?3, attempts = ?4, updated = ?5, error_code = ?6, error = ?7, resolved_by = ?8,
          answered = ?9, typed = ?10, body = ?11, body_size = ?12, answer_error = ?13, result = ?14,
          arguments = CASE WHEN ?3 IN ('done', 'failed') THEN x'' ELSE arguments END,
          doubted = doubted AND ?3 <> 'failed'
        WHERE op_id = ?1 AND fence = ?2
          AND (state = 'intent' OR (state = 'in_doubt' AND ?3 IN ('done', 'failed')))
        """,
        (
            op_id,
            fence,
            outcome.state.value,
            outcome.attempts,
            now,
            _whole(outcome.error_code),
            _whole(outcome.error),
            outcome.resolved_by,
            answer is not None,
            answer is not None and answer.typed,
            *body,
            answer.error if answer is not None else b"",
            inline,
        ),
    )
    return ended.rowcount == 1


def _whole(text: str) -> str:
    # What a server said may hold half a character, which SQLite refuses.
    return text.encode("utf-8", "backslashreplace").decode()


def under_key(connection: sqlite3.Connection, intent: Intent) -> Operation:
    """The operation that has the key."""
    found = find_key(connection, (intent.tenant, intent.principal, intent.key))
    assert found is not None
    return found


def find(connection: sqlite3.Connection, op_id: str) -> Operation | None:
    """The operation of that id."""
    return next(_selected(connection, "WHERE op_id = ?", (op_id,)), None)


def find_key(connection: sqlite3.Connection, place: tuple[str, str, str]) -> Operation | None:
    """The operation of that tenant and principal under that key."""
    where = "WHERE tenant = ? AND principal = ? AND key = ?"
    return next(_selected(connection, where, place), None)


def under_keys(connection: sqlite3.Connection, place: tuple[str, str, str]) -> list[Operation]:
    """Those of that tenant and principal whose keys begin so."""
    tenant, principal, beginning = place
    # A range, so that the index of keys is used: nothing that begins so comes after its last letter raised.
    end = beginning[:-1] + chr(ord(beginning[-1]) + 1)
    where = "WHERE tenant = ? AND principal = ? AND key >= ? AND key < ? ORDER BY key"
    return list(_selected(connection, where, (tenant, principal, beginning, end)))


def in_states(connection: sqlite3.Connection, states: Iterable[State], limit: int = -1) -> list[Operation]:
    """Those in one of the states, oldest first; a negative limit is none."""
    names = [state.value for state in states]
    where = f"WHERE state IN ({', '.join('?' * len(names))}) ORDER BY created, number LIMIT ?"
    return list(_selected(connection, where, (*names, limit)))


def _selected(connection: sqlite3.Connection, where: str, values: tuple[object, ...]) -> Iterator[Operation]:
    for row in connection.execute(f"SELECT {_COLUMNS} FROM operations {where}", values):
        said = dict(zip(Operation.__struct_fields__, row, strict=True))
        said["kind"] = ToolClass(said["kind"])
        said["state"] = State(said["state"])
        said["answered"] = bool(said["answered"])
        said["doubted"] = bool(said["doubted"])
        yield Operation(**said)


def counted(connection: sqlite3.Connection) -> dict[State, int]:
    """How many there are in each state."""
    found = dict(connection.execute("SELECT state, count(*) FROM operations GROUP BY state"))
    return {state: found.get(state.value, 0) for state in State}


def answer(connection: sqlite3.Connection, op_id: str) -> tuple[bytes, bytes, bool, str, int] | None:
    """The result, the error, whether it is typed, and the name and size of the file with the result."""
    found = connection.execute(
        """
        SELECT result, answer_error, typed, body, body_size FROM operations WHERE op_id = ? AND answered
        """,
        (op_id,),
    ).fetchone()
    return (found[0], found[1], bool(found[2]), found[3], found[4]) if found is not None else None


def body_of(connection: sqlite3.Connection, op_id: str) -> str:
    """The name of the file with its result; empty when there is none."""
    found = connection.execute("SELECT body FROM operations WHERE op_id = ?", (op_id,)).fetchone()
    return found[0] if found is not None else ""


def forget(connection: sqlite3.Connection, op_id: str) -> None:
    """Remove an operation."""
    connection.execute("DELETE FROM operations WHERE op_id = ?", (op_id,))


def forget_ended(
    connection: sqlite3.Connection, ended_before: float, doubted_before: float, most: int
) -> int:
    """Remove what ended, or came to be in doubt, before then: how many they were, at most so many at once."""
    removed = connection.execute(
        """
        DELETE FROM operations WHERE number IN (
          SELECT number FROM operations
          WHERE (state IN ('done', 'failed', 'asked') AND updated < ?1)
             OR (state = 'in_doubt' AND updated < ?2)
          LIMIT ?3
        )
        """,
        (ended_before, doubted_before, most),
    )
    return removed.rowcount


def needed(connection: sqlite3.Connection, body: str, op_id: str, fence: int) -> bool:
    """Whether an operation names the file, or may yet: whoever has its fence may be about to end it."""
    found = connection.execute(
        """
        SELECT 1 FROM operations
        WHERE op_id = ? AND (body = ? OR (fence = ? AND state IN ('intent', 'in_doubt')))
        """,
        (op_id, body, fence),
    )
    return found.fetchone() is not None
