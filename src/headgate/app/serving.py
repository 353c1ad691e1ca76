"""Opens the door that clients come in by, and keeps it open until the gateway is told to end."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable

from headgate.app.background import tell_failure
from headgate.app.core import Core, open_core
from headgate.app.reload import ConfigurationState, follow
from headgate.app.self_reference import chain_of, refuse_loop
from headgate.config.settings import Settings
from headgate.console.metrics import Gauges
from headgate.console.pages import Pages
from headgate.domain.errors import ConfigError
from headgate.domain.federation import GatewayChain
from headgate.front.door import DoorLimits, House
from headgate.front.guard import Guard
from headgate.front.http import HttpFront
from headgate.front.legacy_sse import LegacySse
from headgate.front.loop_refusal import refuse_each_request
from headgate.front.outbound import OutboundBudget
from headgate.front.paths import MCP, SSE
from headgate.front.porter import Porter
from headgate.front.pulse import beating
from headgate.front.sessions import Sessions
from headgate.front.stateless import Stateless
from headgate.front.stdio import StdioFront, own_streams
from headgate.front.streamable import Streamable

log = logging.getLogger("headgate")

# Calls that are under way when the gateway is told to end get this long.
_DRAIN_SECONDS = 10
# Python looks for cycles after every 700 objects, which is every few calls; a call leaves none.
_COLLECTOR_THRESHOLDS = (5_000, 10, 10)
_BACKLOG = 2048
# The exit code of a configuration that cannot be used.
_REFUSED = 2


async def serve(settings: Settings, load: Callable[[], Settings]) -> int:
    """Run the gateway until it is told to end; returns the exit code. Raises ConfigError at the start."""
    chain = await asyncio.to_thread(chain_of, settings)
    try:
        refuse_loop(settings, chain)
    except ConfigError as loop:
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise
        return await _refuse_starter(loop)
    async with open_core(settings, chain=chain) as core:
        state = ConfigurationState(settings)
        reloading = asyncio.create_task(follow(load, settings, core.apply, state), name="reload")
        reloading.add_done_callback(tell_failure)
        try:
            if settings.transport == "stdio":
                return await _serve_stdio(core, settings)
            return await _serve_http(core, settings, chain, state)
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)


async def _serve_stdio(core: Core, settings: Settings) -> int:
    front = StdioFront(core.answers, core.audience, settings.max_body_bytes)
    source, sink = own_streams()
    serving = asyncio.create_task(front.serve(source, sink), name="stdio")
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, serving.cancel)
    serving.add_done_callback(tell_failure)
    await asyncio.wait({serving})
    return 0 if serving.cancelled() or serving.exception() is None else 1


async def _refuse_starter(loop: ConfigError) -> int:
    """Tell the gateway that has started this one why it must not have."""
    sentence = f"{loop.message}; {loop.hint}"
    log.error(sentence)
    source, sink = own_streams()
    # Whatever the transport is: a gateway speaks to what it starts on these.
    await asyncio.to_thread(refuse_each_request, source, sink, sentence)
    return _REFUSED


async def _serve_http(
    core: Core, settings: Settings, chain: GatewayChain, configuration: ConfigurationState
) -> int:
    listener = _listener(settings)
    port = listener.getsockname()[1]
    sessions = Sessions(
        core.audience,
        settings.max_sessions,
        settings.session_idle_seconds,
        core.seal,
        core.state,
        on_close=core.left,
        on_revival=core.revived,
    )
    outbound = OutboundBudget()
    async with beating(sessions.expire) as pulse:
        legacy = LegacySse(core.answers, core.audience, settings.max_sessions, core.left)

        def gauges() -> Gauges:
            values = {
                "sessions": len(sessions) + len(legacy),
                "in_flight": len(pulse),
                "connections": len(house.doors),
                "outbound_bytes": outbound.bytes,
                "replay_bytes": sessions.replay.bytes,
                "tools": len(core.catalog),
                "list_changes": core.audience.told,
                **core.search.gauges(),
                **core.results.gauges(),
                **core.bookkeeping.gauges(),
                **core.knowledge.gauges(),
            }
            return {(name, ""): value for name, value in values.items()} | core.bookkeeping.lanes()

        def counters() -> dict[tuple[str, str], int]:
            revived = {
                ("sessions_revived", f'{{reason="{reason}"}}'): count
                for reason, count in sessions.revived.items()
            }
            closed = {
                ("connections_closed", f'{{reason="{reason}"}}'): count
                for reason, count in outbound.closed.items()
            }
            return {
                **revived,
                **closed,
                ("connections_refused", ""): house.refused_connections,
                ("outbound_dropped", '{kind="notification"}'): outbound.dropped_notifications,
                ("outbound_dropped", '{kind="event"}'): sessions.replay.dropped,
                ("streams_resumed", ""): sessions.resumed,
                **core.search.counters(),
                **core.results.counters(),
                **core.bookkeeping.counters(),
                **core.knowledge.counters(),
            }

        pages = Pages(
            core.fleet,
            configuration,
            core.tally,
            gauges,
            counters,
            core.search.listings,
            lambda: core.bookkeeping.damage,
        )
        front = HttpFront(
            Streamable(core.answers, sessions, core.audience, pulse),
            Stateless(core.answers, core.audience, pulse),
            legacy,
            pages,
            chain.own.pseudonym,
        )
        guard = Guard(settings.host, port, settings.allowed_hosts, settings.allowed_origins)
        house = House(front, guard, _door_limits(settings), set(), outbound)

        def closing() -> None:
            pages.draining = front.draining = True
            core.audience.dismiss()

        def opened() -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            # Both are open; it is what the clients of this transport are to be given.
            path = SSE if settings.transport == "sse" else MCP
            log.info("listening", extra={"url": f"http://{host}:{port}{path}"})

        # What is here now stays; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTOR_THRESHOLDS)
        sign = await Porter(house, _DRAIN_SECONDS).serve(listener, opened, closing, legacy.end_calls)
        # As the shell says it for a program that was interrupted; being told to end is a good end.
        return 128 + sign if sign == signal.SIGINT else 0


def _door_limits(settings: Settings) -> DoorLimits:
    return DoorLimits(
        body_bytes=settings.max_body_bytes,
        header_bytes=settings.max_header_bytes,
        headers=settings.max_headers,
        header_seconds=settings.header_timeout_seconds,
        body_seconds=settings.body_timeout_seconds,
    )


def _listener(settings: Settings) -> socket.socket:
    """The socket that clients connect to; raises ConfigError when it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            hint="choose another --port, or stop what uses this one",
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
