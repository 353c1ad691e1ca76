"""Carries out once what has a key, and keeps the answer: the ledger is written before and after each call."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from headgate.delivery.fingerprint import fingerprint
from headgate.delivery.joining import Ended, Running
from headgate.delivery.ledger import Intent, Ledger, Operation, Outcome, State, StoreFailed, unavailable
from headgate.delivery.operating import LEASE_SECONDS, Delivery, Operating, Prober, difference
from headgate.delivery.promises import Promises
from headgate.delivery.record import Record
from headgate.domain.call import Answer, Call, Caller, Request
from headgate.domain.care import ToolClass
from headgate.domain.errors import (
    HeadgateError,
    InvalidArguments,
    KeyReused,
    OperationNotFound,
    StillRunning,
)
from headgate.domain.item import Item
from headgate.domain.kind import Kind
from headgate.domain.ticket import Receipt, Ticket

log = logging.getLogger("headgate.delivery")

# Larger arguments are hashed beside the event loop.
_LARGE_BYTES = 64 * 1024
# How long a server remembers a key, unless the operator says so.
_KEY_WINDOW_SECONDS = 86_400.0
# At the end, operations under way get this long to be recorded, and what the ledger did not take.
_CLOSE_SECONDS = 5.0
# What was under way when a gateway ended is made again with so many calls at a time.
_MOST_REDRIVEN = 8

_Place = tuple[str, str, str]


class Journal:
    """Between the dialogue and delivery: plain calls pass, the others leave a record."""

    def __init__(
        self,
        delivery: Delivery,
        ledger: Ledger,
        promises: Promises,
        prober: Prober,
        *,
        now: Callable[[], float],
        longest_seconds: Callable[[str], float],
        rejoin_seconds: float,
    ) -> None:
        """`now` is the time of day, `longest_seconds` how long one call of a server may take.

        A client that was cut off has `rejoin_seconds` to come back before its call is cancelled.
        """
        self._delivery = delivery
        self._ledger = ledger
        self._promises = promises
        self._now = now
        self._longest_seconds = longest_seconds
        self._rejoin_seconds = rejoin_seconds
        self._record = Record(ledger)
        self._operating = Operating(delivery, ledger, self._record, promises, prober, now, longest_seconds)
        self._running: dict[_Place, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._redriving = asyncio.Semaphore(_MOST_REDRIVEN)
        # Those of the tasks that wait for a server before they make a call again.
        self._recovering: set[asyncio.Task[None]] = set()
        # The operations that they are about.
        self._found: set[str] = set()

    def sends_requests_during_calls(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""
        return self._delivery.sends_requests_during_calls(server)

    def deliver(self, call: Call) -> Coroutine[Any, Any, Answer]:
        """The answer to this call, or to the one before with the same key; raises HeadgateError.

        Not a coroutine of its own, because every call comes by here.
        """
        ticket = call.request.ticket
        promises = self._promises
        if (ticket is None or not ticket.key) and not (promises.recording and promises.records(call.item)):
            # Nearly always: nothing is recorded, and nothing is paid for it.
            return self._delivery.deliver(call)
        if call.item.kind is not Kind.TOOLS or call.request.method != "tools/call":
            # Prompts and resources are read, and so need no record.
            return self._delivery.deliver(call)
        return self._recorded(call, ticket or Ticket())

    # Those who wait for an operation.

    async def _recorded(self, call: Call, ticket: Ticket) -> Answer:
        mark, seconds = await _mark(call), self._seconds(call, ticket)
        op_id, caller = secrets.token_hex(16), call.request.caller
        place = (caller.tenant, caller.principal, ticket.key or op_id)
        running = self._running.get(place)
        if running is not None and running.deserted:
            # It is being given up, and in a moment the record says what that came to.
            await running.outcome(seconds)
            running = self._running.get(place)
        if running is not None:
            if running.mark != mark:
                raise KeyReused(ticket.key, difference(call.item, running.item.server, running.item.name))
            return await self._join(running, call, seconds, duplicate=True)
        intent = self._intent(call, ticket, op_id, mark, seconds)
        running = self._running[place] = Running(op_id, mark, call.item)
        self._start(self._run(place, running, call, intent, seconds))
        return await self._join(running, call, None, duplicate=False)

    def _seconds(self, call: Call, ticket: Ticket) -> float:
        """How long the caller waits at most."""
        care = self._promises.special(call.item)
        limits = (
            ticket.timeout_seconds,
            care.timeout_seconds if care is not None else None,
            self._longest_seconds(call.item.server),
        )
        return min(limit for limit in limits if limit is not None)

    def _intent(self, call: Call, ticket: Ticket, op_id: str, mark: bytes, seconds: float) -> Intent:
        caller, item, params = call.request.caller, call.item, call.request.params
        kind = self._promises.kind(item)
        return Intent(
            op_id=op_id,
            tenant=caller.tenant,
            principal=caller.principal,
            key=ticket.key or op_id,
            fingerprint=mark,
            server=item.server,
            tool=item.name,
            public_name=item.public_name,
            kind=kind,
            arguments=bytes(params.get("arguments", b"")),
            lease_until=self._now() + seconds + LEASE_SECONDS,
            retries_doubt_since=0.0
            if ticket.retries_doubt
            else self._repeatable_since(item.server, item.name, kind),
            continues="requestState" in params,
            transaction=ticket.transaction,
        )

    def _repeatable_since(self, server: str, tool: str, kind: ToolClass) -> float | None:
        """Operations in doubt that began since then may be tried again without harm; None is never."""
        if kind is not ToolClass.KEYED:
            return 0.0 if kind.repeatable else None
        window = self._promises.of_server(server).of(tool).key_window_seconds
        return self._now() - (window or _KEY_WINDOW_SECONDS)

    async def _join(self, running: Running, call: Call, seconds: float | None, *, duplicate: bool) -> Answer:
        """Wait with all others; the last one to leave takes the call with it."""
        running.joined()
        patience: float | None = None
        try:
            # Whoever came first is told by the operation itself that its time is over.
            ended = await running.outcome(seconds)
            if not duplicate:
                running.take()
        except asyncio.CancelledError as cancelled:
            # A message says that the client wants it cancelled; without one it was only cut off.
            patience = 0.0 if cancelled.args else self._rejoin_seconds
            raise
        finally:
            running.left(patience)
        if ended is None:
            error = StillRunning(running.item.public_name, running.op_id)
            error.receipt = Receipt(op_id=running.op_id, duplicate=True, state=State.INTENT)
            raise error
        if ended.error is not None:
            raise ended.error
        return await self._copied(call, ended, duplicate=duplicate)

    async def _copied(self, call: Call, ended: Ended, *, duplicate: bool) -> Answer:
        """The answer; one that is on disk is for the first only, and the others get it from the ledger."""
        answer, receipt = ended.answer, ended.receipt
        assert answer is not None
        if duplicate:
            if receipt.unrecorded and not isinstance(answer.result, bytes):
                # Of a call without a record there is no copy, but it may be made as often as one likes.
                return await self._delivery.deliver(call)
            receipt = msgspec.structs.replace(receipt, duplicate=True)
            if not isinstance(answer.result, bytes):
                answer = await self._record.answer(receipt.op_id, call.item.public_name)
        return msgspec.structs.replace(answer, receipt=receipt)

    # The operation itself: a task of its own, because whoever started it may leave before it ends.

    def _start(self, work: Coroutine[Any, Any, None], *groups: set["asyncio.Task[None]"]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="operation")
        for group in (self._tasks, *groups):
            group.add(task)
            task.add_done_callback(group.discard)

    async def _run(self, place: _Place, running: Running, call: Call, intent: Intent, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        ended = await self._operating.operate(running, call, intent, deadline)
        self._end(place, running, ended)

    def _end(self, place: _Place, running: Running, ended: Ended) -> None:
        del self._running[place]
        running.end(ended)

    # What a restart finds.

    async def recover(self, tool: Callable[[Operation], Awaitable[Item]]) -> int:
        """Take care of what was under way when a gateway ended: made again, or in doubt. How many there were.

        From time to time: another gateway with the same ledger may end too, and a server may be late.
        `tool` finds the tool of an operation, once its server is there; it may raise HeadgateError.
        """
        await self._record.catch_up_with_all(_CLOSE_SECONDS)
        try:
            orphans = await self._ledger.orphans()
        except StoreFailed as failure:
            log.warning("ledger not read", extra={"reason": str(failure)})
            return 0
        doubted: list[Coroutine[Any, Any, None]] = []
        orphans = [orphan for orphan in orphans if not self._is_ours(orphan)]
        for orphan in orphans:
            since = self._repeatable_since(orphan.server, orphan.tool, orphan.kind)
            if since is not None and orphan.created >= since:
                self._found.add(orphan.op_id)
                self._start(self._redrive(orphan, tool), self._recovering)
            else:
                doubted.append(self._operating.doubt(orphan, "the gateway ended while it was under way"))
        # All at once, so that they share their commits.
        await asyncio.gather(*doubted)
        return len(orphans)

    def _is_ours(self, operation: Operation) -> bool:
        """Whether it is under way here, or has ended: its lease may be over by a clock that was set."""
        op_id = operation.op_id
        return op_id in self._found or _place(operation) in self._running or self._record.owes(op_id)

    async def _redrive(self, orphan: Operation, tool: Callable[[Operation], Awaitable[Item]]) -> None:
        try:
            async with self._redriving:
                item = await tool(orphan)
                if self._may_be_made_again(orphan, item):
                    await self._make_again(orphan, item)
                else:
                    await self._operating.doubt(orphan, "its tool is not what it was")
        except HeadgateError as error:
            # A server that is only late may be there at the next look, but nobody waits for ever.
            age = self._now() - orphan.updated
            if not error.retryable or age > self._longest_seconds(orphan.server):
                await self._operating.doubt(orphan, error.message)
        finally:
            self._found.discard(orphan.op_id)

    def _may_be_made_again(self, orphan: Operation, item: Item) -> bool:
        """Whether it is the same tool, of which nobody has said since that a second time does harm."""
        same = (item.server, item.name) == (orphan.server, orphan.tool)
        since = self._repeatable_since(item.server, item.name, self._promises.kind(item))
        return same and since is not None and orphan.created >= since

    async def _make_again(self, orphan: Operation, item: Item) -> None:
        place = _place(orphan)
        if place in self._running:
            # Its caller was quicker.
            return
        self._recovering -= {asyncio.current_task()}
        caller = Caller(principal=orphan.principal, tenant=orphan.tenant)
        params = {"arguments": msgspec.Raw(orphan.arguments)} if orphan.arguments else {}
        request = Request(caller=caller, name=orphan.public_name, params=params)
        running = self._running[place] = Running(orphan.op_id, orphan.fingerprint, item)
        seconds = self._longest_seconds(orphan.server)
        ended = await self._operating.redrive(running, Call(request, item), orphan, seconds)
        self._end(place, running, ended)

    # Questions about operations, and the word of somebody who knows.

    async def look(self, caller: Caller, op_id: str) -> Operation:
        """The operation of that id, if it is the caller's; raises OperationNotFound or LedgerAway."""
        try:
            await self._record.catch_up(op_id)
            found = await self._ledger.find(op_id)
        except StoreFailed as failure:
            raise unavailable(failure) from failure
        if found is None or (found.tenant, found.principal) != (caller.tenant, caller.principal):
            raise OperationNotFound(op_id)
        return found

    async def answer_of(self, operation: Operation) -> Answer:
        """What an operation that is DONE was answered; raises LedgerAway or AnswerNotKept."""
        return await self._record.answer(operation.op_id, operation.public_name)

    async def resolve(self, caller: Caller, op_id: str, *, happened: bool, by: str) -> Operation:
        """Settle an operation in doubt; raises HeadgateError when there is no doubt about it."""
        found = await self.look(caller, op_id)
        state = State.DONE if happened else State.FAILED
        outcome = Outcome(state=state, attempts=found.attempts, resolved_by=by)
        if found.state is not State.DOUBT or not await self._record.finish(found, outcome):
            raise InvalidArguments(
                "resolve_operation",
                f"operation {op_id} is not in doubt",
                hint="get_operation tells its state",
            )
        return await self.look(caller, op_id)

    async def close(self) -> None:
        """The gateway ends: cancel what is under way, and record that."""
        for task in self._recovering:
            # Nothing was sent, and the next gateway finds it as this one did.
            task.cancel()
        for running in list(self._running.values()):
            running.desert()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        await self._record.settle(_CLOSE_SECONDS)
        await self._record.catch_up_with_all(_CLOSE_SECONDS)


def _place(operation: Operation) -> _Place:
    return (operation.tenant, operation.principal, operation.key)


async def _mark(call: Call) -> bytes:
    arguments = bytes(call.request.params.get("arguments", b""))
    parts = (call.item.server, call.item.name, arguments)
    if len(arguments) <= _LARGE_BYTES:
        return fingerprint(*parts)
    return await asyncio.to_thread(fingerprint, *parts)
