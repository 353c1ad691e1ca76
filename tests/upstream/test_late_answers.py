"""An answer that comes after its call was given up goes to its late receiver, and nowhere else."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.domain.errors import UpstreamLost, UpstreamTimeout, UpstreamUnreachable
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.message_assembly import MessageAssembler
from headgate.upstream.pending_requests import MOST_LATE, SendUnconfirmed
from headgate.upstream.transport import SendAttempt
from headgate.upstream.transports.resumable_stream import MOST_EXCHANGES, LateExchanges
from testkit.virtual_time import VirtualTimeLoop, virtual_time
from testkit.waiting import eventually
from tests.upstream.conversation import Conversation, outgoing
from tests.upstream.http_conversation import LEGACY, MODERN, STREAM, WAIT_SECONDS, events, talking_to
from tests.upstream.raw_server import Received
from tests.upstream.spool_limits import limits, open_files

Start = Callable[..., Any]


def cancellations(talk: Conversation) -> list[int]:
    told = [message for message in talk.sent if message.get("method") == "notifications/cancelled"]
    return [message["params"]["requestId"] for message in told]


# On a connection that many share.


@pytest.mark.parametrize("how", ["too late", "cancelled"])
@virtual_time
async def test_an_answer_after_the_call_was_given_up_is_handed_over(how: str) -> None:
    talk, late = Conversation(), list[McpResponse]()
    task = await talk.ask(outgoing(seconds=5.0, on_late=late.append))
    if how == "cancelled":
        task.cancel()
    with pytest.raises((UpstreamTimeout, asyncio.CancelledError)):
        await task
    await talk.heard(2)
    assert cancellations(talk) == [1], "the upstream is told all the same"
    talk.reply(1)
    assert late == [McpResponse(b'{"to": 1}')]
    talk.reply(1)
    assert (len(late), talk.router.ignored) == (1, 1), "nobody is told twice"


@virtual_time
async def test_an_error_that_comes_late_is_an_answer_too() -> None:
    talk, late = Conversation(), list[McpResponse]()
    with pytest.raises(UpstreamTimeout):
        await (await talk.ask(outgoing(seconds=5.0, on_late=late.append)))
    talk.say(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}')
    assert late == [McpResponse(error=b'{"code":-1,"message":"no"}')]


@virtual_time
async def test_an_answer_at_the_very_moment_of_the_cancellation_is_handed_over() -> None:
    talk, late = Conversation(), list[McpResponse]()
    task = await talk.ask(outgoing(on_late=late.append))
    talk.reply(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert late == [McpResponse(b'{"to": 1}')]
    assert cancellations(talk) == []


@virtual_time
async def test_nobody_listens_for_longer_than_a_call_may_take() -> None:
    talk, late = Conversation(), list[McpResponse]()
    with pytest.raises(UpstreamTimeout):
        await (await talk.ask(outgoing(seconds=5.0, on_late=late.append, late_seconds=60.0)))
    await asyncio.sleep(56.0)
    talk.reply(1)
    assert (late, talk.router.ignored) == ([], 1)


@virtual_time
async def test_what_was_given_up_ends_with_the_connection() -> None:
    talk, late = Conversation(), list[McpResponse]()
    with pytest.raises(UpstreamTimeout):
        await (await talk.ask(outgoing(seconds=5.0, on_late=late.append)))
    talk.pending.fail_all("it ended")
    talk.reply(1)
    assert late == []


@virtual_time
async def test_of_very_many_the_oldest_is_forgotten() -> None:
    talk, late = Conversation(), list[McpResponse]()
    tasks = [await talk.ask(outgoing(seconds=5.0, on_late=late.append)) for _ in range(MOST_LATE + 1)]
    await asyncio.gather(*tasks, return_exceptions=True)
    talk.reply(1)
    assert (late, talk.router.ignored) == ([], 1)
    talk.reply(2)
    assert late == [McpResponse(b'{"to": 2}')]


@virtual_time
async def test_a_late_answer_that_cannot_be_read_is_not_held_against_another_call() -> None:
    talk, late = Conversation(), list[McpResponse]()
    with pytest.raises(UpstreamTimeout):
        await (await talk.ask(outgoing(seconds=5.0, on_late=late.append)))
    other = await talk.ask(outgoing())
    talk.say(b'{"jsonrpc":"2.0","id":1,"result":{"text":"\xff"}}')
    assert (late, other.done(), talk.router.ignored) == ([], False, 1)
    talk.reply(2)
    assert await other == McpResponse(b'{"to": 2}')


@virtual_time
async def test_an_error_without_a_name_may_be_about_the_call_that_was_given_up() -> None:
    talk, late = Conversation(), list[McpResponse]()
    with pytest.raises(UpstreamTimeout):
        await (await talk.ask(outgoing(seconds=5.0, on_late=late.append)))
    other = await talk.ask(outgoing())
    talk.reply(None, error={"code": -32602, "message": "no"})
    assert (late, other.done()) == ([], False), "to believe it of the other could have that done twice"
    other.cancel()


@pytest.mark.parametrize(
    ("error", "heard"), [(SendUnconfirmed("cut off"), True), (UpstreamUnreachable("bank", "nobody"), False)]
)
@virtual_time
async def test_only_what_may_have_been_sent_can_be_answered_late(error: Exception, *, heard: bool) -> None:
    talk, late = Conversation(), list[McpResponse]()
    talk.send_error = error
    with pytest.raises((UpstreamLost, UpstreamUnreachable)):
        await talk.pending.send_correlated(outgoing(on_late=late.append))
    talk.reply(1)
    assert bool(late) is heard


def test_a_large_late_answer_that_nobody_wants_is_given_back(tmp_path: Path) -> None:
    # Read before the loop runs: what goes to disk there is not what this is about.
    messages = []
    for number in (1, 2):
        assembly = MessageAssembler(limits(tmp_path))
        assembly.add(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%s"}}' % (number, b"x" * 20_000))
        messages.append(assembly.finish())
    late: list[McpResponse] = []

    async def take() -> None:
        talk = Conversation()
        for on_late in (None, late.append):
            with pytest.raises(UpstreamTimeout):
                await (await talk.ask(outgoing(seconds=5.0, on_late=on_late)))
        for message in messages:
            talk.pending.handle_message(message)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(take())
    assert len(open_files(tmp_path)) == 1, "the one that somebody wants is his to close"
    (answer,) = late
    assert not isinstance(answer.result, bytes)
    answer.result.close()
    assert open_files(tmp_path) == []


@given(st.lists(st.tuples(st.sampled_from(["give up", "keep"]), st.booleans()), max_size=12), st.randoms())
@settings(max_examples=40, deadline=None)
def test_every_answer_reaches_its_caller_or_whoever_takes_it_late(
    calls: list[tuple[str, bool]], random: Any
) -> None:
    async def check() -> None:
        talk, late = Conversation(), dict[int, McpResponse]()
        tasks: dict[int, asyncio.Task[McpResponse]] = {}
        for number, (fate, wanted) in enumerate(calls, start=1):
            take = partial(late.__setitem__, number) if wanted else None
            tasks[number] = await talk.ask(outgoing(on_late=take))
            if fate == "give up":
                tasks[number].cancel()
                await asyncio.wait({tasks[number]})
        numbers = list(tasks)
        random.shuffle(numbers)
        for number in numbers:
            talk.reply(number)
        for number, (fate, wanted) in enumerate(calls, start=1):
            own = McpResponse(json.dumps({"to": number}).encode())
            if fate == "keep":
                assert await tasks[number] == own
            assert late.get(number) == (own if fate == "give up" and wanted else None)
        assert len(talk.pending) == 0

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(check())


# On HTTP, where each call has a response of its own.


@pytest.fixture
def talking(tmp_path: Path) -> Start:
    return partial(talking_to, directory=tmp_path)


class SlowServer:
    """Answers a call when the test lets it, as JSON or as an event."""

    def __init__(self, *, stream: bool) -> None:
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self._stream = stream

    async def behave(self, request: Received) -> None:
        if not request.body or "id" not in request.json():
            await request.answer(b"", "202 Accepted" if request.body else "405 Method Not Allowed")
            return
        if self._stream:
            await request.say(STREAM)
        self.asked.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await self.may_answer.wait()
        if self._stream:
            await request.say(
                events({"jsonrpc": "2.0", "id": request.json()["id"], "result": {"done": True}})
            )
        else:
            await request.result({"done": True})


def result(answer: McpResponse) -> Any:
    assert isinstance(answer.result, bytes)
    return json.loads(answer.result)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize(("version", "told"), [(MODERN, 0), (LEGACY, 1)])
async def test_a_response_is_read_on_after_its_call_took_too_long(
    talking: Start, version: str, told: int, *, stream: bool
) -> None:
    server, late = SlowServer(stream=stream), list[McpResponse]()
    async with talking(server.behave, version=version) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.2, on_late=late.append)
        if told:
            await eventually(
                lambda: "notifications/cancelled" in talk.server.methods(), WAIT_SECONDS, "cancelled"
            )
        server.may_answer.set()
        await eventually(lambda: bool(late), WAIT_SECONDS, "the late answer")
        assert result(late[0]) == {"done": True}
        assert talk.server.methods().count("notifications/cancelled") == told


async def test_a_response_is_read_on_after_a_server_was_told_to_stop(talking: Start) -> None:
    server, late = SlowServer(stream=True), list[McpResponse]()
    async with talking(server.behave, version=LEGACY) as talk:
        task = asyncio.create_task(talk.ask(on_late=late.append))
        await asyncio.wait_for(server.asked.wait(), WAIT_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(
            lambda: "notifications/cancelled" in talk.server.methods(), WAIT_SECONDS, "cancelled"
        )
        server.may_answer.set()
        await eventually(lambda: bool(late), WAIT_SECONDS, "the late answer")
        assert result(late[0]) == {"done": True}


async def test_where_closing_the_response_says_stop_it_is_closed(talking: Start) -> None:
    server, late = SlowServer(stream=True), list[McpResponse]()
    async with talking(server.behave, version=MODERN) as talk:
        task = asyncio.create_task(talk.ask(on_late=late.append))
        await asyncio.wait_for(server.asked.wait(), WAIT_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not talk.server.open, WAIT_SECONDS, "the end of the connection")
        server.may_answer.set()
        assert late == []


async def test_a_response_that_took_too_long_is_read_on_only_for_so_long(talking: Start) -> None:
    gone, late = asyncio.Event(), list[McpResponse]()

    async def say(request: Received) -> None:
        await request.say(STREAM)
        try:
            while True:
                await request.say(b": still here\n\n")
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()
            raise

    async with talking(say) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.05, on_late=late.append, late_seconds=0.3)
        assert not gone.is_set()
        await asyncio.wait_for(gone.wait(), WAIT_SECONDS)
        assert late == []


async def test_a_late_response_that_breaks_off_tells_nobody_anything(talking: Start) -> None:
    late: list[McpResponse] = []
    asked = asyncio.Event()

    async def say(request: Received) -> None:
        await request.say(STREAM)
        asked.set()
        await request.hang_up()

    async with talking(say) as talk:
        task = asyncio.create_task(talk.ask(on_late=late.append))
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, UpstreamLost)):
            await task
        await eventually(lambda: not talk.server.open, WAIT_SECONDS, "the end of the connection")
        assert late == []


async def test_a_call_that_is_awaited_has_its_answer_whoever_would_take_it_late(talking: Start) -> None:
    server, late = SlowServer(stream=True), list[McpResponse]()
    server.may_answer.set()
    async with talking(server.behave) as talk:
        assert result(await talk.ask(on_late=late.append)) == {"done": True}
    assert late == []


@pytest.mark.parametrize("begun", [False, True])
async def test_an_exchange_that_had_not_begun_when_it_was_given_up_never_does(*, begun: bool) -> None:
    late, connected, asked = list[McpResponse](), asyncio.Event(), list[str]()
    sending = SendAttempt(outgoing(on_late=late.append))

    async def exchange() -> McpResponse:
        sending.begun = begun
        await connected.wait()
        asked.append("pay")
        return McpResponse(b"{}")

    exchanges = LateExchanges()
    task = asyncio.create_task(exchanges.run_past_caller(exchange(), sending))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    connected.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not len(exchanges), WAIT_SECONDS, "the end of the exchange")
    assert (asked, late) == ((["pay"], [McpResponse(b"{}")]) if begun else ([], []))


async def test_of_very_many_exchanges_that_were_given_up_at_once_the_oldest_end() -> None:
    late, answered = list[McpResponse](), asyncio.Event()

    async def exchange(number: int, sending: SendAttempt) -> McpResponse:
        sending.begun = True
        await answered.wait()
        return McpResponse(b"%d" % number)

    exchanges = LateExchanges()
    sendings = [SendAttempt(outgoing(on_late=late.append)) for _ in range(MOST_EXCHANGES + 20)]
    waiting = [
        asyncio.create_task(exchanges.run_past_caller(exchange(number, sending), sending))
        for number, sending in enumerate(sendings)
    ]
    await eventually(lambda: all(sending.begun for sending in sendings), WAIT_SECONDS, "all are sent")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(exchanges) == MOST_EXCHANGES
    answered.set()
    await eventually(lambda: not len(exchanges), WAIT_SECONDS, "the end of the exchanges")
    assert late == [McpResponse(b"%d" % number) for number in range(20, MOST_EXCHANGES + 20)]
