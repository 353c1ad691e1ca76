"""Carries a call to its answer, however often the upstream asks something on the way."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.dialogue.held import Held
from headgate.dialogue.questions import (
    ASKING_METHODS,
    RESPONSES,
    STATE,
    Question,
    Questions,
    asking,
    in_handshake_words,
    questions_in,
    with_state,
)
from headgate.dialogue.reminders import LIFE_SECONDS, Reminders
from headgate.domain.call import Answer, Call
from headgate.domain.errors import InvalidAnswer, ReminderRefused
from headgate.wire.envelope import encode_object

# A server that has not finished after so many rounds never will.
_MOST_ROUNDS = 10
# Before a server is asked again that only wants to be reminded; doubled each time, within a second.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
# Calls that ended while their client was away, whose outcome it may still fetch; the oldest go first.
_MOST_UNCLAIMED = 1000


class Delivery(Protocol):
    """Whatever carries a call out."""

    async def deliver(self, call: Call) -> Answer:
        """The upstream's answer; raises HeadgateError saying what may have happened."""

    def holds_questions(self, server: str) -> bool:
        """Whether the server puts its questions while a call is under way."""


class Dialogue:
    """Bridges the two ways in which upstreams ask, and the two in which clients can be asked."""

    def __init__(self, delivery: Delivery, reminders: Reminders) -> None:
        self._delivery = delivery
        self._reminders = reminders
        self._held: dict[str, Held] = {}
        self._unclaimed: dict[str, Held] = {}

    def carry(self, call: Call) -> Coroutine[Any, Any, Answer]:
        """The upstream's answer, or its questions for a stateless client; raises HeadgateError.

        Not a coroutine of its own, because every call comes by here.
        """
        request = call.request
        if request.owner is not None:
            return self._until_answered(call)
        if STATE in request.params and request.method in ASKING_METHODS:
            return self._resume(call)
        return self._begin(call)

    # A client that can be asked while it waits, and an upstream that asks with its answer.

    async def _until_answered(self, call: Call) -> Answer:
        answer = await self._delivery.deliver(call)
        if not answer.typed:
            # An upstream of the handshake era, which has asked meanwhile.
            return answer
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(_MOST_ROUNDS):
            questions = self._questions(call, answer)
            if questions is None:
                return answer
            if questions.input_requests:
                responses = await self._ask_all(call, questions)
                if isinstance(responses, Answer):
                    return responses
            else:
                responses = {}
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            answer = await self._delivery.deliver(_answered(call, questions, responses))
        if self._questions(call, answer) is None:
            return answer
        raise InvalidAnswer(call.item.server, call.item.public_name, f"questions after {_MOST_ROUNDS} rounds")

    def _questions(self, call: Call, answer: Answer) -> Questions | None:
        """What the answer asks for; raises InvalidAnswer when the client never said that it can be asked."""
        try:
            questions = questions_in(answer)
        except ValueError as error:
            raise InvalidAnswer(call.item.server, call.item.public_name, str(error)) from error
        if questions is not None:
            for question in questions.input_requests.values():
                profile = call.request.profile
                if not profile.may_be_asked(question.method, bytes(question.params)):
                    reason = f"a question ({question.method[:100]}), but {profile.why_not(question.method)}"
                    raise InvalidAnswer(call.item.server, call.item.public_name, reason)
        return questions

    async def _ask_all(self, call: Call, questions: Questions) -> dict[str, Raw] | Answer:
        """The client's answer to each question, all put at once; the first error ends the call."""
        asked = [
            asyncio.ensure_future(_ask(call, question)) for question in questions.input_requests.values()
        ]
        try:
            answers = await asyncio.gather(*asked)
        finally:
            for task in asked:
                task.cancel()
        responses: dict[str, Raw] = {}
        for key, answer in zip(questions.input_requests, answers, strict=True):
            if answer.error:
                return answer
            assert isinstance(answer.result, bytes)
            responses[key] = Raw(answer.result)
        return responses

    # A client that can only be asked by way of its answer.

    async def _begin(self, call: Call) -> Answer:
        asks_meanwhile = call.request.profile.can_be_asked and call.request.method in ASKING_METHODS
        if not asks_meanwhile or not self._delivery.holds_questions(call.item.server):
            return self._reminding(call, await self._delivery.deliver(call))
        # However many wait: the limit applies when a server asks, and ends another call then.
        held = Held(call, self._delivery.deliver)
        self._held[held.handle] = held
        held.task.add_done_callback(lambda _: self._ended(held))
        return await self._turn(call, held)

    def _reminding(self, call: Call, answer: Answer) -> Answer:
        """Questions of a stateless upstream pass, and its reminder is sealed."""
        questions = self._questions(call, answer) if answer.typed else None
        if questions is None or questions.request_state is None:
            return answer
        return with_state(answer, self._reminders.write("upstream", call, questions.request_state))

    async def _resume(self, call: Call) -> Answer:
        request, responses = call.request, _responses(call)
        # Last, because a reminder is read once: what is wrong with the rest can be mended by the client.
        reminder = self._reminders.read(call)
        if reminder.kind == "upstream":
            params = {**request.params, STATE: Raw(msgspec.json.encode(reminder.content))}
            call = Call(msgspec.structs.replace(request, params=params), call.item)
            return self._reminding(call, await self._delivery.deliver(call))
        held = self._held.get(reminder.content)
        if held is None:
            raise ReminderRefused(
                "the call that it belongs to does not wait at this gateway any more: "
                "it ended, or made room for the calls of other clients"
            )
        held.go_on(request, responses)
        return await self._turn(call, held)

    async def _turn(self, call: Call, held: Held) -> Answer:
        """Wait for the answer or for questions, whichever comes first."""
        held.attended = True
        try:
            await held.next_turn()
        except asyncio.CancelledError as cancelled:
            # The client has left in the middle; a message says that it wants the call cancelled.
            self._drop(held, *cancelled.args)
            raise
        if held.task.done():
            self._forget(held)
            # Which era the server is of may not have been known when the call began.
            return self._reminding(call, held.task.result())
        # It waits for as long as the reminder can be used, and not longer.
        held.attended = False
        held.patience = asyncio.get_running_loop().call_later(LIFE_SECONDS, self._drop, held)
        return asking(held.questions, self._reminders.write("held", call, held.handle))

    def _ended(self, held: Held) -> None:
        """The call is over; where its client is away, it may come back for the outcome."""
        if held.attended or held.handle not in self._held:
            return
        held.release()
        self._unclaimed[held.handle] = held
        if len(self._unclaimed) > _MOST_UNCLAIMED:
            self._drop(next(iter(self._unclaimed.values())))

    def _forget(self, held: Held) -> None:
        self._held.pop(held.handle, None)
        self._unclaimed.pop(held.handle, None)

    def _drop(self, held: Held, *why: object) -> None:
        self._forget(held)
        held.give_up(*why)

    def close(self) -> None:
        """The gateway ends: nobody will come back."""
        for held in list(self._held.values()):
            self._drop(held)


async def _ask(call: Call, question: Question) -> Answer:
    channel = call.request.channel
    assert channel is not None
    return await channel.ask(question.method, in_handshake_words(question))


def _answered(call: Call, questions: Questions, responses: dict[str, Raw]) -> Call:
    """The call once more, with what the client said."""
    params = dict(call.request.params)
    for key in (RESPONSES, STATE):
        params.pop(key, None)
    if responses:
        params[RESPONSES] = Raw(encode_object(responses))
    if questions.request_state is not None:
        params[STATE] = Raw(msgspec.json.encode(questions.request_state))
    return Call(msgspec.structs.replace(call.request, params=params), call.item)


def _responses(call: Call) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(call.request.params.get(RESPONSES, b"{}"), type=dict[str, Raw])
    except (DecodeError, UnicodeDecodeError) as error:
        raise ReminderRefused(f"{RESPONSES} is not an object") from error
