"""A client that can only be asked by way of its answer, and servers of both eras."""

import asyncio
import json
from typing import Any

import pytest

from headgate.domain.client_profile import PLAIN_PROFILE, profile_of
from headgate.domain.errors import InvalidUpstreamResponse, UpstreamLost
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.input_requests.errors import RequestStateRefused
from headgate.input_requests.request_state import STATE_LIFETIME_SECONDS
from testkit.virtual_time import virtual_time
from tests.gateway_harness import Large
from tests.input_requests.bridge_harness import DONE, FORM, OLD_DONE, BridgeHarness, ask_for, stateless
from tests.upstream.conversation import Client
from tests.upstream.fake_connections import background, settle

ELICIT = ("elicitation/create", FORM)
SAMPLE = ("sampling/createMessage", {"maxTokens": 5})
YES = {"action": "accept", "content": {"n": 1}}
NO = {"action": "decline"}


# A server of the same era.


@virtual_time
async def test_questions_pass_as_they_are_and_the_reminder_is_sealed() -> None:
    table = BridgeHarness(ask_for("state of the server", a=ELICIT), DONE)
    asked = await table.turn()
    assert asked["inputRequests"] == {"a": {"method": "elicitation/create", "params": FORM}}
    assert "state of the server" not in asked["requestState"]
    await table.turn(state=asked["requestState"], responses={"a": YES})
    assert table.server.params() == {
        "arguments": {"amount": 7},
        "inputResponses": {"a": YES},
        "requestState": "state of the server",
    }


@virtual_time
async def test_a_server_that_gave_no_reminder_gets_none() -> None:
    table = BridgeHarness(ask_for(a=ELICIT), DONE)
    asked = await table.turn()
    assert "requestState" not in asked
    await table.turn(responses={"a": YES})
    assert table.server.params() == {"arguments": {"amount": 7}, "inputResponses": {"a": YES}}


@virtual_time
async def test_a_second_round_has_a_reminder_of_its_own() -> None:
    table = BridgeHarness(ask_for("s1", a=ELICIT), ask_for("s2", b=SAMPLE), DONE)
    first = await table.turn()
    second = await table.turn(state=first["requestState"], responses={"a": YES})
    await table.turn(state=second["requestState"], responses={"b": {}})
    assert [table.server.params(number).get("requestState") for number in range(3)] == [None, "s1", "s2"]


@virtual_time
async def test_a_round_that_only_reminds_passes_too() -> None:
    table = BridgeHarness(ask_for("s1"), DONE)
    asked = await table.turn()
    assert set(asked) == {"resultType", "requestState"}
    await table.turn(state=asked["requestState"])
    assert table.server.params()["requestState"] == "s1"


@virtual_time
async def test_members_that_nobody_knows_survive() -> None:
    strange = McpResponse(
        b'{"resultType":"input_required","new" :[ 1.0 ],"requestState":"s1","_meta":{"a":1}}', typed=True
    )
    answer = await BridgeHarness(strange).deliver_with_input(stateless())
    assert isinstance(answer.result, bytes)
    assert b'"new":[ 1.0 ]' in answer.result
    assert b'"_meta":{"a":1}' in answer.result


@virtual_time
async def test_what_the_client_did_not_declare_is_not_asked() -> None:
    table = BridgeHarness(ask_for("s1", a=SAMPLE))
    with pytest.raises(InvalidUpstreamResponse, match="the client does not support sampling"):
        await table.turn(profile=profile_of(b'{"elicitation":{}}'))


@virtual_time
async def test_a_reminder_belongs_to_methods_that_may_be_answered_with_questions() -> None:
    table = BridgeHarness(DONE)
    await table.turn(method="vendor/other", state="its own")
    assert table.server.params()["requestState"] == "its own"


# A server that asks while the call is under way.


