"""The idempotency keys that this process remembers, each for one call within the window."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headgate.tx.errors import TxConflictError, TxError
from headgate.tx.tool_call import TxResult


@dataclass(slots=True, eq=False)
class DeduplicationEntry:
    """A key whose call is in flight, answered, or in doubt."""

    call_fingerprint: bytes
    tool: str
    created_at: float
    running: asyncio.Task[TxResult] | None = None
    waiters: int = 0
    answer: TxResult | None = None


class DeduplicationWindow:
    """Keys and their calls; the least recently used answers are evicted first."""

    def __init__(self, seconds: float, limit: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[str, DeduplicationEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str, call_fingerprint: bytes) -> DeduplicationEntry | None:
        """The entry of the key, if any; raises TxConflictError when it names another call."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.running is None and self._clock() - entry.created_at >= self._seconds:
            del self._entries[key]
            return None
        if entry.call_fingerprint != call_fingerprint:
            raise TxConflictError(
                f"the idempotency key {key[:200]!r} was used before with {entry.tool!r} or other arguments; "
                "use a new key for a new call, and the same arguments to repeat one",
                "CONFLICT",
            )
        self._entries.move_to_end(key)
        return entry

    def begin(self, key: str, call_fingerprint: bytes, tool: str) -> DeduplicationEntry:
        """Add a key whose call starts now; raises TxError when there are too many unfinished ones."""
        if key not in self._entries and len(self._entries) >= self._limit:
            self._evict_one()
        entry = DeduplicationEntry(call_fingerprint, tool, self._clock())
        self._entries[key] = entry
        self._entries.move_to_end(key)
        return entry

    def forget(self, key: str, entry: DeduplicationEntry) -> None:
        """Remove a key whose call was not executed."""
        if self._entries.get(key) is entry:
            del self._entries[key]

    def _evict_one(self) -> None:
        now = self._clock()
        # Calls in flight and in doubt stay, because without them a repeat would be executed.
        gone = next(
            (
                key
                for key, entry in self._entries.items()
                if entry.answer is not None
                or (entry.running is None and now - entry.created_at >= self._seconds)
            ),
            None,
        )
        if gone is None:
            raise TxError(
                f"all {self._limit} idempotency keys are of calls under way or in doubt; "
                "settle some of them, or raise max_keys",
                "RESOURCE_EXHAUSTED",
                retryable=True,
            )
        del self._entries[gone]
