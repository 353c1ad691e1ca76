"""What a server asks a client is answered once, in bounded number, and never outlives either of them."""

import asyncio
import json
from typing import Any

import pytest

from headgate.domain.call import Answer
from headgate.front.questions import BackChannel, Questions
from headgate.wire.envelope import parse
from tests.waiting import eventually

WAIT_SECONDS = 5.0


class Mailbox:
    """A client that notes what it is sent, if it is there at all."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.sent: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []

    def send(self, message: bytes) -> bool:
        if self.there:
            self.sent.append(json.loads(message))
        return self.there

    def keep(self, message: bytes) -> None:
        self.kept.append(json.loads(message))

    async def asked(self, number: int = 1) -> list[Any]:
        """The ids of the questions, once there are so many."""
        await eventually(lambda: len(self._ids()) >= number, WAIT_SECONDS, "asked")
        return self._ids()

    def _ids(self) -> list[Any]:
        return [message["id"] for message in self.sent if "id" in message]


def respond(questions: Questions, id: Any, **told: Any) -> None:
    questions.answered(parse(json.dumps({"jsonrpc": "2.0", "id": id, **told}).encode()))


def error(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.error)
    assert not answer.result
    return told


async def test_answers_find_their_questions_in_any_order() -> None:
    client, questions = Mailbox(), Questions()
    channel = BackChannel(client, questions)
    asking = [
        asyncio.create_task(channel.ask("roots/list", b"")),
        asyncio.create_task(channel.ask("elicitation/create", b'{"message":"who?"}')),
    ]
    first, second = await client.asked(2)
    assert client.sent[0] == {"jsonrpc": "2.0", "id": first, "method": "roots/list"}
    assert client.sent[1]["params"] == {"message": "who?"}
    respond(questions, second, error={"code": 5, "message": "no", "data": [1.0]})
    questions.answered(
        parse(b'{"jsonrpc":"2.0","id":%s,"result":{"b":1.0,"a":[ 2 ]}}' % json.dumps(first).encode())
    )
    assert await asking[0] == Answer(b'{"b":1.0,"a":[ 2 ]}')
    assert error(await asking[1]) == {"code": 5, "message": "no", "data": [1.0]}
    assert len(questions) == 0


@pytest.mark.parametrize("id", ["hg-1", 1, "", "hg-00000000-1"])
async def test_an_answer_to_nothing_is_ignored(id: Any) -> None:
    client, questions = Mailbox(), Questions()
    asking = asyncio.create_task(questions.ask(client, "ping", b""))
    (real,) = await client.asked()
    respond(questions, id, result={})
    await asyncio.sleep(0)
    assert not asking.done()
    respond(questions, real, result={"once": 1})
    respond(questions, real, result={"twice": 1})
    assert (await asking).result == b'{"once": 1}'


async def test_ids_of_one_client_are_not_those_of_another() -> None:
    clients = [Mailbox() for _ in range(2)]
    asking = [asyncio.create_task(Questions().ask(client, "ping", b"")) for client in clients]
    ids = [(await client.asked())[0] for client in clients]
    assert ids[0] != ids[1]
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize(
    "told", [{"result": 5}, {"result": None}, {"error": "no"}, {"result": {}, "error": []}]
)
async def test_an_answer_that_no_server_could_read_becomes_an_error(told: dict[str, Any]) -> None:
    client, questions = Mailbox(), Questions()
    asking = asyncio.create_task(questions.ask(client, "ping", b""))
    respond(questions, (await client.asked())[0], **told)
    assert error(await asking)["code"] == -32603


async def test_what_an_answer_says_of_delivery_goes_to_no_server() -> None:
    client, questions = Mailbox(), Questions()
    asking = asyncio.create_task(questions.ask(client, "roots/list", b""))
    respond(
        questions, (await client.asked())[0], result={"roots": [], "_meta": {"rmcp": {"ack": True}, "x": 1}}
    )
    answer = await asking
    assert isinstance(answer.result, bytes)
    assert json.loads(answer.result) == {"roots": [], "_meta": {"x": 1}}


async def test_a_question_that_nobody_waits_for_any_more_is_taken_back() -> None:
    client, questions = Mailbox(), Questions()
    asking = asyncio.create_task(questions.ask(client, "ping", b""))
    (id,) = await client.asked()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert client.sent[1:] == [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    ]
    assert len(questions) == 0
    respond(questions, id, result={})


async def test_a_flood_of_questions_is_bounded() -> None:
    client, questions = Mailbox(), Questions()
    asking = [asyncio.create_task(questions.ask(client, "ping", b"")) for _ in range(1000)]
    await client.asked(100)
    refused = [task for task in asking if task.done()]
    assert len(refused) == 900
    assert all("100 questions" in error(task.result())["message"] for task in refused)
    ids = await client.asked(100)
    assert len(ids) == 100
    respond(questions, ids[0], result={})
    await asyncio.sleep(0)
    # One answered is room for one more.
    another = asyncio.create_task(questions.ask(client, "ping", b""))
    assert len(await client.asked(101)) == 101
    questions.close()
    for task in [*asking, another]:
        await task
    assert len(questions) == 0


async def test_when_the_client_ends_its_session_its_questions_fail() -> None:
    client, away, questions = Mailbox(), Mailbox(there=False), Questions()
    asking = [asyncio.create_task(questions.ask(way, "ping", b"")) for way in (client, away)]
    await client.asked()
    await eventually(lambda: questions.unsent == 1, WAIT_SECONDS, "one waits for a stream")
    questions.close()
    for task in asking:
        assert "ended" in error(await task)["message"]
    assert "ended" in error(await questions.ask(client, "ping", b""))["message"]
    assert len(client.sent) == 1


async def test_a_question_waits_for_a_client_that_opens_a_stream() -> None:
    client, questions = Mailbox(there=False), Questions()
    asking = asyncio.create_task(questions.ask(client, "ping", b""))
    await eventually(lambda: questions.unsent == 1, WAIT_SECONDS, "it waits")
    # Somebody came, but left before it could be asked.
    questions.reachable()
    await asyncio.sleep(0)
    assert not asking.done()
    client.there = True
    questions.reachable()
    respond(questions, (await client.asked())[0], result={})
    assert (await asking).result == b"{}"
    assert questions.unsent == 0


async def test_a_question_does_not_wait_for_ever_for_a_stream() -> None:
    client, questions = Mailbox(there=False), Questions(reach_seconds=0.05)
    told = error(await questions.ask(client, "ping", b""))
    assert told["code"] == -32603
    assert "no stream" in told["message"]
    assert len(questions) == 0


async def test_what_is_told_to_a_client_that_is_away_is_kept_for_it() -> None:
    client = Mailbox()
    channel = BackChannel(client, Questions())
    channel.tell("notifications/message", b'{"level":"info"}')
    client.there = False
    channel.tell("notifications/message", b'{"level":"error"}')
    assert [message["params"]["level"] for message in client.sent] == ["info"]
    assert [message["params"]["level"] for message in client.kept] == ["error"]
