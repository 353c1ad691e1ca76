"""A session that retries calls where that is safe, and executes one call per idempotency key."""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

import msgspec

from headgate.delivery.idempotency_key import fingerprint
from headgate.domain.errors import Effect
from headgate.tx.call_runner import CallRunner
from headgate.tx.config import RetryPolicy, TxConfig, check_arguments, check_key, check_policy, check_timeout
from headgate.tx.errors import TxConflictError, TxError
from headgate.tx.peer_session import PeerSession
from headgate.tx.tool_call import RequestState, TxRequest, TxResult
from headgate.tx.transaction import Transaction

log = logging.getLogger("headgate.tx")

# On exit, cancelled calls get this long to notify their peer.
_CLOSING_SECONDS = 5.0


class TxSession:
    """Wraps a `Client` or a `ClientSession` of the official SDK, or any object with its `call_tool`.

    On entry it opens the wrapped session, unless that is open, and negotiates rmcp with the peer; `fallback`
    says why it uses plain MCP, if it does. It reconnects a `Client` that it opened when the connection is
    lost. Other attributes are those of the wrapped session.
    """

    def __init__(
        self,
        session: Any,
        config: TxConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.config = config or TxConfig()
        self._clock = clock
        self._peer = PeerSession(session, self.config)
        self._call_runner = CallRunner(self._peer, self.config, sleep=sleep, random=random, now=now)
        self._deduplication = DeduplicationWindow(
            self.config.deduplication_window_ms / 1000, self.config.max_keys, clock
        )
        self._active: dict[str, TxRequest] = {}
        self._running: set[asyncio.Task[TxResult]] = set()
        self._stack: AsyncExitStack | None = None
        self._is_warned = False

    def __getattr__(self, name: str) -> Any:
        if name == "_peer":
            # Not set yet: asking the session for it would recurse.
            raise AttributeError(name)
        return getattr(self._peer.session, name)

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("this session is open already")
        async with AsyncExitStack() as stack:
            await self._peer.open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSING_SECONDS)
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, error, traceback) if stack is not None else None

    @property
    def session(self) -> Any:
        """The wrapped session; after a lost connection another client with the same settings."""
        return self._peer.session

    @property
    def is_open(self) -> bool:
        """Whether it has been entered."""
        return self._stack is not None

    @property
    def active_requests(self) -> Mapping[str, TxRequest]:
        """The calls in flight, by request id."""
        return MappingProxyType(self._active)

    @property
    def features(self) -> frozenset[str]:
        """The rmcp features of both sides, or of the last peer; none with plain MCP."""
        return self._peer.features or frozenset()

    @property
    def is_durable(self) -> bool:
        """Whether the peer keeps idempotency keys, so that they survive this program."""
        return "idempotency" in self.features

    @property
    def fallback(self) -> str | None:
        """Why plain MCP is used; None when rmcp is."""
        return self._peer.fallback

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        retry_policy: RetryPolicy | None = None,
        on_doubt: Literal["fail", "retry"] = "fail",
        progress_callback: Callable[..., Any] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> TxResult:
        """Call a tool; the result says how the delivery ended.

        `timeout_ms` bounds each attempt. A failed delivery is not raised: `final_status` is failed or
        timeout, `error_code` says why, and `unwrap()` raises it. Raises TxConflictError when the key names
        another call; TxInDoubtError when an earlier call with the key may have been executed and `on_doubt`
        is not "retry"; and ValueError or TypeError for an invalid parameter, before anything is sent.
        """
        arguments = check_arguments(arguments)
        limit = self.config.default_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        if on_doubt not in ("fail", "retry"):
            raise ValueError(f'on_doubt must be "fail" or "retry", not {on_doubt!r}')
        if idempotency_key is not None and not self._is_warned and not self.is_durable:
            self._is_warned = True
            reason = self.fallback or "the server has no idempotency among its features"
            log.warning("idempotency keys are kept by this process alone, and end with it: %s", reason)
        return await self.deliver(
            TxRequest(
                request_id=str(uuid4()),
                tool=name,
                arguments=arguments,
                timeout_ms=limit,
                retry_policy=self.config.retry_policy if retry_policy is None else check_policy(retry_policy),
                idempotency_key=check_key(idempotency_key),
                retries_doubt=on_doubt == "retry",
                meta=meta,
                progress_callback=progress_callback,
            )
        )

    def transaction(self, *, timeout_ms: float | None = None) -> Transaction:
        """A group of calls that are undone together, for `async with`."""
        limit = self.config.transaction_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        return Transaction(self, self._peer, clock=self._clock, timeout_ms=limit)

    async def deliver(self, request: TxRequest) -> TxResult:
        """As `call_tool`, for a finished request."""
        if (callback := request.progress_callback) is not None:

            async def progressed(*progress: Any, **named: Any) -> None:
                # A peer that reports progress has accepted the call.
                request.state = RequestState.ACKNOWLEDGED
                await callback(*progress, **named)

            request.progress_callback = progressed
        if request.idempotency_key is None:
            answer = await self._call(request)
        else:
            answer = await self._call_once(request, request.idempotency_key)
        if answer.error_code in _RAISED:
            answer.unwrap()
        return answer

    async def _call(self, request: TxRequest) -> TxResult:
        self._active[request.request_id] = request
        try:
            return await self._call_runner.call_with_retry(request)
        finally:
            del self._active[request.request_id]

    async def _call_once(self, request: TxRequest, key: str) -> TxResult:
        """The answer of the one call with the key, which may be this one."""
        call_fingerprint = fingerprint(
            "", request.tool, msgspec.json.encode(request.arguments or {}, enc_hook=repr)
        )
        time_of = asyncio.get_running_loop().time
        deadline = time_of() + request.timeout_ms / 1000
        joined = True
        while True:
            entry = self._deduplication.find(key, call_fingerprint)
            if entry is not None and entry.answer is not None:
                return replace(entry.answer, duplicate=True)
            if entry is None or entry.running is None:
                if entry is not None:
                    # Sent only if it is not executed twice; that may need a connection to the peer first.
                    request.in_doubt = request.repeats_doubt = True
                entry = self._begin(request, key, call_fingerprint)
                joined = False
            answer = await self._await(entry, None if not joined else max(0.0, deadline - time_of()))
            if answer is not None:
                return replace(answer, duplicate=True) if joined else answer
            if joined and time_of() >= deadline:
                return TxResult(
                    processed=None,
                    final_status=RequestState.TIMEOUT,
                    error_code="IN_PROGRESS",
                    error_message=f"the first call of {request.tool!r} with this key is still under way; "
                    "send the same call with the same key again later",
                    retryable=True,
                    request_id=request.request_id,
                )

    def _begin(self, request: TxRequest, key: str, call_fingerprint: bytes) -> "DeduplicationEntry":
        entry = self._deduplication.begin(key, call_fingerprint, request.tool)
        # A task of its own, which outlives the first caller while others wait.
        entry.running = asyncio.create_task(self._run(request, key, entry))
        self._running.add(entry.running)
        entry.running.add_done_callback(self._running.discard)
        return entry

    async def _run(self, request: TxRequest, key: str, entry: "DeduplicationEntry") -> TxResult:
        keeps = False
        try:
            answer = await self._call(request)
            if answer.answered and answer.effect is Effect.DONE:
                entry.answer = answer
                keeps = True
            elif answer.effect is not Effect.NONE:
                keeps = not await self._may_forget_key(request)
            return answer
        except asyncio.CancelledError:
            # All callers left; a call that was sent may still be executed.
            keeps = request.sent and not self._peer.known_kind_of(request.tool).repeatable
            raise
        finally:
            entry.running = None
            entry.created_at = self._clock()
            if not keeps:
                self._deduplication.forget(key, entry)

    async def _may_forget_key(self, request: TxRequest) -> bool:
        """Whether the key may be forgotten, because a second execution does no harm."""
        if request.durable:
            # A repeat goes to the peer, so that there is no need to list its tools now.
            return self._peer.known_kind_of(request.tool).repeatable
        return await self._call_runner.is_safe_to_repeat(request)

    async def _await(self, entry: "DeduplicationEntry", seconds: float | None) -> TxResult | None:
        """The result of the call; None after so many seconds, or when its other callers cancelled it."""
        task = entry.running
        if task is None:
            return None
        entry.waiters += 1
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            entry.waiters -= 1
            if not entry.waiters and not task.done():
                task.cancel()
        return task.result() if task.done() and not task.cancelled() else None


_RAISED = frozenset({"CONFLICT", "IN_DOUBT"})


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

    def forget(self, key: str, entry: "DeduplicationEntry") -> None:
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
