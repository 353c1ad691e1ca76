"""Sends calls to upstreams: each with a deadline, through a bulkhead, and again where a retry is safe."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec.structs import replace

from headgate.delivery.bulkhead import Bulkhead, BulkheadStats
from headgate.delivery.concurrency_limiter import Sleep
from headgate.delivery.delivery_policy import DeliveryPolicy
from headgate.delivery.idempotency_key import with_idempotency_key
from headgate.delivery.retry import retry_delay_seconds
from headgate.domain.delivery_request import DeliveryRequest, DeliveryStatus
from headgate.domain.errors import Effect, HeadgateError, UpstreamLost, UpstreamTimeout
from headgate.domain.identity import Identity
from headgate.domain.item import Item
from headgate.domain.mcp_request import DeliveryOptions, McpResponse, UpstreamCall, result_owner_of
from headgate.domain.payload import HasHeadAndTail
from headgate.domain.upstream_policy import Priority, ToolClass, ToolSafety
from headgate.protocol.result_conversion import claims_error, is_tool_error

_TOOL_CALL = "tools/call"
# These change nothing; a method that the gateway does not know may.
_READ_ONLY_METHODS = frozenset((
    "completion/complete", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/templates/list", "tasks/get", "tasks/list", "tasks/result", "tools/list",
))  # fmt: skip
# Read from each end of a result on disk.
_EDGE_BYTES = 8 * 1024

_DEFAULT_OPTIONS = DeliveryOptions()


class Upstream(Protocol):
    """Connections to MCP servers."""

    async def await_ready(self, server: str) -> None:
        """Wait, for a bounded time, until the server has listed its tools; raises UpstreamError."""

    def send_to_server(self, call: UpstreamCall) -> Awaitable[McpResponse]:
        """Send once, until the deadline; raises UpstreamError, whose effect says what may have happened."""

    def honours_keys(self, server: str) -> bool:
        """Whether the server declares that it executes one call per key."""

    def longest_seconds(self, server: str) -> float:
        """The longest that one call of the server may take, whatever its progress."""

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent without waiting for the server to start."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server sends its own requests while it executes a call."""

    async def subscribe(self, server: str, uri: str) -> McpResponse:
        """Subscribe to the changes of a resource; raises UpstreamError."""

    async def unsubscribe(self, server: str, uri: str) -> McpResponse:
        """End the subscription; raises UpstreamError."""


# Gets the server, the outcome (`ok`, `error`, or the code of a failure) and the duration of each call.
CallCounter = Callable[[str, str, float], None]


