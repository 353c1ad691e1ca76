"""One request being answered over HTTP: plain JSON, or a stream once something must be said earlier."""

import asyncio

from headgate.domain.call import Answer
from headgate.front.questions import unanswered
from headgate.front.reply import Reply
from headgate.front.sessions import HttpSession
from headgate.front.streams import Stream
from headgate.front.visit import Visit
from headgate.wire.envelope import encode_notification

# From this version on, a server may end a stream before the answer and have the client come back for it.
_COMES_BACK = "2025-11-25"


class Exchange:
    """The way back to the client of one request; of a client with a session, also while it is away."""

    __slots__ = ("_done", "_pump", "_session", "_stream", "_visit", "last")

    def __init__(self, visit: Visit, now: float, session: HttpSession | None = None) -> None:
        self._visit = visit
        self._session = session
        self._stream: Stream | None = None
        self._pump: asyncio.Task[None] | None = None
        self._done = False
        self.last = now

    @property
    def live(self) -> bool:
        """Whether the answer is still to come and the client is there for it."""
        if self._done:
            return False
        return not self._visit.gone if self._stream is None else self._stream.live

    @property
    def streaming(self) -> bool:
        """Whether the response has begun."""
        return self._stream is not None

    # The channel of this request.

    def tell(self, method: str, params: bytes) -> None:
        """Say something before the answer; a client that does not read loses it."""
        self.emit(encode_notification(method, params))

    async def ask(self, method: str, params: bytes) -> Answer:
        """The client's answer to a question of the server; an error when it cannot be asked."""
        if self._session is None:
            return unanswered("The client speaks a version without questions of servers")
        return await self._session.questions.ask(self, method, params)

    def send(self, message: bytes) -> bool:
        """Send it before the answer, or else in any other way that the client can be reached."""
        if self.live:
            self.emit(message)
            return True
        return self._session is not None and self._session.reach.send(message)

    def keep(self, message: bytes) -> None:
        """Say it before the answer, which the client may fetch later."""
        self.emit(message)

    def emit(self, message: bytes) -> None:
        """Say something before the answer, as a whole message."""
        if not self._done:
            self._opened().add(message)

    def ping(self) -> None:
        """Say that the answer is still to come; the stream goes on saying so by itself."""
        self._opened()

    def _opened(self) -> Stream:
        if self._stream is None:
            if self._session is None:
                self._stream = Stream(connection=self._visit.outbound)
            else:
                self._stream = self._session.reach.open()
                self._visit.on_left = self._left
            self._stream.reader = self._visit
            writing = self._stream.write(self._visit)
            self._pump = asyncio.get_running_loop().create_task(writing)
        return self._stream

    def _left(self) -> bool:
        """The client has left; whether the call must end, because nobody could come back for its answer."""
        if self._stream is None or self._session is None:
            return True
        self._stream.leave(self._visit)
        return not self._stream.told or not self._session.reach.may_be_left_alone()

    def let_go(self) -> None:
        """The server wants to be asked for the answer later; so may a client that knows how to come back."""
        stream, session = self._stream, self._session
        if stream is not None and session is not None and session.version >= _COMES_BACK:
            stream.let_go()

    # The end.

    async def finish(self, reply: Reply) -> None:
        """Send the answer, or keep it for a client that will fetch it."""
        self._done = True
        if self._stream is not None and self._pump is not None:
            self._visit.answering = True
            self._stream.finish(reply)
            await self._pump
            return
        try:
            if isinstance(reply.payload, bytes):
                self._visit.answer(reply)
            else:
                self._visit.answering = True
                await self._visit.answer_from_disk(reply)
        finally:
            reply.close()

    def cancel(self) -> None:
        """Nobody wants the answer any more: end the call."""
        if self._visit.task is not None:
            self._visit.task.cancel()

    def abandon(self) -> None:
        """There will be no answer: nothing more is said."""
        self._done = True
        if self._pump is not None:
            self._pump.cancel()
        if self._stream is None:
            return
        if self._session is None:
            self._stream.discard()
        else:
            self._session.reach.forget(self._stream)
