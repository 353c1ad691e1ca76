"""Routes notifications and requests that a server sends on one connection to the client that they concern,
and sends the replies.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import HeadgateError
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import ClientBackChannel, ClientSession, McpRequest
from headgate.event_loop import BackgroundTasks
from headgate.input_requests.errors import InputRequestWithdrawn
from headgate.protocol.jsonrpc import Envelope, decode_object, encode_failure, encode_result
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, METHOD_NOT_FOUND, encode_error
from headgate.protocol.message_meta import UnreadableMeta, without_reserved
from headgate.protocol.rmcp import without_rmcp_meta
from headgate.upstream.transport import OutgoingRequest, SendAttempt

log = logging.getLogger("headgate.upstream")

# A server that sends requests faster than people answer is refused the rest.
_MOST_SERVER_REQUESTS = 32
# A server that sends requests faster than it reads replies must not fill memory or use up sockets.
_MOST_REPLIES_AT_ONCE = 8
_MOST_REPLIES_WAITING = 64
# Marks a cancellation that the server is to be sent an error for.
_REQUEST_OVER = "the request is over"


class PendingInputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many calls may wait for input at a time."""

    total: int = 1000
    per_server: int = 500
    # Of a session or, without sessions, of an HTTP connection.
    per_client: int = 100


@dataclass(eq=False, slots=True)
class CallAwaitingInput:
    """One call that waits for input; `withdraw` ends it with the error that its caller gets."""

    server: str
    client: str
    since: float
    withdraw: Callable[[InputRequestWithdrawn], None]


class PendingInputs:
    """The calls of all servers that wait for input of their clients, bounded in number; the oldest first.

    The limits apply when a server requires input, so no other call is ever refused for them.
    """

    def __init__(self, limits: PendingInputLimits | None = None) -> None:
        self._limits = limits or PendingInputLimits()
        self._calls: dict[CallAwaitingInput, None] = {}
        self._by_server: Counter[str] = Counter()
        self._by_client: Counter[str] = Counter()
        # How many were ended in favour of others.
        self.withdrawn = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: CallAwaitingInput) -> None:
        """Count a call whose server requires input; beyond a limit another call ends."""
        self._calls[call] = None
        self._by_server[call.server] += 1
        self._by_client[call.client] += 1
        limits = self._limits
        if self._by_client[call.client] > limits.per_client:
            self._withdraw_oldest(lambda other: other.client == call.client)
        if self._by_server[call.server] > limits.per_server:
            self._withdraw_oldest(lambda other: other.server == call.server)
        if len(self._calls) > limits.total:
            self._withdraw_oldest(lambda other: True)

    def remove(self, call: CallAwaitingInput) -> None:
        if call not in self._calls:
            return
        del self._calls[call]
        for counter, key in ((self._by_server, call.server), (self._by_client, call.client)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]

    def withdraw(self, call: CallAwaitingInput, reason: str) -> None:
        self.remove(call)
        self.withdrawn += 1
        call.withdraw(InputRequestWithdrawn(call.server, reason))

    def _withdraw_oldest(self, concerned: Callable[[CallAwaitingInput], bool]) -> None:
        """End the oldest call of the client that has most of them."""
        calls = [call for call in self._calls if concerned(call)]
        counts = Counter(call.client for call in calls)
        # `max` takes the first of equals, which is the one with the oldest call.
        largest = max(counts, key=counts.__getitem__)
        oldest = next(call for call in calls if call.client == largest)
        self.withdraw(oldest, f"{len(self._calls)} calls wait for input of their clients")


def client_of(request: McpRequest | None) -> str:
    """The client that a call counts for: its session or, without sessions, its connection."""
    if request is None:
        return ""
    return request.session.id if request.session is not None else f"connection {request.connection}"


class ServerEventListener(Protocol):
    """Receives the events of all connections of one server."""

    def on_list_changed(self, capability: str, profile: ClientProfile) -> None:
        """The list of its tools, prompts or resources has changed, on a connection of that profile."""

    def on_resource_updated(self, params: bytes, owner: ClientSession | None) -> None:
        """A subscribed resource has changed, on the connection of that client or on a shared one (None)."""

    def on_server_request(self) -> None:
        """It has sent a request to a client."""

    def on_subscription_acknowledged(self) -> None:
        """It has acknowledged the gateway's subscription."""

    def on_stream_resumed(self) -> None:
        """A stream that dropped was resumed."""

    def on_health_changed(self, reason: str | None) -> None:
        """It answers but cannot do its work; None once it can again."""


