"""What delivery asks of a call beside what its client said: how long, under which key, and who hears late."""

import asyncio
from typing import Any

import msgspec
import pytest

from headgate.domain.errors import (
    Effect,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.mcp_request import DeliveryOptions, McpResponse, UpstreamCall
from headgate.upstream.transport import OutgoingRequest
from testkit.virtual_time import virtual_time
from tests.upstream.scripted_server import (
    LEGACY,
    MODERN,
    SAMPLING,
    ScriptedFleet,
    ScriptedServer,
    call,
    owner,
    soon,
)


def delivery_options(
    given: UpstreamCall | None = None, seconds: float | None = None, **more: Any
) -> UpstreamCall:
    """A call with such an errand, whose deadline is so many seconds away."""
    deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
    return msgspec.structs.replace(
        given or call(), delivery_options=DeliveryOptions(deadline=deadline, **more)
    )


def sent(harness: ScriptedFleet) -> OutgoingRequest:
    (outgoing,) = harness.server.asked("tools/call")
    return outgoing


@pytest.mark.parametrize(
    ("seconds", "limit", "most"), [(None, 60, 900), (1000, 60, 900), (100, 60, 100), (5, 5, 5)]
)
@virtual_time
async def test_no_attempt_takes_longer_than_anybody_waits(
    seconds: float | None, limit: float, most: float
) -> None:
    harness = ScriptedFleet()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(delivery_options(seconds=seconds))
        assert sent(harness).timeout_seconds == pytest.approx(limit, abs=0.1)
        assert sent(harness).max_timeout_seconds == pytest.approx(most, abs=0.1)
        assert sent(harness).late_seconds == 900, "a late answer may take as long as any"


@virtual_time
async def test_a_call_for_which_nobody_waits_any_more_is_not_sent() -> None:
    harness = ScriptedFleet()
    async with harness.fleet() as fleet:
        with pytest.raises(UpstreamUnavailable) as failed:
            await fleet.send_to_server(delivery_options(seconds=-1))
        assert failed.value.effect is Effect.NONE
        assert harness.server.asked("tools/call") == []


@pytest.mark.parametrize("which", ["main", "line"])
@virtual_time
async def test_a_call_does_not_wait_for_a_connection_longer_than_anybody_waits_for_it(which: str) -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY))
    async with harness.fleet() as fleet:
        harness.server.later_ones_are_mute = True
        asked = call(SAMPLING, owner("ann"))
        if which == "main":
            harness.transports[0].end()
            await soon(lambda: len(harness.transports) == 2)
            asked = call()
        started = asyncio.get_running_loop().time()
        with pytest.raises(UpstreamUnavailable) as failed:
            await fleet.send_to_server(delivery_options(asked, seconds=3))
        assert failed.value.effect is Effect.NONE
        assert asyncio.get_running_loop().time() - started == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(
    ("key", "header", "line"),
    [
        ("abc", "Idempotency-Key", b"Idempotency-Key: abc\r\n"),
        ("abc", "", b""),
        ("", "Idempotency-Key", b""),
        ("a\r\nb: c", "X-Key", b"X-Key: =?base64?YQ0KYjogYw==?=\r\n"),
        ("abc", "X\r\nY", b"XY: abc\r\n"),
    ],
)
@pytest.mark.parametrize("version", [MODERN, LEGACY])
@virtual_time
async def test_a_key_is_one_header_line_where_the_operator_named_a_header(
    version: str, key: str, header: str, line: bytes
) -> None:
    harness = ScriptedFleet(ScriptedServer(version))
    async with harness.fleet() as fleet:
        await fleet.send_to_server(delivery_options(key=key, key_header=header))
        assert sent(harness).idempotency_header == line


@pytest.mark.parametrize(("version", "typed"), [(MODERN, True), (LEGACY, False)])
@virtual_time
async def test_a_late_answer_is_of_the_era_of_its_server(version: str, *, typed: bool) -> None:
    harness, late = ScriptedFleet(ScriptedServer(version)), list[McpResponse]()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(delivery_options(on_late_response=late.append))
        hear = sent(harness).on_late
        assert hear is not None
        hear(McpResponse(b"{}"))
        assert late == [McpResponse(b"{}", typed=typed)]


