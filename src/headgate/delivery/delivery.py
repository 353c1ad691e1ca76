"""Delivers one call to its upstream: the one layer that waits for its turn and tries again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from headgate.delivery.flow import Sleep
from headgate.delivery.lane import Lane, LaneStats
from headgate.delivery.naming import with_key
from headgate.delivery.promises import Promises
from headgate.delivery.retrying import wait_after
from headgate.domain.call import Answer, Call, Errand, agent_of
from headgate.domain.care import Care, Priority, ToolClass
from headgate.domain.errors import (
    Effect,
    HeadgateError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.item import Item
from headgate.domain.payload import HasEdges
from headgate.domain.ticket import Receipt, Ticket
from headgate.protocol.result_conversion import claims_error, is_tool_error

_TOOL_CALL = "tools/call"
# These change nothing; what a method that the gateway does not know does, nobody can tell.
_READING_METHODS = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    }
)
# A client that gives a call less time than this and gets no answer says nothing about the server.
_PATIENT_SECONDS = 10.0
# The upstream ends a call at its deadline or a moment before or after it.
_MOMENT_SECONDS = 0.05
# Of each end of a result on disk.
_EDGE_BYTES = 8 * 1024

_PLAIN_ERRAND = Errand()


class Upstream(Protocol):
    """Whatever carries a call out."""

    async def await_ready(self, server: str) -> None:
        """Wait, for a bounded time, until the server has told its tools; raises UpstreamError."""

    def send_to_server(self, call: Call) -> Awaitable[Answer]:
        """Send once, until the deadline of the call. Raises UpstreamError saying what may have happened."""

    def honours_keys(self, server: str) -> bool:
        """Whether the server said that it carries out one call for each key."""

    def longest_seconds(self, server: str) -> float:
        """How long one call of the server may take, whatever the progress."""

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent at once."""

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""

    async def subscribe(self, server: str, uri: str) -> Answer:
        """Hear of every change of a resource; raises UpstreamError."""

    async def unsubscribe(self, server: str, uri: str) -> Answer:
        """Do not hear of it any more; raises UpstreamError."""


# Told the server, the outcome (`ok`, `error`, or the code of a failure) and the seconds of each call.
Count = Callable[[str, str, float], None]


