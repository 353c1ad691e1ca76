"""Whatever is done to a ledger in whatever order, it says what a dictionary in memory would say."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delivery.ledger import ClaimVerdict, Intent, Ledger, OperationOutcome, OperationState
from headgate.domain.mcp_request import McpResponse
from headgate.domain.upstream_policy import ToolClass
from tests.storage.ledger_stages import (
    DOUBT_SECONDS,
    LEASE_SECONDS,
    START,
    WINDOW_SECONDS,
    intent,
    sqlite_stage,
)

KEYS = ("a", "b")
GATEWAYS = st.integers(0, 1)
ENDED = (OperationState.DONE, OperationState.FAILED, OperationState.ASKED)


@dataclass(frozen=True)
class Claiming:
    """A gateway claims a key."""

    gateway: int
    key: str
    fingerprint: bytes
    kind: ToolClass
    retries: bool


@dataclass(frozen=True)
class Finishing:
    """A gateway records how it ended, perhaps with an old fence."""

    gateway: int
    key: str
    behind: int
    state: OperationState
    answer: bytes | None


@dataclass(frozen=True)
class Adopting:
    """A gateway takes what may have been left behind."""

    gateway: int
    key: str


@dataclass(frozen=True)
class Waiting:
    """Time passes, or the clock is set back."""

    seconds: float


@dataclass(frozen=True)
class Restarting:
    """A gateway ends, and starts again."""

    gateway: int


@dataclass(frozen=True)
class Sweeping:
    """What is past its window is removed."""

    gateway: int


Step = Claiming | Finishing | Adopting | Waiting | Restarting | Sweeping
CLAIMING = st.builds(
    Claiming,
    GATEWAYS,
    st.sampled_from(KEYS),
    st.sampled_from((b"one", b"one", b"one", b"two")),
    st.sampled_from((ToolClass.UNSAFE, ToolClass.IDEMPOTENT)),
    st.booleans(),
)
FINISHING = st.builds(
    Finishing,
    GATEWAYS,
    st.sampled_from(KEYS),
    st.sampled_from((0, 0, 0, 1)),
    st.sampled_from((*ENDED, OperationState.DOUBT)),
    st.sampled_from((None, b'"small"', b'"%s"' % (b"large" * 20_000))),
)
SECONDS = (1.0, LEASE_SECONDS + 1, WINDOW_SECONDS + 1, DOUBT_SECONDS + 1, -LEASE_SECONDS, -WINDOW_SECONDS)
STEPS = st.lists(
    st.one_of(
        CLAIMING,
        CLAIMING,
        FINISHING,
        FINISHING,
        st.builds(Adopting, GATEWAYS, st.sampled_from(KEYS)),
        st.builds(Waiting, st.sampled_from(SECONDS)),
        st.builds(Restarting, GATEWAYS),
        st.builds(Sweeping, GATEWAYS),
    ),
    max_size=25,
)


@dataclass
class Entry:
    """What the model knows of an operation."""

    op_id: str
    fingerprint: bytes
    owner: int
    lease_until: float
    updated: float
    state: OperationState = OperationState.INTENT
    fence: int = 1
    answer: bytes | None = None


@dataclass
class Model:
    """A ledger without a disk."""

    now: float = START
    entries: dict[str, Entry] = field(default_factory=dict)
    # Each start of a gateway is another owner.
    running: list[int] = field(default_factory=lambda: [0, 1])

    def claim(self, gateway: int, wanted: Intent) -> tuple[ClaimVerdict, str, int, OperationState]:
        known = self.entries.get(wanted.key)
        if known is None or self._over(known):
            known = self.entries[wanted.key] = Entry(
                wanted.op_id, wanted.fingerprint, self.running[gateway], wanted.lease_until, self.now
            )
            return ClaimVerdict.GRANTED, known.op_id, 1, OperationState.INTENT
        verdict = ClaimVerdict.KNOWN
        if known.fingerprint != wanted.fingerprint:
            verdict = ClaimVerdict.CONFLICT
        elif self._granted(known, wanted):
            verdict = ClaimVerdict.GRANTED
            known.state, known.answer, known.updated = OperationState.INTENT, None, self.now
            known.fence, known.owner, known.lease_until = (
                known.fence + 1,
                self.running[gateway],
                wanted.lease_until,
            )
        return verdict, known.op_id, known.fence, known.state

    def _granted(self, known: Entry, wanted: Intent) -> bool:
        if known.state is OperationState.INTENT and self._orphaned(known):
            if wanted.kind.repeatable:
                return True
            known.state, known.updated = OperationState.DOUBT, self.now
        if known.state is OperationState.DOUBT:
            return wanted.retries_doubt_since is not None
        return known.state in (OperationState.FAILED, OperationState.ASKED)

    def finish(self, key: str, fence: int, outcome: OperationOutcome) -> bool:
        known = self.entries[key]
        final = outcome.state in (OperationState.DONE, OperationState.FAILED)
        if known.fence != fence or not (
            known.state is OperationState.INTENT or (known.state is OperationState.DOUBT and final)
        ):
            return False
        known.state, known.updated, known.answer = outcome.state, self.now, None
        if outcome.answer is not None:
            assert isinstance(outcome.answer.result, bytes)
            known.answer = outcome.answer.result
        return True

    def adopt(self, gateway: int, key: str, lease_until: float) -> int | None:
        known = self.entries[key]
        if known.state is not OperationState.INTENT or not self._orphaned(known):
            return None
        known.fence, known.owner, known.lease_until = known.fence + 1, self.running[gateway], lease_until
        known.updated = self.now
        return known.fence

    def orphans(self) -> set[str]:
        entries = self.entries.values()
        return {
            entry.op_id for entry in entries if entry.state is OperationState.INTENT and self._orphaned(entry)
        }

    def sweep(self) -> int:
        over = [key for key, entry in self.entries.items() if self._over(entry)]
        for key in over:
            del self.entries[key]
        return len(over)

    def restart(self, gateway: int) -> None:
        self.running[gateway] = max(self.running) + 1

    def _orphaned(self, entry: Entry) -> bool:
        return entry.owner not in self.running or self.now > entry.lease_until

    def _over(self, entry: Entry) -> bool:
        if entry.state is OperationState.INTENT:
            return False
        window = DOUBT_SECONDS if entry.state is OperationState.DOUBT else WINDOW_SECONDS
        return self.now - window > entry.updated


@given(STEPS)
@settings(max_examples=40)
def test_any_sequence_of_steps_agrees_with_the_model(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compared(Path(directory), steps))


async def compared(directory: Path, steps: list[Step]) -> None:
    model = Model()
    async with sqlite_stage(directory) as stage:
        gateways: list[Ledger] = [await stage.gateway(), await stage.gateway()]
        for number, step in enumerate(steps):
            stage.clock.time = model.now
            match step:
                case Waiting(seconds):
                    model.now += seconds
                case Restarting(gateway):
                    await stage.end(gateways[gateway])
                    gateways[gateway] = await stage.gateway()
                    model.restart(gateway)
                case _:
                    await same_step(gateways[step.gateway], model, step)
            stage.clock.time = model.now
            # Now the one is asked, and now the other.
            await same_content(gateways[number % 2], model)


async def same_step(ledger: Ledger, model: Model, step: Claiming | Finishing | Adopting | Sweeping) -> None:
    match step:
        case Claiming():
            wanted = intent(
                step.key,
                fingerprint=step.fingerprint,
                kind=step.kind,
                lease_until=model.now + LEASE_SECONDS,
                since=-1e9 if step.retries else None,
            )
            claim = await ledger.claim(wanted)
            found = claim.operation
            said = (claim.verdict, found.op_id, found.fence, found.state)
            assert said == model.claim(step.gateway, wanted)
        case Finishing() if step.key in model.entries:
            entry = model.entries[step.key]
            fence = entry.fence - step.behind
            answer = McpResponse(step.answer) if step.answer is not None else None
            outcome = OperationOutcome(state=step.state, answer=answer)
            said_so = await ledger.finish(entry.op_id, fence, outcome)
            assert said_so == model.finish(step.key, fence, outcome)
        case Adopting() if step.key in model.entries:
            entry, lease_until = model.entries[step.key], model.now + LEASE_SECONDS
            fence_said = await ledger.adopt(entry.op_id, entry.fence, lease_until)
            assert fence_said == model.adopt(step.gateway, step.key, lease_until)
        case Sweeping():
            assert await ledger.sweep() == model.sweep()
        case _:
            return


async def same_content(ledger: Ledger, model: Model) -> None:
    assert {orphan.op_id for orphan in await ledger.list_orphans()} == model.orphans()
    for entry in model.entries.values():
        found = await ledger.find(entry.op_id)
        assert found is not None
        assert (found.state, found.fence) == (entry.state, entry.fence)
        assert found.answered == (entry.answer is not None)
        answer = await ledger.read_answer(entry.op_id)
        assert (answer is None) == (entry.answer is None)
        if answer is not None:
            result = answer.result
            if not isinstance(result, bytes):
                stored, result = result, b"".join(result.chunks())
                stored.close()
            assert result == entry.answer
