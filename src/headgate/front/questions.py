"""The back channel: what servers tell and ask one client, and the answers that it owes."""

import asyncio
import secrets
from typing import Protocol

import msgspec

from headgate.domain.call import Answer
from headgate.wire.envelope import Envelope, encode_notification, encode_request
from headgate.wire.rmcp import unsaid
from headgate.wire.violations import INTERNAL_ERROR

# A server that asks on and on is refused before its questions fill the memory.
_MOST_ASKED = 100
# How long a question waits for a client that has no stream open; most come back within a second or two.
_REACH_SECONDS = 10.0
_ENDED = "The client has ended its session"


class Way(Protocol):
    """Carries messages to one client."""

    def send(self, message: bytes) -> bool:
        """Send it, if somebody is there to take it; whether that was so."""

    def keep(self, message: bytes) -> None:
        """Nobody is there now: keep it if the client may fetch it later, or drop it."""


class Questions:
    """The questions that one client has not answered yet."""

    def __init__(self, reach_seconds: float = _REACH_SECONDS) -> None:
        self._reach_seconds = reach_seconds
        # Part of every id, so that a late answer to an earlier gateway is nobody's answer here.
        self._series = secrets.token_hex(4).encode()
        self._asked = 0
        self._waiting: dict[bytes, asyncio.Future[Answer]] = {}
        self._reachable = asyncio.Event()
        self._closed = False
        # How many of the questions have not been sent, because the client could not be reached.
        self.unsent = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, way: Way, method: str, params: bytes) -> Answer:
        """The client's answer as it came, or an error that says why there is none."""
        if self._closed:
            return unanswered(_ENDED)
        if len(self._waiting) >= _MOST_ASKED:
            return unanswered(f"The client has {_MOST_ASKED} questions to answer already")
        self._asked += 1
        id = b'"hg-%s-%d"' % (self._series, self._asked)
        answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        sent = False
        try:
            sent = await self._sent(way, encode_request(id, method, params))
            return await answer if sent else self._unreached()
        except asyncio.CancelledError:
            if sent:
                # Whoever asked has given up, so nobody should be bothered with the question any longer.
                way.send(encode_notification("notifications/cancelled", b'{"requestId":' + id + b"}"))
            raise
        finally:
            del self._waiting[id]

    async def _sent(self, way: Way, message: bytes) -> bool:
        """Whether the client could be asked, now or soon."""
        if way.send(message):
            return True
        self.unsent += 1
        try:
            async with asyncio.timeout(self._reach_seconds):
                while not self._closed:
                    self._reachable.clear()
                    await self._reachable.wait()
                    if way.send(message):
                        return True
        except TimeoutError:
            pass
        finally:
            self.unsent -= 1
        return False

    def _unreached(self) -> Answer:
        if self._closed:
            return unanswered(_ENDED)
        return unanswered(f"The client opened no stream to be asked on within {self._reach_seconds:g} s")

    def reachable(self) -> None:
        """The client has opened a stream: what could not be asked before may be asked now."""
        self._reachable.set()

    def answered(self, envelope: Envelope) -> None:
        """The client has answered; ids that we did not give, or not any more, are ignored."""
        answer = self._waiting.get(bytes(envelope.id))
        if answer is not None and not answer.done():
            answer.set_result(_answer(bytes(envelope.result), bytes(envelope.error)))

    def close(self) -> None:
        """The client is gone: nothing will be answered any more."""
        self._closed = True
        self._reachable.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(unanswered(_ENDED))


def _answer(result: bytes, error: bytes) -> Answer:
    """What the client said, unless no server could make sense of it; of delivery it says nothing to one."""
    if (error or result)[:1] != b"{":
        return unanswered("The client's answer is neither a result nor an error of the protocol")
    return Answer(error=error) if error else Answer(unsaid(result))


def unanswered(reason: str) -> Answer:
    """Why there is no answer, in the words of the protocol."""
    return Answer(error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": reason}))


class BackChannel:
    """A client's channel, apart from the answers to its requests."""

    __slots__ = ("_questions", "_way")

    def __init__(self, way: Way, questions: Questions) -> None:
        self._way = way
        self._questions = questions

    def tell(self, method: str, params: bytes) -> None:
        """Hand a notification on; one that the client can neither take now nor fetch later is dropped."""
        message = encode_notification(method, params)
        if not self._way.send(message):
            self._way.keep(message)

    async def ask(self, method: str, params: bytes) -> Answer:
        """The client's answer to a question; an error when it cannot be asked."""
        return await self._questions.ask(self._way, method, params)
