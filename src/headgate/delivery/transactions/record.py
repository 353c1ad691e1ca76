"""What is recorded of a transaction, and what a store of it does."""

from typing import NamedTuple, Protocol

import msgspec

from headgate.delivery.transactions.plan import OnFailure, Phase, Remedy, StepState
from headgate.domain.call import Caller


class Place(NamedTuple):
    """Whose a transaction is, and its id: that of another is unknown to everybody else."""

    tenant: str
    principal: str
    id: str

    @property
    def caller(self) -> Caller:
        """Whose it is."""
        return Caller(principal=self.principal, tenant=self.tenant)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a transaction, and what takes it back; it is recorded before it is sent."""

    number: int
    tool: str
    arguments: bytes
    state: StepState = StepState.SENT
    remedy: Remedy = Remedy.NONE
    # The key that its client gave it.
    named: str = ""
    # What the client calls itself: in which words it gives arguments depends on it.
    client: str = ""
    op_id: str = ""
    undo_tool: str = ""
    # With places for what the step was asked and answered, and filled with it.
    undo_template: bytes = b""
    undo_arguments: bytes = b""
    undo_op_id: str = ""
    # Each time that the compensation is refused, the next try is another call, with another key.
    undo_round: int = 1
    error: str = ""
    # Whether another gateway that is still there changed it last, and so may be about to send it.
    elsewhere: bool = False


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a transaction; times are seconds since the epoch."""

    at: float
    text: str


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction with its steps; times are seconds since the epoch."""

    tenant: str
    principal: str
    id: str
    created: float
    updated: float
    # When it is rolled back if it still runs.
    deadline: float
    phase: Phase = Phase.RUNNING
    on_failure: OnFailure = OnFailure.ROLLBACK
    timed_out: bool = False
    # Why it is rolled back, or what waits for a person.
    reason: str = ""
    steps: tuple[Step, ...] = ()
    history: tuple[Event, ...] = ()
    # Grows with every change; a change of an older one is refused.
    revision: int = 0

    @property
    def place(self) -> Place:
        """Whose it is, and its id."""
        return Place(self.tenant, self.principal, self.id)

    def step(self, number: int) -> Step:
        """The step of that number."""
        return self.steps[number - 1]

    def key(self, step: Step) -> str:
        """What the ledger knows the call of a step by."""
        return f"headgate:tx/{self.id}/{step.number}"

    def undo_key(self, step: Step) -> str:
        """What the ledger knows the compensation of a step by."""
        again = f"/{step.undo_round}" if step.undo_round > 1 else ""
        return f"{self.key(step)}/undo{again}"


class Heading(msgspec.Struct, frozen=True):
    """What has to be known of a transaction to see whether something is to be done about it."""

    place: Place
    phase: Phase
    deadline: float


class HandedOver(NamedTuple):
    """A rollback that an operator lets continue, and that no gateway has taken over yet."""

    place: Place
    revision: int


class TransactionStore(Protocol):
    """A durable store of transactions. Every method is atomic and, when it returns, durable.

    All raise StoreFailed.
    """

    async def begin(self, transaction: Transaction) -> bool:
        """Record a new one with its history; False when there is one of that place."""

    async def load(self, place: Place) -> Transaction | None:
        """The transaction with its steps in order and its history."""

    async def save(self, transaction: Transaction, event: Event, step: Step | None) -> bool:
        """Record a change, an event and a step that is new or changed; False when the revision is old."""

    async def unfinished(self) -> list[Heading]:
        """Those that have not ended and that no other gateway is at work on, oldest first."""

    async def handed_over(self) -> list[HandedOver]:
        """The rollbacks that an operator lets continue and no gateway has taken over, oldest first."""

    async def operation(self, place: Place, key: str) -> str | None:
        """The op_id that the ledger has under a key of the transaction's owner."""

    async def counts(self) -> dict[Phase, int]:
        """How many there are in each phase."""

    async def sweep(self) -> int:
        """Forget those that ended and are past the window; never one that is stuck."""
