"""The transactions in ledger.db: each with its steps and its history, beside the calls that these are."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headgate.delivery.transactions.plan import OnFailure, Phase, Remedy, StepState
from headgate.delivery.transactions.record import Event, Heading, Place, Step, Transaction
from headgate.storage.committing import Committer
from headgate.storage.presence import Presence

TRANSACTION_TABLES: Final = (
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
      -- The gateway that changed it last.
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

WINDOW_SECONDS = 24 * 3600.0
# So many go at once, so that calls do not wait for a long removal.
_SWEPT_AT_ONCE = 200
_AT = "tenant = ? AND principal = ? AND id = ?"
# The columns of a step that are fields of `Step`.
_FIELDS = tuple(field for field in Step.__struct_fields__ if field != "elsewhere")


class TransactionFile:
    """The store that `delivery.transactions.record` describes; `now` is the time of day."""

    def __init__(
        self,
        committer: Committer,
        presence: Presence,
        *,
        window_seconds: float = WINDOW_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """The committer has TRANSACTION_TABLES and those of the ledger."""
        self._committer = committer
        self._presence = presence
        self._window_seconds = window_seconds
        self._now = now

    async def begin(self, transaction: Transaction) -> bool:
        """Record a new one with its history; False when there is one of that place."""
        return await self._committer.do(lambda connection: self._begin(connection, transaction))

    def _begin(self, connection: sqlite3.Connection, new: Transaction) -> bool:
        added = connection.execute(
            """
            INSERT INTO transactions
              (tenant, principal, id, phase, on_failure, timed_out, reason, created, updated, deadline,
               revision, owner)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (tenant, principal, id) DO NOTHING
            """,
            (
                *new.place,
                new.phase.value,
                new.on_failure.value,
                new.timed_out,
                _whole(new.reason),
                new.created,
                new.updated,
                new.deadline,
                new.revision,
                self._presence.enter(),
            ),
        )
        if added.rowcount == 0:
            return False
        for event in new.history:
            _add_event(connection, added.lastrowid, event)
        return True

    async def load(self, place: Place) -> Transaction | None:
        """The transaction with its steps in order and its history."""
        return await self._committer.read(lambda connection: self._load(connection, place))

    def _load(self, connection: sqlite3.Connection, place: Place) -> Transaction | None:
        # In one view of the file: a change between two looks would give a transaction that never was.
        connection.execute("BEGIN")
        try:
            found = connection.execute(
                f"""
                SELECT number, phase, on_failure, timed_out, reason, created, updated, deadline, revision
                FROM transactions WHERE {_AT}
                """,
                place,
            ).fetchone()
            return self._read(connection, place, found) if found is not None else None
        finally:
            connection.execute("COMMIT")

    def _read(self, connection: sqlite3.Connection, place: Place, found: tuple[Any, ...]) -> Transaction:
        number, phase, on_failure, timed_out, reason, created, updated, deadline, revision = found
        return Transaction(
            tenant=place.tenant,
            principal=place.principal,
            id=place.id,
            phase=Phase(phase),
            on_failure=OnFailure(on_failure),
            timed_out=bool(timed_out),
            reason=reason,
            created=created,
            updated=updated,
            deadline=deadline,
            revision=revision,
            steps=self._steps(connection, number),
            history=tuple(
                Event(at, text)
                for at, text in connection.execute(
                    "SELECT at, text FROM history WHERE whose = ? ORDER BY number", (number,)
                )
            ),
        )

    def _steps(self, connection: sqlite3.Connection, whose: int) -> tuple[Step, ...]:
        rows = connection.execute(
            f"SELECT owner, {', '.join(_FIELDS)} FROM steps WHERE whose = ? ORDER BY number", (whose,)
        )
        steps: list[Step] = []
        for owner, *values in rows:
            said = dict(zip(_FIELDS, values, strict=True))
            said["state"] = StepState(said["state"])
            said["remedy"] = Remedy(said["remedy"])
            open_step = said["state"] is StepState.SENT
            steps.append(Step(**said, elsewhere=open_step and self._is_elsewhere(owner)))
        return tuple(steps)

    def _is_elsewhere(self, owner: str) -> bool:
        return owner != self._presence.id and self._presence.is_there(owner)

    async def save(self, transaction: Transaction, event: Event, step: Step | None) -> bool:
        """Record a change, an event and a step that is new or changed; False when the revision is old."""
        return await self._committer.do(lambda connection: self._save(connection, transaction, event, step))

    def _save(
        self, connection: sqlite3.Connection, changed: Transaction, event: Event, step: Step | None
    ) -> bool:
        found = connection.execute(
            f"""
            UPDATE transactions SET
              phase = ?, timed_out = ?, reason = ?, updated = ?, revision = revision + 1, owner = ?
            WHERE {_AT} AND revision = ? RETURNING number
            """,
            (
                changed.phase.value,
                changed.timed_out,
                _whole(changed.reason),
                changed.updated,
                self._presence.enter(),
                *changed.place,
                changed.revision,
            ),
        ).fetchone()
        if found is None:
            return False
        _add_event(connection, found[0], event)
        if step is not None:
            self._put(connection, found[0], step)
        return True

    def _put(self, connection: sqlite3.Connection, whose: int, step: Step) -> None:
        said = msgspec.structs.asdict(step) | {"error": _whole(step.error)}
        values = [getattr(said[field], "value", said[field]) for field in _FIELDS]
        marks = ", ".join("?" * (len(values) + 2))
        connection.execute(
            f"INSERT OR REPLACE INTO steps (whose, owner, {', '.join(_FIELDS)}) VALUES ({marks})",
            (whose, self._presence.id, *values),
        )

    async def unfinished(self) -> list[Heading]:
        """Those that have not ended and that no other gateway is at work on, oldest first."""
        return await self._committer.read(self._unfinished)

    def _unfinished(self, connection: sqlite3.Connection) -> list[Heading]:
        rows = connection.execute(
            """
            SELECT tenant, principal, id, phase, deadline, owner FROM transactions
            WHERE phase IN ('running', 'compensating', 'stuck') ORDER BY number
            """
        )
        return [
            Heading(Place(*place), Phase(phase), deadline)
            for *place, phase, deadline, owner in rows
            if not self._is_elsewhere(owner)
        ]

    async def operation(self, place: Place, key: str) -> str | None:
        """The op_id that the ledger has under a key of the transaction's owner."""

        def find(connection: sqlite3.Connection) -> str | None:
            found = connection.execute(
                "SELECT op_id FROM operations WHERE tenant = ? AND principal = ? AND key = ?",
                (place.tenant, place.principal, key),
            ).fetchone()
            return found[0] if found is not None else None

        return await self._committer.read(find)

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase."""

        def count(connection: sqlite3.Connection) -> dict[Phase, int]:
            found = dict(connection.execute("SELECT phase, count(*) FROM transactions GROUP BY phase"))
            return {phase: found.get(phase.value, 0) for phase in Phase}

        return await self._committer.read(count)

    async def sweep(self) -> int:
        """Forget those that ended and are past the window; never one that is stuck."""
        forgotten = 0
        while removed := await self._committer.do(self._forget):
            forgotten += removed
        return forgotten

    def _forget(self, connection: sqlite3.Connection) -> int:
        ended = connection.execute(
            """
            SELECT number FROM transactions
            WHERE phase IN ('done', 'compensated') AND updated < ? LIMIT ?
            """,
            (self._now() - self._window_seconds, _SWEPT_AT_ONCE),
        ).fetchall()
        for table, column in (("steps", "whose"), ("history", "whose"), ("transactions", "number")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ended)
        return len(ended)


def _add_event(connection: sqlite3.Connection, whose: int | None, event: Event) -> None:
    connection.execute(
        "INSERT INTO history (whose, at, text) VALUES (?, ?, ?)", (whose, event.at, _whole(event.text))
    )


def _whole(text: str) -> str:
    # What a server said may hold half a character, which SQLite refuses.
    return text.encode("utf-8", "backslashreplace").decode()
