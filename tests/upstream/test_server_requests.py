"""Questions of a server reach the client that they concern, once; what cannot be asked is refused."""

import asyncio

import pytest

from headgate.domain.errors import UpstreamTimeout
from headgate.domain.mcp_request import ClientSession, McpResponse
from testkit.virtual_time import virtual_time
from testkit.waiting import eventually
from tests.upstream.conversation import SAID, SAMPLING, Client, Conversation, outgoing, question

QUESTION = question()
NOT_FOUND, INTERNAL = -32601, -32603


def codes(talk: Conversation) -> list[int]:
    return [message["error"]["code"] for message in talk.sent if "error" in message]


@virtual_time
async def test_a_question_reaches_the_only_client_that_waits_and_its_answer_goes_back() -> None:
    talk = Conversation(SAMPLING)
    client = Client(SAID)
    await talk.call(token=1, client=client)
    talk.say(QUESTION)
    await talk.heard(2)
    assert client.asked == [("sampling/createMessage", {"maxTokens": 5})]
    assert talk.sent[1] == {"jsonrpc": "2.0", "id": "q", "result": {"role": "assistant", "n": 1.0}}
    assert talk.news.questions == 1


@virtual_time
async def test_what_a_server_says_of_delivery_goes_to_no_client() -> None:
    talk = Conversation(SAMPLING)
    client = Client(SAID)
    await talk.call(token=1, client=client)
    params = {"_meta": {"rmcp": {"ack": True}, "x": 1}}
    talk.say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    talk.say({**QUESTION, "params": params})
    await talk.heard(2)
    assert client.told == [("notifications/message", {"_meta": {"x": 1}})]
    assert client.asked == [("sampling/createMessage", {"_meta": {"x": 1}})]


@virtual_time
async def test_an_error_of_the_client_is_its_answer() -> None:
    talk = Conversation(SAMPLING)
    await talk.call(token=1, client=Client(McpResponse(error=b'{"code":-1,"message":"no"}')))
    talk.say(QUESTION)
    await talk.heard(2)
    assert talk.sent[1] == {"jsonrpc": "2.0", "id": "q", "error": {"code": -1, "message": "no"}}


@pytest.mark.parametrize("method", ["roots/list", "elicitation/create"])
@virtual_time
async def test_what_the_client_did_not_declare_is_not_asked(method: str) -> None:
    talk = Conversation(SAMPLING)
    client = Client(SAID)
    await talk.call(token=1, client=client)
    talk.say(question(method=method))
    await talk.heard(2)
    assert codes(talk) == [NOT_FOUND]
    assert client.asked == []
    assert talk.news.questions == 0


@virtual_time
async def test_a_question_that_could_be_for_several_clients_is_for_none() -> None:
    talk = Conversation(SAMPLING)
    clients = [Client(SAID), Client(SAID)]
    for number, client in enumerate(clients, 1):
        await talk.call(token=number, client=client)
    talk.say(QUESTION)
    talk.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    await talk.heard(3)
    assert codes(talk) == [INTERNAL]
    assert [client.asked + client.told for client in clients] == [[], []]
    assert talk.router.ignored == 1


@virtual_time
async def test_a_question_without_a_call_is_for_nobody() -> None:
    talk = Conversation(SAMPLING)
    talk.say(QUESTION)
    await talk.heard(1)
    assert codes(talk) == [INTERNAL]


@pytest.mark.parametrize("calls", [0, 2])
@virtual_time
async def test_a_client_that_has_the_connection_to_itself_is_asked_whatever_it_waits_for(calls: int) -> None:
    owner = ClientSession("s-1", Client(SAID))
    talk = Conversation(SAMPLING, owner)
    for number in range(calls):
        await talk.call(token=number + 1, client=Client(), owner=owner)
    talk.say(QUESTION)
    await talk.heard(calls + 1)
    assert talk.sent[-1]["result"]


@virtual_time
async def test_a_question_during_several_calls_of_one_client_is_that_clients() -> None:
    owner, stranger = ClientSession("s-1", Client(SAID)), ClientSession("s-2", Client(SAID))
    talk = Conversation(SAMPLING)
    for number in range(2):
        await talk.call(token=number + 1, client=Client(), owner=owner)
    talk.say(question(1))
    await talk.heard(3)
    assert talk.sent[2]["result"]
    await talk.call(token=3, client=Client(), owner=stranger)
    talk.say(question(2))
    await talk.heard(5)
    assert talk.sent[4]["error"]["code"] == INTERNAL


