"""ledger.db: the ledger of the gateways on one machine, which may share its directory.

Beside the file are `ledger/`, with answers that are too large for a row, and `owners/`, whose locks show
which gateways run.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection

import msgspec

from headgate.delivery.ledger import (
    ClaimResult,
    ClaimVerdict,
    Intent,
    Operation,
    OperationOutcome,
    OperationState,
)
from headgate.domain.mcp_request import McpResponse
from headgate.domain.payload import Payload, payload_size
from headgate.domain.upstream_policy import ToolClass
from headgate.event_loop import finish_uncancelled
from headgate.storage.files.ledger_files import AnswerFiles, ProcessLiveness
from headgate.storage.files.payload_file import PayloadFile
from headgate.storage.sqlite import ledger_rows as rows
from headgate.storage.sqlite.database_file import store_failure
from headgate.storage.sqlite.group_commit import BUSY_SECONDS, GroupCommit, reads, reads_snapshot, writes
from headgate.storage.sqlite.ledger_integrity import LEDGER_MIGRATIONS, LedgerGuard, check_ledger

log = logging.getLogger("headgate.storage")

LEDGER_NAME = "ledger.db"
# The usual lifetime of idempotency keys.
WINDOW_SECONDS = 24 * 3600.0
DOUBT_SECONDS = 7 * 24 * 3600.0
MOST_BYTES = 256 * 1024 * 1024
# Larger results would slow the file down for all other calls.
_INLINE_BYTES = 64 * 1024
# So many rows per transaction, so that calls do not wait for long.
_SWEEP_BATCH = 500
# The most rows of operations in flight that are cached.
_MAX_CACHED_CLAIMS = 4096
# On close, outcomes get this long to be recorded.
_CLOSE_SECONDS = 10.0
_OWNER_GONE = "the gateway that had it under way has ended"
_LEASE_OVER = "no answer came in its time"


def ledger_group_commit(
    directory: Path,
    *,
    busy_seconds: float = BUSY_SECONDS,
    on_damage: Callable[[str], None] = lambda reason: None,
) -> GroupCommit:
    """The ledger's file in `directory`; `on_damage` gets the reason of damage, in a thread."""
    path = directory / LEDGER_NAME
    guard = LedgerGuard(path, on_damage)
    return GroupCommit(path, LEDGER_MIGRATIONS, busy_seconds=busy_seconds, guard=guard)


@asynccontextmanager
async def open_ledger(
    group_commit: GroupCommit,
    directory: Path,
    *,
    window_seconds: float = WINDOW_SECONDS,
    doubt_seconds: float = DOUBT_SECONDS,
    most_bytes: int = MOST_BYTES,
    now: Callable[[], float] = time.time,
) -> AsyncIterator["SqliteLedger"]:
    """The ledger in the file of `group_commit`, which is closed after it, during the block."""
    ledger = SqliteLedger(
        group_commit,
        AnswerFiles(directory / "ledger"),
        ProcessLiveness(directory / "owners"),
        window_seconds=window_seconds,
        doubt_seconds=doubt_seconds,
        most_bytes=most_bytes,
        now=now,
    )
    try:
        yield ledger
    finally:
        await ledger.close()


