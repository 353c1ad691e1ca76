"""A call that goes on upstream while its client, who knows no back channel, is asked by way of its answer."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw

from headgate.dialogue.questions import Question
from headgate.domain.call import Answer, Call, Request
from headgate.wire.violations import INTERNAL_ERROR

_OVER = Answer(
    error=msgspec.json.encode({"code": INTERNAL_ERROR, "message": "The request that this is about is over"})
)


class Held:
    """One call under way; it is the channel of the call, whichever request of the client waits for it."""

    def __init__(self, call: Call, deliver: Callable[[Call], Awaitable[Answer]]) -> None:
        # Not a secret, but nobody may guess the next one either.
        self.handle = secrets.token_urlsafe(16)
        self.request = call.request
        # Whether a request of the client waits for the next turn.
        self.attended = True
        # Runs out when nobody comes back with answers.
        self.patience: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()
        self._questions: dict[str, tuple[Question, asyncio.Future[Answer]]] = {}
        self._last = 0
        carried = msgspec.structs.replace(
            call.request,
            channel=self,
            on_progress=self._progress if call.request.on_progress is not None else None,
        )
        self.task = asyncio.ensure_future(deliver(Call(carried, call.item)))

    async def next_turn(self) -> None:
        """Wait until the call is answered, or the client is asked something."""
        # A question may be withdrawn as soon as it was put.
        while not self.task.done() and not self._questions:
            asked = asyncio.ensure_future(self._asked.wait())
            try:
                await asyncio.wait({self.task, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()

    @property
    def questions(self) -> dict[str, Question]:
        """What has been asked and not been answered."""
        return {key: question for key, (question, _) in self._questions.items()}

    def go_on(self, request: Request, responses: dict[str, Raw]) -> None:
        """The client has come back, with some answers."""
        self.request = request
        if self.patience is not None:
            self.patience.cancel()
        for key, response in responses.items():
            if key in self._questions:
                _, future = self._questions[key]
                if not future.done():
                    future.set_result(Answer(bytes(response)))
                self._forget(key)

    def release(self) -> None:
        """The call is over and its client is away: only the outcome is kept, not what was sent."""
        self.request = Request(caller=self.request.caller)

    def give_up(self, *why: object) -> None:
        """Nobody will take the answer; the call is told why, if there is a word for it."""
        if self.patience is not None:
            self.patience.cancel()
        self.task.cancel(*why)
        self.task.add_done_callback(_discard)

    # The channel of the call.

    def tell(self, method: str, params: bytes) -> None:
        """Hand a notification on to whichever request waits."""
        if self.request.channel is not None:
            self.request.channel.tell(method, params)

    async def ask(self, method: str, params: bytes) -> Answer:
        """The client's answer, which comes with its next request."""
        if self.task.done():
            # Put in the same breath as the answer: the client has no reason to come back.
            return _OVER
        self._last += 1
        key = f"q{self._last}"
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._questions[key] = (Question(method, Raw(params)), future)
        self._asked.set()
        try:
            return await future
        finally:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._questions.pop(key, None)
        if not self._questions:
            self._asked.clear()

    def _progress(self, params: dict[str, Raw]) -> None:
        if self.request.on_progress is not None:
            self.request.on_progress(params)


def _discard(task: "asyncio.Future[Answer]") -> None:
    if not task.cancelled() and task.exception() is None:
        result = task.result().result
        if not isinstance(result, bytes):
            result.close()
