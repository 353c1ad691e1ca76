"""What may have happened when a call fails, with real pipes and sockets: nothing, or unknown."""

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from headgate.domain.errors import (
    Effect,
    HeadgateError,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.errors import UpstreamRateLimited, UpstreamRequestRefused
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.child_process import Watchdog
from headgate.upstream.transports.sse import open_sse
from headgate.upstream.transports.stdio import StdioTransport, open_stdio
from testkit.waiting import eventually
from tests.upstream.conversation import RecordedServerEvents, outgoing
from tests.upstream.http_conversation import LEGACY, MODERN, STREAM, WAIT_SECONDS, talking_to
from tests.upstream.raw_server import HOST, Received, raw_server, response
from tests.upstream.spool_limits import in_memory

Start = Callable[..., Any]


@pytest.fixture
def talking(tmp_path: Path) -> Start:
    return partial(talking_to, directory=tmp_path)


# A child and its pipes. The gateway runs on uvloop, and must not depend on it.

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
CLOSES_INPUT = """
import os, time
os.close(0)
print('closed', flush=True)
time.sleep(60)
"""
READS_AND_ENDS = "import sys; print('there', flush=True); sys.stdin.readline()"
READS_NOTHING = "import time; print('there', flush=True); time.sleep(60)"


def failure(
    program: str,
    directory: Path,
    loop: Callable[[], asyncio.AbstractEventLoop],
    before: Callable[[StdioTransport], None] = lambda transport: None,
    **settings: Any,
) -> UpstreamError:
    """How a call of a child that runs this program fails, once the program has said something."""

    async def run() -> UpstreamError:
        spec = ServerSpec(
            name="own", transport=TransportType.STDIO, command=sys.executable, args=("-c", program)
        )
        router, watchdog = NotificationRouter("own", RecordedServerEvents()), Watchdog()
        try:
            async with open_stdio(spec, in_memory(directory), watchdog, router, deque()) as transport:
                await eventually(lambda: router.ignored > 0, WAIT_SECONDS, "the child")
                before(transport)
                with pytest.raises(UpstreamError) as failed:
                    async with asyncio.timeout(WAIT_SECONDS):
                        await transport.round_trip(outgoing(**settings))
                # The test need not wait until it goes by itself.
                end(transport)
                return failed.value
        finally:
            watchdog.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


def end(transport: StdioTransport) -> None:
    """End the child before the loop hears of it; it may have ended already."""
    assert transport.pid is not None
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(transport.pid, signal.SIGKILL)
        os.waitid(os.P_PID, transport.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def no_blocking_calls_on_the_loop() -> None:
    """Allow them: the watchdog learns of a child in one small write."""


def test_a_child_that_has_closed_its_input_was_sent_nothing(tmp_path: Path, loop: Any) -> None:
    failed = failure(CLOSES_INPUT, tmp_path, loop)
    assert (type(failed), failed.effect, failed.retryable) == (UpstreamUnreachable, Effect.NONE, True)


def test_a_child_that_ended_before_anything_was_written_was_sent_nothing(tmp_path: Path, loop: Any) -> None:
    failed = failure(READS_NOTHING, tmp_path, loop, end)
    assert (type(failed), failed.effect) == (UpstreamUnreachable, Effect.NONE)


def test_a_child_that_ends_after_it_was_written_to_may_have_done_it(tmp_path: Path, loop: Any) -> None:
    failed = failure(READS_AND_ENDS, tmp_path, loop)
    assert (type(failed), failed.effect) == (UpstreamLost, Effect.UNKNOWN)


@pytest.mark.parametrize("size", [10, 4_000_000], ids=["small", "more than a pipe holds"])
def test_a_child_that_reads_nothing_costs_a_call_its_time_and_no_more(
    tmp_path: Path, loop: Any, size: int
) -> None:
    failed = failure(READS_NOTHING, tmp_path, loop, seconds=0.2, params=b'{"a":"%s"}' % (b"x" * size))
    assert (type(failed), failed.effect) == (UpstreamTimeout, Effect.UNKNOWN)


# HTTP.


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 429])
async def test_a_status_about_the_request_means_that_nothing_happened(talking: Start, status: int) -> None:
    async def say(request: Received) -> None:
        await request.answer(b"no", f"{status} No", "text/plain")

    async with talking(say) as talk:
        with pytest.raises(HeadgateError) as refused:
            await talk.ask()
        assert refused.value.effect is Effect.NONE
        assert refused.value.retryable is (status == 429)


