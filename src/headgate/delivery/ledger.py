"""The record of every call that must not be carried out twice: what it holds, and what a store of it does.

    NEW -> INTENT -> DONE | FAILED | DOUBT -> (late answer, probe, operator, caller) -> DONE | FAILED
              \\-> ASKED -> INTENT ...

INTENT is durable before the first byte goes upstream, and what ends it before the client sees the answer.
Whoever holds the INTENT has its `fence`; a write with an older one is refused, so that a gateway that was
paused while another took over cannot spoil the record.
"""

from enum import StrEnum
from typing import Protocol

import msgspec

from headgate.delivery.errors import LedgerUnavailable
from headgate.domain.errors import Effect, StoreFailed
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass


class OperationState(StrEnum):
    """Where an operation is."""

    # Sent, or about to be.
    INTENT = "intent"
    # The server asked something with its answer, and waits for the call to go on.
    ASKED = "asked"
    # There is an answer, or somebody knows that it happened.
    DONE = "done"
    # It did not happen; a repeat is carried out.
    FAILED = "failed"
    # It may have happened.
    DOUBT = "in_doubt"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that somebody wants to make."""

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
    # As the server is to get them; kept until the operation is done, for a restart and for probes.
    arguments: bytes
    # Seconds since the epoch at which nobody waits any more; after it whoever holds the INTENT has lost it.
    lease_until: float
    # An operation in doubt is tried again if it was first claimed since then; None is never, 0 is always.
    # Any other time is that of the server's oldest keys, and so counts only for what was KEYED then too.
    retries_doubt_since: float | None = None
    # Whether it goes on with an operation whose server asked something.
    continues: bool = False
    # The transaction that it is a step of.
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
    # The process that holds the INTENT.
    owner: str
    arguments: bytes = b""
    transaction: str = ""
    # The code of the error that ended it, and its sentence.
    error_code: str = ""
    error: str = ""
    # Who settled a doubt: `late`, `probe`, `operator`, `caller`; empty for the server's own answer.
    resolved_by: str = ""
    # Whether an answer is stored: of an operation that was settled by somebody's word there is none.
    answered: bool = False
    # Whether its answer was removed to keep the ledger within its quota.
    dropped: bool = False
    # Whether it may have happened before it was claimed last, so that nothing but an answer ends the doubt.
    doubted: bool = False


class ClaimVerdict(StrEnum):
    """What a claim came to."""

    # The INTENT is durable and the claimant's: send it.
    GRANTED = "granted"
    # Somebody holds it, or it has ended: look at its state.
    KNOWN = "known"
    # The key names another call.
    CONFLICT = "conflict"


class ClaimResult(msgspec.Struct, frozen=True):
    """The operation under a key, after a claim."""

    verdict: ClaimVerdict
    operation: Operation


class OperationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an operation ended, for now."""

    state: OperationState
    # Of a DONE operation.
    answer: McpResponse | None = None
    attempts: int = 1
    error_code: str = ""
    error: str = ""
    resolved_by: str = ""


class LedgerDamaged(StoreFailed):
    """Recorded calls are missing or changed, so that a repeat cannot be recognised any more."""


def ledger_unavailable(failure: StoreFailed, *, effect: Effect = Effect.NONE) -> LedgerUnavailable:
    """The error of a call that needs the ledger."""
    return LedgerUnavailable(str(failure), effect=effect, damaged=isinstance(failure, LedgerDamaged))


class Ledger(Protocol):
    """A durable store of operations. Every method is atomic and, when it returns, durable.

    All raise StoreFailed. SQLite keeps it on one machine; several gateways share one in PostgreSQL.
    """

    async def claim(self, intent: Intent) -> ClaimResult:
        """Record the intent, unless the key is taken.

        GRANTED: the key is new, or its window is over; or the operation FAILED; or it was ASKED, whether the
        claim continues it or starts over; or it is in DOUBT and the intent retries that. A known operation
        keeps its op_id, and its fence grows. CONFLICT: another fingerprint, whatever the state.
        One that was in DOUBT, or left behind in INTENT, is `doubted` until it has FAILED.
        KNOWN: anything else. An INTENT whose owner is gone, or whose lease is over, becomes DOUBT first;
        of a repeatable class it is GRANTED anew.
        """

    async def finish(self, op_id: str, fence: int, outcome: OperationOutcome) -> bool:
        """Record how it ended, with the answer; False when the fence is old or it is DONE or FAILED already.

        From INTENT to anything; from DOUBT to DONE or FAILED.
        The payload of the answer stays its owner's: it is copied, not taken.
        """

    async def find(self, op_id: str) -> Operation | None:
        """The operation of that id."""

    async def find_by_key(self, tenant: str, principal: str, key: str) -> Operation | None:
        """The operation under that key, also one whose window is over."""

    async def read_answer(self, op_id: str) -> McpResponse | None:
        """The stored answer, byte for byte; whoever takes it closes its payload. None: it is not kept."""

    async def list_orphans(self) -> list[Operation]:
        """Operations in INTENT whose owner is gone, oldest first."""

    async def adopt(self, op_id: str, fence: int, lease_until: float) -> int | None:
        """Hold an orphan's INTENT, which is `doubted` then: its new fence; None when somebody was quicker."""

    async def list_in_doubt(self, limit: int = 1000) -> list[Operation]:
        """Operations in DOUBT, oldest first."""

    async def sweep(self) -> int:
        """Forget what is past its window: never an INTENT, a DOUBT only after its own, longer one."""


def effect_of(state: OperationState) -> Effect:
    """What may have happened in an operation of that state."""
    match state:
        case OperationState.DONE:
            return Effect.DONE
        case OperationState.FAILED:
            return Effect.NONE
        case _:
            return Effect.UNKNOWN
