"""Reads and writes the rows of recorded calls.

Each row has a checksum of its facts and one of its answer. A row is verified whenever it is read and before
it is changed, so that a damaged row never gets a new checksum.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

import msgspec

from headgate.delivery.ledger import Intent, LedgerDamaged, Operation, OperationOutcome, OperationState
from headgate.domain.upstream_policy import ToolClass
from headgate.storage.sqlite import ledger_keys as keys

# The columns that the checksum is of, in the order of the table.
FACTS: Final = (
    "op_id", "tenant", "principal", "key", "fingerprint", "server", "tool", "public_name", "kind", "state",
    "fence", "attempts", "created", "updated", "lease_until", "owner", "transaction_id", "error_code",
    "error", "resolved_by", "answered", "dropped", "doubted", "typed", "body", "body_size", "body_checksum",
    "answer_checksum", "arguments",
)  # fmt: skip
_UNCHANGING: Final = ("op_id", "tenant", "principal", "key", "fingerprint", "server", "tool", "created")
_CHANGING: Final = tuple(name for name in FACTS if name not in _UNCHANGING)
_COLUMNS: Final = ", ".join(FACTS)
_COLUMN_INDEX: Final = {name: index for index, name in enumerate(FACTS)}
_STATE, _ATTEMPTS, _UPDATED, _DOUBTED, _ERROR_CODE, _ARGUMENTS = (
    _COLUMN_INDEX[name] for name in ("state", "attempts", "updated", "doubted", "error_code", "arguments")
)
REAL_COLUMN_INDEXES: Final = tuple(_COLUMN_INDEX[name] for name in ("created", "updated", "lease_until"))
_CHANGING_INDEXES: Final = tuple(_COLUMN_INDEX[name] for name in _CHANGING)
_SET: Final = ", ".join(f"{name} = ?" for name in _CHANGING)
_INSERT: Final = f"""
    INSERT INTO operations ({_COLUMNS}, checksum, answer_error, result)
    VALUES ({", ".join("?" * (len(FACTS) + 3))})
    ON CONFLICT DO NOTHING
"""
_UPDATE: Final = f"UPDATE operations SET {_SET}, checksum = ? WHERE number = ?"
_UPDATE_WHOLE: Final = (
    f"UPDATE operations SET {_SET}, checksum = ?, answer_error = ?, result = ? WHERE number = ?"
)
# The columns that change when an operation ends; the old checksum proves that the row is unchanged since.
_ENDING: Final = ("state", "attempts", "updated", *FACTS[FACTS.index("error_code") :])
_ending = itemgetter(*(_COLUMN_INDEX[name] for name in _ENDING))
_FINISH: Final = f"""
    UPDATE operations SET {", ".join(f"{name} = ?" for name in _ENDING)}, checksum = ?, answer_error = ?,
      result = ?
    WHERE checksum = ? AND op_id = ?
"""
_SELECT_ANSWER: Final = """
    SELECT result, answer_error, typed, body, body_size, body_checksum, answer_checksum, number
    FROM operations WHERE op_id = ? AND answered
"""
_WHERE_EXPIRED: Final = """
    WHERE (state IN ('done', 'failed', 'asked') AND updated < ?1) OR (state = 'in_doubt' AND updated < ?2)
    LIMIT ?3
"""
_NAMES_ANSWER_FILE: Final = """
    SELECT 1 FROM operations
    WHERE op_id = ? AND (body = ? OR (fence = ? AND state IN ('intent', 'in_doubt')))
