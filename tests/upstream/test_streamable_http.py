"""A streamable HTTP server, whatever it answers: the result, or the error that says what happened."""

import asyncio
import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import (
    Effect,
    HeadgateError,
    InvalidUpstreamResponse,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.errors import UpstreamAuthRefused, UpstreamRateLimited, UpstreamRequestRefused
from headgate.upstream.handshake import negotiate_protocol
from headgate.upstream.transport import UpstreamSessionExpired
from testkit.waiting import eventually
from tests.upstream.http_conversation import LEGACY, MODERN, WAIT_SECONDS, events, talking_to
from tests.upstream.raw_server import HOST, Received, raw_server, response

Start = Callable[..., Any]


@pytest.fixture
def talking(tmp_path: Path) -> Start:
    return partial(talking_to, directory=tmp_path)


async def done(request: Received) -> None:
    if request.method == "POST" and "id" in request.json():
        await request.result({"done": True})
    else:
        await request.answer(b"", "202 Accepted" if request.method == "POST" else "405 Method Not Allowed")


async def test_a_json_answer_is_the_result_byte_for_byte(talking: Start) -> None:
    async def say(request: Received) -> None:
        await request.answer(b' {"jsonrpc":"2.0", "id":1, "result":{"a" : 1.0,"b":[ ]} } ')

    async with talking(say) as talk:
        assert await talk.ask() == McpResponse(b'{"a" : 1.0,"b":[ ]}')


async def test_each_request_of_the_stateless_era_says_what_it_is_in_its_headers(talking: Start) -> None:
    async with talking(done, headers={"Authorization": "Bearer x"}) as talk:
        await talk.ask(name="résumé")
        headers = talk.server.received[0].headers
        assert headers["mcp-protocol-version"] == MODERN
        assert headers["mcp-method"] == "tools/call"
        assert headers["mcp-name"] == "=?base64?csOpc3Vtw6k=?="
        assert headers["accept"] == "application/json, text/event-stream"
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer x"


async def test_the_handshake_era_sees_its_own_headers_only(talking: Start) -> None:
    async with talking(done, version=LEGACY) as talk:
        await talk.ask(name="x")
        headers = next(request for request in talk.server.received if request.method == "POST").headers
        assert headers["mcp-protocol-version"] == LEGACY
        assert "mcp-method" not in headers
        assert "mcp-name" not in headers


@pytest.mark.parametrize(("version", "seen"), [(MODERN, "west"), (LEGACY, None)])
async def test_headers_of_a_call_of_its_own_are_for_the_stateless_era(
    talking: Start, version: str, seen: str | None
) -> None:
    async with talking(done, version=version) as talk:
        await talk.ask(headers=b"Mcp-Param-Region: west\r\n")
        posts = [request for request in talk.server.received if request.method == "POST"]
        assert posts[0].headers.get("mcp-param-region") == seen


async def test_a_line_break_in_a_header_of_the_operator_makes_no_second_header(talking: Start) -> None:
    async with talking(done, headers={"x-own": "a\r\nx-injected: b"}) as talk:
        await talk.ask()
        headers = talk.server.received[0].headers
        assert "x-injected" not in headers
        assert headers["x-own"].startswith("a")


async def test_a_stream_may_say_other_things_before_the_answer(talking: Start) -> None:
    progress = {"progressToken": 7, "progress": 1, "total": 2}

    async def say(request: Received) -> None:
        told = events(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
            {"jsonrpc": "2.0", "id": 99, "result": {"not": "yours"}},
            {"jsonrpc": "2.0", "id": request.json()["id"], "result": {"done": True}},
        )
        await request.say(response(b": hello\r\n\r\n" + told, kind="text/event-stream"))

    async with talking(say) as talk:
        heard: list[dict[str, Any]] = []
        answer = await talk.ask(token=7, progress=heard)
        assert json.loads(answer.result) == {"done": True}
        assert heard == [{"progress": 1, "total": 2}]
        assert talk.router.ignored == 1


async def test_a_stream_that_ends_without_an_answer_is_a_loss(talking: Start) -> None:
    async def say(request: Received) -> None:
        await request.answer(b": hello\n\n", kind="text/event-stream")

    async with talking(say) as talk:
        with pytest.raises(UpstreamLost) as lost:
            await talk.ask()
        assert lost.value.effect is Effect.UNKNOWN


@pytest.mark.parametrize(
    "wrong",
    [
        response(b"<html>", kind="text/html"),
        response(b"", kind="application/octet-stream"),
        response(b"not json"),
        response(b'{"jsonrpc":"2.0","id":1}'),
        response(b'{"jsonrpc":"2.0","id":1,"result":{"t":"\xff"}}'),
        response(b"data: not json\n\n", kind="text/event-stream"),
        response(b"x", more="Content-Encoding: br\r\n"),
        response(b"not gzip", more="Content-Encoding: gzip\r\n"),
        response(gzip.compress(b" " * 50_000_000), more="Content-Encoding: gzip\r\n"),
        response(b'{"result":"' + b"x" * 2_000_000 + b'"}'),
    ],
    ids=["html", "bytes", "text", "empty", "utf-8", "stream", "brotli", "no gzip", "bomb", "too large"],
)
async def test_an_answer_that_is_no_message_is_said_to_be_one(talking: Start, wrong: bytes) -> None:
    async def say(request: Received) -> None:
        await request.say(wrong)

    async with talking(say) as talk:
        with pytest.raises(InvalidUpstreamResponse) as invalid:
            await talk.ask()
        assert invalid.value.effect is Effect.UNKNOWN


async def test_an_answer_that_came_packed_is_unpacked(talking: Start) -> None:
    async def say(request: Received) -> None:
        body = gzip.compress(b'{"jsonrpc":"2.0","id":1,"result":{"done":true}}')
        await request.say(response(body, more="Content-Encoding: gzip\r\n"))

    async with talking(say) as talk:
        assert await talk.ask() == McpResponse(b'{"done":true}')


THROTTLED = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"too many"}}'
OAUTH = b'{"error":"invalid_token","error_description":"it expired"}'


