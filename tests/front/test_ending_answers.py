"""Answers that are being written when the drain of a gate is over: each of them arrives whole."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headgate.front.answers import Answers, Surroundings
from headgate.front.audience import Audience
from headgate.front.door import Door, DoorLimits, House
from headgate.front.ending import end_call
from headgate.front.guard import Guard
from headgate.front.legacy_sse import LegacySse
from headgate.front.outbound import OutboundBudget
from headgate.front.outbox import Outbox
from headgate.front.reply import Reply
from headgate.front.streamable import stream
from headgate.front.visit import TEXT, Visit
from headgate.gateway import Gateway
from headgate.wire.envelope import parse
from tests.front.test_ending import HOLD, STOP_SECONDS, check, posted
from tests.front.test_unread import LINE
from tests.front.visitor import (
    JSON_HEADERS,
    Session,
    modern_headers,
    modern_request,
    request,
    scripted,
    settle,
    until_closed,
)
from tests.gate import HOST, Gate
from tests.waiting import eventually, wait_until

WAIT_SECONDS = 10.0
# Many times what the kernel takes for a client that does not read; more than 1 MiB goes over the disk.
PAD_BYTES = 12_000_000
SAY = {"name": "own_say", "arguments": {"line": LINE, "pad": PAD_BYTES}}
LIMITS = DoorLimits(body_bytes=1000, header_bytes=1000, headers=10, header_seconds=10.0, body_seconds=10.0)


def large_answers(gate: Gate) -> dict[str, bytes]:
    """A plain response and a stream."""
    call = json.dumps(request("tools/call", SAY)).encode()
    streaming = JSON_HEADERS | Session(gate).headers | {"Accept": "text/event-stream, */*"}
    modern = {key: value for key, value in modern_headers("tools/call", "own_say").items() if value}
    return {
        "plain": posted(gate, json.dumps(modern_request("tools/call", SAY)).encode(), modern),
        "stream": posted(gate, call, streaming),
    }


def slow_client(gate: Gate, sent: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(STOP_SECONDS)
    connection.connect((HOST, gate.port))
    connection.sendall(sent)
    return connection


def test_an_answer_that_is_being_written_at_the_end_of_the_drain_arrives_whole(
    gateway: Callable[..., Gate], tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    servers = {"own": scripted(journal)}
    gate = gateway({"mcpServers": servers, "proxySettings": {"enableAutoTruncation": False}})
    settle(gate, "own")
    clients = {name: slow_client(gate, sent) for name, sent in large_answers(gate).items()}
    beginnings = {name: client.recv(1000) for name, client in clients.items()}
    stopping = threading.Thread(target=gate.stop, args=(STOP_SECONDS,))
    headers = {name: value for name, value in modern_headers("tools/call", "own_hold").items() if value}
    with slow_client(
        gate, posted(gate, json.dumps(modern_request("tools/call", HOLD)).encode(), headers)
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


async def door_of(house: House, serve: Any) -> tuple[Door, socket.socket]:
    """A connection of a client, whose end the test has."""
    ours, theirs = socket.socketpair()
    house.serve = serve
    _, door = await asyncio.get_running_loop().connect_accepted_socket(lambda: Door(house), theirs)
    ours.settimeout(WAIT_SECONDS)
    return door, ours


@pytest.fixture
def house() -> House:
    async def nothing(visit: Visit) -> None: ...

    return House(nothing, Guard(HOST, 80, (), ()), LIMITS, set(), OutboundBudget())


POST = f"POST / HTTP/1.1\r\nHost: {HOST}:80\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_request_that_comes_in_as_the_drain_ends_is_answered(house: House) -> None:
    async def answer(visit: Visit) -> None:
        visit.respond(200, b"answer", TEXT)

    door, client = await door_of(house, answer)
    with client:
        # In one step of the event loop: the work on it has not begun.
        door.data_received(POST)
        door.end_call()
        received = await asyncio.to_thread(client.recv, 1000)
    assert received.endswith(b"answer")


async def test_a_subscription_that_a_client_reads_slowly_is_not_cut_short(house: House) -> None:
    outbox, audience = Outbox(), Audience()

    async def answer(visit: Visit) -> None:
        await stream(visit, outbox, audience, last=b"the last word")

    door, client = await door_of(house, answer)
    with client:
        door.data_received(POST)
        await outbox.put(Reply(b"x" * 4_000_000))
        await eventually(lambda: house.outbound.bytes > 0, WAIT_SECONDS, "the client does not read")
        house.closing = True
        audience.dismiss()
        door.end_call()
        received = await asyncio.to_thread(until_closed, client)
    assert received.count(b"x") >= 4_000_000
    assert b"the last word" in received


async def test_a_reply_that_waits_for_a_slow_client_is_not_lost() -> None:
    outbox = Outbox()
    replies = [
        asyncio.create_task(outbox.put(Reply(b"%02d" % number, b"x" * 1_000_000))) for number in range(20)
    ]
    await asyncio.sleep(0)
    waiting = [task for task in replies if not task.done()]
    assert waiting
    for task in waiting:
        end_call(task)
    read = []
    for _ in replies:
        reply = await outbox.get(WAIT_SECONDS)
        assert reply is not None
        read.append(reply.head)
    await asyncio.gather(*replies)
    assert sorted(read) == [b"%02d" % number for number in range(20)]


async def test_a_legacy_request_that_was_just_accepted_is_answered_though_the_gateway_ends(
    house: House,
) -> None:
    audience = Audience()
    answers = Answers(cast("Gateway", None), "headgate", cast("Surroundings", None))
    legacy = LegacySse(answers, audience, 10, lambda session: None)
    door, client = await door_of(house, lambda visit: legacy.open(visit, "/messages"))
    poster, other = await door_of(house, lambda visit: legacy.open(visit, "/messages"))
    with client, other:
        door.data_received(f"GET /sse HTTP/1.1\r\nHost: {HOST}:80\r\n\r\n".encode())
        endpoint = b""
        while b"session_id=" not in endpoint:
            endpoint += await asyncio.to_thread(client.recv, 1000)
        session = endpoint.partition(b"session_id=")[2].partition(b"\r")[0].decode()
        ping = parse(json.dumps(request("ping", id="last")).encode())
        await legacy.post(ping, Visit("POST", "/messages", f"session_id={session}", {}, poster))
        # In the same step of the event loop: the work on the request has not begun.
        house.closing = True
        audience.dismiss()
        received = await asyncio.to_thread(until_closed, client)
    assert b'{"jsonrpc":"2.0","id":"last","result":{}}' in received
