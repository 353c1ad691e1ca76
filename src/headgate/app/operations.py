"""`headgate operations`: opens the ledger for an operator, lists, shows and resolves recorded operations."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headgate.config.settings import Settings
from headgate.delivery.errors import OperationNotFound
from headgate.delivery.ledger import LedgerDamaged, Operation, OperationOutcome, OperationState, effect_of
from headgate.delivery.transactions.saga_rules import Phase
from headgate.domain.errors import ConfigError, InvalidArguments, StoreFailed
from headgate.domain.terminal import printable, table_lines
from headgate.storage.sqlite.ledger import LEDGER_NAME, SqliteLedger, ledger_group_commit, open_ledger
from headgate.storage.sqlite.ledger_integrity import LedgerGuard
from headgate.storage.sqlite.transaction_store import SqliteTransactionStore


class OperatorLedger(NamedTuple):
    """The recorded calls and the transactions of one data directory."""

    calls: SqliteLedger
    transactions: SqliteTransactionStore

    async def gateway_runs(self) -> bool:
        """Whether a gateway has this ledger open; raises StoreFailed."""
        try:
            return await asyncio.to_thread(self.calls.liveness.any_other_alive)
        except OSError as error:
            raise StoreFailed(f"the gateways that run cannot be seen ({error.strerror})") from error


async def ledger_exists(settings: Settings) -> bool:
    """Whether there is a ledger, because commands that only read do not create one; raises ConfigError.

    True also for a lost one, so that opening it reports the loss.
    """
    path = settings.data_dir / LEDGER_NAME
    try:
        # Raises without permission to read.
        await asyncio.to_thread(path.exists)
        return await asyncio.to_thread(LedgerGuard(path).has_ledger)
    except OSError as error:
        raise _ledger_unusable(path, error.strerror or "it cannot be read") from error


@asynccontextmanager
async def open_operator_ledger(settings: Settings) -> AsyncIterator[OperatorLedger]:
    """The ledger while the block lasts; raises ConfigError when it cannot be used."""
    path = settings.data_dir / LEDGER_NAME
    group_commit = ledger_group_commit(settings.data_dir)
    try:
        async with group_commit, open_ledger(group_commit, settings.data_dir) as ledger:
            yield OperatorLedger(ledger, SqliteTransactionStore(group_commit, ledger.liveness))
    except LedgerDamaged as damaged:
        raise ConfigError(
            f"{path} is damaged: {damaged}",
            hint="stop the gateway and run `headgate operations recover`",
        ) from damaged
    except StoreFailed as failure:
        raise _ledger_unusable(path, str(failure)) from failure


def _ledger_unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be used: {reason}",
        hint="mend the data directory, or name another with --data-dir",
    )


# Those that an operator may have to act on.
OPEN_STATES: Final = (OperationState.DOUBT, OperationState.INTENT)
_MAX_LISTED = 10_000
_DEFAULT_WIDTH = 100
# Beside each column.
_GAP = 2
_HEAD = ("op_id", "state", "age", "server", "tool", "key", "attempts", "error")


# How an operation is that is in that state.
_WORDS: Final = {
    OperationState.INTENT: "under way",
    OperationState.ASKED: "waiting for the client's answer",
    OperationState.DONE: "done",
    OperationState.FAILED: "failed",
    OperationState.DOUBT: "in doubt",
}


class OperationListing(msgspec.Struct, frozen=True):
    """Operations, and the sentence for an empty list."""

    operations: list[Operation]
    empty_message: str
    # How many transactions wait for a person.
    stuck_transactions: int = 0


async def list_operations(settings: Settings, states: Collection[OperationState]) -> OperationListing:
    """The operations in those states, oldest first; none where there is no ledger yet.

    Raises ConfigError when the ledger cannot be read, as all of these do.
    """
    if not await ledger_exists(settings):
        return OperationListing(
            [], f"No call has been recorded: there is no {LEDGER_NAME} in {settings.data_dir}."
        )
    async with open_operator_ledger(settings) as opened:
        stuck = (await opened.transactions.counts())[Phase.STUCK]
        nothing = f"No operation is {' or '.join(_WORDS[state] for state in states)}."
        return OperationListing(await opened.calls.list_operations(states, _MAX_LISTED), nothing, stuck)


async def show_operation(settings: Settings, op_id: str) -> Operation:
    """The operation of that id; raises OperationNotFound."""
    if not await ledger_exists(settings):
        raise OperationNotFound(op_id)
    async with open_operator_ledger(settings) as opened:
        return await _find_operation(opened.calls, op_id)


async def resolve_operation(settings: Settings, op_id: str, *, happened: bool) -> Operation:
    """Settle an operation in doubt, or one that a gateway left behind; raises HeadgateError for any other."""
    if not await ledger_exists(settings):
        raise OperationNotFound(op_id)
    async with open_operator_ledger(settings) as opened:
        ledger = opened.calls
        found = await _find_operation(ledger, op_id)
        fence: int | None = found.fence
        if found.state is OperationState.INTENT:
            fence = await ledger.adopt(op_id, found.fence, time.time())
        state = OperationState.DONE if happened else OperationState.FAILED
        outcome = OperationOutcome(state=state, attempts=found.attempts, resolved_by="operator")
        if found.state not in OPEN_STATES or fence is None or not await ledger.finish(op_id, fence, outcome):
            raise _not_in_doubt(await _find_operation(ledger, op_id))
        return await _find_operation(ledger, op_id)


async def _find_operation(ledger: SqliteLedger, op_id: str) -> Operation:
    found = await ledger.find(op_id)
    if found is None:
        raise OperationNotFound(op_id)
    return found


def _not_in_doubt(operation: Operation) -> InvalidArguments:
    if operation.state is OperationState.INTENT:
        return InvalidArguments(
            "operations resolve",
            f"a gateway has operation {operation.op_id} under way",
            hint="wait for its answer, or until it is in doubt",
        )
    return InvalidArguments(
        "operations resolve",
        f"operation {operation.op_id} is {operation.state}, not in doubt",
        hint=f"`headgate operations show {operation.op_id}` tells what is known of it",
    )


# Output.


def format_operations(listing: OperationListing, *, as_json: bool, options: str = "") -> str:
    """A table with a line about stuck transactions, or one JSON document.

    `options` are the options of the command that a further one has to repeat.
    """
    if as_json:
        return format_json([_document(operation) for operation in listing.operations])
    rows = [_row(operation) for operation in listing.operations]
    lines = format_table(_HEAD, rows) if rows else [printable(listing.empty_message)]
    if listing.stuck_transactions:
        them = "it" if listing.stuck_transactions == 1 else "them"
        lines.append(
            stuck_transactions_line(listing.stuck_transactions, f"headgate transactions list{options}", them)
        )
    return "\n".join(lines)


def stuck_transactions_line(stuck: int, command: str, what: str) -> str:
    """How many transactions are stuck, and the command that shows what to know next."""
    are = "1 transaction is stuck and waits" if stuck == 1 else f"{stuck} transactions are stuck and wait"
    return f"{are} for a person: `{command}` shows {what}."


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose last column alone is wrapped."""
    others = [max(len(printable(row[place])) for row in (head, *rows)) for place in range(len(head) - 1)]
    # An id is there to be copied: the widest column gives way, and so that has to be the last one.
    width = sum(others) + max(others) + 1 + _GAP * len(head)
    return table_lines(head, rows, max(width, shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns))