@virtual_time
async def test_a_plain_call_is_as_it_always_was() -> None:
    harness = ScriptedFleet()
    async with harness.fleet() as fleet:
        await fleet.send_to_server(call())
        outgoing = sent(harness)
        assert (outgoing.timeout_seconds, outgoing.max_timeout_seconds) == (60, 900)
        assert (outgoing.idempotency_header, outgoing.on_late) == (b"", None)


@virtual_time
async def test_a_server_that_is_silent_because_a_wanted_answer_takes_long_is_left_at_work() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(seconds=120.0) as fleet:
        (transport,) = harness.transports
        harness.server.answers["tools/call"] = UpstreamTimeout("bank", "pay", 2.0)
        with pytest.raises(UpstreamTimeout):
            await fleet.send_to_server(delivery_options(seconds=2.0, on_late_response=lambda answer: None))
        asked = len(transport.asked)
        await asyncio.sleep(100)
        assert len(transport.asked) == asked, "it is not even asked whether it is there"
        await asyncio.sleep(60)
        assert len(transport.asked) > asked


@virtual_time
async def test_many_wanted_answers_do_not_hide_for_ever_that_none_comes() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY))
    async with harness.fleet() as fleet:
        harness.server.answers["tools/call"] = UpstreamTimeout("bank", "pay", 2.0)
        for _ in range(40):
            with pytest.raises(UpstreamTimeout):
                await fleet.send_to_server(
                    delivery_options(seconds=2.0, on_late_response=lambda answer: None)
                )
            await asyncio.sleep(30)
        assert harness.server.asked("ping"), "it is asked whether it is there"


LOST = UpstreamLost("bank", "initialize", "it ended")


@pytest.mark.parametrize("error", [LOST, UpstreamTimeout("bank", "initialize", 5.0)])
@virtual_time
async def test_a_line_that_is_lost_in_its_handshake_was_sent_nothing(error: UpstreamError) -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY))
    async with harness.fleet() as fleet:
        harness.server.answers["initialize"] = error
        with pytest.raises(UpstreamUnreachable) as failed:
            await fleet.send_to_server(call(SAMPLING, owner("ann")))
        assert failed.value.effect is Effect.NONE


@virtual_time
async def test_a_log_level_that_is_not_taken_leaves_the_call_unsent() -> None:
    harness = ScriptedFleet(ScriptedServer(LEGACY, {"tools": {}, "logging": {}}))
    async with harness.fleet() as fleet:
        harness.server.answers["logging/setLevel"] = UpstreamTimeout("bank", "logging/setLevel", 60.0)
        with pytest.raises(UpstreamUnreachable) as failed:
            await fleet.send_to_server(call(log_level="info"))
        assert failed.value.effect is Effect.NONE
        assert harness.server.asked("tools/call") == []


@virtual_time
async def test_the_longest_call_of_a_server_is_what_its_operator_says() -> None:
    harness = ScriptedFleet()
    async with harness.fleet(max_timeout_seconds=77.0) as fleet:
        assert (fleet.longest_seconds("bank"), fleet.longest_seconds("gone")) == (77.0, 900.0)


@pytest.mark.parametrize(
    ("features", "honours"),
    [(None, False), (["retry"], False), (["retry", "idempotency"], True)],
)
@virtual_time
async def test_a_server_honours_keys_if_it_says_so(features: list[str] | None, *, honours: bool) -> None:
    told: dict[str, Any] = {"tools": {}}
    if features is not None:
        told["experimental"] = {"rmcp": {"version": "0.1.0", "features": features}}
    harness = ScriptedFleet(ScriptedServer(MODERN, told))
    async with harness.fleet(idle_timeout_seconds=10.0) as fleet:
        assert fleet.honours_keys("bank") is honours
        assert not fleet.honours_keys("gone")
        await asyncio.sleep(60)
        assert fleet.honours_keys("bank") is honours, "also while it is stopped"
