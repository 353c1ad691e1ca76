"""Many requests share one connection: each gets its own answer, or the error that tells what happened."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import (
    Effect,
    InvalidUpstreamResponse,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.message_assembly import MessageAssembler
from testkit.virtual_time import virtual_time
from testkit.waiting import eventually
from tests.upstream.conversation import Conversation, outgoing
from tests.upstream.spool_limits import limits, open_files

NOISE = [b"Server started", b"", b"{", b'{"level":"info"}', b"[1,2]", b"null", b"\xff\xfe", b"5"]


def result(answer: McpResponse) -> Any:
    assert isinstance(answer.result, bytes)
    return json.loads(answer.result)


def cancellations(talk: Conversation) -> list[int]:
    return [
        message["params"]["requestId"]
        for message in talk.sent
        if message.get("method") == "notifications/cancelled"
    ]


@virtual_time
async def test_answers_out_of_order_reach_their_callers() -> None:
    talk = Conversation()
    asked = [await talk.ask(outgoing()) for _ in range(5)]
    for message in reversed(list(talk.sent)):
        talk.reply(message["id"])
    answers = [result(await task)["to"] for task in asked]
    assert answers == [message["id"] for message in talk.sent]
    assert len(set(answers)) == 5
    assert len(talk.pending) == 0


@virtual_time
async def test_an_error_of_the_upstream_is_an_answer() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":{"a":1.0}}}')
    assert await task == McpResponse(error=b'{"code":-1,"message":"no","data":{"a":1.0}}')


@pytest.mark.parametrize("id", [2, 0, -1, "1", None, 1.5, 10**30])
@virtual_time
async def test_an_answer_to_nobody_is_noise(id: Any) -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.reply(id)
    assert talk.router.ignored == 1
    assert not task.done()
    talk.reply(1)
    assert result(await task) == {"to": 1}


@virtual_time
async def test_a_second_answer_is_noise() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.reply(1, result={"which": "first"})
    talk.reply(1, result={"which": "second"})
    assert result(await task) == {"which": "first"}
    talk.reply(1, result={"which": "third"})
    assert talk.router.ignored == 2


@pytest.mark.parametrize("line", NOISE)
@virtual_time
async def test_noise_is_counted_and_hurts_nobody(line: bytes) -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(line)
    talk.reply(1)
    assert result(await task) == {"to": 1}
    assert talk.router.ignored == 1


@pytest.mark.parametrize(
    "line",
    [b'{"level":"info","id":1,"msg":"started"}', b'{"time":5,"id":1,"error":"not yet connected"}'],
)
@virtual_time
async def test_a_line_of_a_json_log_is_noise_even_if_it_has_an_id(line: bytes) -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(line)
    talk.reply(1)
    assert result(await task) == {"to": 1}
    assert talk.router.ignored == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":2,"result":{"text":"\xff"}}',
        b'{"jsonrpc":"2.0","id": 2 ,"result":{',
        b'{"result":{"a":"\xff"},"id":2}',
        b'{"jsonrpc":"2.0","id":2}',
    ],
)
@virtual_time
async def test_a_garbled_answer_fails_its_call_at_once_and_no_other(line: bytes) -> None:
    talk = Conversation()
    first, second = await talk.ask(outgoing()), await talk.ask(outgoing())
    talk.say(line)
    with pytest.raises(InvalidUpstreamResponse) as invalid:
        await second
    assert invalid.value.effect is Effect.UNKNOWN
    assert not first.done()
    talk.reply(1)
    assert result(await first) == {"to": 1}


@virtual_time
async def test_a_garbled_answer_without_an_id_fails_the_only_call_that_waits() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(b'{"jsonrpc":"2.0","result":{"text":"\xff"}')
    with pytest.raises(InvalidUpstreamResponse):
        await task


@virtual_time
async def test_a_garbled_answer_without_an_id_fails_nobody_while_several_wait() -> None:
    talk = Conversation()
    tasks = [await talk.ask(outgoing()) for _ in range(2)]
    talk.say(b'{"jsonrpc":"2.0","result":{"text":"\xff"}')
    for number, task in enumerate(tasks, 1):
        talk.reply(number)
        assert result(await task) == {"to": number}
    assert talk.router.ignored == 1


@virtual_time
async def test_an_error_without_an_id_is_about_the_only_call_that_waits() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.reply(None, error={"code": -32700, "message": "Parse error"})
    assert json.loads((await task).error)["code"] == -32700


@virtual_time
async def test_a_call_without_an_answer_ends_in_time_and_the_upstream_is_told() -> None:
    talk = Conversation()
    loop = asyncio.get_running_loop()
    started = loop.time()
    task = await talk.ask(outgoing(seconds=60.0))
    with pytest.raises(UpstreamTimeout) as late:
        await task
    assert loop.time() - started == pytest.approx(60.0, abs=0.1)
    assert late.value.effect is Effect.UNKNOWN
    assert "60" in late.value.message
    await talk.heard(2)
    assert cancellations(talk) == [1]
    talk.reply(1)
    assert talk.router.ignored == 1


@virtual_time
async def test_the_time_of_one_call_is_not_the_time_of_another() -> None:
    talk = Conversation()
    short, long = await talk.ask(outgoing(seconds=1.0)), await talk.ask(outgoing(seconds=60.0))
    with pytest.raises(UpstreamTimeout):
        await short
    assert not long.done()
    talk.reply(2)
    assert result(await long) == {"to": 2}


@virtual_time
async def test_progress_starts_the_time_anew() -> None:
    talk = Conversation()
    heard: list[dict[str, Any]] = []
    task = await talk.ask(outgoing(seconds=10.0, token=5, progress=heard))
    for step in range(10):
        await asyncio.sleep(9.0)
        talk.progress(5, progress=step, total=10, message="on it", extra=[1])
    assert not task.done()
    talk.reply(1)
    assert result(await task) == {"to": 1}
    assert heard[3] == {"progress": 3, "total": 10, "message": "on it", "extra": [1]}


@virtual_time
async def test_after_the_last_progress_the_time_runs_out() -> None:
    talk = Conversation()
    loop = asyncio.get_running_loop()
    started = loop.time()
    task = await talk.ask(outgoing(seconds=10.0, token=5, progress=[]))
    await asyncio.sleep(9.0)
    talk.progress(5, progress=1)
    with pytest.raises(UpstreamTimeout):
        await task
    assert loop.time() - started == pytest.approx(19.0, abs=0.1)


@virtual_time
async def test_no_progress_prolongs_a_call_beyond_the_maximum() -> None:
    talk = Conversation()
    loop = asyncio.get_running_loop()
    started = loop.time()
    task = await talk.ask(outgoing(seconds=10.0, most_seconds=35.0, token=5, progress=[]))
    while not task.done():
        await asyncio.sleep(5.0)
        talk.progress(5, progress=1)
    assert loop.time() - started == pytest.approx(35.0, abs=5.1)
    with pytest.raises(UpstreamTimeout):
        await task
    assert cancellations(talk) == [1]


@pytest.mark.parametrize("token", [6, "5", None, 5.5, [5]])
@virtual_time
async def test_progress_of_another_call_prolongs_nothing(token: Any) -> None:
    talk = Conversation()
    heard: list[dict[str, Any]] = []
    task = await talk.ask(outgoing(seconds=10.0, token=5, progress=heard))
    await asyncio.sleep(9.0)
    talk.progress(token, progress=1)
    await asyncio.sleep(2.0)
    with pytest.raises(UpstreamTimeout):
        await task
    assert heard == []
    assert talk.router.ignored == 1


@virtual_time
async def test_progress_after_the_answer_is_noise() -> None:
    talk = Conversation()
    heard: list[dict[str, Any]] = []
    task = await talk.ask(outgoing(token=5, progress=heard))
    talk.reply(1)
    await task
    talk.progress(5, progress=1)
    assert heard == []
    assert talk.router.ignored == 1


@virtual_time
async def test_a_call_that_the_client_cancels_is_cancelled_upstream() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await talk.heard(2)
    assert cancellations(talk) == [1]
    assert len(talk.pending) == 0


@virtual_time
async def test_the_handshake_is_never_cancelled() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing("initialize", seconds=1.0))
    with pytest.raises(UpstreamTimeout):
        await task
    second = await talk.ask(outgoing("initialize"))
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await asyncio.sleep(1.0)
    assert cancellations(talk) == []


@virtual_time
async def test_a_call_ends_in_time_even_if_it_cannot_be_sent() -> None:
    talk = Conversation()
    talk.writable.clear()
    task = asyncio.create_task(talk.pending.send_correlated(outgoing(seconds=10.0)))
    await asyncio.wait({task}, timeout=100.0)
    assert task.done(), "the time limit counts from the moment the call is made"
    assert isinstance(task.exception(), UpstreamTimeout)


@virtual_time
async def test_what_could_not_be_sent_leaves_nothing_behind() -> None:
    talk = Conversation()
    talk.send_error = UpstreamUnreachable("bank", "it ended")
    with pytest.raises(UpstreamUnreachable):
        await talk.pending.send_correlated(outgoing())
    assert len(talk.pending) == 0


@virtual_time
async def test_a_lost_connection_fails_every_call() -> None:
    talk = Conversation()
    tasks = [await talk.ask(outgoing()) for _ in range(3)]
    talk.pending.fail_all("it ended")
    for task in tasks:
        with pytest.raises(UpstreamLost) as lost:
            await task
        assert isinstance(lost.value, UpstreamError)
        assert lost.value.effect is Effect.UNKNOWN
    assert len(talk.pending) == 0


@virtual_time
async def test_a_ping_of_the_upstream_is_answered() -> None:
    talk = Conversation()
    talk.say({"jsonrpc": "2.0", "id": "p-1", "method": "ping"})
    await talk.heard(1)
    assert talk.sent == [{"jsonrpc": "2.0", "id": "p-1", "result": {}}]


@virtual_time
async def test_a_request_that_nobody_can_answer_is_refused() -> None:
    talk = Conversation()
    talk.say({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}})
    await talk.heard(1)
    assert talk.sent[0]["id"] == 1
    assert talk.sent[0]["error"]["code"] == -32601


@virtual_time
async def test_what_an_upstream_says_about_itself_is_noticed() -> None:
    talk = Conversation()
    talk.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    talk.say({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed", "params": {}})
    talk.say({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:b"}})
    assert talk.news.changes == ["tools", "prompts"]
    assert talk.news.updates == [{"uri": "a:b"}]
    assert talk.router.ignored == 0


def test_a_large_answer_that_nobody_waits_for_gives_its_disk_space_back(tmp_path: Path) -> None:
    # Read before the loop runs: what goes to disk there is not what this is about.
    assembly = MessageAssembler(limits(tmp_path))
    assembly.add(b'{"jsonrpc":"2.0","id":9,"result":"' + b"x" * 100_000 + b'"}')
    message = assembly.finish()
    assert len(open_files(tmp_path)) == 1

    async def take() -> None:
        Conversation().pending.handle_message(message)

    asyncio.run(take())
    assert open_files(tmp_path) == []


@virtual_time
async def test_two_hundred_calls_at_once_do_not_mix() -> None:
    talk = Conversation()
    tasks = [asyncio.create_task(talk.pending.send_correlated(outgoing())) for _ in range(200)]
    await eventually(lambda: len(talk.sent) == 200, 5.0, "all sent")
    for message in sorted(talk.sent, key=lambda message: str(message["id"])):
        talk.reply(message["id"])
    answers = await asyncio.gather(*tasks)
    assert [result(answer)["to"] for answer in answers] == list(range(1, 201))


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"\xff"}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":{"id":1},"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"x":"\xff"}}',
    ],
)
@virtual_time
async def test_a_garbled_notification_is_nobodys_answer(line: bytes) -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(line)
    talk.reply(1)
    assert result(await task) == {"to": 1}
    assert talk.router.ignored == 1


@virtual_time
async def test_a_garbled_answer_that_speaks_of_methods_is_an_answer() -> None:
    talk = Conversation()
    task = await talk.ask(outgoing())
    talk.say(b'{"jsonrpc":"2.0","id":1,"result":{"method":"GET","text":"\xff"}}')
    with pytest.raises(InvalidUpstreamResponse):
        await task


@virtual_time
async def test_a_garbled_answer_that_holds_several_numbers_is_the_first_ones() -> None:
    talk = Conversation()
    first, second = await talk.ask(outgoing()), await talk.ask(outgoing())
    talk.say(b'{"jsonrpc":"2.0","id":2,"result":{"id":1,"text":"\xff"}}')
    with pytest.raises(InvalidUpstreamResponse):
        await second
    assert not first.done()
    talk.reply(1)
    await first


@pytest.mark.parametrize("methods", [["subscriptions/listen", "tools/call"], ["subscriptions/listen"]])
@virtual_time
async def test_a_subscription_is_not_the_only_call_that_waits(methods: list[str]) -> None:
    talk = Conversation()
    subscription, *calls = [await talk.ask(outgoing(method)) for method in methods]
    talk.say(b'{"jsonrpc":"2.0","result":{"text":"\xff"}')
    for call in calls:
        with pytest.raises(InvalidUpstreamResponse):
            await call
    calls = [await talk.ask(outgoing()) for _ in calls]
    talk.reply(None, error={"code": -32700, "message": "Parse error"})
    for call in calls:
        assert (await call).error
    await asyncio.sleep(1)
    assert not subscription.done()
    subscription.cancel()


@pytest.mark.parametrize("what", ["cancelled", "unsent"])
def test_a_large_answer_that_comes_as_its_caller_leaves_gives_its_disk_space_back(
    tmp_path: Path, what: str
) -> None:
    assembly = MessageAssembler(limits(tmp_path))
    assembly.add(b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 100_000 + b'"}')
    message = assembly.finish()

    async def leave() -> None:
        talk = Conversation()
        if what == "unsent":
            talk.writable.clear()
        task = await talk.ask(outgoing())
        talk.pending.handle_message(message)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancellations(talk) == [], "it was answered"

    asyncio.run(leave())
    assert open_files(tmp_path) == []