@virtual_time
async def test_the_time_of_a_call_stands_still_while_its_client_is_asked() -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    loop = asyncio.get_running_loop()
    started = loop.time()
    call = await talk.ask(outgoing(seconds=10.0, token=1, client=client, progress=[]))
    await asyncio.sleep(5.0)
    talk.say(QUESTION)
    await asyncio.sleep(300.0)
    # What the server tells meanwhile does not start the clock.
    talk.progress(1, progress=1)
    await asyncio.sleep(95.0)
    assert not call.done()
    client.answer.set_result(SAID)
    with pytest.raises(UpstreamTimeout):
        await call
    assert loop.time() - started == pytest.approx(410.0, abs=0.1)


@virtual_time
async def test_the_time_stands_still_until_the_last_question_is_answered() -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    call = await talk.ask(outgoing(seconds=10.0, token=1, client=client))
    talk.say(question(1))
    talk.say(question(2))
    await eventually(lambda: len(client.asked) == 2, 1.0, "both are asked")
    talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    await asyncio.sleep(100.0)
    assert not call.done()
    client.answer.set_result(SAID)
    await asyncio.sleep(9.0)
    assert not call.done()
    await asyncio.sleep(2.0)
    assert isinstance(call.exception(), UpstreamTimeout)


@virtual_time
async def test_no_question_holds_a_call_beyond_its_maximum() -> None:
    talk = Conversation(SAMPLING)
    loop = asyncio.get_running_loop()
    started = loop.time()
    call = await talk.ask(outgoing(seconds=10.0, most_seconds=35.0, token=1, client=Client()))
    talk.say(QUESTION)
    with pytest.raises(UpstreamTimeout):
        await call
    assert loop.time() - started == pytest.approx(35.0, abs=0.1)


@virtual_time
async def test_an_answer_that_comes_after_the_call_is_over_still_goes_back() -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    call = await talk.ask(outgoing(token=1, client=client))
    talk.say(QUESTION)
    await eventually(lambda: bool(client.asked), 1.0, "it is asked")
    talk.reply(1)
    await call
    client.answer.set_result(SAID)
    await talk.heard(2)
    assert talk.sent[1]["id"] == "q"


@pytest.mark.parametrize("how", ["withdrawn", "lost"])
@virtual_time
async def test_a_question_that_nobody_wants_answered_any_more_is_taken_back(how: str) -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    call = await talk.ask(outgoing(token=1, client=client))
    talk.say(QUESTION)
    await eventually(lambda: bool(client.asked), 1.0, "it is asked")
    if how == "lost":
        talk.pending.fail_all("it ended")
    else:
        for wrong in (b'{"requestId":"r"}', b"{}", b"[]", b'{"requestId":1}'):
            talk.say(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":' + wrong + b"}")
        await asyncio.sleep(1.0)
        assert client.withdrawn == []
        talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q"}})
    await eventually(lambda: client.withdrawn == ["sampling/createMessage"], 1.0, "it is taken back")
    client.answer.set_result(SAID)
    await asyncio.sleep(1.0)
    assert len(talk.sent) == 1
    call.cancel()


@virtual_time
async def test_a_question_that_is_repeated_is_asked_once() -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    await talk.call(token=1, client=client)
    talk.say(QUESTION)
    talk.say(QUESTION)
    await eventually(lambda: bool(client.asked), 1.0, "it is asked")
    client.answer.set_result(SAID)
    await talk.heard(2)
    await asyncio.sleep(1.0)
    assert len(client.asked) == 1
    assert len(talk.sent) == 2
    assert talk.router.ignored == 1


@virtual_time
async def test_only_so_many_questions_are_asked_at_once() -> None:
    talk = Conversation(SAMPLING)
    client = Client()
    await talk.call(token=1, client=client)
    for number in range(40):
        talk.say(question(number))
    await talk.heard(9)
    assert codes(talk) == [INTERNAL] * 8
    assert len(client.asked) == 32
    client.answer.set_result(SAID)
    await talk.heard(41)


class Broken(Client):
    """A client whose end of the line has failed."""

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        raise RuntimeError("no")


@virtual_time
async def test_a_server_hears_something_even_if_its_client_fails() -> None:
    talk = Conversation(SAMPLING)
    await talk.call(token=1, client=Broken())
    talk.say(QUESTION)
    await talk.heard(2)
    assert codes(talk) == [INTERNAL]


@pytest.mark.parametrize(
    "method", ["notifications/resources/updated", "notifications/progress", "notifications/cancelled"]
)
@virtual_time
async def test_a_notification_nested_too_deep_costs_nobody_anything(method: str) -> None:
    talk = Conversation(SAMPLING)
    under_way = await talk.ask(outgoing(token=1))
    deep = b"[" * 50_000 + b"]" * 50_000
    talk.say(b'{"jsonrpc":"2.0","method":"%s","params":{"uri":"a:/1","x":%s}}' % (method.encode(), deep))
    talk.reply(1)
    assert not (await under_way).error
    assert talk.router.ignored == 1
