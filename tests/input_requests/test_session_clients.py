"""A client that can be asked while it waits, and a server that asks by way of its answer."""

import asyncio

import pytest

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.errors import InvalidUpstreamResponse, UpstreamLost
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from testkit.virtual_time import virtual_time
from tests.input_requests.bridge_harness import (
    ABLE,
    DONE,
    FORM,
    OLD_DONE,
    BridgeHarness,
    Step,
    ask_for,
    handshake,
)
from tests.upstream.conversation import Client

YES = McpResponse(b'{"action":"accept", "content":{"n":1.0}}')
ELICIT = ("elicitation/create", FORM)
SAMPLE = ("sampling/createMessage", {"maxTokens": 5})


@pytest.mark.parametrize(
    "answer", [DONE, OLD_DONE, McpResponse(error=b'{"code":1}'), McpResponse(b"[]", typed=True)]
)
@virtual_time
async def test_an_answer_that_asks_nothing_passes_as_it_is(answer: McpResponse) -> None:
    table = BridgeHarness(answer)
    assert await table.deliver_with_input(handshake(Client())) is answer


@virtual_time
async def test_an_old_server_may_say_input_required_in_a_result_and_mean_nothing_by_it() -> None:
    answer = McpResponse(b'{"resultType":"input_required","content":[]}')
    assert await BridgeHarness(answer).deliver_with_input(handshake(Client())) is answer


@virtual_time
async def test_a_text_that_only_mentions_questions_is_no_question() -> None:
    answer = McpResponse(b'{"content":[{"text":"input_required"}],"x":"input_required"}', typed=True)
    assert await BridgeHarness(answer).deliver_with_input(handshake(Client())) is answer


@virtual_time
async def test_the_client_is_asked_and_the_call_sent_again_with_its_answer() -> None:
    table = BridgeHarness(ask_for("s1", amount=ELICIT), DONE)
    client = Client(YES)
    assert await table.deliver_with_input(handshake(client)) is DONE
    assert client.asked == [("elicitation/create", FORM)]
    assert table.server.params(0) == {"arguments": {"amount": 7}}
    assert table.server.params(1) == {
        "arguments": {"amount": 7},
        "inputResponses": {"amount": {"action": "accept", "content": {"n": 1.0}}},
        "requestState": "s1",
    }
    assert bytes(YES.result if isinstance(YES.result, bytes) else b"") in bytes(
        table.server.received[1].request.params["inputResponses"]
    ), "byte for byte"


@virtual_time
async def test_a_server_that_wants_no_reminder_gets_none() -> None:
    table = BridgeHarness(ask_for(amount=ELICIT), DONE)
    await table.deliver_with_input(handshake(Client(YES)))
    assert "requestState" not in table.server.params()


@virtual_time
async def test_several_questions_are_put_at_once() -> None:
    table = BridgeHarness(ask_for("s", a=ELICIT, b=SAMPLE), DONE)
    client = Client()
    under_way = asyncio.create_task(table.deliver_with_input(handshake(client)))
    await asyncio.sleep(1)
    assert len(client.asked) == 2
    client.answer.set_result(YES)
    assert await under_way is DONE
    assert set(table.server.params()["inputResponses"]) == {"a", "b"}


@virtual_time
async def test_each_round_has_its_own_questions_and_reminder() -> None:
    table = BridgeHarness(ask_for("s1", a=ELICIT), ask_for("s2", b=SAMPLE), ask_for(c=ELICIT), DONE)
    await table.deliver_with_input(handshake(Client(YES)))
    rounds = [table.server.params(number) for number in range(4)]
    assert [sorted(each.get("inputResponses", {})) for each in rounds] == [[], ["a"], ["b"], ["c"]]
    assert [each.get("requestState") for each in rounds] == [None, "s1", "s2", None]


@virtual_time
async def test_a_server_that_only_wants_to_be_reminded_is_asked_again_after_a_moment() -> None:
    table = BridgeHarness(*[ask_for(f"s{n}") for n in range(5)], DONE)
    client = Client()
    started = asyncio.get_running_loop().time()
    assert await table.deliver_with_input(handshake(client)) is DONE
    assert client.asked == []
    assert 0.2 < asyncio.get_running_loop().time() - started < 5
    assert table.server.params() == {"arguments": {"amount": 7}, "requestState": "s4"}