@pytest.mark.parametrize(
    ("refusal", "kind", "effect"),
    [
        (response(b"no", "401 Unauthorized", "text/plain"), UpstreamAuthRefused, Effect.NONE),
        (response(b"no", "403 Forbidden", "text/html"), UpstreamAuthRefused, Effect.NONE),
        (response(OAUTH, "401 Unauthorized"), UpstreamAuthRefused, Effect.NONE),
        (response(b'{"message":"no"}', "403 Forbidden"), UpstreamAuthRefused, Effect.NONE),
        (response(b"", "429 Slow Down", more="Retry-After: 7\r\n"), UpstreamRateLimited, Effect.NONE),
        (response(THROTTLED, "429 Slow Down", more="Retry-After: 7\r\n"), UpstreamRateLimited, Effect.NONE),
        (response(b"no", "404 Not Found", "text/plain"), UpstreamRequestRefused, Effect.NONE),
        (
            response(b"no", "302 Found", "text/plain", "Location: /other\r\n"),
            UpstreamRequestRefused,
            Effect.NONE,
        ),
        (response(b"no", "500 Oops", "text/plain"), UpstreamLost, Effect.UNKNOWN),
        (response(b"no", "503 Busy", "text/plain"), UpstreamLost, Effect.UNKNOWN),
    ],
    ids=["401", "403", "401 OAuth", "403 JSON", "429", "429 JSON-RPC", "404", "302", "500", "503"],
)
async def test_a_refusal_says_who_refused_and_whether_anything_happened(
    talking: Start, refusal: bytes, kind: type[HeadgateError], effect: Effect
) -> None:
    async def say(request: Received) -> None:
        await request.say(refusal)

    async with talking(say) as talk:
        with pytest.raises(kind) as refused:
            await talk.ask()
        assert refused.value.effect is effect
        if kind is UpstreamRateLimited:
            assert refused.value.retry_after_seconds == 7


async def test_a_json_rpc_error_with_an_http_status_passes_verbatim(talking: Start) -> None:
    error = b'{"code":-32602,"message":"no","data":{"a":1.0}}'

    async def say(request: Received) -> None:
        await request.answer(b'{"jsonrpc":"2.0","id":1,"error":' + error + b"}", "400 Bad Request")

    async with talking(say) as talk:
        assert await talk.ask() == McpResponse(error=error)


async def test_a_redirect_at_the_same_origin_is_followed_with_everything(talking: Start) -> None:
    async def say(request: Received) -> None:
        if request.target == "/mcp":
            await request.say(response(b"", "307 Moved", more="Location: /deeper/mcp/\r\n"))
        elif request.target == "/deeper/mcp/":
            await request.say(response(b"", "308 Moved", more="Location: end\r\n"))
        else:
            await done(request)

    async with talking(say, headers={"Authorization": "Bearer x"}) as talk:
        await talk.ask(params=b'{"a":1}')
        await talk.ask(params=b'{"a":1}')
        targets = [request.target for request in talk.server.received]
        assert targets == ["/mcp", "/deeper/mcp/", "/deeper/mcp/end", "/deeper/mcp/end"]
        assert {request.headers["authorization"] for request in talk.server.received} == {"Bearer x"}
        assert all(request.json()["params"] == {"a": 1} for request in talk.server.received)


async def test_a_redirect_to_a_stranger_is_not_followed(talking: Start) -> None:
    async with raw_server(done) as stranger:

        async def say(request: Received) -> None:
            await request.say(response(b"", "307 Moved", more=f"Location: {stranger.url}\r\n"))

        async with talking(say, headers={"Authorization": "Bearer x"}) as talk:
            with pytest.raises(UpstreamRequestRefused, match="another origin"):
                await talk.ask()
            assert stranger.connections == 0


