"""Rescues what can be trusted out of a damaged ledger into a new one; the damaged files are kept aside."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headgate.delivery.ledger import LedgerDamaged, Operation, OperationState
from headgate.domain.errors import StoreFailed
from headgate.domain.regular_file import open_regular
from headgate.storage.files.answer_files import AnswerFiles
from headgate.storage.files.payload_file import sync_directory
from headgate.storage.sqlite import ledger_keys as keys
from headgate.storage.sqlite import ledger_rows as rows
from headgate.storage.sqlite import ledger_schema as schema
from headgate.storage.sqlite import transaction_rows as transactions
from headgate.storage.sqlite.ledger_integrity import LedgerGuard
from headgate.storage.sqlite.ledger_mark import LedgerMark
from headgate.storage.sqlite.page_reader import records
from headgate.storage.sqlite.transaction_rows import RecoveredTransaction, without_lost_sends

# The number, the facts, the checksum, the error and the result.
_COLUMNS: Final = len(rows.FACTS) + 4
_FINAL: Final = (OperationState.DONE, OperationState.DOUBT)
_RECOVERED: Final = "its record may be older than what became of it, because the ledger was damaged"
_MAX_REPORTED: Final = 1000
# What SQLite, its module and the checks raise where the file is damaged.
_UNREADABLE: Final = (sqlite3.Error, LedgerDamaged, UnicodeDecodeError)


class LostCall(msgspec.Struct, frozen=True):
    """A record whose checksum does not hold; each member may be wrong."""

    op_id: str
    key: str
    server: str
    tool: str
    state: str


class LedgerRecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery finds, or has done."""

    kept: int
    # Of those kept, how many are in doubt now because a later record of them may be lost.
    doubted: int
    transactions: int
    # Of these, how many wait for a person.
    stuck_transactions: int
    # Of calls and transactions: known keys of which there is no record any more.
    missing: int
    # Whether some keys cannot even be counted: the known keys are damaged too, or the newest are lost.
    uncounted: bool
    lost: list[LostCall]
    # Of the calls that are kept as done, how many have lost their answer.
    lost_answers: int
    lost_transactions: list[str]

    @property
    def loses_records(self) -> bool:
        """Whether a call or a transaction that was recorded may not be known any more."""
        return bool(self.missing or self.uncounted or self.lost or self.lost_transactions)

    @property
    def loses_nothing(self) -> bool:
        """Whether every call that was ever recorded is kept, with its answer."""
        return not (self.loses_records or self.lost_answers)


class _RecoveredCall(NamedTuple):
    """The record of an operation."""

    facts: Sequence[Any]
    error: bytes
    result: bytes
    # Whether it had an answer, which cannot be read any more.
    lost_answer: bool = False


class _RecoveredLedger(msgspec.Struct):
    """What is read from the damaged files."""

    # The record of each operation, by its id.
    calls: dict[str, _RecoveredCall] = {}
    damaged: dict[str, LostCall] = {}
    transactions: list[RecoveredTransaction] = []
    lost_transactions: list[str] = []
    hashes: set[bytes] = set()
    # Whether it has all known keys, and every commit that was made.
    complete: bool = True


def inspect(path: Path, *, since: float, doubts_since: float) -> LedgerRecoveryReport:
    """What a recovery would keep and lose; raises OSError.

    What ended before `since`, or came to be in doubt before `doubts_since`, counts for nothing.
    """
    return _report(_read(path, since, doubts_since))


def recover(path: Path, *, since: float, doubts_since: float) -> tuple[LedgerRecoveryReport, Path | None]:
    """Put a new ledger with everything that can be trusted in place: what it has, and where the old one is.

    There is no path where no file of the old one was left. Raises OSError or sqlite3.Error; the ledger is as
    it was then, and still refused.
    """
    found = _read(path, since, doubts_since)
    report = _report(found)
    new = path.with_name(f"{path.name}.recovered")
    # Of a recovery that did not come to its end.
    LedgerGuard(new).remove_mark()
    for left in _files(new):
        left.unlink(missing_ok=True)
    identity = _write(new, found)
    aside = _set_aside(path, path.with_name(f"ledger-damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}"))
    new.replace(path)
    sync_directory(path.parent)
    LedgerGuard(path).accept_replacement(identity)
    return report, aside


# What is read.


