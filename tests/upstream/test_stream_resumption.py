"""A stream of the handshake era that ends before the answer is taken up where it stopped, within bounds."""

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import Effect, InvalidUpstreamResponse, UpstreamLost, UpstreamTimeout
from headgate.protocol.framing import SseField
from headgate.upstream.handshake import negotiate_protocol
from headgate.upstream.http.http_response import StreamPosition
from headgate.upstream.transports.resumable_stream import pause_seconds
from testkit.waiting import eventually
from tests.upstream.conversation import Client, outgoing
from tests.upstream.http_conversation import (
    LEGACY,
    MODERN,
    STREAM,
    WAIT_SECONDS,
    HttpConversation,
    events,
    talking_to,
)
from tests.upstream.raw_server import Received, response

DONE = {"jsonrpc": "2.0", "id": 1, "result": {"done": True}}
LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "on it"}}
# The shortest pause that the gateway makes, so that a test need not wait.
SOON = b"retry: 100\n"
Start = Callable[..., Any]
Step = Callable[[Received], Any]


@pytest.fixture
def talking(tmp_path: Path) -> Start:
    return partial(talking_to, directory=tmp_path, version=LEGACY)


def event(id: str = "", message: Any = None) -> bytes:
    data = b"" if message is None else json.dumps(message).encode()
    return (f"id: {id}\n".encode() if id else b"") + b"data: " + data + b"\n\n"


class Server:
    """Says one thing to the call, and one after the other to those who ask for the rest."""

    def __init__(self, first: Step | bytes, *rest: Step | bytes, again: Step | bytes | None = None) -> None:
        self.first = first
        self.rest = list(rest)
        self.again = again
        # When each answer ended, and when each request for the rest came.
        self.ended: list[float] = []
        self.asked: list[float] = []
        self.resumptions: list[Received] = []

    async def behave(self, request: Received) -> None:
        if request.method == "POST":
            await self._post(request)
        elif "last-event-id" not in request.headers:
            await request.answer(b"", "405 Method Not Allowed")
        else:
            self.asked.append(time.monotonic())
            self.resumptions.append(request)
            await self._say(request, self.rest.pop(0) if self.rest else self.again)

    async def _post(self, request: Received) -> None:
        if request.json().get("method") == "tools/call":
            await self._say(request, self.first)
        else:
            await request.answer(b"", "202 Accepted")

    async def _say(self, request: Received, what: Step | bytes | None) -> None:
        assert what is not None, "nobody expected that"
        if isinstance(what, bytes):
            await request.say(STREAM + what)
            await request.hang_up()
        else:
            await what(request)
        self.ended.append(time.monotonic())

    def places(self) -> list[str]:
        return [request.headers["last-event-id"] for request in self.resumptions]


async def hang_up(request: Received) -> None:
    await request.hang_up()


def refusing(status: str, kind: str = "text/plain") -> Step:
    async def refuse(request: Received) -> None:
        await request.answer(b"{}", status, kind)

    return refuse


async def test_a_stream_that_was_closed_is_taken_up_when_and_where_the_server_says(talking: Start) -> None:
    server = Server(b"id: a-1\nretry: 300\ndata: \n\n", event("a-2", DONE))
    async with talking(server.behave, headers={"Authorization": "Bearer x"}) as talk:
        answer = await talk.ask()
        assert json.loads(answer.result) == {"done": True}
        assert talk.news.resumptions == 1
    (request,) = server.resumptions
    assert server.places() == ["a-1"]
    assert server.asked[0] - server.ended[0] >= 0.29
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["mcp-protocol-version"] == LEGACY
    assert request.headers["authorization"] == "Bearer x"
    assert "content-type" not in request.headers


async def test_a_stream_is_taken_up_as_often_as_it_stops(talking: Start) -> None:
    server = Server(
        SOON + event("1") + event("2"),
        event("3"),
        hang_up,
        refusing("503 Busy"),
        refusing("409 Conflict"),
        event("", LOG) + b"id: 4\ndata: {",
        event("5", LOG) + event("6", DONE),
    )
    client = Client()
    async with talking(server.behave) as talk:
        await talk.ask(token=1, client=client, seconds=30.0)
        assert talk.news.resumptions == 3
    assert server.places() == ["2", "3", "3", "3", "3", "3"]
    assert [method for method, _ in client.told] == ["notifications/message"] * 2