"""
NO_ANSWER: Final[dict[str, Any]] = {
    "answered": 0, "dropped": 0, "typed": 0, "body": "", "body_size": 0, "body_checksum": 0,
    "answer_checksum": 0,
}  # fmt: skip
DROPPED_ANSWER: Final = NO_ANSWER | {"dropped": 1}
_KINDS: Final = {kind.value: kind for kind in ToolClass}
_STATES: Final = {state.value: state for state in OperationState}
_encode = msgspec.msgpack.Encoder().encode

Facts = Sequence[Any]


class WrittenRow(NamedTuple):
    """A row as this process last wrote it, which need not be read again to record the outcome."""

    facts: Facts
    checksum: int

    @property
    def fence(self) -> int:
        return int(self.facts[_COLUMN_INDEX["fence"]])


class StoredResultLocation(NamedTuple):
    """The file with the result of an answer: its name, size and checksum; empty when the row has it."""

    body: str = ""
    size: int = 0
    checksum: int = 0


IN_ROW: Final = StoredResultLocation()


class StoredAnswer(NamedTuple):
    result: bytes
    error: bytes
    typed: bool
    stored: StoredResultLocation


class _VerifiedRow(NamedTuple):
    """A row whose checksum holds."""

    number: int
    facts: Facts

    def fact(self, name: str) -> Any:
        return self.facts[_COLUMN_INDEX[name]]


def checksum_of(facts: Facts) -> int:
    return zlib.crc32(_encode(facts))


def answer_checksum_of(error: bytes, result: bytes) -> int:
    return zlib.crc32(result, zlib.crc32(error))


def insert(connection: Connection, intent: Intent, owner: str, now: float) -> WrittenRow | None:
    """Record a new INTENT; None when its key is taken. Raises LedgerDamaged."""
    owned_key = (intent.tenant, intent.principal, intent.key)
    if not keys.add(connection, keys.hash_of(keys.CALL, owned_key)):
        return None
    return insert_row(
        connection,
        (
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
                "intent",
                # Fence and attempts.
                1,
                0,
                now,
                now,
                float(intent.lease_until),
                owner,
                intent.transaction,
                # No error, no settlement, no answer.
                "",
                "",
                "",
                0,
                0,
                0,
                0,
                "",
                0,
                0,
                0,
                intent.arguments,
            )
        ),
        b"",
        b"",
    )


def insert_row(connection: Connection, facts: Facts, error: bytes, result: bytes) -> WrittenRow:
    """Add a row; raises LedgerDamaged when an index has its key or its id already."""
    checksum = checksum_of(facts)
    added = connection.execute(_INSERT, (*facts, checksum, error, result))
    if added.rowcount != 1:
        raise LedgerDamaged("an index names a key that is not known")
    return WrittenRow(facts, checksum)


def grant(connection: Connection, op_id: str, intent: Intent, owner: str, now: float) -> WrittenRow:
    """Make a known operation an INTENT again, without its earlier answer."""
    row = _existing(connection, op_id)
    facts = changed(
        row.facts,
        state=OperationState.INTENT.value,
        fence=row.fact("fence") + 1,
        public_name=intent.public_name,
        kind=intent.kind.value,
        updated=now,
        lease_until=float(intent.lease_until),
        owner=owner,
        transaction_id=intent.transaction,
        arguments=intent.arguments,
        error_code="",
        error="",
        resolved_by="",
        doubted=int(row.fact("doubted") or row.fact("state") in ("intent", "in_doubt")),
        **NO_ANSWER,
    )
    return _write(connection, row.number, facts, (b"", b""))


def change_owner(connection: Connection, op_id: str, lease_until: float, owner: str, now: float) -> None:
    row = _existing(connection, op_id)
    fence = row.fact("fence") + 1
    facts = changed(
        row.facts, fence=fence, lease_until=float(lease_until), owner=owner, updated=now, doubted=1
    )
    _write(connection, row.number, facts)


def mark_in_doubt(connection: Connection, op_id: str, reason: str, now: float) -> None:
    """Change an INTENT whose outcome is unknown to DOUBT; its owner may still end it."""
    row = _existing(connection, op_id)
    _write(
        connection,
        row.number,
        changed(row.facts, state=OperationState.DOUBT.value, error=reason, updated=now),
    )


def finish(
    connection: Connection,
    op_id: str,
    fence: int,
    outcome: OperationOutcome,
    stored: StoredResultLocation,
    now: float,
    *,
    dropped: bool = False,
    claimed: WrittenRow | None = None,
) -> bool:
    """Record an outcome; False when the fence is old or the operation has ended.

    `stored` locates the result of the answer; `dropped` means that it is not kept. `claimed` is the row of
    the claim, which saves reading it.
    """
    answer = None if dropped else outcome.answer
    result = answer.result if answer is not None and isinstance(answer.result, bytes) else b""
    written = (answer.error if answer is not None else b"", b"" if stored.body else result)
    if claimed is not None:
        facts = _finished(claimed.facts, outcome, stored, written, now, dropped=dropped)
        old = (claimed.checksum, op_id)
        if connection.execute(_FINISH, (*_ending(facts), checksum_of(facts), *written, *old)).rowcount == 1:
            return True
    row = next(_rows(connection, "WHERE op_id = ?", (op_id,)), None)
    if row is None or row.fact("fence") != fence:
        return False
    final = outcome.state in (OperationState.DONE, OperationState.FAILED)
    if row.fact("state") not in (("intent", "in_doubt") if final else ("intent",)):
        return False
    facts = _finished(row.facts, outcome, stored, written, now, dropped=dropped)
    _write(connection, row.number, facts, written)
    return True


def _finished(
    facts: Facts,
    outcome: OperationOutcome,
    stored: StoredResultLocation,
    written: tuple[bytes, bytes],
    now: float,
    *,
    dropped: bool,
) -> list[Any]:
    answer, state = None if dropped else outcome.answer, outcome.state
    new = list(facts)
    new[_STATE] = state.value
    new[_ATTEMPTS] = outcome.attempts
    new[_UPDATED] = now
    doubted = new[_DOUBTED] and state is not OperationState.FAILED
    # From the code of the error to the checksum of the answer, in the order of the columns.
    new[_ERROR_CODE:_ARGUMENTS] = (
        valid_text(outcome.error_code), valid_text(outcome.error), outcome.resolved_by,
        int(answer is not None), int(dropped), int(doubted), int(answer is not None and answer.typed),
        *stored, answer_checksum_of(*written),
    )  # fmt: skip
    if state is OperationState.DONE or state is OperationState.FAILED:
        new[_ARGUMENTS] = b""
    return new


def drop_answer(connection: Connection, number: int) -> str:
    """Drop the answer of an operation and keep its record: the name of the file with the answer."""
    row = next(_rows(connection, "WHERE number = ?", (number,)), None)
    if row is None:
        raise LedgerDamaged(f"an index names row {number} of the recorded calls, which is missing")
    _write(connection, number, changed(row.facts, **DROPPED_ANSWER), (b"", b""))
    return str(row.fact("body"))


def changed(facts: Facts, **changes: Any) -> list[Any]:
    """The facts of a row with other values in these columns."""
    new = list(facts)
    for name, value in changes.items():
        new[_COLUMN_INDEX[name]] = value
    return new


def _write(
    connection: Connection, number: int, facts: Facts, answer: tuple[bytes, bytes] | None = None
) -> WrittenRow:
    """Change a row; `answer` is the error and the result, which stay as they are without it."""
    values, checksum = [facts[index] for index in _CHANGING_INDEXES], checksum_of(facts)
    statement = _UPDATE if answer is None else _UPDATE_WHOLE
    connection.execute(statement, (*values, checksum, *(answer or ()), number))
    return WrittenRow(facts, checksum)


def valid_text(text: str) -> str:
    """The text of a server, which may have a lone surrogate, as SQLite takes it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def find(connection: Connection, op_id: str) -> Operation | None:
    """The operation of that id; raises LedgerDamaged, as all of these do."""
    return next(_selected(connection, "WHERE op_id = ?", (op_id,)), None)


