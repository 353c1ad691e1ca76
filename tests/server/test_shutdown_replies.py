"""Answers that are being written when the drain of a gateway is over: each of them arrives whole."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.domain.identity import LOCAL_IDENTITY, everything_visible
from headgate.gateway.gateway import Gateway
from headgate.protocol.jsonrpc import parse_message
from headgate.server.change_notifier import ChangeNotifier
from headgate.server.guard import RequestGuard
from headgate.server.http_connection import HttpConnection, HttpServerLimits, OpenConnections, ServerContext
from headgate.server.http_request import TEXT, HttpRequest
from headgate.server.legacy_sse import LegacySseHandler
from headgate.server.method_router import ClientServices, MethodRouter
from headgate.server.outbound_queue import OutboundBudget, OutboundQueue
from headgate.server.reply import Reply
from headgate.server.shutdown import interrupt_task
from headgate.server.streamable_http import write_event_stream
from testkit.clients.plain_http import (
    JSON_HEADERS,
    Session,
    modern_headers,
    modern_request,
    request,
    scripted,
    settle,
    until_closed,
)
from testkit.gateway_process import HOST, GatewayProcess
from testkit.waiting import eventually, wait_until
from tests.server.test_shutdown_calls import HOLD, STOP_SECONDS, check, posted
from tests.server.test_unread_replies import LINE

WAIT_SECONDS = 10.0
# Many times what the kernel takes for a client that does not read; more than 1 MiB goes over the disk.
PAD_BYTES = 12_000_000
SAY = {"name": "own_say", "arguments": {"line": LINE, "pad": PAD_BYTES}}
LIMITS = HttpServerLimits(
    body_bytes=1000, header_bytes=1000, headers=10, header_seconds=10.0, body_seconds=10.0
)


def large_answers(gateway: GatewayProcess) -> dict[str, bytes]:
    """A plain response and a stream."""
    call = json.dumps(request("tools/call", SAY)).encode()
    streaming = JSON_HEADERS | Session(gateway).headers | {"Accept": "text/event-stream, */*"}
    modern = {key: value for key, value in modern_headers("tools/call", "own_say").items() if value}
    return {
        "plain": posted(gateway, json.dumps(modern_request("tools/call", SAY)).encode(), modern),
        "stream": posted(gateway, call, streaming),
    }


def slow_client(gateway: GatewayProcess, sent: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(STOP_SECONDS)
    connection.connect((HOST, gateway.port))
    connection.sendall(sent)
    return connection


def test_an_answer_that_is_being_written_at_the_end_of_the_drain_arrives_whole(
    start_gateway: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    servers = {"own": scripted(journal)}
    gateway = start_gateway({"mcpServers": servers, "proxySettings": {"enableAutoTruncation": False}})
    settle(gateway, "own")
    clients = {name: slow_client(gateway, sent) for name, sent in large_answers(gateway).items()}
    beginnings = {name: client.recv(1000) for name, client in clients.items()}
    stopping = threading.Thread(target=gateway.stop, args=(STOP_SECONDS,))
    headers = {name: value for name, value in modern_headers("tools/call", "own_hold").items() if value}
    with slow_client(
        gateway, posted(gateway, json.dumps(modern_request("tools/call", HOLD)).encode(), headers)
    ) as held:
        wait_until(lambda: "held" in journal.read_text(), WAIT_SECONDS, "the call is under way")
        stopping.start()
        # It is answered when the drain is over.
        answered = until_closed(held)
    check(json.loads(answered[answered.index(b"{") :])["result"])
    received = {name: beginnings[name] + until_closed(client) for name, client in clients.items()}
    stopping.join(STOP_SECONDS)
    for client in clients.values():
        client.close()
    plain = json.loads(received["plain"][received["plain"].index(b"{") :])
    assert plain["result"]["content"][0]["text"] == "x" * PAD_BYTES
    assert received["stream"].endswith(b"\r\n0\r\n\r\n")
    assert received["stream"].count(b"x") >= PAD_BYTES


async def connection_of(context: ServerContext, serve: Any) -> tuple[HttpConnection, socket.socket]:
    """A connection of a client, whose end the test has."""
    ours, theirs = socket.socketpair()
    context.handler = serve
    _, http_connection = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: HttpConnection(context), theirs
    )
    ours.settimeout(WAIT_SECONDS)
    return http_connection, ours


@pytest.fixture
def context() -> ServerContext:
    async def nothing(http_request: HttpRequest) -> None: ...

    return ServerContext(nothing, RequestGuard(HOST, 80, (), ()), LIMITS, OpenConnections(), OutboundBudget())


POST = f"POST / HTTP/1.1\r\nHost: {HOST}:80\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_request_that_comes_in_as_the_drain_ends_is_answered(context: ServerContext) -> None:
    async def answer(http_request: HttpRequest) -> None:
        http_request.respond(200, b"answer", TEXT)

    http_connection, client = await connection_of(context, answer)
    with client:
        # In one step of the event loop: the work on it has not begun.
        http_connection.data_received(POST)
        http_connection.interrupt_request()
        received = await asyncio.to_thread(client.recv, 1000)
    assert received.endswith(b"answer")


async def test_a_subscription_that_a_client_reads_slowly_is_not_cut_short(context: ServerContext) -> None:
    outbound_queue, change_notifier = OutboundQueue(), ChangeNotifier(everything_visible)

    async def answer(http_request: HttpRequest) -> None:
        await write_event_stream(http_request, outbound_queue, change_notifier, last=b"the last word")

    http_connection, client = await connection_of(context, answer)
    with client:
        http_connection.data_received(POST)
        await outbound_queue.put(Reply(b"x" * 4_000_000))
        await eventually(lambda: context.outbound.bytes > 0, WAIT_SECONDS, "the client does not read")
        context.closing = True
        change_notifier.end_streams()
        http_connection.interrupt_request()
        received = await asyncio.to_thread(until_closed, client)
    assert received.count(b"x") >= 4_000_000
    assert b"the last word" in received


async def test_a_reply_that_waits_for_a_slow_client_is_not_lost() -> None:
    outbound_queue = OutboundQueue()
    replies = [
        asyncio.create_task(outbound_queue.put(Reply(b"%02d" % number, b"x" * 1_000_000)))
        for number in range(20)
    ]
    await asyncio.sleep(0)
    waiting = [task for task in replies if not task.done()]
    assert waiting
    for task in waiting:
        interrupt_task(task)
    read = []
    for _ in replies:
        reply = await outbound_queue.get(WAIT_SECONDS)
        assert reply is not None
        read.append(reply.head)
    await asyncio.gather(*replies)
    assert sorted(read) == [b"%02d" % number for number in range(20)]


async def test_a_legacy_request_that_was_just_accepted_is_answered_though_the_gateway_ends(
    context: ServerContext,
) -> None:
    change_notifier = ChangeNotifier(everything_visible)
    router = MethodRouter(cast("Gateway", None), "headgate", cast("ClientServices", None))
    legacy = LegacySseHandler(router, change_notifier, 10, lambda session: None)
    http_connection, client = await connection_of(
        context, lambda http_request: legacy.open_stream(http_request, LOCAL_IDENTITY, "/messages")
    )
    poster, other = await connection_of(
        context, lambda http_request: legacy.open_stream(http_request, LOCAL_IDENTITY, "/messages")
    )
    with client, other:
        http_connection.data_received(f"GET /sse HTTP/1.1\r\nHost: {HOST}:80\r\n\r\n".encode())
        endpoint = b""
        while b"session_id=" not in endpoint:
            endpoint += await asyncio.to_thread(client.recv, 1000)
        session = endpoint.partition(b"session_id=")[2].partition(b"\r")[0].decode()
        ping = parse_message(json.dumps(request("ping", id="last")).encode())
        await legacy.post(
            ping, HttpRequest("POST", "/messages", f"session_id={session}", {}, poster), LOCAL_IDENTITY
        )
        # In the same step of the event loop: the work on the request has not begun.
        context.closing = True
        change_notifier.end_streams()
        received = await asyncio.to_thread(until_closed, client)
    assert b'{"jsonrpc":"2.0","id":"last","result":{}}' in received
