"""The HTTP client: connections are used again when that is safe, and answers never mix."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headgate.upstream.http.http1_client import ConnectionDropped, Http1Client, HttpClientResponse
from headgate.upstream.http.http_connector import ConnectFailed, Origin, OriginConnector
from testkit.gateway_process import free_port
from testkit.waiting import eventually
from tests.upstream.raw_server import HOST, Behaviour, RawServer, Received, raw_server, response

MOST = 64 * 1024 * 1024
WAIT_SECONDS = 5.0
# The client asks the sender to pause when more than this waits for its reader.
HIGH_WATER = 512 * 1024


@asynccontextmanager
async def client_of(behaviour: Behaviour) -> AsyncIterator[tuple[Http1Client, RawServer]]:
    async with raw_server(behaviour) as server:
        client = Http1Client(OriginConnector(Origin(server.url), 5.0))
        try:
            yield client, server
        finally:
            client.close()


async def post(client: Http1Client, body: bytes = b"hello") -> HttpClientResponse:
    async with asyncio.timeout(WAIT_SECONDS):
        return await client.send_http("POST", "/mcp", b"", body)


async def fetch(client: Http1Client, body: bytes = b"hello") -> tuple[int, bytes]:
    answered = await post(client, body)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return answered.status, await answered.read(MOST)
    finally:
        answered.close()


async def echo(request: Received) -> None:
    await request.answer(request.body)


async def test_a_request_is_sent_as_it_should_be() -> None:
    async with client_of(echo) as (client, server):
        answered = await client.send_http("POST", "/mcp?x=1", b"x-own: 1\r\n", b"hello")
        answered.close()
        (request,) = server.received
        assert (request.method, request.target, request.body) == ("POST", "/mcp?x=1", b"hello")
        assert request.headers == {
            "host": f"{HOST}:{server.port}",
            "accept-encoding": "identity",
            "x-own": "1",
            "content-length": "5",
        }


async def test_a_connection_is_used_again() -> None:
    async with client_of(echo) as (client, server):
        for number in range(5):
            assert await fetch(client, b"%d" % number) == (200, b"%d" % number)
        assert server.connections == 1


async def test_requests_at_once_have_a_connection_each_and_do_not_mix() -> None:
    everybody = asyncio.Event()

    async def wait_for_all(request: Received) -> None:
        if len(server.received) == 20:
            everybody.set()
        await everybody.wait()
        await request.answer(request.body)

    async with client_of(wait_for_all) as (client, server):
        answers = await asyncio.gather(*(fetch(client, b"%d" % number) for number in range(20)))
        assert [body for _, body in answers] == [b"%d" % number for number in range(20)]
        assert server.connections == 20


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BODIES = {
    "a length": [b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello"],
    "a length, cut anywhere": [b"HTTP/1.1 200 O", b"K\r\nContent-Length: 5\r", b"\n\r", b"\nhel", b"lo"],
    "chunks": [CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"],
    "chunks, cut anywhere": [CHUNKED, b"3", b"\r\nh", b"el\r", b"\n2;x=y\r\nlo\r\n0", b"\r\n", b"\r\n"],
    "chunks and a trailer": [CHUNKED + b"5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n"],
}


@pytest.mark.parametrize("pieces", BODIES.values(), ids=BODIES)
async def test_a_body_is_read_however_its_end_is_told(pieces: list[bytes]) -> None:
    async def say(request: Received) -> None:
        await request.say(*pieces)

    async with client_of(say) as (client, server):
        for _ in range(2):
            assert await fetch(client) == (200, b"hello")
        assert server.connections == 1


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"],
)
async def test_a_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    async def say(request: Received) -> None:
        await request.say(head + b"hel", b"lo")
        await request.hang_up()

    async with client_of(say) as (client, server):
        for _ in range(2):
            assert await fetch(client) == (200, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize(
    "status", [b"204 No Content", b"304 Not Modified", b"202 Accepted\r\nContent-Length: 0"]
)
async def test_an_answer_without_a_body_is_complete(status: bytes) -> None:
    async def say(request: Received) -> None:
        await request.say(b"HTTP/1.1 " + status + b"\r\n\r\n")

    async with client_of(say) as (client, server):
        for _ in range(2):
            assert (await fetch(client))[1] == b""
        assert server.connections == 1


async def test_a_server_that_wants_to_close_is_not_used_again() -> None:
    async def say(request: Received) -> None:
        await request.say(response(b"hello", more="Connection: close\r\n"))

    async with client_of(say) as (client, server):
        for _ in range(2):
            assert await fetch(client) == (200, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"],
        [CHUNKED + b"5\r\nhello\r\n"],
        [CHUNKED + b"5\r\nhel"],
    ],
    ids=["nothing", "half a line", "half a head", "a head", "half a body", "no last chunk", "half a chunk"],
)
async def test_an_answer_that_is_cut_off_is_not_taken_for_a_whole_one(pieces: list[bytes]) -> None:
    async def say(request: Received) -> None:
        await request.say(*pieces)
        await request.hang_up()

    async with client_of(say) as (client, _):
        with pytest.raises(ConnectionDropped):
            await fetch(client)


@pytest.mark.parametrize(
    "said", [b"hello, I am SSH\r\n", b"HTTP/9.9 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]
)
async def test_a_server_that_does_not_speak_http_is_dropped(said: bytes) -> None:
    async def say(request: Received) -> None:
        await request.say(said)
        await asyncio.sleep(WAIT_SECONDS)

    async with client_of(say) as (client, _):
        with pytest.raises(ConnectionDropped):
            await fetch(client)


@pytest.mark.parametrize("interim", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </x>"])
async def test_what_is_said_before_the_answer_is_not_the_answer(interim: bytes) -> None:
    async def say(request: Received) -> None:
        early = b"HTTP/1.1 " + interim + b"\r\n\r\n"
        await request.say(early, early + response(b"hello", "201 Created"))

    async with client_of(say) as (client, server):
        for _ in range(2):
            assert await fetch(client) == (201, b"hello")
        assert server.connections == 1


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    async def say(request: Received) -> None:
        await request.answer(request.body)
        if request.connection == 1:
            released.clear()
            await released.wait()
            await request.say(response(b"poison"))

    released = asyncio.Event()
    async with client_of(say) as (client, server):
        assert await fetch(client, b"one") == (200, b"one")
        released.set()
        await eventually(lambda: server.open == 0, WAIT_SECONDS, "the connection is closed")
        assert await fetch(client, b"two") == (200, b"two")
        assert server.connections == 2


@pytest.mark.parametrize("first", ["chunks", "a length"])
async def test_a_second_answer_right_behind_the_first_belongs_to_nobody(first: str) -> None:
    # To the next request it would be the wrong answer, and to this one it is too much.
    async def say(request: Received) -> None:
        poison = response(b"poison", "500 Oops", more="x-poison: 1\r\n") if request.connection == 1 else b""
        await request.say(BODIES[first][0] + poison)

    async with client_of(say) as (client, _):
        answered = await post(client)
        body = await answered.read(MOST)
        assert (answered.status, body) == (200, b"hello")
        assert b"x-poison" not in answered.headers
        answered.close()
        assert await fetch(client) == (200, b"hello")


MOST_HEAD = 64 * 1024


def head_of(size: int) -> bytes:
    """The head of a response whose body is `ok`, of exactly so many bytes."""
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    lines = [b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range((size - 200) // 1010)]
    fixed = start + b"".join(lines) + b"X-Rest: \r\n\r\n"
    return fixed.replace(b"X-Rest: ", b"X-Rest: " + b"x" * (size - len(fixed)))


def cut_into(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("segment", [1_000_000, 65_536, 4_096, 37])
async def test_the_limit_of_headers_is_exact_however_they_are_cut(segment: int) -> None:
    async def answer(request: Received) -> None:
        size = int(request.body)
        await request.say(*cut_into(head_of(size) + b"ok", segment))

    async with client_of(answer) as (client, _):
        assert await fetch(client, b"%d" % MOST_HEAD) == (200, b"ok")
        with pytest.raises(ConnectionDropped, match="its headers are larger than 64 KiB"):
            await fetch(client, b"%d" % (MOST_HEAD + 1))
        with pytest.raises(ConnectionDropped, match="its headers are larger than 64 KiB"):
            await fetch(client, b"200000")
        assert await fetch(client, b"%d" % MOST_HEAD) == (200, b"ok")


async def test_a_body_in_chunks_may_follow_the_largest_head() -> None:
    async def answer(request: Received) -> None:
        # The other framing takes nine bytes more.
        head = head_of(MOST_HEAD - 9).replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")
        assert len(head) == MOST_HEAD
        await request.say(head, b"2\r\n", b"ok\r\n", b"0\r\n", b"X-Last: 1\r\n", b"\r\n")

    async with client_of(answer) as (client, _):
        assert await fetch(client) == (200, b"ok")


async def test_interim_responses_count_as_headers() -> None:
    async def answer(request: Received) -> None:
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: %s\r\n\r\n" % (b"x" * 1000)
        await request.say(interim * int(request.body) + response(b"ok"))

    async with client_of(answer) as (client, _):
        assert await fetch(client, b"10") == (200, b"ok")
        with pytest.raises(ConnectionDropped, match="headers"):
            await fetch(client, b"100")


async def test_trailers_without_end_are_refused() -> None:
    async def drown(request: Received) -> None:
        await request.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        for _ in range(400):
            await request.say(b"X: " + b"x" * 1000 + b"\r\n")
        await request.say(b"\r\n")

    async with client_of(drown) as (client, _):
        with pytest.raises(ConnectionDropped, match="trailers"):
            await fetch(client)


async def test_headers_without_end_are_refused() -> None:
    async def say(request: Received) -> None:
        await request.say(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            await request.say(b"x-%d: %s\r\n" % (number, b"y" * 1000))

    async with client_of(say) as (client, server):
        with pytest.raises(ConnectionDropped, match="headers"):
            await fetch(client)
        await eventually(lambda: server.open == 0, WAIT_SECONDS, "the connection is closed")


async def test_nobody_listens() -> None:
    client = Http1Client(OriginConnector(Origin(f"http://{HOST}:{free_port()}/"), 5.0))
    with pytest.raises(ConnectFailed):
        await post(client)


async def test_a_host_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind((HOST, 0))
        full.listen(0)
        # The backlog of unaccepted connections is full now, so the kernel ignores the next one.
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        client = Http1Client(OriginConnector(Origin(f"http://{HOST}:{full.getsockname()[1]}/"), 0.2))
        with pytest.raises(ConnectFailed, match=r"0\.2 s"):
            await post(client)


async def test_a_large_answer_waits_for_a_slow_reader() -> None:
    body = bytes(range(256)) * 4 * 5000

    async def say(request: Received) -> None:
        await request.answer(body)

    async with client_of(say) as (client, server):
        answered = await post(client)
        parts = []
        async for part in answered.chunks():
            parts.append(part)
            await asyncio.sleep(0.001)
        answered.close()
        assert b"".join(parts) == body
        assert await fetch(client) == (200, body)
        assert server.connections == 1


async def test_an_answer_that_nobody_reads_does_not_stall_the_next_request() -> None:
    # Refusals and the answers to notifications may be large too, and are not read.
    async def say(request: Received) -> None:
        await request.answer(b"x" * (HIGH_WATER + 1) if len(server.received) == 1 else b"hello")

    async with client_of(say) as (client, server):
        answered = await post(client)
        await eventually(lambda: answered.complete, WAIT_SECONDS, "everything has come")
        answered.close()
        assert await fetch(client) == (200, b"hello")


async def test_half_of_an_answer_is_enough_for_who_wants_no_more() -> None:
    async def say(request: Received) -> None:
        await request.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhello")

    async with client_of(say) as (client, server):
        answered = await post(client)
        async for part in answered.chunks():
            assert part == b"hello"
            break
        answered.close()
        await eventually(lambda: server.open == 0, WAIT_SECONDS, "the connection is closed")


async def test_a_request_that_is_given_up_closes_its_connection() -> None:
    async def say(request: Received) -> None:
        if request.connection > 1:
            await request.answer(b"hello")
            return
        await asyncio.sleep(WAIT_SECONDS)

    async with client_of(say) as (client, server):
        asked = asyncio.create_task(fetch(client))
        await eventually(lambda: len(server.received) == 1, WAIT_SECONDS, "the request has arrived")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await fetch(client) == (200, b"hello")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://example.com", "example.com", "/"),
        ("http://example.com:80/a/b?c=d", "example.com", "/a/b?c=d"),
        ("https://example.com:443/", "example.com", "/"),
        ("https://example.com:80/", "example.com:80", "/"),
        ("http://[::1]:8000/mcp", "[::1]:8000", "/mcp"),
        ("http://EXAMPLE.com/mcp", "example.com", "/mcp"),
    ],
)
def test_a_url_is_taken_apart(url: str, authority: str, target: str) -> None:
    origin = Origin(url)
    assert (origin.authority, origin.target) == (authority, target)


@pytest.mark.parametrize(
    "other", ["https://a.com/", "http://a.com:81/", "http://b.com/", "http://a.com.b.com/", "http://x@b.com/"]
)
def test_another_scheme_host_or_port_is_another_origin(other: str) -> None:
    assert Origin("http://a.com/x").same_as("http://a.com:80/y?z")
    assert not Origin("http://a.com/x").same_as(other)


async def test_connections_that_only_a_burst_needed_are_closed_while_others_are_used() -> None:
    everybody = asyncio.Event()

    async def wait_for_all(request: Received) -> None:
        if len(server.received) == 10:
            everybody.set()
        await everybody.wait()
        await request.answer(request.body)

    async with client_of(wait_for_all) as (client, server):
        await asyncio.gather(*(fetch(client) for _ in range(10)))
        assert server.open == 10
        async with asyncio.timeout(WAIT_SECONDS):
            while server.open > 1:
                await fetch(client)
                await asyncio.sleep(0.1)
        assert server.connections == 10
