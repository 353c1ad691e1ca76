"""Routes notifications and requests that a server sends on one connection to the client that they concern,
and sends the replies.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import HeadgateError
from headgate.domain.mcp_request import ClientBackChannel, ClientSession, McpResponse
from headgate.event_loop import BackgroundTasks
from headgate.protocol.jsonrpc import Envelope, decode_object, encode_failure, encode_result
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, METHOD_NOT_FOUND, encode_error
from headgate.protocol.message_meta import UnreadableMeta, without_reserved
from headgate.protocol.rmcp import without_rmcp_meta
from headgate.upstream.pending_input import CallAwaitingInput, PendingInputs, client_of
from headgate.upstream.transport import OutgoingRequest, SendAttempt

log = logging.getLogger("headgate.upstream")

# A server that asks faster than people answer is refused the rest.
_MOST_SERVER_REQUESTS = 32
# Why a question is withdrawn of which the server does not know yet.
_REQUEST_OVER = "the request is over"


class ServerEventListener(Protocol):
    """Who wants to know what an upstream says about itself."""

    def on_list_changed(self, capability: str, profile: ClientProfile) -> None:
        """Its tools, prompts or resources are no longer what they were."""

    def on_resource_updated(self, params: bytes, owner: ClientSession | None) -> None:
        """A resource that somebody subscribed to has changed."""

    def on_server_request(self) -> None:
        """It has put a question to a client."""

    def on_subscription_acknowledged(self) -> None:
        """It has taken the gateway's subscription."""

    def on_stream_resumed(self) -> None:
        """A stream of it that broke off was taken up again."""

    def on_health_changed(self, reason: str | None) -> None:
        """It answers, and says why it cannot do its work; None once it can again."""


class InFlightRequest(SendAttempt):
    """A request in flight with its timer, and the server requests that it waits for.

    The attributes have their defaults in the class, because nearly every request ends without any of them.
    """

    # How many server requests suspend its timer.
    suspensions = 0
    # The server requests that no other request can have caused.
    caused: tuple["asyncio.Task[None]", ...] = ()
    # Set while it waits for input.
    pending_input: CallAwaitingInput | None = None

    def renew(self) -> None:
        """Restart the timer after progress, up to the maximum of the request."""
        raise NotImplementedError

    def suspend(self) -> None:
        """Stop the timer while a person is asked: only the maximum counts."""
        raise NotImplementedError

    def withdraw(self, error: HeadgateError) -> None:
        """End the request now: cancel it at the server and raise the error in its caller."""
        raise NotImplementedError


class _CancelledParams(msgspec.Struct):
    requestId: Raw = Raw(b"")  # noqa: N815 (the protocol's spelling)


