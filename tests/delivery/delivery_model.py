"""A model of the promises: what each call returns, leaves in the ledger and does at the bank."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.delivery.ledger import OperationState, effect_of
from headgate.domain.upstream_policy import ToolClass
from tests.delivery.fake_bank import LONGEST_SECONDS, SETTLE_SECONDS, Fault
from tests.delivery.gateway_process import DOUBT_SECONDS, WINDOW_SECONDS

KEY_WINDOW_SECONDS = 24 * 3600.0
_LEASE_SECONDS = 30.0
# What a fault is reported as, where no other attempt mends it.
_CODES = {
    Fault.TIMEOUT_NEVER: "TIMEOUT",
    Fault.TIMEOUT_LATE: "TIMEOUT",
    Fault.TIMEOUT_SILENT: "TIMEOUT",
    Fault.LOST_BEFORE: "NETWORK_ERROR",
    Fault.LOST_AFTER: "NETWORK_ERROR",
    Fault.GARBLED: "INVALID_MESSAGE",
}
_TIMEOUTS = (Fault.TIMEOUT_NEVER, Fault.TIMEOUT_LATE, Fault.TIMEOUT_SILENT)
# What the bank says where another attempt mends it, or nothing is to be mended.
_HARMLESS = {
    Fault.FINE: "answer",
    Fault.REFUSED: "answer",
    Fault.BUSY: "answer",
    Fault.ERROR_RESULT: "isError",
    Fault.INTERNAL: "-32603",
}


@dataclass(eq=False)
class Entry:
    """What the model knows of an operation."""

    kind: ToolClass
    order: str
    created: float
    state: OperationState = OperationState.INTENT
    updated: float = 0.0
    lease_until: float = 0.0
    # How often it was granted, and how often it may run at most.
    fence: int = 0
    allowed: int = 0
    runs: int = 0
    # What its answer is; what its bank's answer is, if it goes by keys.
    words: str = ""
    by_key: str = ""
    # Whether the bank may still be at it, and whether an earlier attempt may have happened.
    at_work: bool = False
    doubted: bool = False
    # What the ledger did not take: a state, and the words of an answer.
    owed: tuple[OperationState, str] | None = None
    # What a caller got as its answer.
    shown: bytes | None = None


class Span(NamedTuple):
    """When a call began, and when its caller got its outcome."""

    start: float
    end: float


@dataclass(eq=False)
class Parked:
    """A call that will be carried out although no caller waits for it."""

    entry: Entry
    fence: int
    # Whether the gateway hears of it, as long as it lives.
    tells: bool


@dataclass
class Model:
    """One ledger by key, and one bank."""

    entries: dict[str, Entry] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    parked: list[Parked] = field(default_factory=list)
    # The method of the ledger that fails.
    down: str = ""

    def call(
        self, key: str, kind: ToolClass, order: str, fault: Fault | None, *, retries_doubt: bool, now: Span
    ) -> tuple[str, Entry | None]:
        """What the caller gets, and the operation of which; the fault None refuses for good."""
        if self.down == "claim":
            if kind is not ToolClass.READ:
                return "SERVICE_UNAVAILABLE none", None
            # It belongs to no operation, and is not reported later.
            return self._attempted(Entry(kind, order, now.start), fault)[0], None
        self.forget(now.start, key)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = Entry(kind, order, now.start)
            return self._granted(entry, fault, now), entry
        if (entry.kind, entry.order) != (kind, order):
            return "CONFLICT none", None
        told = self._known(entry, now.start, retries_doubt=retries_doubt)
        return (told if told is not None else self._granted(entry, fault, now)), entry

    def expired(self, entry: Entry, now: float) -> bool:
        """Whether it is past its window."""
        if entry.state is OperationState.INTENT:
            return False
        return entry.updated < now - (
            DOUBT_SECONDS if entry.state is OperationState.DOUBT else WINDOW_SECONDS
        )

    def forget(self, now: float, key: str | None = None) -> int:
        """Forget what is past its window: how many there were."""
        over = [
            name for name, entry in self.entries.items() if key in (None, name) and self.expired(entry, now)
        ]
        for name in over:
            del self.entries[name]
        return len(over)

    @property
    def doubts(self) -> list[str]:
        """The keys of what is in doubt."""
        return [key for key, entry in self.entries.items() if entry.state is OperationState.DOUBT]

    def has(self, entry: Entry) -> bool:
        """Whether the ledger has it."""
        return any(known is entry for known in self.entries.values())

    # A call that was made before.

    def _known(self, entry: Entry, now: float, *, retries_doubt: bool) -> str | None:
        """The outcome of an operation; None when it is carried out now."""
        if entry.state is OperationState.INTENT and now > entry.lease_until:
            entry.state, entry.updated, entry.at_work = OperationState.DOUBT, now, False
        if entry.state is OperationState.DOUBT and self._retried(entry, now, retries_doubt=retries_doubt):
            entry.doubted = True
            return None
        if entry.owed is not None:
            state, words = entry.owed
            if self.down == "finish":
                return f"SERVICE_UNAVAILABLE {effect_of(state)}"
            self.end(entry, state, now, words)
            return self._known(entry, now, retries_doubt=retries_doubt)
        match entry.state:
            case OperationState.DONE:
                return f"again {entry.words}"
            case OperationState.FAILED:
                return None
            case _ if entry.kind is ToolClass.PROBEABLE:
                return self._probed(entry, now, retries_doubt=retries_doubt)
            case _:
                return "IN_DOUBT unknown"

    def _probed(self, entry: Entry, now: float, *, retries_doubt: bool) -> str | None:
        if entry.runs:
            if self.down == "finish":
                return "SERVICE_UNAVAILABLE done"
            self.end(entry, OperationState.DONE, now, "word")
            return "again word"
        age = now - entry.updated
        over = age > LONGEST_SECONDS if entry.at_work else age >= SETTLE_SECONDS
        if not over and not retries_doubt:
            return "IN_DOUBT unknown"
        # A bank that takes longer than it may cannot complain, and a caller who insists neither.
        entry.allowed += (not over) + sum(parked.entry is entry for parked in self.parked)
        entry.doubted = not over
        return None

    def _retried(self, entry: Entry, now: float, *, retries_doubt: bool) -> bool:
        """Whether it is sent again without any question."""
        if self._repeatable(entry, now):
            return True
        asked = retries_doubt and entry.kind is not ToolClass.PROBEABLE
        entry.allowed += asked
        return asked

    def _repeatable(self, entry: Entry, now: float) -> bool:
        if entry.kind is ToolClass.KEYED:
            return entry.created >= now - KEY_WINDOW_SECONDS
        return entry.kind.repeatable

    # A call that is made now.

    def _granted(self, entry: Entry, fault: Fault | None, now: Span) -> str:
        self.begin(entry, now.start)
        told, state, words = self._attempted(entry, fault)
        if self.down == "finish":
            entry.owed = state, words
            ended = state is OperationState.DONE or (state is OperationState.DOUBT and told == "-32602")
            return f"SERVICE_UNAVAILABLE {effect_of(state)}" if ended else told
        self.end(entry, state, now.end, words)
        return told

    def begin(self, entry: Entry, now: float) -> None:
        """Its INTENT is recorded."""
        entry.state, entry.owed = OperationState.INTENT, None
        entry.lease_until = now + LONGEST_SECONDS + _LEASE_SECONDS
        entry.fence += 1
        entry.allowed = max(entry.allowed, 1)

    def end(self, entry: Entry, state: OperationState, now: float, words: str = "") -> None:
        """How it ended is recorded."""
        if entry.state is OperationState.DOUBT and state is OperationState.DOUBT:
            entry.owed = None
            return
        entry.state, entry.updated, entry.words, entry.owed = state, now, words, None
        if state is OperationState.FAILED:
            entry.doubted = False

    def run(self, entry: Entry, words: str = "answer") -> str:
        """The bank carries it out, unless it knows its key: what it says."""
        if entry.kind is ToolClass.KEYED and entry.by_key:
            return entry.by_key
        entry.runs += 1
        self.runs[entry.order] += 1
        if entry.kind is ToolClass.KEYED:
            entry.by_key = words
        return words

    def _attempted(self, entry: Entry, fault: Fault | None) -> tuple[str, OperationState, str]:
        """What the caller gets, the state, and the text of the answer."""
        if fault is None:
            return self._refused(entry)
        if fault in _HARMLESS:
            return self._done(self.run(entry, _HARMLESS[fault]))
        if fault is Fault.BAD_PARAMS:
            return "-32602", OperationState.DOUBT if entry.doubted else OperationState.FAILED, ""
        if fault in (Fault.LOST_AFTER, Fault.GARBLED):
            self.run(entry)
        if fault in (Fault.TIMEOUT_LATE, Fault.TIMEOUT_SILENT):
            self.parked.append(Parked(entry, entry.fence, tells=fault is Fault.TIMEOUT_LATE))
        return self._ambiguous(entry, fault)

    def _ambiguous(self, entry: Entry, fault: Fault) -> tuple[str, OperationState, str]:
        if entry.kind.repeatable:
            return self._done(self.run(entry))
        if entry.kind is ToolClass.PROBEABLE and entry.runs:
            return self._done("word")
        if fault in _TIMEOUTS:
            entry.at_work = True
        elif entry.kind is ToolClass.PROBEABLE and not entry.doubted:
            return self._done(self.run(entry))
        else:
            entry.at_work = entry.at_work and entry.doubted
        return f"{_CODES[fault]} unknown", OperationState.DOUBT, ""

    def _refused(self, entry: Entry) -> tuple[str, OperationState, str]:
        """What becomes of a call that never reaches the bank."""
        if not entry.doubted:
            return "CONNECTION_ERROR none", OperationState.FAILED, ""
        if entry.kind is ToolClass.PROBEABLE and entry.runs:
            return self._done("word")
        return "CONNECTION_ERROR unknown", OperationState.DOUBT, ""

    def _done(self, words: str) -> tuple[str, OperationState, str]:
        return words, OperationState.DONE, words

    # What else may happen.

    def late(self, parked: Parked, now: float) -> None:
        """The bank carries out calls without a waiting caller."""
        words = self.run(parked.entry)
        entry = parked.entry
        if not parked.tells or parked.fence != entry.fence or not self.has(entry):
            return
        if entry.state not in (OperationState.INTENT, OperationState.DOUBT):
            return
        if self.down == "finish":
            entry.owed = OperationState.DONE, words
        else:
            self.end(entry, OperationState.DONE, now, words)

    def restart(self, now: float) -> None:
        """The gateway is killed, and another one finds what it left."""
        for parked in self.parked:
            parked.tells = False
        self.down = ""
        for entry in self.entries.values():
            entry.owed = None
            if entry.state is OperationState.INTENT:
                entry.fence += 1
                if self._repeatable(entry, now):
                    self.end(entry, OperationState.DONE, now, self.run(entry))
                else:
                    self.end(entry, OperationState.DOUBT, now)
                    entry.at_work = False
