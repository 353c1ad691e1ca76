"""The transactions in ledger.db: each with its steps and its history, beside the calls that these are."""

import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import msgspec

from headgate.delivery.transactions.plan import OnFailure, Phase, Remedy, StepState
from headgate.delivery.transactions.record import Event, HandedOver, Heading, Place, Step, Transaction
from headgate.storage.committing import Committer
from headgate.storage.presence import Presence

T = TypeVar("T")

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

WINDOW_SECONDS = 24 * 3600.0
# So many go at once, so that calls do not wait for a long removal.
_SWEPT_AT_ONCE = 200
_AT = "tenant = ? AND principal = ? AND id = ?"
# What is read of a transaction beside its place.
_COLUMNS = "number, phase, on_failure, timed_out, reason, created, updated, deadline, revision"
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

        def load(connection: sqlite3.Connection) -> Transaction | None:
            found = connection.execute(f"SELECT {_COLUMNS} FROM transactions WHERE {_AT}", place).fetchone()
            return self._read(connection, place, found) if found is not None else None

        return await self._committer.read(lambda connection: _in_one_view(connection, load))

    def _read(
        self,
        connection: sqlite3.Connection,
        place: Place,
        found: tuple[Any, ...],
        *,
        with_history: bool = True,
    ) -> Transaction:
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
            history=_history(connection, number) if with_history else (),
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
        return owner not in ("", self._presence.id) and self._presence.is_there(owner)

    async def save(self, transaction: Transaction, event: Event, step: Step | None) -> bool:
        """Record a change, an event and a step that is new or changed; False when the revision is old."""
        return await self._committer.do(lambda connection: self._save(connection, transaction, event, step))

    def _save(
        self, connection: sqlite3.Connection, changed: Transaction, event: Event, step: Step | None
    ) -> bool:
        number = _update(connection, changed, self._presence.enter())
        if number is None:
            return False
        _add_event(connection, number, event)
        if step is not None:
            self._put(connection, number, step)
        return True

    def _put(self, connection: sqlite3.Connection, whose: int, step: Step) -> None:
        said = msgspec.structs.asdict(step) | {"error": _whole(step.error)}
        values = [getattr(said[field], "value", said[field]) for field in _FIELDS]
        marks = ", ".join("?" * (len(values) + 2))
        connection.execute(
            f"INSERT OR REPLACE INTO steps (whose, owner, {', '.join(_FIELDS)}) VALUES ({marks})",
            (whose, self._presence.id, *values),
        )

    async def decide(self, transaction: Transaction, event: Event, steps: Sequence[Step]) -> bool:
        """Record a decision of an operator with all steps that it changes; False when the revision is old.

        No process owns the transaction then, so that any gateway may continue its rollback.
        """

        def decide(connection: sqlite3.Connection) -> bool:
            number = _update(connection, transaction, "")
            if number is None:
                return False
            _add_event(connection, number, event)
            for step in steps:
                self._put(connection, number, step)
            return True

        return await self._committer.do(decide)

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

    async def handed_over(self) -> list[HandedOver]:
        """The rollbacks that an operator lets continue and no gateway has taken over, oldest first."""
        return await self._committer.read(_handed_over)

    async def operation(self, place: Place, key: str) -> str | None:
        """The op_id that the ledger has under a key of the transaction's owner."""

        def find(connection: sqlite3.Connection) -> str | None:
            found = connection.execute(
                "SELECT op_id FROM operations WHERE tenant = ? AND principal = ? AND key = ?",
                (place.tenant, place.principal, key),
            ).fetchone()
            return found[0] if found is not None else None

        return await self._committer.read(find)

    async def places(self, beginning: str, limit: int) -> list[Place]:
        """Whose transactions have this id; if there is none, those whose ids begin with it, oldest first."""

        def find(connection: sqlite3.Connection) -> list[Place]:
            for where in ("id = ?1", "substr(id, 1, length(?1)) = ?1"):
                rows = connection.execute(
                    f"SELECT tenant, principal, id FROM transactions WHERE {where} ORDER BY number LIMIT ?2",
                    (beginning, limit),
                ).fetchall()
                if rows:
                    return [Place(*row) for row in rows]
            return []

        return await self._committer.read(find)

    async def listed(self, phases: Collection[Phase], limit: int) -> list[Transaction]:
        """Transactions in one of the phases, without their history, oldest first."""

        def find(connection: sqlite3.Connection) -> list[Transaction]:
            marks = ", ".join("?" * len(phases))
            rows = connection.execute(
                f"""
                SELECT tenant, principal, id, {_COLUMNS} FROM transactions
                WHERE phase IN ({marks}) ORDER BY number LIMIT ?
                """,
                (*(phase.value for phase in phases), limit),
            ).fetchall()
            return [self._read(connection, Place(*row[:3]), row[3:], with_history=False) for row in rows]

        return await self._committer.read(lambda connection: _in_one_view(connection, find))

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
            WHERE phase IN ('done', 'compensated', 'left') AND updated < ? LIMIT ?
            """,
            (self._now() - self._window_seconds, _SWEPT_AT_ONCE),
        ).fetchall()
        for table, column in (("steps", "whose"), ("history", "whose"), ("transactions", "number")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ended)
        return len(ended)


def _in_one_view(connection: sqlite3.Connection, read: Callable[[sqlite3.Connection], T]) -> T:
    """What `read` finds: a change between two of its queries would give a transaction that never was."""
    connection.execute("BEGIN")
    try:
        return read(connection)
    finally:
        connection.execute("COMMIT")


def _history(connection: sqlite3.Connection, whose: int) -> tuple[Event, ...]:
    rows = connection.execute("SELECT at, text FROM history WHERE whose = ? ORDER BY number", (whose,))
    return tuple(Event(at, text) for at, text in rows)


def _handed_over(connection: sqlite3.Connection) -> list[HandedOver]:
    rows = connection.execute(
        """
        SELECT tenant, principal, id, revision FROM transactions
        WHERE phase = 'compensating' AND owner = '' ORDER BY number
        """
    )
    return [HandedOver(Place(*place), revision) for *place, revision in rows]


def _update(connection: sqlite3.Connection, changed: Transaction, owner: str) -> int | None:
    """Change the row of a transaction, and return its number; None when its revision is another by now."""
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
            owner,
            *changed.place,
            changed.revision,
        ),
    ).fetchone()
    return found[0] if found is not None else None


def _add_event(connection: sqlite3.Connection, whose: int | None, event: Event) -> None:
    connection.execute(
        "INSERT INTO history (whose, at, text) VALUES (?, ?, ?)", (whose, event.at, _whole(event.text))
    )


def _whole(text: str) -> str:
    # What a server said may hold half a character, which SQLite refuses.
    return text.encode("utf-8", "backslashreplace").decode()