def _read(path: Path, since: float, doubts_since: float) -> _RecoveredLedger:
    found = _RecoveredLedger(calls={}, damaged={}, transactions=[], lost_transactions=[], hashes=set())
    for _, values in records(path, _COLUMNS):
        _add_record(found, values)
    _drop_expired(found, since, doubts_since)
    _keep_newest_of_each_key(found)
    _check_answer_files(found, AnswerFiles(path.parent / "ledger"))
    for op_id in found.calls:
        found.damaged.pop(op_id, None)
    # After the pages, which SQLite may change when it opens the file: so it gets a copy.
    with _copied_database(path) as copy:
        _read_keys(copy, found)
        _read_transactions(copy, found)
        found.complete = found.complete and _has_every_commit(copy, path)
    if _report(found).loses_records:
        found.transactions = [
            without_lost_sends(kept, stale=not found.complete) for kept in found.transactions
        ]
    return found


def _add_record(found: _RecoveredLedger, values: list[Any]) -> None:
    _, *facts, checksum, error, result = values
    for place in rows.REAL_COLUMN_INDEXES:
        if isinstance(facts[place], int):
            # A whole number takes less space on the disk.
            facts[place] = float(facts[place])
    whole = checksum == rows.checksum_of(facts) and isinstance(error, bytes) and isinstance(result, bytes)
    if not whole:
        lost = _lost_call(facts)
        if lost is not None and len(found.damaged) < _MAX_REPORTED:
            found.damaged[lost.op_id] = lost
        return
    call = _RecoveredCall(facts, error, result)
    operation = rows.operation_of(facts)
    if operation.answered and rows.answer_checksum_of(error, result) != rows.answer_checksum(facts):
        call = _without_answer(call)
    known = found.calls.get(operation.op_id)
    if known is None or _recency(call) > _recency(known):
        found.calls[operation.op_id] = call


def _without_answer(call: _RecoveredCall) -> _RecoveredCall:
    return _RecoveredCall(rows.without_answer(call.facts), b"", b"", lost_answer=True)


def _recency(call: _RecoveredCall) -> tuple[object, ...]:
    """The newest record of an operation: nothing comes after it is done, but that its answer is dropped."""
    operation = rows.operation_of(call.facts)
    dropped = operation.dropped and not call.lost_answer
    ended = operation.state in _FINAL
    return (
        operation.state is OperationState.DONE, operation.fence, operation.updated, ended, dropped,
        not call.lost_answer,
    )  # fmt: skip


def _lost_call(facts: Sequence[Any]) -> LostCall | None:
    said = dict(zip(rows.FACTS, facts, strict=True))
    names = ("op_id", "key", "server", "tool", "state")
    if not all(isinstance(said[name], str) for name in names):
        return None
    return LostCall(**{name: said[name] for name in names})


def _drop_expired(found: _RecoveredLedger, since: float, doubts_since: float) -> None:
    """Leave out what the ledger had forgotten: pages that are free still hold it."""
    for op_id, call in list(found.calls.items()):
        operation = rows.operation_of(call.facts)
        limit = doubts_since if operation.state in (OperationState.DOUBT, OperationState.INTENT) else since
        if operation.updated < limit:
            del found.calls[op_id]


def _keep_newest_of_each_key(found: _RecoveredLedger) -> None:
    newest: dict[keys.OwnedKey, Operation] = {}
    for call in found.calls.values():
        operation, place = rows.operation_of(call.facts), rows.owned_key_of(call.facts)
        if place not in newest or operation.created > newest[place].created:
            newest[place] = operation
    kept = {operation.op_id for operation in newest.values()}
    found.calls = {op_id: call for op_id, call in found.calls.items() if op_id in kept}


def _check_answer_files(found: _RecoveredLedger, bodies: AnswerFiles) -> None:
    """Notice the answers whose files are lost or changed; raises OSError."""
    for op_id, call in found.calls.items():
        stored = rows.stored_of(call.facts)
        if stored.body:
            try:
                bodies.open(*stored).close()
            except StoreFailed:
                found.calls[op_id] = _without_answer(call)


class _copied_database:  # noqa: N801 (used as a function)
    """A connection to a copy of the files, which is removed afterwards; None when SQLite cannot open it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copy = path.with_name(f"{path.name}.copy")
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection | None:
        for source, target in zip(_files(self._path), _files(self._copy), strict=True):
            target.unlink(missing_ok=True)
            if source.exists() and not source.name.endswith("-shm"):
                _copy(source, target)
        if self._copy.exists():
            self._connection = sqlite3.connect(self._copy, isolation_level=None)
        return self._connection

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
        for target in _files(self._copy):
            target.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file for its owner alone: it holds arguments and answers."""
    descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with open_regular(source) as content, open(descriptor, "wb") as copy:
        shutil.copyfileobj(content, copy)


