"""Copies the trustworthy records of a damaged ledger into a new one, and keeps the damaged files."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

import msgspec

from headgate.control.ledger_recovery import LedgerRecoveryReport, LostCall
from headgate.delivery.ledger import LedgerDamaged, Operation, OperationState
from headgate.domain.errors import StoreFailed
from headgate.domain.regular_file import open_regular
from headgate.storage.files.ledger_files import AnswerFiles, LedgerMark
from headgate.storage.files.payload_file import sync_directory
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite import ledger_rows as rows
from headgate.storage.sqlite import transaction_rows as transactions
from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS, LedgerGuard, read_identity
from headgate.storage.sqlite.page_reader import records
from headgate.storage.sqlite.transaction_rows import RecoveredTransaction, without_lost_sends

# Number, facts, checksum, error and result.
_COLUMNS: Final = len(rows.FACTS) + 4
_FINAL: Final = (OperationState.DONE, OperationState.DOUBT)
_RECOVERED: Final = "its record may be older than what became of it, because the ledger was damaged"
_MAX_REPORTED: Final = 1000
# Raised by SQLite, its module and the checks where the file is damaged.
_UNREADABLE: Final = (sqlite3.Error, LedgerDamaged, UnicodeDecodeError)


class _RecoveredCall(NamedTuple):
    facts: Sequence[Any]
    error: bytes
    result: bytes
    # Whether its answer cannot be read any more.
    lost_answer: bool = False


class _RecoveredLedger(msgspec.Struct):
    """Everything read from the damaged files."""

    # The record of each operation, by its id.
    calls: dict[str, _RecoveredCall] = {}
    damaged: dict[str, LostCall] = {}
    transactions: list[RecoveredTransaction] = []
    lost_transactions: list[str] = []
    hashes: set[bytes] = set()
    # Whether all key hashes and commits are there.
    complete: bool = True


def inspect(path: Path, *, since: float, doubts_since: float) -> LedgerRecoveryReport:
    """What a recovery would keep and lose, without what expired by those times; raises OSError."""
    return _report(_read(path, since, doubts_since))


def recover(path: Path, *, since: float, doubts_since: float) -> tuple[LedgerRecoveryReport, Path | None]:
    """Replace the ledger by one with all trustworthy records: a report, and the path of the old ledger.

    The path is None when no file of the old one was left. Raises OSError or sqlite3.Error; the ledger is
    unchanged and still refused then.
    """
    found = _read(path, since, doubts_since)
    report = _report(found)
    new = path.with_name(f"{path.name}.recovered")
    # Left by an interrupted recovery.
    LedgerGuard(new).mark.remove()
    for left in _files(new):
        left.unlink(missing_ok=True)
    identity = _write(new, found)
    aside = _set_aside(path, path.with_name(f"ledger-damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}"))
    new.replace(path)
    sync_directory(path.parent)
    LedgerGuard(path).accept_replacement(identity)
    return report, aside


def _read(path: Path, since: float, doubts_since: float) -> _RecoveredLedger:
    found = _RecoveredLedger(calls={}, damaged={}, transactions=[], lost_transactions=[], hashes=set())
    for _, values in records(path, _COLUMNS):
        _add_record(found, values)
    _drop_expired(found, since, doubts_since)
    _keep_newest_of_each_key(found)
    _check_answer_files(found, AnswerFiles(path.parent / "ledger"))
    for op_id in found.calls:
        found.damaged.pop(op_id, None)
    # SQLite gets a copy, because it may change the file when it opens it.
    with _copied_database(path) as copy:
        try:
            if copy is None:
                raise LedgerDamaged("there is no file")
            for hashes in keys.verified_buckets(copy):
                found.hashes.update(keys.split_hashes(hashes))
        except _UNREADABLE:
            found.complete = False
        _read_transactions(copy, found)
        found.complete = found.complete and _has_every_commit(copy, path)
    if _report(found).loses_records:
        found.transactions = [
            without_lost_sends(kept, stale=not found.complete) for kept in found.transactions
        ]
    return found


def _add_record(found: _RecoveredLedger, values: list[Any]) -> None:
    _, *facts, checksum, error, result = values
    for index in rows.REAL_COLUMN_INDEXES:
        if isinstance(facts[index], int):
            # SQLite stores whole numbers in REAL columns as integers.
            facts[index] = float(facts[index])
    whole = checksum == rows.checksum_of(facts) and isinstance(error, bytes) and isinstance(result, bytes)
    if not whole:
        row = dict(zip(rows.FACTS, facts, strict=True))
        lost = {name: row[name] for name in LostCall.__struct_fields__}
        if all(isinstance(value, str) for value in lost.values()) and len(found.damaged) < _MAX_REPORTED:
            found.damaged[lost["op_id"]] = LostCall(**lost)
        return
    call = _RecoveredCall(facts, error, result)
    operation = rows.operation_of(facts)
    if operation.answered and rows.answer_checksum_of(error, result) != rows.answer_checksum(facts):
        call = _without_answer(call)
    known = found.calls.get(operation.op_id)
    if known is None or _recency(call) > _recency(known):
        found.calls[operation.op_id] = call


def _without_answer(call: _RecoveredCall) -> _RecoveredCall:
    return _RecoveredCall(rows.changed(call.facts, **rows.DROPPED_ANSWER), b"", b"", lost_answer=True)


def _recency(call: _RecoveredCall) -> tuple[object, ...]:
    """The sort key of the records of one operation; after DONE only the answer may be dropped."""
    operation = rows.operation_of(call.facts)
    dropped = operation.dropped and not call.lost_answer
    ended = operation.state in _FINAL
    return (
        operation.state is OperationState.DONE, operation.fence, operation.updated, ended, dropped,
        not call.lost_answer,
    )  # fmt: skip


def _drop_expired(found: _RecoveredLedger, since: float, doubts_since: float) -> None:
    """Remove expired operations, which free pages of the file still hold."""
    for op_id, call in list(found.calls.items()):
        operation = rows.operation_of(call.facts)
        limit = doubts_since if operation.state in (OperationState.DOUBT, OperationState.INTENT) else since
        if operation.updated < limit:
            del found.calls[op_id]


def _keep_newest_of_each_key(found: _RecoveredLedger) -> None:
    newest: dict[keys.OwnedKey, Operation] = {}
    for call in found.calls.values():
        operation, key = rows.operation_of(call.facts), rows.owned_key_of(call.facts)
        if key not in newest or operation.created > newest[key].created:
            newest[key] = operation
    kept = {operation.op_id for operation in newest.values()}
    found.calls = {op_id: call for op_id, call in found.calls.items() if op_id in kept}


def _check_answer_files(found: _RecoveredLedger, bodies: AnswerFiles) -> None:
    """Drop the answers whose files are lost or changed; raises OSError."""
    for op_id, call in found.calls.items():
        stored = rows.stored_of(call.facts)
        if stored.body:
            try:
                bodies.open(*stored).close()
            except StoreFailed:
                found.calls[op_id] = _without_answer(call)


@contextmanager
def _copied_database(path: Path) -> Iterator[Connection | None]:
    """A connection to a temporary copy of the files; None when there is no file."""
    copies = _files(path.with_name(f"{path.name}.copy"))
    for source, target in zip(_files(path), copies, strict=True):
        target.unlink(missing_ok=True)
        if source.exists() and not source.name.endswith("-shm"):
            # Readable by its owner alone, because it holds arguments and answers.
            descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open_regular(source) as content, open(descriptor, "wb") as copy:
                shutil.copyfileobj(content, copy)
    try:
        if copies[0].exists():
            with closing(sqlite3.connect(copies[0], isolation_level=None)) as connection:
                yield connection
        else:
            yield None
    finally:
        for target in copies:
            target.unlink(missing_ok=True)


def _read_transactions(connection: Connection | None, found: _RecoveredLedger) -> None:
    if connection is None:
        return
    for number in _numbers(connection):
        try:
            found.transactions.append(_transaction(connection, number))
        except _UNREADABLE:
            found.lost_transactions.append(_transaction_label(connection, number))


def _numbers(connection: Connection) -> Iterator[int]:
    """The numbers of the transactions in every table and index that can be read."""
    seen: set[int] = set()
    for source in ("transactions NOT INDEXED", "transactions INDEXED BY transactions_by_phase", "steps"):
        column = "whose" if source == "steps" else "number"
        with suppress(*_UNREADABLE):
            for (number,) in connection.execute(f"SELECT {column} FROM {source}"):
                if number not in seen:
                    seen.add(number)
                    yield number


def _transaction(connection: Connection, number: int) -> RecoveredTransaction:
    row = connection.execute(
        f"SELECT checksum, {transactions.COLUMNS} FROM transactions WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        raise LedgerDamaged(f"transaction {number} is missing")
    checksum, *facts = row
    rows.check(f"transaction {number}", checksum, facts)
    steps = transactions.read_steps(connection, number, facts[-1])
    try:
        history = connection.execute("SELECT whose, at, text FROM history WHERE whose = ?", (number,))
        events = history.fetchall()
    except _UNREADABLE:
        # The history is informational.
        events = []
    return RecoveredTransaction(number, facts, steps, events)


def _transaction_label(connection: Connection, number: int) -> str:
    with suppress(*_UNREADABLE):
        row = connection.execute("SELECT id FROM transactions WHERE number = ?", (number,)).fetchone()
        if row is not None and isinstance(row[0], str):
            return row[0]
    return f"number {number}"


def _has_every_commit(connection: Connection | None, path: Path) -> bool:
    try:
        mark = LedgerGuard(path).mark.read()
        if connection is None or mark is None:
            return False
        identity = read_identity(connection)
    except _UNREADABLE:
        return False
    return identity.id == mark.id and identity.commits >= mark.commits


def _report(found: _RecoveredLedger) -> LedgerRecoveryReport:
    kept = {keys.hash_of(keys.CALL, rows.owned_key_of(call.facts)) for call in found.calls.values()}
    kept |= {
        keys.hash_of(keys.TRANSACTION, (facts[0], facts[1], facts[2]))
        for _, facts, _, _ in found.transactions
    }
    return LedgerRecoveryReport(
        kept=len(found.calls),
        doubted=sum(_doubtful(call.facts) for call in found.calls.values()),
        transactions=len(found.transactions),
        stuck_transactions=sum(kept.is_stuck for kept in found.transactions),
        missing=len(found.hashes - kept),
        uncounted=not found.complete,
        lost=list(found.damaged.values()),
        lost_answers=sum(call.lost_answer and not _doubtful(call.facts) for call in found.calls.values()),
        lost_transactions=found.lost_transactions,
    )


def _doubtful(facts: Sequence[Any]) -> bool:
    """Whether a lost later record may have shown the operation as done."""
    return rows.operation_of(facts).state not in _FINAL


def _write(path: Path, found: _RecoveredLedger) -> LedgerMark:
    """Write the new file, durable: its identity."""
    guard = LedgerGuard(path)
    connection = guard.open(LEDGER_MIGRATIONS, busy_seconds=1.0)
    with closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        for call in found.calls.values():
            facts, error, result, _ = call
            if _doubtful(facts):
                state = OperationState.DOUBT.value
                facts = rows.changed(facts, state=state, error=_RECOVERED, **rows.NO_ANSWER)
                error = result = b""
            keys.add(connection, keys.hash_of(keys.CALL, rows.owned_key_of(facts)))
            rows.insert_row(connection, facts, error, result)
        for number, facts, steps, events in found.transactions:
            transactions.insert_transaction(connection, number, facts)
            for step in steps:
                transactions.upsert_step(connection, step)
            connection.executemany("INSERT INTO history (whose, at, text) VALUES (?, ?, ?)", events)
        identity = guard.advance(connection)
        connection.execute("COMMIT")
        # Into the main file, so that the new ledger is one file.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    guard.mark.remove()
    return identity


def _set_aside(path: Path, aside: Path) -> Path | None:
    """Rename the damaged files: the first of them; None where there is none.

    The ledger keeps its own name until the new one replaces it.
    """
    found = [pair for pair in zip(_files(path), _files(aside), strict=True) if pair[0].exists()]
    for source, target in found:
        if source == path:
            os.link(source, target)
        else:
            source.replace(target)
    return found[0][1] if found else None


def _files(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