@pytest.mark.parametrize("how", ["ended", "cut off"])
async def test_a_half_event_is_asked_for_again(talking: Start, how: str) -> None:
    async def cut(request: Received) -> None:
        await request.say(STREAM.replace(b"Connection: close", b"Content-Length: 100000") + half)
        await request.hang_up()

    half = SOON + event("1") + b'id: 2\ndata: {"jsonrpc":"2.0",'
    server = Server(half, event("2", DONE)) if how == "ended" else Server(event("0") + SOON, cut)
    server.again = event("2", DONE)
    async with talking(server.behave) as talk:
        await talk.ask()
    assert server.places() == (["1"] if how == "ended" else ["0", "1"])


async def test_half_a_number_is_none_on_the_next_stream_either(talking: Start) -> None:
    server = Server(SOON + event("1") + b"id: 2\n", event(), event("3", DONE))
    async with talking(server.behave) as talk:
        await talk.ask()
    assert server.places() == ["1", "1"]


async def test_the_connection_of_a_stream_that_ended_is_used_for_the_rest(talking: Start) -> None:
    async def end(request: Received) -> None:
        calls.append(request)
        await request.answer(SOON + event("1"), kind="text/event-stream")

    calls: list[Received] = []
    server = Server(end, event("2", DONE))
    async with talking(server.behave) as talk:
        await eventually(lambda: talk.server.received != [], WAIT_SECONDS, "there is no other stream")
        await talk.ask()
    assert server.resumptions[0].connection == calls[0].connection


async def test_what_comes_on_a_resumed_stream_is_about_the_same_call(talking: Start) -> None:
    progress = {"progressToken": 7, "progress": 1}
    told = [LOG, {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, DONE]
    server = Server(SOON + event("1"), b"".join(event("2", message) for message in told))
    waiting = asyncio.Event()

    async def behave(request: Received) -> None:
        if request.body and request.json().get("params") == {"other": True}:
            waiting.set()
            await asyncio.sleep(WAIT_SECONDS)
        else:
            await server.behave(request)

    mine, other = Client(), Client()
    heard: list[dict[str, Any]] = []
    async with talking(behave) as talk:
        call = asyncio.create_task(talk.ask(token=7, client=mine, progress=heard))
        await eventually(lambda: "tools/call" in talk.server.methods(), WAIT_SECONDS, "the first call")
        another = asyncio.create_task(talk.ask(token=8, client=other, params=b'{"other":true}'))
        await waiting.wait()
        await call
        another.cancel()
        await eventually(lambda: "notifications/cancelled" in talk.server.methods(), WAIT_SECONDS, "told so")
    assert mine.told == [("notifications/message", {"data": "on it"})]
    assert other.told == []
    assert heard == [{"progress": 1}]


@pytest.mark.parametrize(
    "refusal",
    [
        refusing("400 Bad Request"),
        refusing("401 Unauthorized"),
        refusing("404 Not Found"),
        refusing("405 Method Not Allowed"),
        refusing("302 Found"),
        refusing("204 No Content"),
        refusing("200 OK", "application/json"),
    ],
    ids=["400", "401", "404", "405", "302", "204", "no stream"],
)
async def test_a_stream_that_cannot_be_resumed_is_a_loss(talking: Start, refusal: Step) -> None:
    server = Server(SOON + event("1"), refusal)
    async with talking(server.behave) as talk:
        with pytest.raises(UpstreamLost, match="when asked for the rest") as lost:
            await talk.ask()
        assert lost.value.effect is Effect.UNKNOWN
        assert len(server.resumptions) == 1
        assert talk.news.resumptions == 0


async def test_a_session_that_is_forgotten_meanwhile_is_a_loss_of_call_and_session(talking: Start) -> None:
    server = Server(SOON + event("1"), refusing("404 Not Found"))

    async def behave(request: Received) -> None:
        if request.body and request.json()["method"] == "initialize":
            body = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
            await request.say(response(body, more="Mcp-Session-Id: abc\r\n"))
        else:
            await server.behave(request)

    async with talking(behave, version="") as talk:
        await negotiate_protocol(talk.spec, talk.transport, LEGACY)
        with pytest.raises(UpstreamLost):
            await talk.ask()
        assert server.resumptions[0].headers["mcp-session-id"] == "abc"
        async with asyncio.timeout(WAIT_SECONDS):
            assert "session" in await talk.transport.wait_lost()


async def test_there_is_no_resumption_in_the_stateless_era(talking: Start) -> None:
    server = Server(SOON + event("1"), event("2", DONE))
    async with talking(server.behave, version=MODERN) as talk:
        with pytest.raises(UpstreamLost):
            await talk.ask()
    assert server.resumptions == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        event(),
        b"id\ndata: \n\n",
        event("1") + b"id:\ndata: \n\n",
        b"id: 1",
        b"id: 1\n",
        event("x" * 1_000_000),
        event("x" * 1025),
        event("a\x00b"),
        event("a\x1bb"),
        b"Id: 1\ndata: \n\n",
    ],
    ids=["nothing", "none", "bare", "taken back", "cut", "half", "1 MB", "1 KiB", "NUL", "escape", "name"],
)
async def test_a_stream_without_a_usable_number_is_a_loss_at_once(talking: Start, said: bytes) -> None:
    server = Server(SOON + said)
    async with talking(server.behave) as talk:
        with pytest.raises(UpstreamLost):
            await talk.ask()
    assert server.resumptions == []


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (event("1") + event("x" * 1_000_000), "1"),
        (event("x" * 1024), "x" * 1024),
        (b"id: 1\nid: 2\ndata: \n\n", "2"),
        (b"id:1\r\ndata:\r\n\r\n", "1"),
        (b"id: 1: a b=c;\rdata:\r\r", "1: a b=c;"),
    ],
    ids=["after a long one", "long", "twice", "CR LF", "CR"],
)
@pytest.mark.parametrize("size", [1, 100_000])
async def test_the_last_number_that_can_be_used_is_the_place(
    talking: Start, said: bytes, place: str, size: int
) -> None:
    if size == 1 and len(said) > 100_000:
        size = 1000

    async def in_pieces(request: Received) -> None:
        await request.say(STREAM, *(said[at : at + size] for at in range(0, len(said), size)))
        await request.hang_up()

    server = Server(SOON + event("0"), in_pieces, event("", DONE))
    async with talking(server.behave) as talk:
        await talk.ask()
    assert server.places()[1] == place