class Delivery:
    """As many attempts as the promise for the tool allows; a breaker, a queue and a budget per upstream."""

    def __init__(
        self,
        upstream: Upstream,
        promises: Promises,
        now: Callable[[], float],
        count: Count,
        *,
        sleep: Sleep = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._upstream = upstream
        self._promises = promises
        self._now = now
        self._count = count
        self._sleep = sleep
        self._random = random
        self._lanes: dict[str, Lane] = {}
        # Where each subscription was taken, by the URI that clients know; one entry for each client.
        self._subscribed: dict[str, list[Item]] = {}

    async def await_ready(self, server: str) -> None:
        """Wait until the server has told its tools; raises UpstreamError, and counts it as the call's end."""
        started = self._now()
        try:
            await self._upstream.await_ready(server)
        except (HeadgateError, asyncio.CancelledError) as error:
            outcome = error.code if isinstance(error, HeadgateError) else "cancelled"
            self._count(server, outcome, self._now() - started)
            raise

    async def deliver(self, call: Call, *, kind: ToolClass | None = None) -> Answer:
        """The upstream's answer; raises HeadgateError, whose effect is that of all attempts together.

        `kind` is what is promised for the call, where that is not what is promised for its tool.
        """
        server = call.item.server
        lane = self._lanes.get(server)
        if lane is None or lane.care is not self._promises.of_server(server):
            lane = self._lane(server)
        started = self._now()
        outcome = "INTERNAL"
        # Nobody asks to be told how it was carried.
        plain = call.errand is None and call.request.ticket is None
        try:
            sent = call
            if not plain or not lane.is_plain or lane.honours_keys:
                sent = self._prepared(call)
            probe = False
            if lane.breaker.is_open or not lane.flow.enters():
                probe = await self._enter(lane, sent)
            try:
                answer = await self._send(lane, sent, probe=probe)
            except HeadgateError as error:
                answer = await self._again(lane, self._bounded(sent, started), error, kind, plain=plain)
            outcome = _outcome(answer)
            return answer if plain or answer.receipt is not None else _counted(answer, 1)
        except HeadgateError as error:
            outcome = error.code
            if error.receipt is None and not plain:
                error.receipt = Receipt(attempts=0)
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._count(server, outcome, self._now() - started)

    def _lane(self, server: str) -> Lane:
        """The lane of a server, with the care that it is to get now."""
        care = self._promises.of_server(server)
        lane = self._lanes.get(server)
        if lane is None:
            lane = self._lanes[server] = Lane(server, care, self._now, self._sleep)
        lane.apply(care)
        lane.honours_keys = self._upstream.honours_keys(server)
        return lane

    # Before the first attempt.

    def _prepared(self, call: Call) -> Call:
        """With its deadline and its key, if it has any."""
        request, item = call.request, call.item
        care = self._promises.special(item)
        takes_key = request.method == _TOOL_CALL and (
            self._upstream.honours_keys(item.server)
            or (
                care is not None
                and bool(care.key_argument or care.key_header)
                # What only reads may have no such argument.
                and self._promises.kind(item) is ToolClass.KEYED
            )
        )
        errand = call.errand or _PLAIN_ERRAND
        if errand.deadline is None:
            errand = msgspec.structs.replace(errand, deadline=_deadline(request.ticket, care))
        if takes_key:
            return with_key(call, errand, care)
        return msgspec.structs.replace(call, errand=errand)

    # One attempt.

    async def _enter(self, lane: Lane, call: Call) -> bool:
        ticket, priority = call.request.ticket, None
        if ticket is not None:
            priority = ticket.priority
        if priority is None:
            care = self._promises.special(call.item)
            priority = care.priority if care is not None else None
        deadline = call.errand.deadline if call.errand is not None else None
        agent = agent_of(call.request.owner, call.request.caller)
        return await lane.enter(call.item.name, priority or Priority.NORMAL, deadline, agent)

    async def _send(self, lane: Lane, call: Call, *, probe: bool) -> Answer:
        try:
            answer = await self._upstream.send_to_server(call)
        except (UpstreamTimeout, UpstreamLost, UpstreamUnreachable) as error:
            if not _was_hasty(call, error):
                lane.breaker.failed(probe=probe)
            elif probe:
                lane.breaker.abandoned()
            raise
        except BaseException:
            # Cancelled, refused or answered wrongly: no verdict on the connection.
            if probe:
                lane.breaker.abandoned()
            raise
        finally:
            lane.flow.leave()
        lane.breaker.succeeded()
        lane.budget.earn()
        return answer

    # The attempts after it.

    def _bounded(self, call: Call, started: float) -> Call:
        """With the longest that its server may take for a deadline, of all attempts together."""
        errand = call.errand or _PLAIN_ERRAND
        left = self._upstream.longest_seconds(call.item.server) - (self._now() - started)
        latest = asyncio.get_running_loop().time() + left
        deadline = latest if errand.deadline is None else min(errand.deadline, latest)
        return msgspec.structs.replace(call, errand=msgspec.structs.replace(errand, deadline=deadline))

    async def _again(
        self, lane: Lane, call: Call, error: HeadgateError, kind: ToolClass | None, *, plain: bool
    ) -> Answer:
        """The answer to one more attempt; raises the error that says most of what may have happened."""
        kind = kind or self._kind(call)
        failures, raised = 1, error
        while (seconds := self._wait(lane, call, failures, error, kind)) is not None:
            repeated = _repeated(call, failures)
            try:
                await self._sleep(seconds)
                probe = await self._enter(lane, repeated)
            except BaseException as refusal:
                lane.budget.give_back()
                if not isinstance(refusal, HeadgateError):
                    raise
                # Nothing was sent this time, so what is known is what the attempt before has said.
                break
            lane.retries += 1
            try:
                answer = await self._send(lane, repeated, probe=probe)
            except HeadgateError as another:
                failures += 1
                error = another
                if raised.effect is Effect.NONE or error.effect is not Effect.NONE:
                    raised = error
            else:
                return _counted(answer, failures + 1, doubted=raised.effect is not Effect.NONE)
        if failures > 1 or not plain:
            raised.receipt = Receipt(attempts=failures)
        if kind.repeatable and isinstance(raised, UpstreamTimeout | UpstreamLost):
            raised.retryable = True
            raised.hint = "try again: a second time does no harm"
        raise raised

    def _wait(
        self, lane: Lane, call: Call, failures: int, error: HeadgateError, kind: ToolClass
    ) -> float | None:
        deadline = call.errand.deadline if call.errand is not None else None
        seconds = wait_after(
            lane.care.retrying,
            failures,
            error,
            kind,
            chance=self._random(),
            seconds_left=None if deadline is None else deadline - asyncio.get_running_loop().time(),
        )
        if seconds is None or lane.breaker.refusal() is not None or not lane.budget.spend():
            return None
        return seconds

    def _kind(self, call: Call) -> ToolClass:
        """What a second attempt of the call would do."""
        item, method = call.item, call.request.method
        if method != _TOOL_CALL:
            return ToolClass.READ if method in _READING_METHODS else ToolClass.UNSAFE
        kind = self._promises.kind(item)
        if kind is ToolClass.KEYED and (call.errand is None or not call.errand.key):
            # It was sent before the server said that it takes keys, and so without one.
            return ToolClass.UNSAFE
        return kind

    # Beside calls.

    def is_ready(self, server: str) -> bool:
        """Whether a call would be sent at once."""
        return self._upstream.is_ready(server)

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""
        return self._upstream.sends_requests_during_calls(server)

    async def subscribe(self, item: Item) -> Answer:
        """Hear of every change of a resource; raises UpstreamError."""
        answer = await self._upstream.subscribe(item.server, item.name)
        if not answer.error:
            self._subscribed.setdefault(item.public_name, []).append(item)
        return answer

    async def unsubscribe(self, public_uri: str) -> Answer:
        """One client less hears of it; raises UpstreamError.

        At the server that took the subscription: by now the URI may be another server's, or nobody's.
        """
        items = self._subscribed.get(public_uri)
        if not items:
            return Answer(b"{}")
        item = items.pop(0)
        if not items:
            del self._subscribed[public_uri]
        return await self._upstream.unsubscribe(item.server, item.name)

    def recovered(self, server: str) -> None:
        """A new connection to `server` stands."""
        lane = self._lanes.get(server)
        if lane is not None:
            lane.breaker.recovered()
            lane.honours_keys = self._upstream.honours_keys(server)

    def stats(self) -> dict[str, LaneStats]:
        """How the calls of each server that was called are doing now."""
        return {server: lane.stats() for server, lane in self._lanes.items()}


def _deadline(ticket: Ticket | None, care: Care | None) -> float | None:
    """The least of what the caller and the operator allow, on the event loop's clock."""
    theirs = ticket.timeout_seconds if ticket is not None else None
    ours = care.timeout_seconds if care is not None else None
    limits = [limit for limit in (theirs, ours) if limit is not None]
    return asyncio.get_running_loop().time() + min(limits) if limits else None


def _was_hasty(call: Call, error: HeadgateError) -> bool:
    """Whether the call ended only because its client gave it little time: others need not pay for that."""
    ticket = call.request.ticket
    if not isinstance(error, UpstreamTimeout) or ticket is None or ticket.timeout_seconds is None:
        return False
    deadline = call.errand.deadline if call.errand is not None else None
    if ticket.timeout_seconds >= _PATIENT_SECONDS or deadline is None:
        return False
    return asyncio.get_running_loop().time() >= deadline - _MOMENT_SECONDS


def _repeated(call: Call, failures: int) -> Call:
    errand = call.errand or _PLAIN_ERRAND
    errand = msgspec.structs.replace(errand, retry_count=errand.retry_count + failures)
    return msgspec.structs.replace(call, errand=errand)


def _outcome(answer: Answer) -> str:
    """The word under which an answer is counted."""
    result = answer.result
    if answer.error:
        return "error"
    if isinstance(result, bytes):
        return "tool_error" if claims_error(result) and is_tool_error(result) else "ok"
    # The flag stands before or behind what is large.
    return "tool_error" if isinstance(result, HasEdges) and claims_error(result.edges(_EDGE_BYTES)) else "ok"


def _counted(answer: Answer, attempts: int, *, doubted: bool = False) -> Answer:
    receipt = msgspec.structs.replace(answer.receipt or Receipt(), attempts=attempts, doubted=doubted)
    return msgspec.structs.replace(answer, receipt=receipt)
