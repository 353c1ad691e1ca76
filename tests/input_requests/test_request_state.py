"""A reminder is good once, for the caller and the request that it was given to, and for a while."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headgate.domain.errors import Effect
from headgate.domain.mcp_request import McpResponse, UpstreamCall
from headgate.input_requests.errors import RequestStateRefused
from headgate.input_requests.request_state import STATE_LIFETIME_SECONDS, RequestStateSealer
from headgate.storage.files.sealer import KEY_BYTES, Sealer
from testkit.virtual_time import virtual_time
from tests.input_requests.bridge_harness import DONE, FORM, BridgeHarness, ask_for, stateless


async def one_question(call: UpstreamCall) -> McpResponse:
    """A server that asks while the call is under way."""
    assert call.request.channel is not None
    return await call.request.channel.send_request("elicitation/create", b"{}")


def stateless_server() -> BridgeHarness:
    return BridgeHarness(ask_for("s1", a=("elicitation/create", FORM)), DONE)


def handshake_server() -> BridgeHarness:
    return BridgeHarness(one_question, holds=True)


EITHER = pytest.mark.parametrize("table", [stateless_server, handshake_server], ids=["stateless", "held"])
MakeTable = Callable[[], BridgeHarness]


async def given(table: BridgeHarness) -> tuple[str, dict[str, Any]]:
    """The reminder, and answers to go with it."""
    asked = await table.turn()
    return asked["requestState"], {key: {"action": "accept"} for key in asked["inputRequests"]}


async def assert_refused(table: BridgeHarness, **request: Any) -> str:
    """It is refused, and no server hears of it."""
    sent = len(table.server.received)
    with pytest.raises(RequestStateRefused) as refused:
        await table.turn(**request)
    assert len(table.server.received) == sent
    assert refused.value.effect is Effect.NONE
    return refused.value.message


@EITHER
@virtual_time
async def test_the_caller_who_was_asked_may_go_on(table: MakeTable) -> None:
    here = table()
    state, responses = await given(here)
    await asyncio.sleep(STATE_LIFETIME_SECONDS - 1)
    await here.turn(state=state, responses=responses)


@EITHER
@virtual_time
async def test_a_reminder_is_good_once(table: MakeTable) -> None:
    here = table()
    state, responses = await given(here)
    await here.turn(state=state, responses=responses)
    assert "used before" in await assert_refused(here, state=state, responses=responses)


@EITHER
@virtual_time
async def test_a_reminder_is_not_good_for_ever(table: MakeTable) -> None:
    here = table()
    state, responses = await given(here)
    await asyncio.sleep(STATE_LIFETIME_SECONDS + 1)
    assert "too old" in await assert_refused(here, state=state, responses=responses)


OTHERS: dict[str, dict[str, Any]] = {
    "caller": {"who": "bob"},
    "arguments": {"arguments": {"amount": 7000}},
    "no arguments": {"arguments": {}},
    "server": {"server": "other"},
    "tool": {"name": "refund"},
    "method": {"method": "prompts/get"},
}


@EITHER
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@virtual_time
async def test_a_reminder_is_for_the_request_that_it_was_given_to(
    table: MakeTable, other: dict[str, Any]
) -> None:
    here = table()
    state, responses = await given(here)
    assert "another request" in await assert_refused(here, state=state, responses=responses, **other)
    await here.turn(state=state, responses=responses)


@virtual_time
async def test_whose_a_reminder_is_is_told_in_the_same_words_whatever_is_wrong() -> None:
    words = set()
    for other in OTHERS.values():
        here = stateless_server()
        state, responses = await given(here)
        words.add(await assert_refused(here, state=state, responses=responses, **other))
    assert len(words) == 1


@pytest.mark.parametrize("spelling", [{"amount": 7, "to": "x"}, {"to": "x", "amount": 7}])
@virtual_time
async def test_the_same_arguments_in_another_order_are_the_same_request(spelling: dict[str, Any]) -> None:
    table = stateless_server()
    asked = await table.turn(arguments={"amount": 7, "to": "x"})
    await table.turn(arguments=spelling, state=asked["requestState"], responses={})
    assert len(table.server.received) == 2


@EITHER
@virtual_time
async def test_any_change_to_a_reminder_is_noticed(table: MakeTable) -> None:
    here = table()
    state, responses = await given(here)
    for place in range(0, len(state), 7):
        other = "A" if state[place] != "A" else "B"
        changed = state[:place] + other + state[place + 1 :]
        await assert_refused(here, state=changed, responses=responses)
    for changed in (state[:-1], state + "A", state + "=", state + " ", " " + state, state[::-1], state * 2):
        await assert_refused(here, state=changed, responses=responses)
    await here.turn(state=state, responses=responses)


@EITHER
@pytest.mark.parametrize(
    "nonsense",
    ["", "s1", "é", "\x00", 5, True, [], {}, ["a"], {"a": 1}, "A" * 1_000_000, "=" * 100, "a.b.c"],
    ids=lambda nonsense: repr(nonsense)[:12],
)
@virtual_time
async def test_what_was_never_given_is_refused(table: MakeTable, nonsense: Any) -> None:
    await assert_refused(table(), state=nonsense, responses={})


@virtual_time
async def test_a_reminder_of_another_gateway_is_refused() -> None:
    here, there = stateless_server(), stateless_server()
    foreign = RequestStateSealer(Sealer([b"x" * KEY_BYTES], clock=asyncio.get_running_loop().time))
    state = foreign.seal_state("upstream", stateless(), "s1")
    await assert_refused(here, state=state)
    state, responses = await given(there)
    await here.turn(state=state, responses=responses)
    assert here.server.params()["requestState"] == "s1", "any instance with the same key can go on"


@virtual_time
async def test_a_call_that_waits_at_another_gateway_cannot_go_on_here() -> None:
    here, there = handshake_server(), handshake_server()
    state, responses = await given(there)
    assert "does not wait" in await assert_refused(here, state=state, responses=responses)
    there.input_bridge.close()


@virtual_time
async def test_a_token_that_was_sealed_for_something_else_is_no_reminder() -> None:
    seal = Sealer([bytes(KEY_BYTES)], clock=asyncio.get_running_loop().time)
    await assert_refused(stateless_server(), state=seal.seal("session", b"{}", 100))
    await assert_refused(stateless_server(), state=seal.seal("requestState", b"\x00nonsense", 100))


@pytest.mark.parametrize("responses", [[], "x", 5])
@virtual_time
async def test_answers_that_are_no_object_are_refused(responses: Any) -> None:
    table = handshake_server()
    state, _ = await given(table)
    with pytest.raises(RequestStateRefused, match="inputResponses"):
        await table.turn(state=state, responses=responses)
    table.input_bridge.close()


@virtual_time
async def test_reminders_that_were_used_are_remembered_for_as_long_as_they_could_be_used() -> None:
    loop = asyncio.get_running_loop()
    # A seal whose clock stands still, so that only the memory can refuse.
    state_sealer = RequestStateSealer(Sealer([bytes(KEY_BYTES)], clock=lambda: 0.0), loop.time)
    token = state_sealer.seal_state("upstream", stateless(), "s1")
    call = stateless(state=token)
    assert state_sealer.open_state(call).content == "s1"
    await asyncio.sleep(STATE_LIFETIME_SECONDS - 1)
    with pytest.raises(RequestStateRefused, match="used before"):
        state_sealer.open_state(call)
