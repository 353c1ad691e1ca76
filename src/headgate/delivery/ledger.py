"""The ledger of calls that must not be executed twice: its records, and the Protocol of its stores.

    NEW -> INTENT -> DONE | FAILED | DOUBT -> (late answer, probe, operator, caller) -> DONE | FAILED
              \\-> ASKED -> INTENT ...

INTENT is durable before the first byte is sent, and the outcome before the client gets the answer.
The owner of an INTENT has its `fence`; a write with an older fence is refused, so that a gateway that was
paused while another took over cannot overwrite the record.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol

import msgspec

from headgate.delivery.errors import LedgerUnavailable
from headgate.domain.errors import Effect, StoreFailed
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass


class OperationState(StrEnum):
    # Sent, or about to be sent.
    INTENT = "intent"
    # The server answered with a request for input, and the client has to continue the call.
    ASKED = "asked"
    # Answered, or settled as executed.
    DONE = "done"
    # Not executed; a repeat is sent.
    FAILED = "failed"
    # Possibly executed.
    DOUBT = "in_doubt"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to be sent."""

    # 128 random bits, in hexadecimal digits.
    op_id: str
    tenant: str
    principal: str
    # Unique for tenant and principal; calls without a key are recorded under their own op_id.
    key: str
    fingerprint: bytes
    server: str
    # The tool's name there, and as clients call it.
    tool: str
    public_name: str
    kind: ToolClass
    # As sent to the server; kept until the operation is done, for restarts and probes.
    arguments: bytes
    # Seconds since the epoch; after it the owner has lost the INTENT.
    lease_until: float
    # An operation in doubt is sent again if it was first claimed since then; None is never, 0 is always.
    # Any other time is that of the oldest key that the server remembers, and applies to KEYED calls alone.
    retries_doubt_since: float | None = None
    # Whether it continues an operation whose server requested input.
    continues: bool = False
    # The id of the transaction that it is a step of.
    transaction: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger; times are seconds since the epoch."""

    op_id: str
    tenant: str
    principal: str
    key: str
    fingerprint: bytes
    server: str
    tool: str
    public_name: str
    kind: ToolClass
    state: OperationState
    # How often it was claimed, and how often its call was sent in all.
    fence: int
    attempts: int
    created: float
    updated: float
    lease_until: float
    # The process that owns the INTENT.
    owner: str
    arguments: bytes = b""
    transaction: str = ""
    # Code and message of the error that ended it.
    error_code: str = ""
    error: str = ""
    # What settled a doubt: `late`, `probe`, `operator`, `caller`; empty for the server's answer.
    resolved_by: str = ""
    # Whether an answer is stored; an operation that was settled otherwise has none.
    answered: bool = False
    # Whether its answer was removed to keep the ledger within its quota.
    dropped: bool = False
    # Whether it may have been executed before the last claim, so that only an answer ends the doubt.
    doubted: bool = False


class ClaimVerdict(StrEnum):
    # The INTENT is durable and belongs to the claimant, who sends the call.
    GRANTED = "granted"
    # It has another owner or has ended; its state tells.
    KNOWN = "known"
    # The key names another call.
    CONFLICT = "conflict"


class ClaimResult(msgspec.Struct, frozen=True):
    """The verdict of a claim, and the operation under its key."""

    verdict: ClaimVerdict
    operation: Operation


class OperationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation ended; DOUBT and ASKED are not final."""

    state: OperationState
    # Only of a DONE operation.
    answer: McpResponse | None = None
    attempts: int = 1
    error_code: str = ""
    error: str = ""
    resolved_by: str = ""


class LedgerDamaged(StoreFailed):
    """Recorded calls are missing or changed, so that repeats may not be recognised."""


def ledger_unavailable(failure: StoreFailed, *, effect: Effect = Effect.NONE) -> LedgerUnavailable:
    """The error of a call that cannot be recorded."""
    return LedgerUnavailable(str(failure), effect=effect, damaged=isinstance(failure, LedgerDamaged))


class Ledger(Protocol):
    """A durable store of operations. Every method is atomic and, when it returns, durable.

    All raise StoreFailed. SQLite keeps it on one machine; several gateways share one in PostgreSQL.
    """

    async def claim(self, intent: Intent) -> ClaimResult:
        """Record the intent, unless the key is taken.

        GRANTED: the key is new or expired, or the operation is FAILED or ASKED, or it is in DOUBT and the
        intent retries that. A known operation keeps its op_id, and its fence grows; one that was in DOUBT
        or an orphaned INTENT is `doubted` until it has FAILED.
        CONFLICT: another fingerprint, in any state.
        KNOWN: anything else. An INTENT whose owner is gone or whose lease has ended becomes DOUBT first;
        one of a repeatable class is GRANTED again.
        """

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        """Record an outcome with its answer; False when the fence is old or it is DONE or FAILED already.

        INTENT may end in any state, DOUBT in DONE or FAILED. The payload of the answer is copied; its owner
        still closes it.
        """

    async def find(self, op_id: str) -> Operation | None:
        """The operation of that id."""

    async def find_by_key(self, tenant: str, principal: str, key: str) -> Operation | None:
        """The operation under that key, even an expired one."""

    async def read_answer(self, op_id: str) -> McpResponse | None:
        """The stored answer, byte for byte, whose payload the caller closes; None when it is not kept."""

    async def list_orphans(self) -> list[Operation]:
        """Operations in INTENT whose owner is gone, oldest first."""

    async def adopt(self, op_id: str, fence: int, lease_until: float) -> int | None:
        """Take over an orphaned INTENT, which becomes `doubted`: its new fence; None when another did."""

    async def list_operations(self, states: Collection[OperationState], limit: int = 1000) -> list[Operation]:
        """Operations in one of the states, oldest first."""

    async def sweep(self) -> int:
        """Delete expired operations: never an INTENT, a DOUBT only after its own, longer window."""


def effect_of(state: OperationState) -> Effect:
    match state:
        case OperationState.DONE:
            return Effect.DONE
        case OperationState.FAILED:
            return Effect.NONE
        case _:
            return Effect.UNKNOWN