class Interview:
    """Puts questions over the channel of the call, one after the other or all at once."""

    def __init__(self, *questions: tuple[str, Any], at_once: bool = False) -> None:
        self._questions = questions
        self._at_once = at_once
        self.answers: list[Any] = []
        self.asking: list[asyncio.Task[None]] = []

    async def __call__(self, call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        self.channel = call.request.channel
        self.request = call.request
        try:
            for method, params in self._questions:
                self.asking.append(asyncio.create_task(self._ask(method, params)))
                if not self._at_once:
                    await asyncio.wait(self.asking)
            await asyncio.gather(*self.asking, return_exceptions=True)
        finally:
            for task in self.asking:
                task.cancel()
        return McpResponse(json.dumps({"heard": self.answers}).encode())

    async def _ask(self, method: str, params: Any) -> None:
        answer = await self.channel.send_request(method, json.dumps(params).encode())
        assert isinstance(answer.result, bytes)
        self.answers.append(json.loads(answer.result))


@virtual_time
async def test_a_call_that_asks_nothing_is_answered() -> None:
    table = BridgeHarness(OLD_DONE, holds=True)
    assert await table.deliver_with_input(stateless()) is OLD_DONE


@virtual_time
async def test_a_question_is_the_answer_and_the_next_request_goes_on() -> None:
    table = BridgeHarness(Interview(ELICIT), holds=True)
    asked = await table.turn()
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key] == {"method": "elicitation/create", "params": FORM}
    done = await table.turn(state=asked["requestState"], responses={key: YES})
    assert done == {"heard": [YES]}
    assert len(table.server.received) == 1, "it is one call upstream"


@virtual_time
async def test_a_server_that_turns_out_to_be_of_the_stateless_era_has_its_reminder_sealed() -> None:
    # While a server reconnects, its way of asking is unknown.
    table = BridgeHarness(ask_for("s1", a=ELICIT), DONE, holds=True)
    asked = await table.turn()
    assert asked["requestState"] != "s1"
    done = await table.turn(state=asked["requestState"], responses=all_of(asked, YES))
    assert done["resultType"] == "complete"
    assert table.server.params()["requestState"] == "s1"


@virtual_time
async def test_a_question_that_comes_after_the_answer_is_refused_at_once() -> None:
    interview = Interview()
    table = BridgeHarness(interview, holds=True)
    await table.turn()
    late = await asyncio.wait_for(interview.channel.send_request(ELICIT[0], b"{}"), 1)
    assert late.error


@virtual_time
async def test_a_second_question_is_a_second_round() -> None:
    table = BridgeHarness(Interview(ELICIT, SAMPLE), holds=True)
    asked = await table.turn()
    asked = await table.turn(state=asked["requestState"], responses=all_of(asked, YES))
    assert [each["method"] for each in asked["inputRequests"].values()] == ["sampling/createMessage"]
    done = await table.turn(state=asked["requestState"], responses=all_of(asked, NO))
    assert done == {"heard": [YES, NO]}


@virtual_time
async def test_questions_at_once_can_be_answered_at_once() -> None:
    table = BridgeHarness(Interview(ELICIT, SAMPLE, ELICIT, at_once=True), holds=True)
    asked = await table.turn()
    while len(asked["inputRequests"]) < 3:
        # Those that were not there yet come with the next answer.
        asked = await table.turn(state=asked["requestState"])
    done = await table.turn(state=asked["requestState"], responses=all_of(asked, YES))
    assert done == {"heard": [YES] * 3}


@virtual_time
async def test_who_answers_some_questions_is_asked_the_others_again() -> None:
    table = BridgeHarness(Interview(ELICIT, SAMPLE, at_once=True), holds=True)
    asked = await table.turn()
    while len(asked["inputRequests"]) < 2:
        asked = await table.turn(state=asked["requestState"])
    first, second = asked["inputRequests"]
    rest = await table.turn(state=asked["requestState"], responses={first: YES})
    assert list(rest["inputRequests"]) == [second]
    done = await table.turn(state=rest["requestState"], responses={second: NO, first: NO, "made up": 1})
    assert done == {"heard": [YES, NO]}