@pytest.mark.parametrize("rounds", [ask_for("s", a=ELICIT), ask_for("s")], ids=["questions", "reminders"])
@virtual_time
async def test_ten_rounds_are_enough_and_one_more_is_too_many(rounds: McpResponse) -> None:
    assert await BridgeHarness(*[rounds] * 10, DONE).deliver_with_input(handshake(Client(YES))) is DONE
    table = BridgeHarness(*[rounds] * 11, DONE)
    with pytest.raises(InvalidUpstreamResponse, match="10 rounds"):
        await table.deliver_with_input(handshake(Client(YES)))
    assert len(table.server.received) == 11


@virtual_time
async def test_an_error_of_the_client_ends_the_call() -> None:
    no = McpResponse(error=b'{"code":-1,"message":"I do not want to"}')
    table = BridgeHarness(ask_for("s", a=ELICIT), DONE)
    assert await table.deliver_with_input(handshake(Client(no))) is no
    assert len(table.server.received) == 1


@virtual_time
async def test_a_client_that_leaves_is_not_asked_any_more() -> None:
    table = BridgeHarness(ask_for("s", a=ELICIT, b=SAMPLE), DONE)
    client = Client()
    under_way = asyncio.create_task(table.deliver_with_input(handshake(client)))
    await asyncio.sleep(1)
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    await asyncio.sleep(1)
    assert len(client.withdrawn) == 2
    assert len(table.server.received) == 1


@virtual_time
async def test_a_failure_of_the_server_after_an_answer_is_told() -> None:
    lost = UpstreamLost("bank", "pay", "it ended")
    with pytest.raises(UpstreamLost):
        await BridgeHarness(ask_for("s", a=ELICIT), lost).deliver_with_input(handshake(Client(YES)))


URL = ("elicitation/create", {"mode": "url", "url": "https://example.com/", "message": "open it"})
FORMS_ONLY = profile_of(b'{"elicitation":{}}')


@pytest.mark.parametrize(
    ("profile", "question"),
    [
        (PLAIN_PROFILE, ELICIT),
        (FORMS_ONLY, SAMPLE),
        (FORMS_ONLY, ("roots/list", {})),
        (FORMS_ONLY, URL),
        (profile_of(b'{"elicitation":{"url":{}}}'), ELICIT),
        (PLAIN_PROFILE, ("vendor/ask", {})),
    ],
)
@virtual_time
async def test_what_the_client_did_not_declare_is_not_asked(
    profile: ClientProfile, question: tuple[str, object]
) -> None:
    table = BridgeHarness(ask_for("s", fine=ELICIT, a=question), DONE)
    client = Client(YES)
    with pytest.raises(InvalidUpstreamResponse, match=r"but the client (does not support|cannot be asked)"):
        await table.deliver_with_input(handshake(client, profile))
    assert client.asked == []
    assert len(table.server.received) == 1


@virtual_time
async def test_a_link_to_open_has_an_id_in_the_words_of_the_client() -> None:
    able = profile_of(b'{"elicitation":{"url":{}}}')
    client = Client(YES)
    await BridgeHarness(ask_for("s", a=URL), DONE).deliver_with_input(handshake(client, able))
    ((_, params),) = client.asked
    assert params.pop("elicitationId")
    assert params == URL[1]


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultType":"input_required","inputRequests":[]}',
        b'{"resultType":"input_required","inputRequests":{"a":5}}',
        b'{"resultType":"input_required","inputRequests":{"a":{"params":{}}}}',
        b'{"resultType":"input_required","requestState":{}}',
    ],
)
@virtual_time
async def test_questions_that_cannot_be_read_are_said_to_be_so(result: bytes) -> None:
    step: Step = McpResponse(result, typed=True)
    with pytest.raises(InvalidUpstreamResponse, match="cannot be read"):
        await BridgeHarness(step).deliver_with_input(handshake(Client(YES)))


@virtual_time
async def test_a_server_of_its_own_era_asks_over_the_clients_own_channel() -> None:
    async def ask(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        return await call.request.channel.send_request("sampling/createMessage", b"{}")

    client = Client(YES)
    assert await BridgeHarness(ask, holds=True).deliver_with_input(handshake(client, ABLE)) is YES
    assert client.asked == [("sampling/createMessage", {})]