@pytest.mark.parametrize("status", [408, 409, 422, 500, 502, 503, 504, 599])
async def test_after_any_other_status_nobody_knows(talking: Start, status: int) -> None:
    async def say(request: Received) -> None:
        await request.answer(b"no", f"{status} No", "text/plain")

    async with talking(say) as talk:
        with pytest.raises(UpstreamLost) as lost:
            await talk.ask()
        assert lost.value.effect is Effect.UNKNOWN
        assert lost.value.may_still_run is (status == 504), "that is what a proxy says that gave up waiting"


def in_a_minute() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        (lambda: "7", 7, 7),
        (in_a_minute, 55, 60),
        (lambda: "Thu, 01 Jan 1970 00:00:00 GMT", 0, 0),
        (lambda: "9" * 40, 86_400, 86_400),
    ],
    ids=["seconds", "date", "past", "absurd"],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_when_to_come_back_is_heard(
    talking: Start, status: int, said: Callable[[], str], least: float, most: float
) -> None:
    async def say(request: Received) -> None:
        await request.say(response(b"", f"{status} Later", more=f"Retry-After: {said()}\r\n"))

    async with talking(say) as talk:
        with pytest.raises((UpstreamRateLimited, UpstreamLost)) as later:
            await talk.ask()
        assert later.value.retry_after_seconds is not None
        assert least <= later.value.retry_after_seconds <= most


@pytest.mark.parametrize("said", ["", "soon", "-1", "Thu, 99 Foo 2020"])
async def test_a_word_that_is_no_time_is_none(talking: Start, said: str) -> None:
    async def say(request: Received) -> None:
        await request.say(response(b"", "503 Later", more=f"Retry-After: {said}\r\n"))

    async with talking(say) as talk:
        with pytest.raises(UpstreamLost) as lost:
            await talk.ask()
        assert lost.value.retry_after_seconds is None


async def test_a_kept_connection_that_the_server_closed_leaves_nobody_knowing(talking: Start) -> None:
    async def say(request: Received) -> None:
        if len(talk.server.received) > 1:
            await request.hang_up()
        else:
            await request.result({})

    async with talking(say) as talk:
        await talk.ask()
        with pytest.raises(UpstreamLost) as lost:
            await talk.ask()
        assert [request.connection for request in talk.server.received] == [1, 1]
        assert lost.value.effect is Effect.UNKNOWN


class Unaccepting:
    """A port at which no connection is ever made, because the queue of those that wait is full."""

    def __enter__(self) -> str:
        self._sockets = [socket.socket() for _ in range(3)]
        full, *waiting = self._sockets
        full.bind((HOST, 0))
        full.listen(0)
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        return f"http://{HOST}:{full.getsockname()[1]}/mcp"

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()


async def nothing(request: Received) -> None:
    """No input request is expected."""


@pytest.mark.parametrize("late", [False, True], ids=["given up", "recorded"])
async def test_a_call_whose_time_is_over_before_there_is_a_connection_was_not_sent(
    talking: Start, *, late: bool
) -> None:
    with Unaccepting() as url:
        async with talking(nothing, url=url) as talk:
            with pytest.raises(UpstreamUnreachable, match="no connection within") as failed:
                await talk.ask(seconds=0.1, on_late=(lambda answer: None) if late else None)
            assert failed.value.effect is Effect.NONE


async def test_a_connection_may_take_less_time_than_an_answer(talking: Start) -> None:
    with Unaccepting() as url:
        async with talking(nothing, url=url, connect_timeout_seconds=0.1) as talk:
            with pytest.raises(UpstreamUnreachable, match=r"within 0\.1 s"):
                await talk.ask(seconds=60.0)

    async def slow(request: Received) -> None:
        await asyncio.sleep(0.3)
        await request.result({})

    async with talking(slow, connect_timeout_seconds=0.1) as talk:
        await talk.ask(seconds=60.0)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid"], ids=["unknown", "no name"])
