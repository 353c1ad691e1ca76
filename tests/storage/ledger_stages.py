"""Ledgers to test: gateways that share one, and come and go."""

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from headgate.delivery.ledger import (
    ClaimResult,
    ClaimVerdict,
    Intent,
    Ledger,
    Operation,
    OperationOutcome,
    OperationState,
)
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass
from headgate.storage.sqlite.ledger import SqliteLedger, ledger_group_commit, open_ledger

START = 1_800_000_000.0
WINDOW_SECONDS = 1_000.0
DOUBT_SECONDS = 5_000.0
LEASE_SECONDS = 60.0
ANSWER = McpResponse(b'{"content":[]}', typed=True)


class Clock:
    """A time of day that the test sets forward."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time


class Stage(Protocol):
    """A place for one ledger that several gateways open."""

    clock: Clock

    async def gateway(self) -> Ledger:
        """One more gateway opens it."""

    async def end(self, ledger: Ledger) -> None:
        """A gateway ends, and does nothing more with what it held."""


class SqliteStage:
    """A ledger in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = Clock()
        self._open: dict[SqliteLedger, AsyncExitStack] = {}

    async def gateway(self) -> SqliteLedger:
        stack = AsyncExitStack()
        group_commit = ledger_group_commit(self.directory)
        await stack.enter_async_context(group_commit)
        opened = open_ledger(
            group_commit,
            self.directory,
            window_seconds=WINDOW_SECONDS,
            doubt_seconds=DOUBT_SECONDS,
            now=self.clock,
        )
        ledger = await stack.enter_async_context(opened)
        self._open[ledger] = stack
        return ledger

    async def end(self, ledger: Ledger) -> None:
        assert isinstance(ledger, SqliteLedger)
        await self._open.pop(ledger).aclose()

    async def close(self) -> None:
        for ledger in list(self._open):
            await self.end(ledger)


@asynccontextmanager
async def sqlite_stage(directory: Path) -> AsyncIterator[SqliteStage]:
    """A place for a ledger, whose gateways all end with the block."""
    stage = SqliteStage(directory)
    try:
        yield stage
    finally:
        await stage.close()


def intent(
    key: str = "key",
    *,
    fingerprint: bytes = b"one call",
    kind: ToolClass = ToolClass.UNSAFE,
    lease_until: float = START + LEASE_SECONDS,
    since: float | None = None,
    continues: bool = False,
    principal: str = "local",
    tenant: str = "",
) -> Intent:
    """A caller begins a call."""
    return Intent(
        op_id=secrets.token_hex(16),
        tenant=tenant,
        principal=principal,
        key=key,
        fingerprint=fingerprint,
        server="bank",
        tool="pay",
        public_name="bank__pay",
        kind=kind,
        arguments=b'{"amount":1}',
        lease_until=lease_until,
        retries_doubt_since=since,
        continues=continues,
        transaction="saga",
    )


async def granted(ledger: Ledger, wanted: Intent | None = None) -> Operation:
    """The operation of a claim that is granted."""
    claim = await ledger.claim(wanted or intent())
    assert claim.verdict is ClaimVerdict.GRANTED, claim
    return claim.operation


async def ended(ledger: Ledger, state: OperationState, wanted: Intent | None = None) -> Operation:
    """An operation that was claimed and came to that."""
    operation = await granted(ledger, wanted)
    answer = None if state in (OperationState.DOUBT, OperationState.FAILED) else ANSWER
    assert await ledger.finish(operation.op_id, operation.fence, OperationOutcome(state=state, answer=answer))
    return operation


async def state_of(ledger: Ledger, op_id: str) -> OperationState:
    """The state of an operation that there is."""
    found = await ledger.find(op_id)
    assert found is not None
    return found.state


def same(claim: ClaimResult, verdict: ClaimVerdict, operation: Operation, state: OperationState) -> bool:
    """Whether the claim came to that verdict about that operation."""
    known = claim.operation
    return (claim.verdict, known.op_id, known.state) == (verdict, operation.op_id, state)
