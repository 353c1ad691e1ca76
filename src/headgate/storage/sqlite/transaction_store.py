"""Transactions in ledger.db: each with its steps and its history."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from sqlite3 import Connection
from typing import Any

import msgspec

from headgate.delivery.ledger import LedgerDamaged
from headgate.delivery.transactions.saga_rules import OnFailure, Phase, Remedy, StepState
from headgate.delivery.transactions.transaction_store import (
    HistoryEvent,
    ResumableRollback,
    StepRecord,
    TransactionKey,
    TransactionRecord,
    TransactionSummary,
)
from headgate.storage.files.ledger_files import ProcessLiveness
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite import ledger_rows as calls
from headgate.storage.sqlite import transaction_rows as rows
from headgate.storage.sqlite.group_commit import GroupCommit, reads, reads_snapshot, writes

WINDOW_SECONDS = 24 * 3600.0
# So many per transaction, so that calls do not wait for long.
_SWEEP_BATCH = 200
_WHERE_KEY = "tenant = ? AND principal = ? AND id = ?"
_SELECT = f"SELECT number, checksum, {rows.COLUMNS} FROM transactions"
_SELECT_UNFINISHED = f"{_SELECT} WHERE phase IN ('running', 'compensating', 'stuck') ORDER BY number"
_SELECT_EXPIRED = f"{_SELECT} WHERE phase IN ('done', 'compensated', 'left') AND updated < ? LIMIT ?"
_SELECT_RESUMABLE = """
    SELECT tenant, principal, id, revision FROM transactions
    WHERE phase = 'compensating' AND owner = '' ORDER BY number