@pytest.mark.parametrize(
    "where", ["/mcp", "", "http://[::1", "http://h:port/", f"http://{HOST}:99999/", "//"]
)
async def test_a_redirect_that_leads_nowhere_is_an_error_and_no_crash(talking: Start, where: str) -> None:
    async def say(request: Received) -> None:
        await request.say(response(b"", "307 Moved", more=f"Location: {where}\r\n"))

    async with talking(say) as talk:
        with pytest.raises(UpstreamRequestRefused):
            await talk.ask()
        assert len(talk.server.received) <= 3


async def test_a_call_that_takes_too_long_is_cancelled_in_the_words_of_the_handshake_era(
    talking: Start,
) -> None:
    async def say(request: Received) -> None:
        if request.body and request.json()["method"] == "tools/call":
            await asyncio.sleep(WAIT_SECONDS)
        else:
            await done(request)

    async with talking(say, version=LEGACY) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.1)
        await eventually(
            lambda: "notifications/cancelled" in talk.server.methods(), WAIT_SECONDS, "cancelled"
        )


async def test_a_call_that_takes_too_long_is_cancelled_by_hanging_up_in_the_stateless_era(
    talking: Start,
) -> None:
    gone = asyncio.Event()

    async def say(request: Received) -> None:
        await request.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while not gone.is_set():
                await request.say(b": still here\n\n")
                await asyncio.sleep(0.01)
        except ConnectionError:
            gone.set()
            raise

    async with talking(say) as talk:
        with pytest.raises(UpstreamTimeout):
            await talk.ask(seconds=0.1)
        async with asyncio.timeout(WAIT_SECONDS):
            await gone.wait()
        assert talk.server.methods() == ["tools/call"]


async def test_a_forgotten_session_is_told_apart_from_an_unknown_path(talking: Start) -> None:
    async def say(request: Received) -> None:
        if request.body and request.json()["method"] == "initialize":
            body = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
            await request.say(response(body, more="Mcp-Session-Id: abc\r\n"))
        elif request.body and request.json()["method"] == "tools/call":
            assert request.headers["mcp-session-id"] == "abc"
            await request.answer(b"gone", "404 Not Found", "text/plain")
        else:
            await done(request)

    async with talking(say, version="") as talk:
        await negotiate_protocol(talk.spec, talk.transport, LEGACY)
        with pytest.raises(UpstreamSessionExpired):
            await talk.ask()
        async with asyncio.timeout(WAIT_SECONDS):
            assert "session" in await talk.transport.wait_lost()


@pytest.mark.parametrize(
    "refusal",
    [
        response(b"Bad Request: no session", "400 Bad Request", "text/plain"),
        response(b"not found", "404 Not Found", "text/html"),
        response(b"", "406 Not Acceptable", "text/plain"),
        response(b'{"error":"Bad Request"}', "400 Bad Request"),
        response(
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No session"}}', "400 Bad Request"
        ),
    ],
    ids=["400 text", "404 text", "406 text", "400 JSON", "400 JSON-RPC"],
)
async def test_an_old_server_that_refuses_the_first_question_is_asked_in_its_own_words(
    talking: Start, refusal: bytes
) -> None:
    async def say(request: Received) -> None:
        method = request.json()["method"] if request.body else ""
        if method == "server/discover":
            await request.say(refusal)
        elif method == "initialize":
            await request.result({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}})
        else:
            await done(request)

    async with talking(say, version="") as talk:
        greeting = await negotiate_protocol(talk.spec, talk.transport, None)
        assert greeting.version == "2025-06-18"


async def test_a_server_that_is_gone_is_lost(talking: Start) -> None:
    async with raw_server(done) as server:
        url = server.url
    async with talking(done, url=url) as talk:
        with pytest.raises(UpstreamUnreachable) as unreachable:
            await talk.ask()
        assert unreachable.value.effect is Effect.NONE
        async with asyncio.timeout(WAIT_SECONDS):
            await talk.transport.wait_lost()


async def test_pings_without_end_are_answered_a_few_at_once_and_no_more_than_can_wait(talking: Start) -> None:
    pings = [{"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"} for number in range(200)]
    posts: list[Received] = []
    released = asyncio.Event()

    async def say(request: Received) -> None:
        if request.method == "GET":
            await request.say(response(events(*pings), kind="text/event-stream"))
            return
        posts.append(request)
        await released.wait()
        await request.answer(b"", "202 Accepted")

    async with talking(say, version=LEGACY) as talk:
        await eventually(lambda: talk.router.ignored == 200 - 72, WAIT_SECONDS, "too many")
        await eventually(lambda: len(posts) == 8, WAIT_SECONDS, "a few")
        assert talk.server.connections <= 9
        released.set()
        await eventually(lambda: len(posts) == 72, WAIT_SECONDS, "the others")
        assert len({post.json()["id"] for post in posts}) == 72


async def test_the_operator_may_say_what_the_server_is_called(talking: Start) -> None:
    async with talking(done, headers={"Host": "far.example", "X-Own": "1"}) as talk:
        await talk.ask()
        (request,) = talk.server.received
        assert request.headers["host"] == "far.example"
        assert request.headers["x-own"] == "1"
        assert request.head.lower().count("\r\nhost:") == 1
