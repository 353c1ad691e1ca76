"""A call that comes before its server has told its tools waits, and no longer than makes sense."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from headgate.domain.errors import UpstreamUnavailable, UpstreamUnreachable
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, ServerState, TransportType
from headgate.upstream.example_server import TOOLS, open_example_server
from headgate.upstream.fleet import UpstreamFleet
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import OutgoingRequest, UpstreamTransport
from headgate.upstream.transports.builtin import (
    BuiltinServer,
    BuiltinTool,
    BuiltinTransport,
    ReportHealth,
    open_builtin,
)
from testkit.virtual_time import virtual_time
from tests.upstream.scripted_server import (
    LEGACY,
    MODERN,
    ROOTS,
    SAMPLING,
    RecordedUpstreamEvents,
    ScriptedFleet,
    ScriptedServer,
    call,
    owner,
    soon,
    spec,
)

# How long a server that does not start takes to end.
ENDING_SECONDS = 7.0


class MuteTransport(BuiltinTransport):
    """Takes requests and answers none."""

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        await asyncio.Event().wait()
        raise AssertionError


@asynccontextmanager
async def open_transport(
    spec: ServerSpec, router: NotificationRouter, stderr: deque[str]
) -> AsyncIterator[UpstreamTransport]:
    """What a server does is said by its name."""
    if spec.name == "broken":
        raise UpstreamUnreachable(spec.name, "no database")
    if spec.name == "late":
        await asyncio.sleep(5)
    if spec.name == "mute":
        stderr.append("loading")
        try:
            yield MuteTransport(spec, TOOLS)
        finally:
            await asyncio.sleep(ENDING_SECONDS)
    else:
        async with open_builtin(spec, {"example": BuiltinServer(open_example_server)}, router) as transport:
            yield transport


@asynccontextmanager
async def running(facts: RecordedUpstreamEvents, name: str, **more: Any) -> AsyncIterator[UpstreamFleet]:
    """A fleet of one server."""
    async with UpstreamFleet(open_transport, facts, facts) as fleet:
        fleet.apply([ServerSpec(name=name, transport=TransportType.BUILTIN, builtin="example", **more)])
        yield fleet


async def failure(fleet: UpstreamFleet, server: str) -> tuple[str, float]:
    """Why waiting for the server fails, and after how many seconds."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(UpstreamUnavailable) as raised:
        await fleet.await_ready(server)
    return raised.value.message, loop.time() - started


@virtual_time
async def test_who_waits_for_a_server_goes_on_when_it_has_told_its_tools() -> None:
    facts = RecordedUpstreamEvents()
    async with running(facts, "late") as fleet:
        await fleet.await_ready("late")
        assert len(facts.offers()) == 1
        (status,) = fleet.statuses()
        assert status.state is ServerState.READY
        # Whatever waited goes on to `send`, which counts it.
        assert (status.calls, status.errors) == (0, 0)


@virtual_time
async def test_a_server_that_cannot_be_opened_is_said_with_its_cause() -> None:
    async with running(RecordedUpstreamEvents(), "broken") as fleet:
        message, seconds = await failure(fleet, "broken")
        assert "no database" in message
        assert seconds < 1
        (status,) = fleet.statuses()
        assert (status.calls, status.errors) == (1, 1)


@virtual_time
async def test_nobody_waits_for_the_end_of_a_process_that_did_not_start_in_time() -> None:
    async with running(RecordedUpstreamEvents(), "mute", start_timeout_seconds=3.0) as fleet:
        message, seconds = await failure(fleet, "mute")
        assert "it was not ready within 3 s; last lines on stderr: loading" in message
        assert 3 <= seconds < 3 + ENDING_SECONDS
        (status,) = fleet.statuses()
        assert status.state is ServerState.BACKOFF


@virtual_time
async def test_a_call_waits_for_a_start_as_long_as_a_call_may_take() -> None:
    async with running(RecordedUpstreamEvents(), "mute", timeout_seconds=2.0) as fleet:
        message, seconds = await failure(fleet, "mute")
        assert "it is still starting" in message
        assert 2 <= seconds < 3


class Ward:
    """A built-in server that says how it is."""

    def __init__(self, trouble: str | None) -> None:
        self._trouble = trouble
        self.health: ReportHealth | None = None

    @asynccontextmanager
    async def open(self, health: ReportHealth) -> AsyncIterator[tuple[BuiltinTool, ...]]:
        self.health = health
        health(self._trouble)
        yield TOOLS

    def open_transport(
        self, spec: ServerSpec, router: NotificationRouter, stderr: deque[str]
    ) -> AbstractAsyncContextManager[BuiltinTransport]:
        return open_builtin(spec, {"ward": BuiltinServer(self.open)}, router)