"""
_SELECT_HISTORY = "SELECT at, text FROM history WHERE whose = ? ORDER BY number"
# The columns of a step that are fields of `StepRecord`; they follow the transaction and the owner.
_FIELDS = rows.STEP_FACTS[2:]


class SqliteTransactionStore:
    """Implements `TransactionStore` in the file of the ledger; `now` is the time of day."""

    def __init__(
        self,
        group_commit: GroupCommit,
        liveness: ProcessLiveness,
        *,
        window_seconds: float = WINDOW_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`group_commit` is that of the ledger."""
        self._group_commit = group_commit
        self._liveness = liveness
        self._window_seconds = window_seconds
        self._now = now

    @writes
    def begin(self, connection: Connection, new: TransactionRecord) -> bool:
        number = rows.insert_transaction(connection, None, _facts(new, self._liveness.register()))
        if number is None:
            return False
        for event in new.history:
            _add_event(connection, number, event)
        return True

    @reads_snapshot
    def load(self, connection: Connection, transaction_key: TransactionKey) -> TransactionRecord | None:
        if not keys.contains(connection, keys.hash_of(keys.TRANSACTION, transaction_key)):
            return None
        found = connection.execute(f"{_SELECT} WHERE {_WHERE_KEY}", transaction_key).fetchone()
        if found is None:
            raise LedgerDamaged("the record of a known transaction is missing")
        return self._read(connection, found)

    def _read(
        self, connection: Connection, found: Sequence[Any], *, with_history: bool = True
    ) -> TransactionRecord:
        number, checksum, *facts = found
        calls.check(f"transaction {number}", checksum, facts)
        fields = dict(zip(rows.FACTS, facts, strict=True))
        fields["phase"], fields["on_failure"] = Phase(fields["phase"]), OnFailure(fields["on_failure"])
        fields["timed_out"] = bool(fields["timed_out"])
        fields["steps"] = tuple(
            self._step(owner, values)
            for _, owner, *values in rows.read_steps(connection, number, fields["steps"])
        )
        del fields["owner"]
        history: Iterable[Any] = ()
        if with_history:
            history = connection.execute(_SELECT_HISTORY, (number,))
        return TransactionRecord(**fields, history=tuple(HistoryEvent(at, text) for at, text in history))

    def _step(self, owner: str, values: list[Any]) -> StepRecord:
        fields = dict(zip(_FIELDS, values, strict=True))
        fields["state"], fields["remedy"] = StepState(fields["state"]), Remedy(fields["remedy"])
        elsewhere = fields["state"] is StepState.SENT and self._owner_is_alive(owner)
        return StepRecord(**fields, elsewhere=elsewhere)

    def _owner_is_alive(self, owner: str) -> bool:
        return owner not in ("", self._liveness.id) and self._liveness.is_alive(owner)

    @writes
    def save(
        self, connection: Connection, changed: TransactionRecord, event: HistoryEvent, step: StepRecord | None
    ) -> bool:
        steps = (step,) if step is not None else ()
        return self._save(connection, changed, self._liveness.register(), event, steps)

    @writes
    def save_decision(
        self,
        connection: Connection,
        changed: TransactionRecord,
        event: HistoryEvent,
        steps: Sequence[StepRecord],
    ) -> bool:
        # Without an owner, so that any gateway may continue its rollback.
        return self._save(connection, changed, "", event, steps)

    def _save(
        self,
        connection: Connection,
        changed: TransactionRecord,
        owner: str,
        event: HistoryEvent,
        steps: Sequence[StepRecord],
    ) -> bool:
        number = _update(connection, changed, owner, steps)
        if number is None:
            return False
        _add_event(connection, number, event)
        for step in steps:
            fields = msgspec.structs.asdict(step) | {"error": calls.valid_text(step.error)}
            values = [getattr(fields[field], "value", fields[field]) for field in _FIELDS]
            rows.upsert_step(connection, (number, self._liveness.id, *values))
        return True

    @reads
    def list_unfinished(self, connection: Connection) -> list[TransactionSummary]:
        summaries: list[TransactionSummary] = []
        for number, checksum, *facts in connection.execute(_SELECT_UNFINISHED):
            calls.check(f"transaction {number}", checksum, facts)
            fields = dict(zip(rows.FACTS, facts, strict=True))
            if not self._owner_is_alive(fields["owner"]):
                summaries.append(
                    TransactionSummary(TransactionKey(*facts[:3]), Phase(fields["phase"]), fields["deadline"])
                )
        return summaries

    @reads
    def list_resumable(self, connection: Connection) -> list[ResumableRollback]:
        found = connection.execute(_SELECT_RESUMABLE)
        return [ResumableRollback(TransactionKey(*key), revision) for *key, revision in found]

    @reads_snapshot
    def find_operation_id(
        self, connection: Connection, transaction_key: TransactionKey, key: str
    ) -> str | None:
        found = calls.find_by_key(connection, (transaction_key.tenant, transaction_key.principal, key))
        return found.op_id if found is not None else None

    @reads
    def find_keys(self, connection: Connection, beginning: str, limit: int) -> list[TransactionKey]:
        for where in ("id = ?1", "substr(id, 1, length(?1)) = ?1"):
            found = connection.execute(
                f"SELECT tenant, principal, id FROM transactions WHERE {where} ORDER BY number LIMIT ?2",
                (beginning, limit),
            ).fetchall()
            if found:
                return [TransactionKey(*row) for row in found]
        return []

    @reads_snapshot
    def list_transactions(
        self, connection: Connection, phases: Collection[Phase], limit: int
    ) -> list[TransactionRecord]:
        found = connection.execute(
            f"{_SELECT} WHERE phase IN ({', '.join('?' * len(phases))}) ORDER BY number LIMIT ?",
            (*(phase.value for phase in phases), limit),
        ).fetchall()
        return [self._read(connection, row, with_history=False) for row in found]

    @reads
    def counts(self, connection: Connection) -> dict[Phase, int]:
        found = dict(connection.execute("SELECT phase, count(*) FROM transactions GROUP BY phase"))
        return {phase: found.get(phase.value, 0) for phase in Phase}

    async def sweep(self) -> int:
        forgotten = 0
        while removed := await self._forget():
            forgotten += removed
        return forgotten

    @writes
    def _forget(self, connection: Connection) -> int:
        expired = (self._now() - self._window_seconds, _SWEEP_BATCH)
        found = connection.execute(_SELECT_EXPIRED, expired).fetchall()
        for number, checksum, *facts in found:
            calls.check(f"transaction {number}", checksum, facts)
        ended = [(row[0],) for row in found]
        for table, column in (("steps", "whose"), ("history", "whose"), ("transactions", "number")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ended)
        keys.remove(connection, (keys.hash_of(keys.TRANSACTION, tuple(row[2:5])) for row in found))
        return len(ended)


def _update(
    connection: Connection, changed: TransactionRecord, owner: str, steps: Sequence[StepRecord]
) -> int | None:
    """Change the row of a transaction with new or changed steps: its number; None for an old revision."""
    found = connection.execute(
        f"{_SELECT} WHERE {_WHERE_KEY} AND revision = ?", (*changed.transaction_key, changed.revision)
    ).fetchone()
    if found is None:
        return None
    number, checksum, *old = found
    calls.check(f"transaction {number}", checksum, old)
    facts = _facts(msgspec.structs.replace(changed, revision=changed.revision + 1), owner)
    facts[-1] = max(old[-1], *(step.number for step in steps), 0)
    names = ", ".join(f"{name} = ?" for name in rows.FACTS[3:])
    connection.execute(
        f"UPDATE transactions SET {names}, checksum = ? WHERE number = ?",
        (*facts[3:], calls.checksum_of(facts), number),
    )
    return int(number)


def _facts(fields: TransactionRecord, owner: str) -> list[Any]:
    return [
        *fields.transaction_key,
        fields.phase.value,
        fields.on_failure.value,
        int(fields.timed_out),
        calls.valid_text(fields.reason),
        float(fields.created),
        float(fields.updated),
        float(fields.deadline),
        fields.revision,
        owner,
        len(fields.steps),
    ]


def _add_event(connection: Connection, whose: int | None, event: HistoryEvent) -> None:
    connection.execute(
        "INSERT INTO history (whose, at, text) VALUES (?, ?, ?)",
        (whose, event.at, calls.valid_text(event.text)),
    )
