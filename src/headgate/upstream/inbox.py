"""What an upstream says without being asked: each message goes to the client that it concerns."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer, Channel, Owner
from headgate.domain.errors import HeadgateError
from headgate.domain.profile import PLAIN, Profile
from headgate.upstream.link import Outgoing
from headgate.upstream.pending_input import PendingCall, PendingInputs, client_of
from headgate.wire.envelope import Envelope, decode_object, encode_failure, encode_result
from headgate.wire.reserved import UnreadableMeta, without_reserved
from headgate.wire.rmcp import unsaid
from headgate.wire.violations import INTERNAL_ERROR, METHOD_NOT_FOUND, encode_error

log = logging.getLogger("headgate.upstream")

# A server that asks faster than people answer is refused the rest.
_MOST_QUESTIONS = 32
# Why a question is withdrawn of which the server does not know yet.
_OVER = "the request is over"


class News(Protocol):
    """Who wants to know what an upstream says about itself."""

    def changed(self, capability: str) -> None:
        """Its tools, prompts or resources are no longer what they were."""

    def updated(self, params: bytes) -> None:
        """A resource that somebody subscribed to has changed."""

    def asked(self) -> None:
        """It has put a question to a client."""

    def acknowledged(self) -> None:
        """It has taken the gateway's subscription."""

    def resumed(self) -> None:
        """A stream of it that broke off was taken up again."""

    def unwell(self, reason: str | None) -> None:
        """It answers, and says why it cannot do its work; None once it can again."""


class Timing(Protocol):
    """How long a request may still take."""

    def renew(self) -> None:
        """Something was heard of it: it may take longer, but not beyond its maximum."""

    def hold(self) -> None:
        """A person is being asked: only the maximum counts."""

    def withdraw(self, error: HeadgateError) -> None:
        """End the request now: the upstream is told that it is cancelled, and the caller gets the error."""


class _Flight:
    """A client's request that is under way, and how many questions it waits for."""

    __slots__ = ("asked", "outgoing", "pending", "questions", "timing")

    def __init__(self, outgoing: Outgoing, timing: Timing) -> None:
        self.outgoing = outgoing
        self.timing = timing
        self.questions = 0
        # Those that nobody else can have caused.
        self.asked: list[asyncio.Task[None]] | None = None
        # Set while it waits for input.
        self.pending: PendingCall | None = None


class _Cancelled(msgspec.Struct):
    requestId: Raw = Raw(b"")  # noqa: N815 (the protocol's spelling)