@virtual_time
async def test_a_server_that_cannot_do_its_work_is_shown_like_one_that_is_down_and_still_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headgate.upstream")
    ward = Ward("the disk is full")
    async with UpstreamFleet(
        ward.open_transport, RecordedUpstreamEvents(), RecordedUpstreamEvents()
    ) as fleet:
        fleet.apply([ServerSpec(name="bank", transport=TransportType.BUILTIN, builtin="ward")])
        await fleet.await_ready("bank")
        assert ward.health is not None
        for trouble, state in (("the disk is full", "backoff"), (None, "ready"), ("gone", "backoff")):
            ward.health(trouble)
            (status,) = fleet.statuses()
            assert (status.state, status.last_error, status.next_attempt_seconds) == (state, trouble, None)
            assert fleet.is_ready("bank")
            assert (await fleet.send_to_server(call_of("time"))).error == b""
        assert (status.restarts, status.errors) == (0, 0)
    said = [(record.getMessage(), record.__dict__["reason"]) for record in caplog.records]
    assert said[:3] == [
        ("upstream backoff", "the disk is full"),
        ("upstream ready", None),
        ("upstream backoff", "gone"),
    ]


def call_of(tool: str) -> UpstreamCall:
    request = McpRequest(caller=LOCAL_IDENTITY, name=tool, params={"arguments": Raw(b"{}")})
    return UpstreamCall(request, Item(ItemKind.TOOLS, "bank", tool, tool))


@virtual_time
async def test_nobody_waits_for_a_server_that_is_off_or_gone() -> None:
    async with running(RecordedUpstreamEvents(), "late", enabled=False) as fleet:
        assert "switched off" in (await failure(fleet, "late"))[0]
        fleet.apply([])
        assert "removed" in (await failure(fleet, "late"))[0]


@pytest.mark.parametrize(("version", "holds"), [(LEGACY, True), (MODERN, False)])
@virtual_time
async def test_a_server_of_the_handshake_era_asks_while_a_call_is_under_way(
    version: str, *, holds: bool
) -> None:
    async with ScriptedFleet(ScriptedServer(version)).fleet() as fleet:
        assert fleet.sends_requests_during_calls("bank") is holds
        assert fleet.sends_requests_during_calls("nobody") is False


@virtual_time
async def test_nothing_is_asked_of_a_server_that_is_gone() -> None:
    async with ScriptedFleet().fleet() as fleet:
        fleet.apply([])
        for work in (
            fleet.send_to_server(call()),
            fleet.subscribe("bank", "a:/1"),
            fleet.unsubscribe("bank", "a:/1"),
        ):
            with pytest.raises(UpstreamUnavailable, match="removed"):
                await work
        fleet.close_client("ann")
        await fleet.set_log_level("ann", "info")


@virtual_time
async def test_a_server_that_is_replaced_finishes_the_calls_on_its_lines_and_then_closes_them() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY))
    harness.server.may_answer.clear()
    async with harness.fleet() as fleet:
        under_way = asyncio.create_task(fleet.send_to_server(call(SAMPLING, owner("ann"))))
        await soon(lambda: bool(harness.server.asked("tools/call")))
        (line,) = harness.server.client_connections
        fleet.apply([spec(seconds=61.0)])
        await fleet.await_ready("bank")
        await asyncio.sleep(1)
        assert not line.closed
        harness.server.may_answer.set()
        await under_way
        await soon(lambda: line.closed)


@virtual_time
async def test_one_connection_that_is_of_no_use_does_not_keep_the_others_from_hearing() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY, {"tools": {}, "logging": {}}))
    ann = owner("ann")
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call(SAMPLING, ann))
        await fleet.send_to_server(call(ROOTS, ann))
        first, second = harness.server.client_connections
        first.forgets = True
        await fleet.set_log_level("ann", "info")
        assert [asked.method for asked in second.asked].count("logging/setLevel") == 1


@virtual_time
async def test_who_subscribed_still_hears_of_it_after_the_server_was_away() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY, {"resources": {"subscribe": True}}))
    async with harness.fleet() as fleet:
        await fleet.subscribe("bank", "a:/1")
        fleet.apply([])
        await soon(lambda: harness.server.main.closed)
        fleet.apply([spec()])
        await fleet.await_ready("bank")
        assert len(harness.server.asked("resources/subscribe")) == 2
        await fleet.unsubscribe("bank", "a:/1")
        assert len(harness.server.asked("resources/unsubscribe")) == 1