class SqliteLedger:
    """Implements `delivery.ledger.Ledger`; `now` is the time of day."""

    def __init__(
        self,
        group_commit: GroupCommit,
        answer_files: AnswerFiles,
        liveness: ProcessLiveness,
        *,
        window_seconds: float,
        doubt_seconds: float,
        now: Callable[[], float],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._group_commit = group_commit
        self._answer_files = answer_files
        # Shows other gateways that this one runs; the transaction store uses it too.
        self.liveness = liveness
        self._window_seconds = window_seconds
        self._doubt_seconds = doubt_seconds
        self._now = now
        self._most_bytes = most_bytes
        # The rows of operations in flight here, by id.
        self._claimed: dict[str, rows.WrittenRow] = {}
        # The size of the answers that are being written to files.
        self._writing_bytes = 0
        # Answers in rows that ended before then have been dropped; it follows a clock that is set back.
        self._dropped_until = 0.0
        self._finishing: set[asyncio.Task[bool]] = set()

    async def claim(self, intent: Intent) -> ClaimResult:
        claim, outdated = await self._claim(intent)
        if outdated:
            await asyncio.to_thread(self._answer_files.remove, outdated)
        return claim

    @writes
    def _claim(self, connection: Connection, intent: Intent) -> tuple[ClaimResult, str]:
        """The claim, and the name of an answer file that is obsolete."""
        now, owner = self._now(), self.liveness.register()
        new = rows.insert(connection, intent, owner, now)
        if new is not None:
            return self._grant(new), ""
        known = rows.get_by_key(connection, (intent.tenant, intent.principal, intent.key))
        if self._is_expired(known, now):
            outdated = rows.body_of(connection, known.op_id)
            rows.forget(connection, known.op_id)
            new = rows.insert(connection, intent, owner, now)
            assert new is not None
            return self._grant(new), outdated
        if known.fingerprint != intent.fingerprint:
            return ClaimResult(ClaimVerdict.CONFLICT, known), ""
        if known.state is OperationState.INTENT:
            reason = self._orphan_reason(known, now)
            if not reason:
                return ClaimResult(ClaimVerdict.KNOWN, known), ""
            if not _repeatable(known, intent):
                rows.mark_in_doubt(connection, known.op_id, reason, now)
                known = msgspec.structs.replace(known, state=OperationState.DOUBT, error=reason, updated=now)
        if not _may_be_granted(known, intent):
            return ClaimResult(ClaimVerdict.KNOWN, known), ""
        outdated = rows.body_of(connection, known.op_id) if known.answered else ""
        return self._grant(rows.grant(connection, known.op_id, intent, owner, now)), outdated

    def _grant(self, row: rows.WrittenRow) -> ClaimResult:
        operation = rows.operation_of(row.facts)
        if len(self._claimed) >= _MAX_CACHED_CLAIMS:
            del self._claimed[next(iter(self._claimed))]
        self._claimed[operation.op_id] = row
        return ClaimResult(ClaimVerdict.GRANTED, operation)

    @reads
    def list_orphans(self, connection: Connection) -> list[Operation]:
        """Operations in INTENT whose owner is gone or whose lease is over, oldest first."""
        now = self._now()
        found = rows.in_states(connection, (OperationState.INTENT,))
        return [operation for operation in found if self._orphan_reason(operation, now)]

    @writes
    def adopt(self, connection: Connection, op_id: str, fence: int, lease_until: float) -> int | None:
        known, now = rows.find(connection, op_id), self._now()
        if known is None or known.fence != fence or known.state is not OperationState.INTENT:
            return None
        if not self._orphan_reason(known, now):
            return None
        rows.change_owner(connection, op_id, lease_until, self.liveness.register(), now)
        return fence + 1

    def _orphan_reason(self, operation: Operation, now: float) -> str:
        """Why an INTENT is orphaned; empty when it is not."""
        if not self.liveness.is_alive(operation.owner):
            return _OWNER_GONE
        return _LEASE_OVER if now > operation.lease_until else ""

    def _is_expired(self, operation: Operation, now: float) -> bool:
        """Whether it is past its window, so that its key counts as new."""
        if operation.state is OperationState.INTENT:
            return False
        window = self._doubt_seconds if operation.state is OperationState.DOUBT else self._window_seconds
        return operation.updated < now - window

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        """Record an outcome with its answer; see `Ledger.finish`."""
        result = outcome.answer.result if outcome.answer is not None else b""
        if isinstance(result, bytes) and len(result) <= _INLINE_BYTES:
            return await self._finish(op_id, fence, outcome)
        # A task of its own: a cancelled caller must not stop it between file and row.
        task = asyncio.get_running_loop().create_task(self._finish_large(op_id, fence, outcome, result))
        self._finishing.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def _finish(
        self,
        op_id: str,
        fence: int,
        outcome: OperationOutcome,
        stored: rows.StoredResultLocation = rows.IN_ROW,
        *,
        dropped: bool = False,
    ) -> bool:
        claimed = self._claimed.get(op_id)
        if claimed is not None and claimed.fence != fence:
            claimed = None
        recorded = await self._group_commit.write(
            lambda connection: rows.finish(
                connection, op_id, fence, outcome, stored, self._now(), dropped=dropped, claimed=claimed
            )
        )
        self._claimed.pop(op_id, None)
        if self._dropped_until:
            self._dropped_until = min(self._dropped_until, self._now())
        return recorded

    async def _finish_large(self, op_id: str, fence: int, outcome: OperationOutcome, result: Payload) -> bool:
        size, name, recorded = payload_size(result), "", False
        if size > self._most_bytes:
            return await self._finish(op_id, fence, outcome, dropped=True)
        self._writing_bytes += size
        try:
            # Before it is written, so that the quota holds at every moment.
            await self._make_room()
            name, checksum = await asyncio.to_thread(self._answer_files.write, op_id, fence, result)
            stored = rows.StoredResultLocation(name, size, checksum)
            recorded = await self._finish(op_id, fence, outcome, stored)
        except (OSError, ValueError) as error:
            # ValueError: the file of the result was closed meanwhile.
            raise store_failure(error) from error
        finally:
            if name and not recorded:
                await asyncio.to_thread(self._answer_files.remove, name)
            self._writing_bytes -= size
        return recorded

    def _finished(self, task: "asyncio.Task[bool]") -> None:
        self._finishing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The caller gets it too, unless it was cancelled.
            log.debug("answer not recorded", extra={"reason": str(error)})

    @reads
    def find(self, connection: Connection, op_id: str) -> Operation | None:
        return rows.find(connection, op_id)

    @reads_snapshot
    def find_by_key(self, connection: Connection, tenant: str, principal: str, key: str) -> Operation | None:
        return rows.find_by_key(connection, (tenant, principal, key))

    @reads
    def list_by_key_prefix(
        self, connection: Connection, tenant: str, principal: str, prefix: str
    ) -> list[Operation]:
        return rows.list_by_key_prefix(connection, (tenant, principal, prefix))

    async def read_answer(self, op_id: str) -> McpResponse | None:
        return await finish_uncancelled(asyncio.ensure_future(self._read_answer(op_id)), _close_answer)

    @reads
    def _read_answer(self, connection: Connection, op_id: str) -> McpResponse | None:
        found = rows.read_answer(connection, op_id)
        if found is None:
            return None
        result = self._answer_files.open(*found.stored) if found.stored.body else found.result
        return McpResponse(result, found.error, found.typed)

    @reads
    def list_operations(
        self, connection: Connection, states: Collection[OperationState], limit: int = 1000
    ) -> list[Operation]:
        return rows.in_states(connection, states, limit)

    @reads
    def counts(self, connection: Connection) -> dict[OperationState, int]:
        found = dict(connection.execute("SELECT state, count(*) FROM operations GROUP BY state"))
        return {state: found.get(state.value, 0) for state in OperationState}

    @property
    def damage(self) -> str:
        return self._group_commit.damage

    async def check(self) -> int | None:
        """Verify every record: how many there are; None when the file is damaged or cannot be read."""
        return await self._group_commit.check(check_ledger)

    async def sweep(self) -> int:
        forgotten = 0
        while removed := await self._forget():
            forgotten += removed
        await self._make_room()
        await self._drop_inline()
        while await self._group_commit.write(_shrink):
            pass
        # Remove answer files that no row names, of deleted operations and after a crash.
        try:
            # Listed before the rows are read: files written later are not considered.
            found = await asyncio.to_thread(self._answer_files.names)
        except OSError as error:
            raise store_failure(error) from error
        for body in await self._unneeded(found) if found else ():
            await asyncio.to_thread(self._answer_files.remove, body)
        return forgotten

    @writes
    def _forget(self, connection: Connection) -> int:
        now = self._now()
        windows = (now - self._window_seconds, now - self._doubt_seconds)
        return rows.forget_ended(connection, *windows, _SWEEP_BATCH)

    async def _make_room(self) -> None:
        """Drop the oldest answers in files beyond the quota, which includes those being written."""
        while (excess := await self._excess_bytes() + self._writing_bytes) > 0:
            dropped = await self._group_commit.write(partial(_drop_bodies, excess=excess))
            if not dropped:
                return
            for name in dropped:
                await asyncio.to_thread(self._answer_files.remove, name)

    async def _excess_bytes(self) -> int:
        return await self._group_commit.read(bytes_used) - self._most_bytes

    async def _drop_inline(self) -> None:
        """Drop the oldest answers in rows while the rows alone exceed the quota."""
        while (excess := await self._excess_bytes()) > 0:
            after = self._dropped_until = min(self._dropped_until, self._now())
            until = await self._group_commit.write(partial(_drop_inline, excess=excess, after=after))
            if until is None:
                return
            # Unless the clock was set back meanwhile.
            if self._dropped_until == after:
                self._dropped_until = until

    @reads
    def _unneeded(self, connection: Connection, found: list[tuple[str, str, int]]) -> list[str]:
        return [file[0] for file in found if not rows.is_answer_file_needed(connection, *file)]

    async def close(self) -> None:
        """Wait for outcomes that are being recorded, and release the owner lock."""
        if self._finishing:
            await asyncio.wait(self._finishing, timeout=_CLOSE_SECONDS)
        await asyncio.to_thread(self.liveness.close)


def _may_be_granted(known: Operation, intent: Intent) -> bool:
    """Whether a claim on an operation without an owner is granted."""
    match known.state:
        case OperationState.FAILED | OperationState.ASKED | OperationState.INTENT:
            return True
        case OperationState.DOUBT:
            since = intent.retries_doubt_since
            # A time after the epoch is how far back the server remembers keys, if the attempt had one.
            return since is not None and known.created >= since and (since <= 0 or _was_sent_with_key(known))
        case OperationState.DONE:
            return False


def _repeatable(known: Operation, intent: Intent) -> bool:
    """Whether an orphaned INTENT is sent again, while its server remembers the key."""
    if intent.kind is ToolClass.KEYED and not _was_sent_with_key(known):
        return False
    since = intent.retries_doubt_since
    return intent.kind.repeatable and (since is None or known.created >= since)


def _was_sent_with_key(known: Operation) -> bool:
    """Whether it was sent with a key that its server honours, whatever the server does now."""
    return known.kind is ToolClass.KEYED


def _close_answer(answer: McpResponse | None) -> None:
    if answer is not None and isinstance(answer.result, PayloadFile):
        answer.result.close()


# The quota: the oldest answers are dropped, never the records of the calls.

# So many rows per transaction, so that calls do not wait for long.
_DROPPED_AT_ONCE = 200
# A smaller answer takes no more space than the row that stays.
_SMALL_BYTES = 512
# The file is made smaller when a quarter of it, and at least a megabyte, is free.
_FREE_SHARE = 4
_LEAST_FREE_PAGES = 256
_RETURNED_PAGES = 1024
_OLDEST_FILES = "SELECT number, body_size FROM operations WHERE body <> '' ORDER BY updated LIMIT ?"
_OLDEST_INLINE = """
    SELECT number, updated, length(result) FROM operations
    WHERE state = 'done' AND updated >= ? AND length(result) > ? ORDER BY updated LIMIT ?
"""


def bytes_used(connection: Connection) -> int:
    """The bytes of all rows and answer files."""
    pages, free, page_size = (
        _number(connection, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
    )
    bodies = _number(connection, "SELECT coalesce(sum(body_size), 0) FROM operations WHERE body <> ''")
    return (pages - free) * page_size + bodies


def _drop_bodies(connection: Connection, excess: int) -> list[str]:
    """Drop the oldest answers in files until `excess` bytes are free: the names of their files."""
    dropped: list[str] = []
    oldest = connection.execute(_OLDEST_FILES, (_DROPPED_AT_ONCE,)).fetchall()
    for number, size in oldest:
        if excess <= 0:
            break
        dropped.append(rows.drop_answer(connection, number))
        excess -= size
    return dropped


def _drop_inline(connection: Connection, excess: int, after: float) -> float | None:
    """Drop the oldest answers in rows since `after`: the time of the last one; None when there is none."""
    oldest = connection.execute(_OLDEST_INLINE, (after, _SMALL_BYTES, _DROPPED_AT_ONCE)).fetchall()
    last = None
    for number, updated, size in oldest:
        if excess <= 0:
            break
        rows.drop_answer(connection, number)
        excess, last = excess - size, float(updated)
    return last


def _shrink(connection: Connection) -> bool:
    """Return free pages to the disk; True when there may be more."""
    pages = _number(connection, "PRAGMA page_count")
    free = _number(connection, "PRAGMA freelist_count")
    if free < _LEAST_FREE_PAGES or free * _FREE_SHARE < pages:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_RETURNED_PAGES})").fetchall()
    return _number(connection, "PRAGMA freelist_count") < free


def _number(connection: Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])