class Inbox:
    """Everything unasked on one connection; `owner` is the only client that uses it, if there is one."""

    def __init__(
        self,
        server: str,
        news: News,
        profile: Profile = PLAIN,
        owner: Owner | None = None,
        pending_inputs: PendingInputs | None = None,
    ) -> None:
        self._pending_inputs = pending_inputs or PendingInputs()
        self._server = server
        self._news = news
        self._profile = profile
        self._owner = owner
        self._in_flight: dict[int, _Flight] = {}
        self._questions: dict[bytes, asyncio.Task[None]] = {}
        # The requests whose time stands still meanwhile, once the question has been put.
        self._held_by: dict[bytes, list[_Flight]] = {}
        # The one of them that counts as waiting for the input: a question may not say which one it is.
        self._counted: dict[bytes, _Flight] = {}
        self.noise = 0

    def board(self, outgoing: Outgoing, timing: Timing) -> None:
        """A client's request is under way."""
        self._in_flight[outgoing.token] = _Flight(outgoing, timing)

    def land(self, token: int) -> None:
        """That request is over, and nobody need answer what it made the upstream ask."""
        flight = self._in_flight.pop(token, None)
        if flight is None:
            return
        if flight.pending is not None:
            self._stop_waiting(flight)
            self._count_another(flight)
        if flight.asked is not None:
            for question in flight.asked:
                question.cancel(_OVER)

    def waits_for_input(self, calls: int) -> PendingCall | None:
        """The call that was last to wait for input when all of so many calls do; None when one does not."""
        waiting = [flight.pending for flight in self._in_flight.values() if flight.pending is not None]
        if not waiting or len(waiting) != calls:
            return None
        return max(waiting, key=lambda call: call.since)

    def withdraw_all(self, reason: str) -> None:
        """End every call that waits for input."""
        for flight in list(self._in_flight.values()):
            if flight.pending is not None:
                self._pending_inputs.withdraw(flight.pending, reason)

    def take(self, envelope: Envelope, about: Outgoing | None, reply: Callable[[bytes], None]) -> None:
        """Act on a message that came with the answer to `about`, if that is known; `reply` sends one back."""
        if envelope.id:
            self._question(envelope, about, reply)
            return
        try:
            self._heed(envelope.method, _for_clients(envelope), about)
        except (RecursionError, UnreadableMeta):
            # Whatever it says, it must not cost the connection.
            self.count_noise("a notification nested too deep")

    def _heed(self, method: str, params: bytes, about: Outgoing | None) -> None:
        match method:
            case "notifications/progress":
                self._progress(params)
            case "notifications/resources/updated":
                self._news.updated(params)
            case "notifications/subscriptions/acknowledged":
                self._news.acknowledged()
            case "notifications/cancelled":
                self._withdraw(params)
            case _ if method.endswith("/list_changed"):
                self._news.changed(method.removeprefix("notifications/").removesuffix("/list_changed"))
            case _:
                self._tell(method, params, about)

    def count_noise(self, what: str) -> None:
        """Something came that is no message, or that concerns nobody."""
        self.noise += 1
        log.debug("noise", extra={"server": self._server, "what": what[:200]})

    def count_resumed(self) -> None:
        """A stream that broke off was taken up again."""
        self._news.resumed()

    def tell_health(self, reason: str | None) -> None:
        """The server answers, and this is why it cannot do its work; None once it can again."""
        self._news.unwell(reason)

    def close(self) -> None:
        """The connection is gone: nobody waits for answers to its questions."""
        for question in self._questions.values():
            question.cancel()

    def _progress(self, params: bytes) -> None:
        try:
            members = decode_object(params)
            token = int(bytes(members.pop("progressToken")))
        except (DecodeError, UnicodeDecodeError, KeyError, ValueError):
            self.count_noise("progress without a token of ours")
            return
        flight = self._in_flight.get(token)
        if flight is None or flight.outgoing.request is None:
            self.count_noise("progress of a call that is over")
            return
        if not flight.questions:
            flight.timing.renew()
        if flight.outgoing.request.on_progress is not None:
            flight.outgoing.request.on_progress(members)

    def _tell(self, method: str, params: bytes, about: Outgoing | None) -> None:
        channel = self._channel(about)
        if channel is None:
            self.count_noise(f"{method} that could be about several clients")
        else:
            channel.tell(method, params)

    def _channel(self, about: Outgoing | None) -> Channel | None:
        """The way to the client that a message concerns; None when it could be several, or none."""
        if about is not None and about.request is not None:
            return about.request.channel
        requests = [flight.outgoing.request for flight in self._in_flight.values() if flight.outgoing.request]
        if len(requests) == 1:
            return requests[0].channel
        if self._owner is not None:
            return self._owner.channel
        owners = {request.owner.id: request.owner for request in requests if request.owner is not None}
        if len(owners) == 1 and all(request.owner is not None for request in requests):
            return next(iter(owners.values())).channel
        return None

    # Questions.

    def _question(self, envelope: Envelope, about: Outgoing | None, reply: Callable[[bytes], None]) -> None:
        id, method, params = bytes(envelope.id), envelope.method, bytes(envelope.params)
        if method == "ping":
            reply(encode_result(id, b"{}"))
            return
        channel = self._channel(about)
        if not self._profile.may_be_asked(method, params):
            # Servers hand these words on: they are what the model reads.
            why = self._profile.why_not(method)
            reply(encode_error(id, METHOD_NOT_FOUND, f"Method not found: {method[:200]} ({why})"))
        elif channel is None:
            reply(encode_error(id, INTERNAL_ERROR, "It is not clear which client this is for"))
        elif id in self._questions:
            # A stream that was taken up again may repeat it, and it has not been answered yet.
            self.count_noise("a question that is being asked")
        elif len(self._questions) >= _MOST_QUESTIONS and not self._make_room():
            reply(encode_error(id, INTERNAL_ERROR, "Too many questions at once"))
        else:
            self._news.asked()
            task = asyncio.get_running_loop().create_task(
                self._ask(channel, envelope, about, reply), name=f"question of {self._server}"
            )
            self._questions[id] = task
            task.add_done_callback(lambda _: self._forget(id, task))

    def _make_room(self) -> bool:
        """Withdraw the oldest question that no request under way waits for: it may never be answered."""
        for id, held in self._held_by.items():
            if not any(self._in_flight.get(flight.outgoing.token) is flight for flight in held):
                task = self._questions[id]
                task.cancel(_OVER)
                self._forget(id, task)
                return True
        return False

    def _forget(self, id: bytes, task: "asyncio.Task[None]") -> None:
        """The question is over, and its id may be another's now."""
        if self._questions.get(id) is task:
            del self._questions[id]
            self._held_by.pop(id, None)

    def _held(self, about: Outgoing | None) -> list[_Flight]:
        """Whose time stands still while the client is asked: nobody can say which of several waits for it."""
        return [
            flight
            for flight in self._in_flight.values()
            if about is None or about.request is None or flight.outgoing is about
        ]

    async def _ask(
        self, channel: Channel, envelope: Envelope, about: Outgoing | None, reply: Callable[[bytes], None]
    ) -> None:
        # Only now, because a request may have been answered in the same breath.
        id, held = bytes(envelope.id), self._held(about)
        self._held_by[id] = held
        for flight in held:
            flight.questions += 1
            flight.timing.hold()
        self._count(id, held)
        task = asyncio.current_task()
        # On a client's own connection a server may ask for the client's sake, whatever is under way.
        certain = self._owner is None or (about is not None and about.request is not None)
        if len(held) == 1 and task is not None and certain:
            held[0].asked = [*(held[0].asked or ()), task]
        try:
            answer = await channel.ask(envelope.method, _for_clients(envelope))
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (_OVER,):
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
            for flight in held:
                self._release(flight)
        reply(_encoded(id, answer))

    def _count(self, id: bytes, held: list[_Flight]) -> None:
        """One call waits for the input, the newest that may; the others may not wait for anything."""
        for flight in reversed(held):
            if flight.pending is None and self._in_flight.get(flight.outgoing.token) is flight:
                self._counted[id] = flight
                self._start_waiting(flight)
                return

    def _count_another(self, over: _Flight) -> None:
        """A call that counted is over, and its question is not: it belongs to another one."""
        for id in [id for id, flight in self._counted.items() if flight is over]:
            del self._counted[id]
            self._count(id, self._held_by.get(id, []))

    def _release(self, flight: _Flight) -> None:
        """One question less; the time of a request that waits for none, and is not over, runs again."""
        flight.questions -= 1
        if not flight.questions and flight.pending is not None:
            self._stop_waiting(flight)
        if not flight.questions and self._in_flight.get(flight.outgoing.token) is flight:
            flight.timing.renew()

    def _start_waiting(self, flight: _Flight) -> None:
        def withdraw(error: HeadgateError) -> None:
            flight.pending = None
            flight.timing.withdraw(error)

        now = asyncio.get_running_loop().time()
        flight.pending = PendingCall(self._server, client_of(flight.outgoing.request), now, withdraw)
        self._pending_inputs.add(flight.pending)

    def _stop_waiting(self, flight: _Flight) -> None:
        if flight.pending is not None:
            self._pending_inputs.remove(flight.pending)
            flight.pending = None

    def _withdraw(self, params: bytes) -> None:
        """The server does not want the answer to its question any more."""
        try:
            id = bytes(msgspec.json.decode(params or b"{}", type=_Cancelled).requestId)
        except (DecodeError, UnicodeDecodeError):
            return
        if id in self._questions:
            self._questions[id].cancel()


def _for_clients(envelope: Envelope) -> bytes:
    """The params without what is between the server and the gateway, or the gateway's own to say."""
    return without_reserved(unsaid(bytes(envelope.params)))


def _encoded(id: bytes, answer: Answer) -> bytes:
    if answer.error:
        return encode_failure(id, answer.error)
    assert isinstance(answer.result, bytes)
    return encode_result(id, answer.result)