def _read_keys(connection: sqlite3.Connection | None, found: _RecoveredLedger) -> None:
    try:
        if connection is None:
            raise LedgerDamaged("there is no file")
        for hashes in keys.verified_buckets(connection):
            found.hashes.update(keys.split_hashes(hashes))
    except _UNREADABLE:
        found.complete = False


def _read_transactions(connection: sqlite3.Connection | None, found: _RecoveredLedger) -> None:
    if connection is None:
        return
    for number in _numbers(connection):
        try:
            found.transactions.append(_transaction(connection, number))
        except _UNREADABLE:
            found.lost_transactions.append(_transaction_label(connection, number))


def _numbers(connection: sqlite3.Connection) -> Iterator[int]:
    """The numbers of the transactions, as far as any of the trees that have them can be read."""
    seen: set[int] = set()
    for source in ("transactions NOT INDEXED", "transactions INDEXED BY transactions_by_phase", "steps"):
        column = "whose" if source == "steps" else "number"
        with suppress(*_UNREADABLE):
            for (number,) in connection.execute(f"SELECT {column} FROM {source}"):
                if number not in seen:
                    seen.add(number)
                    yield number


def _transaction(connection: sqlite3.Connection, number: int) -> RecoveredTransaction:
    row = connection.execute(
        f"SELECT checksum, {transactions.COLUMNS} FROM transactions WHERE number = ?", (number,)
    ).fetchone()
    if row is None:
        raise LedgerDamaged(f"transaction {number} is missing")
    checksum, *facts = row
    transactions.check(f"transaction {number}", checksum, facts)
    steps = transactions.read_steps(connection, number, facts[-1])
    try:
        history = connection.execute("SELECT whose, at, text FROM history WHERE whose = ?", (number,))
        events = history.fetchall()
    except _UNREADABLE:
        # It explains, and nothing depends on it.
        events = []
    return RecoveredTransaction(number, facts, steps, events)


def _transaction_label(connection: sqlite3.Connection, number: int) -> str:
    with suppress(*_UNREADABLE):
        row = connection.execute("SELECT id FROM transactions WHERE number = ?", (number,)).fetchone()
        if row is not None and isinstance(row[0], str):
            return row[0]
    return f"number {number}"


def _has_every_commit(connection: sqlite3.Connection | None, path: Path) -> bool:
    try:
        mark = LedgerGuard(path).read_mark()
        if connection is None or mark is None:
            return False
        identity = schema.read_identity(connection)
    except _UNREADABLE:
        return False
    return identity.id == mark.id and identity.commits >= mark.commits


# What is written and said.


def _report(found: _RecoveredLedger) -> LedgerRecoveryReport:
    kept = {keys.hash_of(keys.CALL, rows.owned_key_of(call.facts)) for call in found.calls.values()}
    kept |= {_hash_of_transaction(facts) for _, facts, _, _ in found.transactions}
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


def _hash_of_transaction(facts: Sequence[Any]) -> bytes:
    return keys.hash_of(keys.TRANSACTION, (facts[0], facts[1], facts[2]))


def _doubtful(facts: Sequence[Any]) -> bool:
    """Whether a later record of the operation, which is lost, may have said that it was done."""
    return rows.operation_of(facts).state not in _FINAL


def _write(path: Path, found: _RecoveredLedger) -> LedgerMark:
    """Make the new file, durable: which ledger it is."""
    guard = LedgerGuard(path)
    connection = guard.open(schema.LEDGER_MIGRATIONS, busy_seconds=1.0)
    with closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        for call in found.calls.values():
            _insert_call(connection, call)
        for number, facts, steps, events in found.transactions:
            transactions.insert_transaction(connection, number, facts)
            for step in steps:
                transactions.upsert_step(connection, step)
            connection.executemany("INSERT INTO history (whose, at, text) VALUES (?, ?, ?)", events)
        identity = guard.advance(connection)
        connection.execute("COMMIT")
        # So that the new ledger is one file.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    guard.remove_mark()
    return identity


def _insert_call(connection: sqlite3.Connection, call: _RecoveredCall) -> None:
    facts, error, result, _ = call
    if _doubtful(facts):
        facts, error, result = rows.doubtful_facts(facts, _RECOVERED), b"", b""
    keys.add(connection, keys.hash_of(keys.CALL, rows.owned_key_of(facts)))
    rows.insert_row(connection, facts, error, result)


def _set_aside(path: Path, aside: Path) -> Path | None:
    """Give the damaged files another name: the first of them; None where there is none.

    The ledger keeps its own name until the new one takes it.
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