@virtual_time
async def test_what_is_told_meanwhile_reaches_whichever_request_waits() -> None:
    async def talk(call: UpstreamCall) -> McpResponse:
        channel = call.request.channel
        assert channel is not None
        channel.send_notification("notifications/message", b'{"n":1}')
        await channel.send_request("elicitation/create", b"{}")
        channel.send_notification("notifications/message", b'{"n":2}')
        assert call.request.on_progress is not None
        call.request.on_progress({})
        return OLD_DONE

    table = BridgeHarness(talk, holds=True)
    before, after = Client(), Client()
    progress: list[str] = []
    asked = await table.turn(channel=before, on_progress=lambda _: progress.append("before"))
    again = {"state": asked["requestState"], "responses": all_of(asked, YES)}
    await table.turn(channel=after, on_progress=lambda _: progress.append("after"), **again)
    assert before.told == [("notifications/message", {"n": 1})]
    assert after.told == [("notifications/message", {"n": 2})]
    assert progress == ["after"]


@pytest.mark.parametrize("word", [(), ("by the client",)], ids=["cut off", "cancelled"])
@virtual_time
async def test_that_a_client_wants_its_call_cancelled_is_told_to_the_call(word: tuple[str, ...]) -> None:
    heard: list[tuple[object, ...]] = []

    async def hear(_: UpstreamCall) -> McpResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            heard.append(cancelled.args)
            raise
        return OLD_DONE

    table = BridgeHarness(hear, holds=True)
    under_way = asyncio.create_task(table.deliver_with_input(stateless()))
    await asyncio.sleep(1)
    under_way.cancel(*word)
    with pytest.raises(asyncio.CancelledError):
        await under_way
    await settle()
    assert heard == [word]


@virtual_time
async def test_a_client_that_leaves_while_it_waits_cancels_the_call() -> None:
    async def never(_: UpstreamCall) -> McpResponse:
        await asyncio.Event().wait()
        return OLD_DONE

    table = BridgeHarness(never, holds=True)
    under_way = asyncio.create_task(table.deliver_with_input(stateless()))
    await asyncio.sleep(1)
    under_way.cancel()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    await settle()
    assert table.server.cancelled == 1
    assert not background()