class UpstreamDelivery:
    """Makes as many attempts as the class of a tool allows, through one bulkhead per upstream."""

    def __init__(
        self,
        upstream: Upstream,
        delivery_policy: DeliveryPolicy,
        now: Callable[[], float],
        count: CallCounter,
        *,
        sleep: Sleep = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._upstream = upstream
        self._delivery_policy = delivery_policy
        self._now = now
        self._count = count
        self._sleep = sleep
        self._random = random
        self._bulkheads: dict[str, Bulkhead] = {}
        # The resource of each subscription by its owner and public URI, once per client.
        self._subscribed: dict[tuple[tuple[str, str], str], list[Item]] = {}

    async def await_ready(self, server: str) -> None:
        """Wait until the server has listed its tools; raises UpstreamError, which counts as a failed call."""
        started = self._now()
        try:
            await self._upstream.await_ready(server)
        except (HeadgateError, asyncio.CancelledError) as error:
            outcome = error.code if isinstance(error, HeadgateError) else "cancelled"
            self._count(server, outcome, self._now() - started)
            raise

    async def send_with_retry(self, call: UpstreamCall, *, kind: ToolClass | None = None) -> McpResponse:
        """The answer; a HeadgateError has the effect of all attempts. `kind` overrides the tool's class."""
        server = call.item.server
        bulkhead = self._bulkheads.get(server)
        if bulkhead is None or bulkhead.policy_revision != self._delivery_policy.revision:
            bulkhead = self._bulkhead_of(server)
        started = self._now()
        outcome = "INTERNAL"
        # A plain call gets no delivery status.
        plain = call.delivery_options is None and call.request.delivery_request is None
        try:
            sent = call
            if not plain or not bulkhead.has_default_policy or bulkhead.honours_keys:
                sent = self._with_deadline_and_key(call)
            probe = False
            if bulkhead.breaker.is_open or not bulkhead.limiter.try_acquire():
                probe = await self._admit(bulkhead, sent)
            try:
                answer = await bulkhead.send_admitted(sent, probe=probe)
            except HeadgateError as error:
                answer = await self._retry(
                    bulkhead, self._with_total_deadline(sent, started), error, kind, plain=plain
                )
            outcome = _outcome_label(answer)
            return answer if plain or answer.delivery_status is not None else _with_attempts(answer, 1)
        except HeadgateError as error:
            outcome = error.code
            if error.delivery_status is None and not plain:
                error.delivery_status = DeliveryStatus(attempts=0)
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._count(server, outcome, self._now() - started)

    def _bulkhead_of(self, server: str) -> Bulkhead:
        policy = self._delivery_policy.for_upstream(server)
        bulkhead = self._bulkheads.get(server)
        if bulkhead is None:
            send = self._upstream.send_to_server
            bulkhead = self._bulkheads[server] = Bulkhead(server, policy, send, self._now, self._sleep)
        bulkhead.apply_policy(policy)
        bulkhead.policy_revision = self._delivery_policy.revision
        bulkhead.honours_keys = self._upstream.honours_keys(server)
        return bulkhead

    def _with_deadline_and_key(self, call: UpstreamCall) -> UpstreamCall:
        request, item = call.request, call.item
        policy = self._delivery_policy.configured_safety(item)
        takes_key = request.method == _TOOL_CALL and (
            self._upstream.honours_keys(item.server)
            or (
                policy is not None
                and bool(policy.key_argument or policy.key_header)
                # A tool that only reads may lack the argument.
                and self._delivery_policy.tool_class(item) is ToolClass.KEYED
            )
        )
        delivery_options = call.delivery_options or _DEFAULT_OPTIONS
        if delivery_options.deadline is None:
            delivery_options = replace(delivery_options, deadline=_deadline(request.delivery_request, policy))
        if takes_key:
            return with_idempotency_key(call, delivery_options, policy)
        return replace(call, delivery_options=delivery_options)

    async def _admit(self, bulkhead: Bulkhead, call: UpstreamCall) -> bool:
        delivery_request = call.request.delivery_request
        priority = delivery_request.priority if delivery_request is not None else None
        if priority is None:
            policy = self._delivery_policy.configured_safety(call.item)
            priority = policy.priority if policy is not None else None
        deadline = call.delivery_options.deadline if call.delivery_options is not None else None
        agent = result_owner_of(call.request.session, call.request.caller)
        return await bulkhead.admit(call.item.name, priority or Priority.NORMAL, deadline, agent)

    def _with_total_deadline(self, call: UpstreamCall, started: float) -> UpstreamCall:
        """The call with a deadline for all attempts together: the longest that its server may take."""
        delivery_options = call.delivery_options or _DEFAULT_OPTIONS
        left = self._upstream.longest_seconds(call.item.server) - (self._now() - started)
        latest = asyncio.get_running_loop().time() + left
        deadline = latest if delivery_options.deadline is None else min(delivery_options.deadline, latest)
        return replace(call, delivery_options=replace(delivery_options, deadline=deadline))

    async def _retry(
        self,
        bulkhead: Bulkhead,
        call: UpstreamCall,
        error: HeadgateError,
        kind: ToolClass | None,
        *,
        plain: bool,
    ) -> McpResponse:
        """The answer to another attempt; raises the error of the attempt with the most serious effect."""
        kind = kind or self._tool_class(call)
        failures, raised = 1, error
        while (seconds := self._next_delay(bulkhead, call, failures, error, kind)) is not None:
            repeated = _with_retry_count(call, failures)
            try:
                await self._sleep(seconds)
                probe = await self._admit(bulkhead, repeated)
            except BaseException as refusal:
                bulkhead.budget.refund()
                if not isinstance(refusal, HeadgateError):
                    raise
                # Nothing was sent, so the previous attempt still determines the error.
                break
            bulkhead.retries += 1
            try:
                answer = await bulkhead.send_admitted(repeated, probe=probe)
            except HeadgateError as another:
                failures += 1
                error = another
                if raised.effect is Effect.NONE or error.effect is not Effect.NONE:
                    raised = error
            else:
                return _with_attempts(answer, failures + 1, doubted=raised.effect is not Effect.NONE)
        if failures > 1 or not plain:
            raised.delivery_status = DeliveryStatus(attempts=failures)
        if kind.repeatable and isinstance(raised, UpstreamTimeout | UpstreamLost):
            raised.retryable = True
            raised.hint = "try again: a second time does no harm"
        raise raised

    def _next_delay(
        self, bulkhead: Bulkhead, call: UpstreamCall, failures: int, error: HeadgateError, kind: ToolClass
    ) -> float | None:
        deadline = call.delivery_options.deadline if call.delivery_options is not None else None
        left = None if deadline is None else deadline - asyncio.get_running_loop().time()
        settings, chance = bulkhead.policy.retry_settings, self._random()
        seconds = retry_delay_seconds(settings, failures, error, kind, chance=chance, seconds_left=left)
        if seconds is None or bulkhead.breaker.retry_after_seconds() is not None:
            return None
        return seconds if bulkhead.budget.try_spend() else None

    def _tool_class(self, call: UpstreamCall) -> ToolClass:
        """The class that decides whether a second attempt is safe."""
        item, method = call.item, call.request.method
        if method != _TOOL_CALL:
            return ToolClass.READ if method in _READ_ONLY_METHODS else ToolClass.UNSAFE
        kind = self._delivery_policy.tool_class(item)
        if kind is ToolClass.KEYED and (call.delivery_options is None or not call.delivery_options.key):
            # It was sent without a key, before the server declared that it takes keys.
            return ToolClass.UNSAFE
        return kind

    def is_ready(self, server: str) -> bool:
        return self._upstream.is_ready(server)

    def sends_requests_during_calls(self, server: str) -> bool:
        return self._upstream.sends_requests_during_calls(server)

    async def subscribe(self, item: Item, caller: Identity) -> McpResponse:
        answer = await self._upstream.subscribe(item.server, item.name)
        if not answer.error:
            self._subscribed.setdefault((caller.owner, item.public_name), []).append(item)
        return answer

    async def unsubscribe(self, public_uri: str, caller: Identity) -> McpResponse:
        """End the subscription of one client; raises UpstreamError."""
        # At the server that took it: by now the URI may belong to another server or to none.
        key = (caller.owner, public_uri)
        items = self._subscribed.get(key)
        if not items:
            return McpResponse(b"{}")
        item = items.pop(0)
        if not items:
            del self._subscribed[key]
        return await self._upstream.unsubscribe(item.server, item.name)

    def on_reconnected(self, server: str) -> None:
        """Let the next call decide whether the breaker closes, after a new connection to the server."""
        bulkhead = self._bulkheads.get(server)
        if bulkhead is not None:
            bulkhead.breaker.allow_probe()
            bulkhead.honours_keys = self._upstream.honours_keys(server)

    def stats(self) -> dict[str, BulkheadStats]:
        """The current state of the bulkhead of each server that was called."""
        return {server: bulkhead.stats() for server, bulkhead in self._bulkheads.items()}


def _deadline(delivery_request: DeliveryRequest | None, policy: ToolSafety | None) -> float | None:
    """The earlier of the caller's and the operator's time limits, on the clock of the event loop."""
    requested = delivery_request.timeout_seconds if delivery_request is not None else None
    configured = policy.timeout_seconds if policy is not None else None
    limits = [limit for limit in (requested, configured) if limit is not None]
    return asyncio.get_running_loop().time() + min(limits) if limits else None


def _with_retry_count(call: UpstreamCall, failures: int) -> UpstreamCall:
    delivery_options = call.delivery_options or _DEFAULT_OPTIONS
    delivery_options = replace(delivery_options, retry_count=delivery_options.retry_count + failures)
    return replace(call, delivery_options=delivery_options)


def _outcome_label(answer: McpResponse) -> str:
    result = answer.result
    if answer.error:
        return "error"
    if isinstance(result, bytes):
        return "tool_error" if claims_error(result) and is_tool_error(result) else "ok"
    # `isError` stands before or after the large members.
    if isinstance(result, HasHeadAndTail) and claims_error(result.head_and_tail(_EDGE_BYTES)):
        return "tool_error"
    return "ok"


def _with_attempts(answer: McpResponse, attempts: int, *, doubted: bool = False) -> McpResponse:
    delivery_status = replace(answer.delivery_status or DeliveryStatus(), attempts=attempts, doubted=doubted)
    return replace(answer, delivery_status=delivery_status)
