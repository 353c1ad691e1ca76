"""A legacy SSE server: messages are posted, answers come on one long stream."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import Effect, HeadgateError, UpstreamLost, UpstreamTimeout, UpstreamUnreachable
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.errors import UpstreamAuthRefused
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.sse import SseTransport, open_sse
from testkit.waiting import eventually
from tests.upstream.conversation import RecordedServerEvents, outgoing
from tests.upstream.raw_server import Received, raw_server
from tests.upstream.spool_limits import in_memory

WAIT_SECONDS = 10.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class OldServer:
    """One SSE server; its answers can be changed."""

    def __init__(self) -> None:
        self.stream: Received | None = None
        self.endpoint = b"/messages?session_id=abc"
        self.accepts = True

    async def behave(self, request: Received) -> None:
        if request.method == "GET":
            self.stream = request
            await request.say(HEAD + b"event: endpoint\ndata: " + self.endpoint + b"\n\n")
            return
        if not self.accepts:
            await asyncio.sleep(WAIT_SECONDS)
        await request.answer(b"Accepted", "202 Accepted", "text/plain")
        assert request.target == "/messages?session_id=abc"
        message = {"jsonrpc": "2.0", "id": request.json()["id"], "result": {"done": True}}
        assert self.stream is not None
        await self.stream.say(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")


Start = Callable[..., Any]


@pytest.fixture
def talking(tmp_path: Path) -> Start:
    @asynccontextmanager
    async def start(behaviour: Any) -> AsyncIterator[SseTransport]:
        async with raw_server(behaviour) as server:
            url = server.url.replace("/mcp", "/sse")
            spec = ServerSpec(name="old", transport=TransportType.SSE, url=url)
            async with open_sse(
                spec, in_memory(tmp_path), NotificationRouter("old", RecordedServerEvents())
            ) as transport:
                yield transport

    return start


async def test_an_answer_comes_on_the_stream(talking: Start) -> None:
    async with talking(OldServer().behave) as transport, asyncio.timeout(WAIT_SECONDS):
        answer = await transport.round_trip(outgoing())
        assert json.loads(answer.result) == {"done": True}


async def test_a_stream_that_ends_fails_what_waits(talking: Start) -> None:
    async def behave(request: Received) -> None:
        if request.method == "GET":
            streams.append(request)
            await request.say(HEAD + b"event: endpoint\ndata: /messages\n\n")
            return
        await request.answer(b"Accepted", "202 Accepted", "text/plain")
        await streams[0].hang_up()

    streams: list[Received] = []
    async with talking(behave) as transport, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(UpstreamLost):
            await transport.round_trip(outgoing())
        assert await transport.wait_lost()


async def test_a_post_that_is_never_answered_does_not_outlive_the_time_limit(talking: Start) -> None:
    server = OldServer()
    async with talking(server.behave) as transport:
        server.accepts = False
        async with asyncio.timeout(WAIT_SECONDS - 1):
            with pytest.raises(UpstreamTimeout):
                await transport.round_trip(outgoing(seconds=0.2))


@pytest.mark.parametrize("endpoint", [b"http://192.0.2.1/messages", b"https://127.0.0.1/messages"])
async def test_an_endpoint_at_a_stranger_is_not_spoken_to(talking: Start, endpoint: bytes) -> None:
    server = OldServer()
    server.endpoint = endpoint
    async with talking(server.behave) as transport, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(UpstreamUnreachable):
            await transport.round_trip(outgoing())
        assert "another origin" in await transport.wait_lost()


@pytest.mark.parametrize("endpoint", [b"http://[::1", b"http://h:port/"])
async def test_an_endpoint_that_is_no_url_is_an_error_at_once(talking: Start, endpoint: bytes) -> None:
    server = OldServer()
    server.endpoint = endpoint
    async with talking(server.behave) as transport, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(UpstreamUnreachable):
            await transport.round_trip(outgoing())
        assert await transport.wait_lost()


@pytest.mark.parametrize(
    ("status", "kind"),
    [("401 Unauthorized", UpstreamAuthRefused), ("404 Not Found", UpstreamUnreachable)],
)
async def test_a_stream_that_is_refused_is_an_error(
    talking: Start, status: str, kind: type[Exception]
) -> None:
    async def behave(request: Received) -> None:
        await request.answer(b"no", status, "text/plain")

    with pytest.raises(kind):
        async with talking(behave):
            pass


async def test_a_post_that_is_cut_off_may_have_been_carried_out_and_hurts_no_other_call(
    talking: Start,
) -> None:
    server = OldServer()

    async def behave(request: Received) -> None:
        if request.method == "POST" and request.json()["params"] == {"cut": True}:
            await request.hang_up()
        elif request.method == "POST" and request.json()["params"] == {"wait": True}:
            await request.answer(b"Accepted", "202 Accepted", "text/plain")
            waiting.set()
        else:
            await server.behave(request)

    waiting = asyncio.Event()
    async with talking(behave) as transport, asyncio.timeout(WAIT_SECONDS):
        other = asyncio.create_task(transport.round_trip(outgoing(params=b'{"wait":true}')))
        await waiting.wait()
        with pytest.raises(UpstreamLost, match="'pay'") as lost:
            await transport.round_trip(outgoing(params=b'{"cut":true}'))
        assert lost.value.effect is Effect.UNKNOWN
        assert not other.done()
        assert json.loads((await transport.round_trip(outgoing())).result) == {"done": True}
        other.cancel()


async def test_an_accepted_post_whose_response_is_cut_off_is_answered_on_the_stream(talking: Start) -> None:
    server = OldServer()

    async def behave(request: Received) -> None:
        if request.method == "GET":
            await server.behave(request)
            return
        await request.say(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nAcc")
        await request.hang_up()
        await request.writer.wait_closed()
        assert server.stream is not None
        await server.stream.say(b'data: {"jsonrpc":"2.0","id":1,"result":{"done":true}}\n\n')

    async with talking(behave) as transport, asyncio.timeout(WAIT_SECONDS):
        assert json.loads((await transport.round_trip(outgoing())).result) == {"done": True}


@pytest.mark.parametrize(
    ("status", "kind", "effect"),
    [
        ("500 Oops", UpstreamLost, Effect.UNKNOWN),
        ("404 Not Found", UpstreamUnreachable, Effect.NONE),
        ("401 Unauthorized", UpstreamAuthRefused, Effect.NONE),
    ],
)
async def test_a_refused_post_says_whether_anything_happened(
    talking: Start, status: str, kind: type[HeadgateError], effect: Effect
) -> None:
    server = OldServer()

    async def behave(request: Received) -> None:
        if request.method == "GET":
            await server.behave(request)
        else:
            await request.answer(b"no", status, "text/plain")

    async with talking(behave) as transport, asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(kind) as refused:
            await transport.round_trip(outgoing())
        assert refused.value.effect is effect


async def test_pings_without_end_are_answered_a_few_at_once_and_no_more_than_can_wait(tmp_path: Path) -> None:
    posts: list[Received] = []
    released = asyncio.Event()

    async def behave(request: Received) -> None:
        if request.method == "GET":
            pings = b"".join(
                b'data: {"jsonrpc":"2.0","id":"p%d","method":"ping"}\n\n' % id for id in range(200)
            )
            await request.say(HEAD + b"event: endpoint\ndata: /messages\n\n" + pings)
            return
        posts.append(request)
        await released.wait()
        await request.answer(b"", "202 Accepted")

    async with raw_server(behave) as server:
        spec = ServerSpec(name="old", transport=TransportType.SSE, url=server.url)
        router = NotificationRouter("old", RecordedServerEvents())
        async with open_sse(spec, in_memory(tmp_path), router):
            await eventually(lambda: router.ignored == 200 - 72, WAIT_SECONDS, "too many")
            await eventually(lambda: len(posts) == 8, WAIT_SECONDS, "a few")
            assert server.connections <= 9
            released.set()
            await eventually(lambda: len(posts) == 72, WAIT_SECONDS, "the others")


async def test_nothing_is_sent_when_the_stream_has_ended(talking: Start) -> None:
    posts: list[Received] = []

    async def behave(request: Received) -> None:
        if request.method == "POST":
            posts.append(request)
            await request.answer(b"", "202 Accepted")
            return
        await request.say(HEAD + b"event: endpoint\ndata: /messages\n\n")
        await request.hang_up()

    async with talking(behave) as transport, asyncio.timeout(WAIT_SECONDS):
        await transport.wait_lost()
        with pytest.raises(UpstreamUnreachable):
            await transport.round_trip(outgoing())
    assert posts == []