@virtual_time
async def test_a_client_that_leaves_after_it_came_back_cancels_the_call() -> None:
    async def ask_and_hang(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        await call.request.channel.send_request("elicitation/create", b"{}")
        await asyncio.Event().wait()
        return OLD_DONE

    table = BridgeHarness(ask_and_hang, holds=True)
    asked = await table.turn()
    again = stateless(state=asked["requestState"], responses=all_of(asked, YES))
    under_way = asyncio.create_task(table.deliver_with_input(again))
    await asyncio.sleep(1)
    under_way.cancel()
    await settle()
    assert table.server.cancelled == 1
    assert not background()


@virtual_time
async def test_a_call_to_which_nobody_comes_back_is_given_up() -> None:
    table = BridgeHarness(Interview(ELICIT), holds=True)
    asked = await table.turn()
    await asyncio.sleep(STATE_LIFETIME_SECONDS - 1)
    assert table.server.cancelled == 0
    await asyncio.sleep(2)
    assert table.server.cancelled == 1
    assert not background()
    with pytest.raises(RequestStateRefused):
        await table.turn(state=asked["requestState"], responses=all_of(asked, YES))


@virtual_time
async def test_who_comes_back_with_some_answers_has_as_long_again_for_the_others() -> None:
    table = BridgeHarness(Interview(ELICIT, SAMPLE, at_once=True), holds=True)
    asked = await table.turn()
    while len(asked["inputRequests"]) < 2:
        asked = await table.turn(state=asked["requestState"])
    await asyncio.sleep(STATE_LIFETIME_SECONDS - 10)
    first, second = asked["inputRequests"]
    rest = await table.turn(state=asked["requestState"], responses={first: YES})
    await asyncio.sleep(STATE_LIFETIME_SECONDS - 10)
    done = await table.turn(state=rest["requestState"], responses={second: NO})
    assert done == {"heard": [YES, NO]}


@virtual_time
async def test_a_call_that_goes_on_after_its_answer_is_not_given_up() -> None:
    async def slow(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        await call.request.channel.send_request("elicitation/create", b"{}")
        await asyncio.sleep(STATE_LIFETIME_SECONDS)
        return OLD_DONE

    table = BridgeHarness(slow, holds=True)
    asked = await table.turn()
    await asyncio.sleep(10)
    assert await table.turn(state=asked["requestState"], responses=all_of(asked, YES)) == {"content": []}


@virtual_time
async def test_a_question_that_the_server_withdraws_is_not_asked_any_more() -> None:
    interview = Interview(ELICIT, SAMPLE)
    table = BridgeHarness(interview, holds=True)
    asked = await table.turn()
    interview.asking[0].cancel()
    await settle()
    later = await table.turn(state=asked["requestState"], responses=all_of(asked, YES))
    assert [each["method"] for each in later["inputRequests"].values()] == ["sampling/createMessage"]
    assert not set(later["inputRequests"]) & set(asked["inputRequests"])
    done = await table.turn(state=later["requestState"], responses=all_of(later, NO))
    assert done == {"heard": [NO]}


@virtual_time
async def test_a_question_that_is_withdrawn_in_the_same_breath_is_no_answer() -> None:
    async def fickle(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        asking = asyncio.ensure_future(call.request.channel.send_request("elicitation/create", b"{}"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(1)
        return OLD_DONE

    assert await BridgeHarness(fickle, holds=True).turn() == {"content": []}


@virtual_time
async def test_a_call_that_fails_while_its_client_is_away_says_so_when_the_client_is_back() -> None:
    async def fail(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        asking = asyncio.ensure_future(call.request.channel.send_request("elicitation/create", b"{}"))
        await asyncio.sleep(5)
        asking.cancel()
        raise UpstreamLost("bank", "pay", "it ended")

    table = BridgeHarness(fail, holds=True)
    asked = await table.turn()
    await asyncio.sleep(10)
    with pytest.raises(UpstreamLost):
        await table.turn(state=asked["requestState"], responses=all_of(asked, YES))


@virtual_time
async def test_a_large_answer_that_nobody_comes_back_for_is_not_kept() -> None:
    large = Large(b'{"content":[]}')

    async def lose_patience(call: UpstreamCall) -> McpResponse:
        assert call.request.channel is not None
        asking = asyncio.ensure_future(call.request.channel.send_request("elicitation/create", b"{}"))
        await asyncio.sleep(5)
        asking.cancel()
        return McpResponse(large)

    table = BridgeHarness(lose_patience, holds=True)
    await table.turn()
    await asyncio.sleep(10)
    assert not large.closed
    await asyncio.sleep(STATE_LIFETIME_SECONDS)
    assert large.closed


@pytest.mark.parametrize("request_", [{"profile": PLAIN_PROFILE}, {"method": "completion/complete"}])
@virtual_time
async def test_a_call_that_cannot_be_asked_anything_is_not_held(request_: dict[str, Any]) -> None:
    table = BridgeHarness(OLD_DONE, holds=True)
    call = stateless(channel=Client(), **request_)
    await table.deliver_with_input(call)
    assert table.server.received[0] is call


@virtual_time
async def test_calls_of_two_clients_do_not_get_each_others_answers() -> None:
    interviews = [Interview(ELICIT), Interview(ELICIT)]
    table = BridgeHarness(*interviews, holds=True)
    ann, bob = await table.turn(who="ann"), await table.turn(who="bob")
    await table.turn(who="bob", state=bob["requestState"], responses=all_of(bob, NO))
    await table.turn(who="ann", state=ann["requestState"], responses=all_of(ann, YES))
    assert [interview.answers for interview in interviews] == [[YES], [NO]]


@virtual_time
async def test_the_end_of_the_gateway_leaves_no_call_behind() -> None:
    table = BridgeHarness(Interview(ELICIT), holds=True)
    await table.turn()
    table.input_bridge.close()
    await settle()
    assert table.server.cancelled == 1
    assert not background()


def all_of(asked: dict[str, Any], answer: Any) -> dict[str, Any]:
    """The same answer to every question."""
    return dict.fromkeys(asked["inputRequests"], answer)