class NotificationRouter:
    """Everything unasked on one connection; `owner` is the only client that uses it, if there is one."""

    def __init__(
        self,
        server: str,
        listener: ServerEventListener,
        profile: ClientProfile = PLAIN_PROFILE,
        owner: ClientSession | None = None,
        pending_inputs: PendingInputs | None = None,
    ) -> None:
        self._pending_inputs = pending_inputs or PendingInputs()
        self._server = server
        self._listener = listener
        self._profile = profile
        self._owner = owner
        self._in_flight: dict[int, InFlightRequest] = {}
        self._server_requests: dict[bytes, asyncio.Task[None]] = {}
        # The requests whose time stands still meanwhile, once the question has been put.
        self._suspended: dict[bytes, list[InFlightRequest]] = {}
        # The one of them that counts as waiting for the input: a question may not say which one it is.
        self._counted: dict[bytes, InFlightRequest] = {}
        self.ignored = 0

    def register(self, in_flight: InFlightRequest) -> None:
        """Route what concerns a client's request to that client, until it is unregistered."""
        self._in_flight[in_flight.outgoing.token] = in_flight

    def unregister(self, token: int) -> None:
        """A request has ended: withdraw the server requests that it caused."""
        in_flight = self._in_flight.pop(token, None)
        if in_flight is None:
            return
        if in_flight.pending_input is not None:
            self._stop_waiting(in_flight)
            self._count_another(in_flight)
        for task in in_flight.caused:
            task.cancel(_REQUEST_OVER)

    def waits_for_input(self, calls: int) -> CallAwaitingInput | None:
        """The call that was last to wait for input when all of so many calls do; None when one does not."""
        waiting = [
            in_flight.pending_input
            for in_flight in self._in_flight.values()
            if in_flight.pending_input is not None
        ]
        if not waiting or len(waiting) != calls:
            return None
        return max(waiting, key=lambda call: call.since)

    def withdraw_all(self, reason: str) -> None:
        """End every call that waits for input."""
        for in_flight in list(self._in_flight.values()):
            if in_flight.pending_input is not None:
                self._pending_inputs.withdraw(in_flight.pending_input, reason)

    def route(
        self, envelope: Envelope, about: OutgoingRequest | None, reply: Callable[[bytes], None]
    ) -> None:
        """Act on a message that came with the answer to `about`, if that is known; `reply` sends one back."""
        if envelope.id:
            self._route_request(envelope, about, reply)
            return
        try:
            self._route_notification(envelope.method, _for_clients(envelope), about)
        except (RecursionError, UnreadableMeta):
            # Whatever it says, it must not cost the connection.
            self.count_ignored("a notification nested too deep")

    def _route_notification(self, method: str, params: bytes, about: OutgoingRequest | None) -> None:
        match method:
            case "notifications/progress":
                self._progress(params)
            case "notifications/resources/updated":
                self._listener.on_resource_updated(params, self._owner)
            case "notifications/subscriptions/acknowledged":
                self._listener.on_subscription_acknowledged()
            case "notifications/cancelled":
                self._cancel_request(params)
            case _ if method.endswith("/list_changed"):
                capability = method.removeprefix("notifications/").removesuffix("/list_changed")
                self._listener.on_list_changed(capability, self._profile)
            case _:
                self._forward_notification(method, params, about)

    def count_ignored(self, what: str) -> None:
        """Something came that is no message, or that concerns nobody."""
        self.ignored += 1
        log.debug("noise", extra={"server": self._server, "what": what[:200]})

    def count_stream_resumed(self) -> None:
        """A stream that broke off was taken up again."""
        self._listener.on_stream_resumed()

    def report_health(self, reason: str | None) -> None:
        """The server answers, and this is why it cannot do its work; None once it can again."""
        self._listener.on_health_changed(reason)

    def close(self) -> None:
        """The connection is gone: nobody waits for answers to its questions."""
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

    def _forward_notification(self, method: str, params: bytes, about: OutgoingRequest | None) -> None:
        channel = self._channel_for(about)
        if channel is None:
            self.count_ignored(f"{method} that could be about several clients")
        else:
            channel.send_notification(method, params)

    def _channel_for(self, about: OutgoingRequest | None) -> ClientBackChannel | None:
        """The way to the client that a message concerns; None when it could be several, or none."""
        if about is not None and about.request is not None:
            return about.request.channel
        requests = [
            in_flight.outgoing.request for in_flight in self._in_flight.values() if in_flight.outgoing.request
        ]
        if len(requests) == 1:
            return requests[0].channel
        if self._owner is not None:
            return self._owner.channel
        owners = {request.session.id: request.session for request in requests if request.session is not None}
        if len(owners) == 1 and all(request.session is not None for request in requests):
            return next(iter(owners.values())).channel
        return None

    # Questions.

    def _route_request(
        self, envelope: Envelope, about: OutgoingRequest | None, reply: Callable[[bytes], None]
    ) -> None:
        id, method, params = bytes(envelope.id), envelope.method, bytes(envelope.params)
        if method == "ping":
            reply(encode_result(id, b"{}"))
            return
        channel = self._channel_for(about)
        if not self._profile.supports_input_request(method, params):
            # Servers hand these words on: they are what the model reads.
            why = self._profile.unsupported_reason(method)
            reply(encode_error(id, METHOD_NOT_FOUND, f"Method not found: {method[:200]} ({why})"))
        elif channel is None:
            reply(encode_error(id, INTERNAL_ERROR, "It is not clear which client this is for"))
        elif id in self._server_requests:
            # A stream that was taken up again may repeat it, and it has not been answered yet.
            self.count_ignored("a question that is being asked")
        elif len(self._server_requests) >= _MOST_SERVER_REQUESTS and not self._cancel_orphaned():
            reply(encode_error(id, INTERNAL_ERROR, "Too many questions at once"))
        else:
            self._listener.on_server_request()
            task = asyncio.get_running_loop().create_task(
                self._forward_request(channel, envelope, about, reply), name=f"question of {self._server}"
            )
            self._server_requests[id] = task
            task.add_done_callback(lambda _: self._remove_request(id, task))

    def _cancel_orphaned(self) -> bool:
        """Withdraw the oldest question that no request under way waits for: it may never be answered."""
        for id, held in self._suspended.items():
            if not any(self._in_flight.get(in_flight.outgoing.token) is in_flight for in_flight in held):
                task = self._server_requests[id]
                task.cancel(_REQUEST_OVER)
                self._remove_request(id, task)
                return True
        return False

    def _remove_request(self, id: bytes, task: "asyncio.Task[None]") -> None:
        """The question is over, and its id may be another's now."""
        if self._server_requests.get(id) is task:
            del self._server_requests[id]
            self._suspended.pop(id, None)

    def _suspended_by(self, about: OutgoingRequest | None) -> list[InFlightRequest]:
        """Whose time stands still while the client is asked: nobody can say which of several waits for it."""
        return [
            in_flight
            for in_flight in self._in_flight.values()
            if about is None or about.request is None or in_flight.outgoing is about
        ]

    async def _forward_request(
        self,
        channel: ClientBackChannel,
        envelope: Envelope,
        about: OutgoingRequest | None,
        reply: Callable[[bytes], None],
    ) -> None:
        # Only now, because a request may have been answered in the same breath.
        id, held = bytes(envelope.id), self._suspended_by(about)
        self._suspended[id] = held
        for in_flight in held:
            in_flight.suspensions += 1
            in_flight.suspend()
        self._count(id, held)
        task = asyncio.current_task()
        # On a client's own connection a server may ask for the client's sake, whatever is under way.
        certain = self._owner is None or (about is not None and about.request is not None)
        if len(held) == 1 and task is not None and certain:
            held[0].caused += (task,)
        try:
            answer = await channel.send_request(envelope.method, _for_clients(envelope))
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (_REQUEST_OVER,):
                reply(encode_error(id, INTERNAL_ERROR, "The request that this is about is over"))
            raise
        except Exception:
            # Whatever is wrong with the client, the server must hear something.
            log.exception("question failed", extra={"server": self._server, "method": envelope.method})
            reply(encode_error(id, INTERNAL_ERROR, "The client could not be asked"))
            return
        finally:
            counted = self._counted.pop(id, None)
            if counted is not None and len(held) > 1:
                self._stop_waiting(counted)
            for in_flight in held:
                self._resume_timer(in_flight)
        reply(_encode_answer(id, answer))

    def _count(self, id: bytes, held: list[InFlightRequest]) -> None:
        """One call waits for the input, the newest that may; the others may not wait for anything."""
        for in_flight in reversed(held):
            if in_flight.pending_input is None and self._in_flight.get(in_flight.outgoing.token) is in_flight:
                self._counted[id] = in_flight
                self._start_waiting(in_flight)
                return

    def _count_another(self, over: InFlightRequest) -> None:
        """A call that counted is over, and its question is not: it belongs to another one."""
        for id in [id for id, in_flight in self._counted.items() if in_flight is over]:
            del self._counted[id]
            self._count(id, self._suspended.get(id, []))

    def _resume_timer(self, in_flight: InFlightRequest) -> None:
        """One question less; the time of a request that waits for none, and is not over, runs again."""
        in_flight.suspensions -= 1
        if not in_flight.suspensions and in_flight.pending_input is not None:
            self._stop_waiting(in_flight)
        if not in_flight.suspensions and self._in_flight.get(in_flight.outgoing.token) is in_flight:
            in_flight.renew()

    def _start_waiting(self, in_flight: InFlightRequest) -> None:
        def withdraw(error: HeadgateError) -> None:
            in_flight.pending_input = None
            in_flight.withdraw(error)

        now = asyncio.get_running_loop().time()
        in_flight.pending_input = CallAwaitingInput(
            self._server, client_of(in_flight.outgoing.request), now, withdraw
        )
        self._pending_inputs.add(in_flight.pending_input)

    def _stop_waiting(self, in_flight: InFlightRequest) -> None:
        if in_flight.pending_input is not None:
            self._pending_inputs.remove(in_flight.pending_input)
            in_flight.pending_input = None

    def _cancel_request(self, params: bytes) -> None:
        """The server does not want the answer to its question any more."""
        try:
            id = bytes(msgspec.json.decode(params or b"{}", type=_CancelledParams).requestId)
        except (DecodeError, UnicodeDecodeError):
            return
        if id in self._server_requests:
            self._server_requests[id].cancel()