def format_operation(operation: Operation, *, as_json: bool) -> str:
    """Everything that is known of one operation: a line for each fact, or one JSON document."""
    document = _document(operation) | {"arguments": _text(operation.arguments)}
    if as_json:
        return format_json(document)
    longest = max(map(len, document))
    facts = document | {
        "created": format_time(operation.created),
        "updated": format_time(operation.updated),
        "lease_until": format_time(operation.lease_until),
    }
    values = {name: printable(str(value)) for name, value in facts.items() if value != ""}
    return "\n".join(f"{name:<{longest}}  {value}" for name, value in values.items())


def _row(operation: Operation) -> tuple[str, ...]:
    error = f"{operation.error_code}: {operation.error}" if operation.error_code else operation.error
    return (
        operation.op_id,
        operation.state,
        format_age(time.time() - operation.created),
        operation.server,
        operation.tool,
        operation.key,
        str(operation.attempts),
        error,
    )


def _document(operation: Operation) -> dict[str, Any]:
    """The members of the JSON document, times in seconds since the epoch."""
    return {
        "op_id": operation.op_id,
        "state": operation.state.value,
        "effect": effect_of(operation.state).value,
        "server": operation.server,
        "tool": operation.tool,
        "public_name": operation.public_name,
        "class": operation.kind.value,
        "tenant": operation.tenant,
        "principal": operation.principal,
        "key": operation.key,
        "transaction": operation.transaction,
        "attempts": operation.attempts,
        "created": operation.created,
        "updated": operation.updated,
        "lease_until": operation.lease_until,
        "error_code": operation.error_code,
        "error": operation.error,
        "resolved_by": operation.resolved_by,
        "answered": operation.answered,
        "answer_dropped": operation.dropped,
    }


def format_json(document: object) -> str:
    """A JSON document as a person reads it."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _text(arguments: bytes) -> str:
    return arguments.decode("utf-8", "replace")


def format_age(seconds: float) -> str:
    """How long that is, in the two largest units."""
    left = max(0, int(seconds))
    for unit, smaller, size, step in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if left >= size:
            return f"{left // size}{unit} {left % size // step}{smaller}"
    return f"{left}s"


def format_time(seconds: float) -> str:
    """A time of day, where the operator is."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