@pytest.mark.parametrize("stream", [b"", b": nothing\n\n", event("1"), event()])
async def test_streams_without_end_and_without_an_answer_are_asked_for_less_and_less(
    talking: Start, stream: bytes
) -> None:
    server = Server(b"retry: 0\n" + event("1"), again=stream)
    async with talking(server.behave) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.6)
        # After 0.1 and 0.3 s, but not after 0.7 s: each pause is twice the last.
        assert len(server.resumptions) == 2
        await eventually(lambda: "notifications/cancelled" in talk.server.methods(), WAIT_SECONDS, "told so")


async def test_a_server_that_numbers_new_events_for_ever_is_not_asked_in_a_tight_loop(talking: Start) -> None:
    async def next_one(request: Received) -> None:
        number = int(request.headers["last-event-id"]) + 1
        await request.say(STREAM + event(str(number)))
        await request.hang_up()

    server = Server(b"retry: 0\n" + event("1"), again=next_one)
    async with talking(server.behave) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.55)
        assert 2 <= len(server.resumptions) <= 5


@pytest.mark.parametrize("retry", [b"1000000000000", b"9" * 100_000])
async def test_a_pause_of_any_length_ends_with_the_time_of_the_call(talking: Start, retry: bytes) -> None:
    server = Server(b"retry: " + retry + b"\n" + event("1"))
    async with talking(server.behave) as talk:
        started = time.monotonic()
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.3)
        assert time.monotonic() - started < 1.0
    assert server.resumptions == []


async def test_a_call_that_waits_for_its_stream_ends_with_the_connection(talking: Start) -> None:
    server = Server(b"retry: 60000\n" + event("1"))
    async with talking(server.behave) as talk:
        call = asyncio.create_task(talk.transport.round_trip(outgoing()))
        await eventually(lambda: bool(server.ended), WAIT_SECONDS, "the stream has ended")
        # The other one was for the stream that the server does not have.
        await eventually(lambda: talk.server.open <= 1, WAIT_SECONDS, "its connection is closed")
        assert not call.done()
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(UpstreamLost):
            await call
    assert server.resumptions == []