def _for_clients(envelope: Envelope) -> bytes:
    """The params without what is between the server and the gateway, or the gateway's own to say."""
    return without_reserved(without_rmcp_meta(bytes(envelope.params)))


def _encode_answer(id: bytes, answer: McpResponse) -> bytes:
    if answer.error:
        return encode_failure(id, answer.error)
    assert isinstance(answer.result, bytes)
    return encode_result(id, answer.result)


# A server that asks faster than it takes our replies must not fill the memory or use up the sockets.
_MOST_AT_ONCE = 8
_MOST_WAITING = 64


class ReplyQueue:
    """The replies on their way to one upstream."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], router: NotificationRouter) -> None:
        """`send` raises nothing."""
        self._send = send
        self._router = router
        self._tasks = BackgroundTasks()
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    def enqueue(self, reply: bytes) -> None:
        """Send it when its turn comes; beyond the bound it is dropped and counted."""
        if len(self._tasks) >= _MOST_AT_ONCE + _MOST_WAITING:
            self._router.count_ignored("a request while too many replies wait")
            return
        self._tasks.start(self._send_in_turn(reply), name="reply")

    async def _send_in_turn(self, reply: bytes) -> None:
        async with self._turns:
            await self._send(reply)

    def close(self) -> None:
        """The connection is gone."""
        self._tasks.cancel()