class InFlightRequest(SendAttempt):
    """A request in flight with its timer, and the server requests that it waits for."""

    # The defaults are in the class, because nearly every request ends without any of them.
    # How many server requests suspend its timer.
    suspensions = 0
    # The server requests that no other request can have caused.
    caused: tuple["asyncio.Task[None]", ...] = ()
    # Set while it waits for input.
    pending_input: CallAwaitingInput | None = None

    def renew(self) -> None:
        raise NotImplementedError

    def suspend(self) -> None:
        """Stop the timer while a person is asked: only the maximum counts."""
        raise NotImplementedError

    def withdraw(self, error: HeadgateError) -> None:
        """End the request now: cancel it at the server and raise the error in its caller."""
        raise NotImplementedError


class _CancelledParams(msgspec.Struct):
    requestId: Raw = Raw(b"")  # noqa: N815 (the protocol's spelling)


@dataclass(eq=False)
class NotificationRouter:
    """Routes what a server sends on one connection; `owner` is the only client that uses it, if any."""

    _server: str
    listener: ServerEventListener
    _profile: ClientProfile = PLAIN_PROFILE
    _owner: ClientSession | None = None
    _pending_inputs: PendingInputs = field(default_factory=PendingInputs)

    def __post_init__(self) -> None:
        self._in_flight: dict[int, InFlightRequest] = {}
        self._server_requests: dict[bytes, asyncio.Task[None]] = {}
        # The requests in flight whose timers each server request suspends.
        self._suspended: dict[bytes, list[InFlightRequest]] = {}
        # The one of them that counts as waiting for input: a server request may not name it.
        self._counted: dict[bytes, InFlightRequest] = {}
        # The caller of the first request of a client, and whether there were others on this connection.
        self._caller: Identity | None = None
        self._serves_several = False
        self.ignored = 0

    def register(self, in_flight: InFlightRequest) -> None:
        """Route what concerns a client's request to that client, until it is unregistered."""
        self._in_flight[in_flight.outgoing.token] = in_flight
        request = in_flight.outgoing.request
        if request is not None and request.caller is not self._caller:
            if self._caller is None:
                self._caller = request.caller
            elif self._caller.owner != request.caller.owner:
                self._serves_several = True

    def unregister(self, token: int) -> None:
        """A request has ended: withdraw the server requests that it caused."""
        in_flight = self._in_flight.pop(token, None)
        if in_flight is None:
            return
        if in_flight.pending_input is not None:
            self._stop_waiting(in_flight)
            # A server request that counted for it and has not ended: another call waits for it.
            for id in [id for id, counted in self._counted.items() if counted is in_flight]:
                del self._counted[id]
                self._count(id, self._suspended.get(id, []))
        for task in in_flight.caused:
            task.cancel(_REQUEST_OVER)

    def waits_for_input(self, calls: int) -> CallAwaitingInput | None:
        """The call that was last to wait for input, if all of so many calls do; otherwise None."""
        waiting = [one.pending_input for one in self._in_flight.values() if one.pending_input is not None]
        return max(waiting, key=lambda call: call.since) if waiting and len(waiting) == calls else None

    def withdraw_all(self, reason: str) -> None:
        for in_flight in list(self._in_flight.values()):
            if in_flight.pending_input is not None:
                self._pending_inputs.withdraw(in_flight.pending_input, reason)

    def route(
        self, envelope: Envelope, about: OutgoingRequest | None, reply: Callable[[bytes], None]
    ) -> None:
        """Route a message that came with the answer to `about`, if that is known; `reply` sends one back."""
        if envelope.id:
            self._route_request(envelope, about, reply)
            return
        try:
            self._route_notification(envelope.method, _for_clients(envelope), about)
        except (RecursionError, UnreadableMeta):
            # No notification may cost the connection.
            self.count_ignored("a notification nested too deep")

    def _route_notification(self, method: str, params: bytes, about: OutgoingRequest | None) -> None:
        match method:
            case "notifications/progress":
                self._progress(params)
            case "notifications/resources/updated":
                self.listener.on_resource_updated(params, self._owner)
            case "notifications/subscriptions/acknowledged":
                self.listener.on_subscription_acknowledged()
            case "notifications/cancelled":
                self._cancel_request(params)
            case _ if method.endswith("/list_changed"):
                capability = method.removeprefix("notifications/").removesuffix("/list_changed")
                self.listener.on_list_changed(capability, self._profile)
            case _:
                channel = self._channel_for(about)
                if channel is None:
                    self.count_ignored(f"{method} that could be about several clients")
                else:
                    channel.send_notification(method, params)

    def count_ignored(self, what: str) -> None:
        """Count bytes that are no message, or a message that concerns no client."""
        self.ignored += 1
        log.debug("message ignored", extra={"server": self._server, "what": what[:200]})

    def close(self) -> None:
        """Cancel the server requests: the connection is lost."""
        for question in self._server_requests.values():
            question.cancel()

    def _progress(self, params: bytes) -> None:
        try:
            members = decode_object(params)
            token = int(bytes(members.pop("progressToken")))
        except (DecodeError, UnicodeDecodeError, KeyError, ValueError):
            self.count_ignored("progress without a token of ours")
            return
        in_flight = self._in_flight.get(token)
        if in_flight is None or in_flight.outgoing.request is None:
            self.count_ignored("progress of a call that is over")
            return
        if not in_flight.suspensions:
            in_flight.renew()
        if in_flight.outgoing.request.on_progress is not None:
            in_flight.outgoing.request.on_progress(members)

    def _channel_for(self, about: OutgoingRequest | None) -> ClientBackChannel | None:
        """The channel to the client that a message concerns; None if that is not clear."""
        if about is not None and about.request is not None:
            return about.request.channel
        if self._serves_several:
            # It may be about a request or a task of another principal that is over for its client.
            return None
        requests = [one.outgoing.request for one in self._in_flight.values() if one.outgoing.request]
        if len(requests) == 1:
            return requests[0].channel
        if self._owner is not None:
            return self._owner.channel
        owners = {request.session.id: request.session for request in requests if request.session is not None}
        if len(owners) == 1 and all(request.session is not None for request in requests):
            return next(iter(owners.values())).channel
        return None

    # Requests of the server.

    def _route_request(
        self, envelope: Envelope, about: OutgoingRequest | None, reply: Callable[[bytes], None]
    ) -> None:
        id, method, params = bytes(envelope.id), envelope.method, bytes(envelope.params)
        if method == "ping":
            reply(encode_result(id, b"{}"))
            return
        channel = self._channel_for(about)
        if not self._profile.supports_input_request(method, params):
            # Servers pass this text on to the model.
            why = self._profile.unsupported_reason(method)
            reply(encode_error(id, METHOD_NOT_FOUND, f"Method not found: {method[:200]} ({why})"))
        elif channel is None:
            reply(encode_error(id, INTERNAL_ERROR, "It is not clear which client this is for"))
        elif id in self._server_requests:
            # A resumed stream may repeat a request that is not answered yet.
            self.count_ignored("a question that is being asked")
        elif len(self._server_requests) >= _MOST_SERVER_REQUESTS and not self._cancel_orphaned():
            reply(encode_error(id, INTERNAL_ERROR, "Too many questions at once"))
        else:
            self.listener.on_server_request()
            work = self._forward_request(channel, envelope, about, reply)
            task = asyncio.get_running_loop().create_task(work, name=f"request of {self._server}")
            self._server_requests[id] = task
            task.add_done_callback(lambda _: self._remove_request(id, task))

    def _cancel_orphaned(self) -> bool:
        """Cancel the oldest server request that no request in flight waits for: it may never be answered."""
        for id, suspended in self._suspended.items():
            if not any(self._in_flight.get(in_flight.outgoing.token) is in_flight for in_flight in suspended):
                task = self._server_requests[id]
                task.cancel(_REQUEST_OVER)
                self._remove_request(id, task)
                return True
        return False

    def _remove_request(self, id: bytes, task: "asyncio.Task[None]") -> None:
        """Remove a server request that has ended, unless another has its id now."""
        if self._server_requests.get(id) is task:
            del self._server_requests[id]
            self._suspended.pop(id, None)

    async def _forward_request(
        self,
        channel: ClientBackChannel,
        envelope: Envelope,
        about: OutgoingRequest | None,
        reply: Callable[[bytes], None],
    ) -> None:
        id, known = bytes(envelope.id), about is not None and about.request is not None
        # Only now, because a request may have been answered in the same read. Each one in flight may wait for
        # it, if it is not known which one it is about.
        suspended = [one for one in self._in_flight.values() if not known or one.outgoing is about]
        self._suspended[id] = suspended
        for in_flight in suspended:
            in_flight.suspensions += 1
            in_flight.suspend()
        self._count(id, suspended)
        task = asyncio.current_task()
        # On a client's own connection a server may send requests that no request in flight caused.
        if len(suspended) == 1 and task is not None and (self._owner is None or known):
            suspended[0].caused += (task,)
        try:
            answer = await channel.send_request(envelope.method, _for_clients(envelope))
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (_REQUEST_OVER,):
                reply(encode_error(id, INTERNAL_ERROR, "The request that this is about is over"))
            raise
        except Exception:
            # The server must get a reply, whatever fails in the client.
            log.exception("server request failed", extra={"server": self._server, "method": envelope.method})
            reply(encode_error(id, INTERNAL_ERROR, "The client could not be asked"))
            return
        finally:
            counted = self._counted.pop(id, None)
            if counted is not None and len(suspended) > 1:
                self._stop_waiting(counted)
            for in_flight in suspended:
                # End one suspension; the timer of a request in flight without any restarts.
                in_flight.suspensions -= 1
                if not in_flight.suspensions and in_flight.pending_input is not None:
                    self._stop_waiting(in_flight)
                if not in_flight.suspensions and self._in_flight.get(in_flight.outgoing.token) is in_flight:
                    in_flight.renew()
        if answer.error:
            reply(encode_failure(id, answer.error))
        else:
            assert isinstance(answer.result, bytes)
            reply(encode_result(id, answer.result))

    def _count(self, id: bytes, suspended: list[InFlightRequest]) -> None:
        """Count one call as waiting for input, the newest of those that may; the others may not wait."""
        for in_flight in reversed(suspended):
            if in_flight.pending_input is None and self._in_flight.get(in_flight.outgoing.token) is in_flight:
                self._counted[id] = in_flight
                self._start_waiting(in_flight)
                return

    def _start_waiting(self, in_flight: InFlightRequest) -> None:
        def withdraw(error: HeadgateError) -> None:
            in_flight.pending_input = None
            in_flight.withdraw(error)

        client, now = client_of(in_flight.outgoing.request), asyncio.get_running_loop().time()
        in_flight.pending_input = CallAwaitingInput(self._server, client, now, withdraw)
        self._pending_inputs.add(in_flight.pending_input)

    def _stop_waiting(self, in_flight: InFlightRequest) -> None:
        if in_flight.pending_input is not None:
            self._pending_inputs.remove(in_flight.pending_input)
            in_flight.pending_input = None

    def _cancel_request(self, params: bytes) -> None:
        try:
            id = bytes(msgspec.json.decode(params or b"{}", type=_CancelledParams).requestId)
        except (DecodeError, UnicodeDecodeError):
            return
        if id in self._server_requests:
            self._server_requests[id].cancel()


def _for_clients(envelope: Envelope) -> bytes:
    """The params without `_meta` keys of rmcp and of the gateway."""
    return without_reserved(without_rmcp_meta(bytes(envelope.params)))


class ReplyQueue:
    """Replies to one server, a bounded number at a time."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], router: NotificationRouter) -> None:
        """`send` raises nothing."""
        self._send = send
        self._router = router
        self._tasks = BackgroundTasks()
        self._slots = asyncio.Semaphore(_MOST_REPLIES_AT_ONCE)

    def enqueue(self, reply: bytes) -> None:
        """Send a reply after those before it; beyond the bound it is dropped and counted."""
        if len(self._tasks) >= _MOST_REPLIES_AT_ONCE + _MOST_REPLIES_WAITING:
            self._router.count_ignored("a request while too many replies wait")
            return
        self._tasks.start(self._send_in_slot(reply), name="reply")

    async def _send_in_slot(self, reply: bytes) -> None:
        async with self._slots:
            await self._send(reply)

    def close(self) -> None:
        """Cancel what is not sent yet: the connection is lost."""
        self._tasks.cancel()