async def test_garbage_on_a_resumed_stream_is_an_invalid_answer(talking: Start) -> None:
    server = Server(SOON + event("1"), b"data: not json\n\n")
    async with talking(server.behave) as talk:
        with pytest.raises(InvalidUpstreamResponse):
            await talk.ask()


# The stream on which a server speaks unasked.


class Speaker:
    """Says one thing after the other on the stream that is open to it; the last one stays open."""

    def __init__(self, *said: bytes | str) -> None:
        self.said = list(said)
        self.places: list[str | None] = []
        self.times: list[float] = []

    async def behave(self, request: Received) -> None:
        if request.method != "GET":
            await request.answer(b"", "202 Accepted")
            return
        self.times.append(time.monotonic())
        self.places.append(request.headers.get("last-event-id"))
        what = self.said.pop(0)
        if isinstance(what, str):
            await request.answer(b"", what)
            return
        await request.say(STREAM + what)
        if self.said:
            await request.hang_up()


async def heard(talk: HttpConversation, speaker: Speaker, noise: int) -> None:
    await eventually(
        lambda: not speaker.said and talk.router.ignored == noise, 2 * WAIT_SECONDS, "everything was heard"
    )


async def test_the_stream_of_unasked_messages_is_taken_up_too(talking: Start) -> None:
    speaker = Speaker(b"retry: 1200\n" + event("a", LOG), event("b", LOG))
    async with talking(speaker.behave) as talk:
        await heard(talk, speaker, noise=2)
        assert talk.news.resumptions == 1
    assert speaker.places == [None, "a"]
    assert speaker.times[1] - speaker.times[0] >= 1.19


async def test_a_server_that_has_forgotten_the_place_is_heard_from_now_on(talking: Start) -> None:
    speaker = Speaker(b"retry: 0\n" + event("a", LOG), "400 Bad Request", event("", LOG))
    async with talking(speaker.behave) as talk:
        await heard(talk, speaker, noise=2)
    assert speaker.places == [None, "a", None]


async def test_a_server_that_has_not_noticed_the_end_of_the_old_stream_is_asked_again(talking: Start) -> None:
    speaker = Speaker(event(), "409 Conflict", event("a", LOG))
    async with talking(speaker.behave) as talk:
        await heard(talk, speaker, noise=1)
        assert not talk.news.resumptions


async def test_garbage_among_unasked_messages_is_noise(talking: Start) -> None:
    speaker = Speaker(b"data: not json\n\n" + events(LOG))
    async with talking(speaker.behave) as talk:
        await heard(talk, speaker, noise=2)
    assert len(speaker.times) == 1


async def test_a_message_that_is_too_large_does_not_come_again(talking: Start) -> None:
    speaker = Speaker(event("a", LOG) + event("b", "x" * 2_000_000), event("", LOG))
    async with talking(speaker.behave) as talk:
        await heard(talk, speaker, noise=2)
    assert speaker.places == [None, None]


# The pauses, without waiting for them.


def place(retry: bytes | None = None) -> StreamPosition:
    found = StreamPosition()
    if retry is not None:
        found.read_field(SseField(b"retry", retry, True))
    return found


@pytest.mark.parametrize(
    ("retry", "pauses"),
    [
        (None, [1, 2, 4, 8, 16, 30, 30]),
        (b"0", [0.1, 0.2, 0.4]),
        (b"50", [0.1, 0.2]),
        (b"2500", [2.5, 5, 10, 20, 30]),
        (b"40000", [40, 40]),
        (b"1000000000000", [300, 300]),
        (b"9" * 5000, [300]),
        (b"-5", [1, 2]),
        (b"1e3", [1, 2]),
        (b"", [1]),
    ],
)
def test_a_pause_is_what_the_server_said_and_grows_within_bounds(
    retry: bytes | None, pauses: list[float]
) -> None:
    assert [pause_seconds(place(retry), fruitless, 0.1, 30.0) for fruitless in range(len(pauses))] == pauses


def test_no_number_of_attempts_is_too_large() -> None:
    assert pause_seconds(place(b"0"), 10**9, 0.1, 30.0) == 30.0