def find_by_key(connection: Connection, owned_key: keys.OwnedKey) -> Operation | None:
    """The operation of that tenant and principal under that key."""
    if not keys.contains(connection, keys.hash_of(keys.CALL, owned_key)):
        return None
    return get_by_key(connection, owned_key)


def get_by_key(connection: Connection, owned_key: keys.OwnedKey) -> Operation:
    """The operation under a key that exists."""
    where = "WHERE tenant = ? AND principal = ? AND key = ?"
    found = next(_selected(connection, where, owned_key), None)
    if found is None:
        raise LedgerDamaged("the record of a known key is missing")
    return found


def list_by_key_prefix(connection: Connection, owned_prefix: keys.OwnedKey) -> list[Operation]:
    """The operations of that tenant and principal whose keys have the prefix."""
    tenant, principal, prefix = owned_prefix
    # A range, so that the index is used: the prefix with its last character incremented is the end.
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    where = "WHERE tenant = ? AND principal = ? AND key >= ? AND key < ? ORDER BY key"
    return list(_selected(connection, where, (tenant, principal, prefix, end)))


def in_states(connection: Connection, states: Iterable[OperationState], limit: int = -1) -> list[Operation]:
    """The operations in these states, oldest first; a negative limit means no limit."""
    names = [state.value for state in states]
    where = f"WHERE state IN ({', '.join('?' * len(names))}) ORDER BY created, number LIMIT ?"
    return list(_selected(connection, where, (*names, limit)))


