"""What a server asks a client is answered once, in bounded number, and never outlives either of them."""

import asyncio
import json
from typing import Any

import pytest

from headgate.domain.mcp_request import McpResponse
from headgate.protocol.jsonrpc import parse_message
from headgate.server.session_streams import ClientRequests, SessionChannel
from testkit.waiting import eventually

WAIT_SECONDS = 5.0


class Mailbox:
    """A client that notes what it is sent, if it is there at all."""

    def __init__(self, *, there: bool = True) -> None:
        self.there = there
        self.sent: list[dict[str, Any]] = []
        self.kept: list[dict[str, Any]] = []

    def try_send(self, message: bytes) -> bool:
        if self.there:
            self.sent.append(json.loads(message))
        return self.there

    def retain_or_drop(self, message: bytes) -> None:
        self.kept.append(json.loads(message))

    async def asked(self, number: int = 1) -> list[Any]:
        """The ids of the questions, once there are so many."""
        await eventually(lambda: len(self._ids()) >= number, WAIT_SECONDS, "asked")
        return self._ids()

    def _ids(self) -> list[Any]:
        return [message["id"] for message in self.sent if "id" in message]


def respond(client_requests: ClientRequests, id: Any, **told: Any) -> None:
    client_requests.on_response(parse_message(json.dumps({"jsonrpc": "2.0", "id": id, **told}).encode()))


def error(answer: McpResponse) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.error)
    assert not answer.result
    return told


async def test_answers_find_their_questions_in_any_order() -> None:
    client, client_requests = Mailbox(), ClientRequests()
    channel = SessionChannel(client, client_requests)
    asking = [
        asyncio.create_task(channel.send_request("roots/list", b"")),
        asyncio.create_task(channel.send_request("elicitation/create", b'{"message":"who?"}')),
    ]
    first, second = await client.asked(2)
    assert client.sent[0] == {"jsonrpc": "2.0", "id": first, "method": "roots/list"}
    assert client.sent[1]["params"] == {"message": "who?"}
    respond(client_requests, second, error={"code": 5, "message": "no", "data": [1.0]})
    client_requests.on_response(
        parse_message(b'{"jsonrpc":"2.0","id":%s,"result":{"b":1.0,"a":[ 2 ]}}' % json.dumps(first).encode())
    )
    assert await asking[0] == McpResponse(b'{"b":1.0,"a":[ 2 ]}')
    assert error(await asking[1]) == {"code": 5, "message": "no", "data": [1.0]}
    assert len(client_requests) == 0


@pytest.mark.parametrize("id", ["hg-1", 1, "", "hg-00000000-1"])
async def test_an_answer_to_nothing_is_ignored(id: Any) -> None:
    client, client_requests = Mailbox(), ClientRequests()
    asking = asyncio.create_task(client_requests.send_request(client, "ping", b""))
    (real,) = await client.asked()
    respond(client_requests, id, result={})
    await asyncio.sleep(0)
    assert not asking.done()
    respond(client_requests, real, result={"once": 1})
    respond(client_requests, real, result={"twice": 1})
    assert (await asking).result == b'{"once": 1}'


async def test_ids_of_one_client_are_not_those_of_another() -> None:
    clients = [Mailbox() for _ in range(2)]
    asking = [asyncio.create_task(ClientRequests().send_request(client, "ping", b"")) for client in clients]
    ids = [(await client.asked())[0] for client in clients]
    assert ids[0] != ids[1]
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize(
    "told", [{"result": 5}, {"result": None}, {"error": "no"}, {"result": {}, "error": []}]
)
async def test_an_answer_that_no_server_could_read_becomes_an_error(told: dict[str, Any]) -> None:
    client, client_requests = Mailbox(), ClientRequests()
    asking = asyncio.create_task(client_requests.send_request(client, "ping", b""))
    respond(client_requests, (await client.asked())[0], **told)
    assert error(await asking)["code"] == -32603


async def test_what_an_answer_says_of_delivery_goes_to_no_server() -> None:
    client, client_requests = Mailbox(), ClientRequests()
    asking = asyncio.create_task(client_requests.send_request(client, "roots/list", b""))
    respond(
        client_requests,
        (await client.asked())[0],
        result={"roots": [], "_meta": {"rmcp": {"ack": True}, "x": 1}},
    )
    answer = await asking
    assert isinstance(answer.result, bytes)
    assert json.loads(answer.result) == {"roots": [], "_meta": {"x": 1}}


async def test_a_question_that_nobody_waits_for_any_more_is_taken_back() -> None:
    client, client_requests = Mailbox(), ClientRequests()
    asking = asyncio.create_task(client_requests.send_request(client, "ping", b""))
    (id,) = await client.asked()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert client.sent[1:] == [
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    ]
    assert len(client_requests) == 0
    respond(client_requests, id, result={})


async def test_a_flood_of_questions_is_bounded() -> None:
    client, client_requests = Mailbox(), ClientRequests()
    asking = [asyncio.create_task(client_requests.send_request(client, "ping", b"")) for _ in range(1000)]
    await client.asked(100)
    refused = [task for task in asking if task.done()]
    assert len(refused) == 900
    assert all("100 questions" in error(task.result())["message"] for task in refused)
    ids = await client.asked(100)
    assert len(ids) == 100
    respond(client_requests, ids[0], result={})
    await asyncio.sleep(0)
    # One answered is room for one more.
    another = asyncio.create_task(client_requests.send_request(client, "ping", b""))
    assert len(await client.asked(101)) == 101
    client_requests.close()
    for task in [*asking, another]:
        await task
    assert len(client_requests) == 0


async def test_when_the_client_ends_its_session_its_questions_fail() -> None:
    client, away, client_requests = Mailbox(), Mailbox(there=False), ClientRequests()
    asking = [asyncio.create_task(client_requests.send_request(way, "ping", b"")) for way in (client, away)]
    await client.asked()
    await eventually(lambda: client_requests.unsent == 1, WAIT_SECONDS, "one waits for a stream")
    client_requests.close()
    for task in asking:
        assert "ended" in error(await task)["message"]
    assert "ended" in error(await client_requests.send_request(client, "ping", b""))["message"]
    assert len(client.sent) == 1


async def test_a_question_waits_for_a_client_that_opens_a_stream() -> None:
    client, client_requests = Mailbox(there=False), ClientRequests()
    asking = asyncio.create_task(client_requests.send_request(client, "ping", b""))
    await eventually(lambda: client_requests.unsent == 1, WAIT_SECONDS, "it waits")
    # A client came, but left before it could be asked.
    client_requests.on_stream_opened()
    await asyncio.sleep(0)
    assert not asking.done()
    client.there = True
    client_requests.on_stream_opened()
    respond(client_requests, (await client.asked())[0], result={})
    assert (await asking).result == b"{}"
    assert client_requests.unsent == 0


async def test_a_question_does_not_wait_for_ever_for_a_stream() -> None:
    client, client_requests = Mailbox(there=False), ClientRequests(reach_seconds=0.05)
    told = error(await client_requests.send_request(client, "ping", b""))
    assert told["code"] == -32603
    assert "no stream" in told["message"]
    assert len(client_requests) == 0


async def test_what_is_told_to_a_client_that_is_away_is_kept_for_it() -> None:
    client = Mailbox()
    channel = SessionChannel(client, ClientRequests())
    channel.send_notification("notifications/message", b'{"level":"info"}')
    client.there = False
    channel.send_notification("notifications/message", b'{"level":"error"}')
    assert [message["params"]["level"] for message in client.sent] == ["info"]
    assert [message["params"]["level"] for message in client.kept] == ["error"]