async def test_a_host_that_is_not_found_was_sent_nothing(talking: Start, host: str) -> None:
    async with talking(nothing, url=f"http://{host}/mcp") as talk:
        with pytest.raises(UpstreamUnreachable) as failed:
            await talk.ask()
        assert failed.value.effect is Effect.NONE


async def test_a_host_that_does_not_speak_tls_was_sent_nothing(talking: Start) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(response(b"", "400 Bad Request"))
        writer.close()

    async with await asyncio.start_server(refuse, HOST, 0) as server:
        url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}/mcp"
        async with talking(nothing, url=url) as talk:
            with pytest.raises(UpstreamUnreachable, match="TLS") as failed:
                await talk.ask()
            assert failed.value.effect is Effect.NONE


async def test_a_stream_of_comments_only_ends_with_the_longest_time(talking: Start) -> None:
    async def say(request: Received) -> None:
        await request.say(STREAM)
        while True:
            await request.say(b": still here\n\n")
            await asyncio.sleep(0.01)

    async with talking(say) as talk:
        with pytest.raises(UpstreamTimeout) as late:
            await talk.ask(seconds=60.0, most_seconds=0.2)
        assert late.value.effect is Effect.UNKNOWN


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_key_travels_in_the_header_that_the_operator_named(talking: Start, version: str) -> None:
    async def say(request: Received) -> None:
        await (request.result({}) if request.body else request.answer(b"", "405 No"))

    async with talking(say, version=version) as talk:
        await talk.ask(idempotency_header=b"Idempotency-Key: abc\r\n")
        await talk.ask()
        called = [request for request in talk.server.received if request.body]
        assert [request.headers.get("idempotency-key") for request in called] == ["abc", None]


# SSE.


@pytest.mark.parametrize(
    ("status", "kind", "effect", "stands"),
    [
        (429, UpstreamRateLimited, Effect.NONE, True),
        (413, UpstreamRequestRefused, Effect.NONE, True),
        (404, UpstreamUnreachable, Effect.NONE, False),
        (503, UpstreamLost, Effect.UNKNOWN, True),
        (500, UpstreamLost, Effect.UNKNOWN, False),
    ],
)
async def test_a_refused_message_tells_whether_it_was_taken_and_whether_the_stream_still_stands(
    tmp_path: Path, status: int, kind: type[HeadgateError], effect: Effect, *, stands: bool
) -> None:
    keys: list[str | None] = []

    async def say(request: Received) -> None:
        if request.method == "GET":
            await request.say(STREAM + b"event: endpoint\ndata: /messages\n\n")
            return
        keys.append(request.headers.get("idempotency-key"))
        await request.say(response(b"", f"{status} No", more="Retry-After: 7\r\n"))

    async with raw_server(say) as server:
        spec = ServerSpec(name="old", transport=TransportType.SSE, url=server.url)
        async with open_sse(
            spec, in_memory(tmp_path), NotificationRouter("old", RecordedServerEvents())
        ) as transport:
            lost = asyncio.ensure_future(transport.wait_lost())
            with pytest.raises(kind) as refused:
                async with asyncio.timeout(WAIT_SECONDS):
                    await transport.round_trip(outgoing(idempotency_header=b"Idempotency-Key: abc\r\n"))
            await asyncio.wait({lost}, timeout=0.05 if stands else WAIT_SECONDS)
            assert (refused.value.effect, lost.done()) == (effect, not stands)
            assert refused.value.retry_after_seconds == (7 if status in (429, 503) else None)
            assert keys == ["abc"]
            lost.cancel()


async def test_a_message_whose_time_is_over_before_the_endpoint_is_known_was_not_sent(tmp_path: Path) -> None:
    async def say(request: Received) -> None:
        await request.say(STREAM)
        await asyncio.sleep(WAIT_SECONDS)

    async with raw_server(say) as server:
        spec = ServerSpec(name="old", transport=TransportType.SSE, url=server.url)
        async with open_sse(
            spec, in_memory(tmp_path), NotificationRouter("old", RecordedServerEvents())
        ) as transport:
            with pytest.raises(UpstreamUnreachable) as failed:
                await transport.round_trip(outgoing(seconds=0.1))
            assert failed.value.effect is Effect.NONE