def _selected(connection: Connection, where: str, values: tuple[object, ...]) -> Iterator[Operation]:
    return (operation_of(row.facts) for row in _rows(connection, where, values))


def _existing(connection: Connection, op_id: str) -> _VerifiedRow:
    row = next(_rows(connection, "WHERE op_id = ?", (op_id,)), None)
    if row is None:
        raise LedgerDamaged("the record of a known operation is missing")
    return row


def _rows(connection: Connection, where: str, values: tuple[object, ...]) -> Iterator[_VerifiedRow]:
    found = connection.execute(f"SELECT number, checksum, {_COLUMNS} FROM operations {where}", values)
    for number, checksum, *facts in found:
        check(f"row {number} of the recorded calls", checksum, facts)
        yield _VerifiedRow(number, facts)


def check(what: str, checksum: int, facts: Facts) -> None:
    """Raises LedgerDamaged when the checksum of a row does not hold."""
    if checksum != checksum_of(facts):
        raise LedgerDamaged(f"{what} is changed")


def operation_of(facts: Facts) -> Operation:
    # Unpacked in the order of the columns, because every keyed call passes here.
    (
        op_id, tenant, principal, key, fingerprint, server, tool, public_name, kind, state, fence, attempts,
        created, updated, lease_until, owner, transaction, error_code, error, resolved_by, answered, dropped,
        doubted, _, _, _, _, _, arguments,
    ) = facts  # fmt: skip
    return Operation(
        op_id=op_id, tenant=tenant, principal=principal, key=key, fingerprint=fingerprint, server=server,
        tool=tool, public_name=public_name, kind=_KINDS[kind], state=_STATES[state], fence=fence,
        attempts=attempts, created=created, updated=updated, lease_until=lease_until, owner=owner,
        arguments=arguments, transaction=transaction, error_code=error_code, error=error,
        resolved_by=resolved_by, answered=bool(answered), dropped=bool(dropped), doubted=bool(doubted),
    )  # fmt: skip


def read_answer(connection: Connection, op_id: str) -> StoredAnswer | None:
    """The answer of an operation; None when there is none."""
    found = connection.execute(_SELECT_ANSWER, (op_id,)).fetchone()
    if found is None:
        return None
    result, error, typed, *stored, checksum, number = found
    if checksum != answer_checksum_of(error, result):
        raise LedgerDamaged(f"the answer in row {number} of the recorded calls is changed")
    return StoredAnswer(result, error, bool(typed), StoredResultLocation(*stored))


def body_of(connection: Connection, op_id: str) -> str:
    """The name of the file with its result; empty when there is none."""
    found = connection.execute("SELECT body FROM operations WHERE op_id = ?", (op_id,)).fetchone()
    return found[0] if found is not None else ""


# For recovery.


def stored_of(facts: Facts) -> StoredResultLocation:
    return StoredResultLocation(*facts[_COLUMN_INDEX["body"] : _COLUMN_INDEX["answer_checksum"]])


def answer_checksum(facts: Facts) -> int:
    return int(facts[_COLUMN_INDEX["answer_checksum"]])


def forget(connection: Connection, op_id: str) -> None:
    _remove(connection, [_existing(connection, op_id)])


def forget_ended(connection: Connection, ended_before: float, doubted_before: float, most: int) -> int:
    """Remove at most so many operations that ended, or came to be in doubt, before then: how many."""
    # Each is verified first: a damaged timestamp must not delete a record.
    ended = list(_rows(connection, _WHERE_EXPIRED, (ended_before, doubted_before, most)))
    _remove(connection, ended)
    return len(ended)


def _remove(connection: Connection, ended: list[_VerifiedRow]) -> None:
    connection.executemany("DELETE FROM operations WHERE number = ?", [(row.number,) for row in ended])
    keys.remove(connection, (keys.hash_of(keys.CALL, owned_key_of(row.facts)) for row in ended))


def owned_key_of(facts: Facts) -> keys.OwnedKey:
    return (facts[_COLUMN_INDEX["tenant"]], facts[_COLUMN_INDEX["principal"]], facts[_COLUMN_INDEX["key"]])


def is_answer_file_needed(connection: Connection, body: str, op_id: str, fence: int) -> bool:
    """Whether an operation names the file, or may yet, because its owner is about to record the outcome."""
    return connection.execute(_NAMES_ANSWER_FILE, (op_id, body, fence)).fetchone() is not None
