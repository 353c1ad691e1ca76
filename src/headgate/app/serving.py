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
from headgate.domain.errors import ConfigError
from headgate.domain.federation import GatewayChain
from headgate.server.endpoints import MCP, SSE
from headgate.server.guard import RequestGuard
from headgate.server.http_connection import HttpServerLimits, ServerContext
from headgate.server.http_exchange import running_keep_alive
from headgate.server.http_router import HttpRouter
from headgate.server.http_server import HttpServer
from headgate.server.legacy_sse import LegacySseHandler
from headgate.server.outbound_queue import OutboundBudget
from headgate.server.sessions import SessionStore
from headgate.server.stateless_http import StatelessHttpHandler
from headgate.server.stdio import StdioServer, claim_standard_streams, refuse_as_loop
from headgate.server.streamable_http import StreamableHttpHandler
from headgate.web.metrics import Gauges
from headgate.web.operator_pages import OperatorPages

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
    front = StdioServer(core.router, core.change_notifier, settings.max_body_bytes)
    source, sink = claim_standard_streams()
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
    source, sink = claim_standard_streams()
    # Whatever the transport is: a gateway speaks to what it starts on these.
    await asyncio.to_thread(refuse_as_loop, source, sink, sentence)
    return _REFUSED


async def _serve_http(
    core: Core, settings: Settings, chain: GatewayChain, configuration: ConfigurationState
) -> int:
    listener = _listener(settings)
    port = listener.getsockname()[1]
    sessions = SessionStore(
        core.change_notifier,
        settings.max_sessions,
        settings.session_idle_seconds,
        core.seal,
        core.state,
        on_close=core.left,
        on_revival=core.revived,
    )
    outbound = OutboundBudget()
    async with running_keep_alive(sessions.expire) as keep_alive:
        legacy = LegacySseHandler(core.router, core.change_notifier, settings.max_sessions, core.left)

        def gauges() -> Gauges:
            values = {
                "sessions": len(sessions) + len(legacy),
                "in_flight": len(keep_alive),
                "connections": len(server_context.connections),
                "outbound_bytes": outbound.bytes,
                "replay_bytes": sessions.replay_buffer.bytes,
                "tools": len(core.catalog),
                "list_changes": core.change_notifier.tool_list_changes,
                **core.search.gauges(),
                **core.results.gauges(),
                **core.bookkeeping.gauges(),
                **core.knowledge.gauges(),
            }
            return {(name, ""): value for name, value in values.items()} | core.bookkeeping.bulkhead_gauges()

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
                ("connections_refused", ""): server_context.refused_connections,
                ("outbound_dropped", '{kind="notification"}'): outbound.dropped_notifications,
                ("outbound_dropped", '{kind="event"}'): sessions.replay_buffer.dropped,
                ("streams_resumed", ""): sessions.resumed,
                **core.search.counters(),
                **core.results.counters(),
                **core.bookkeeping.counters(),
                **core.knowledge.counters(),
            }

        pages = OperatorPages(
            core.fleet,
            configuration,
            core.call_metrics,
            gauges,
            counters,
            core.search.listings,
            lambda: core.bookkeeping.damage,
        )
        front = HttpRouter(
            StreamableHttpHandler(core.router, sessions, core.change_notifier, keep_alive),
            StatelessHttpHandler(core.router, core.change_notifier, keep_alive),
            legacy,
            pages,
            chain.own.pseudonym,
        )
        guard = RequestGuard(settings.host, port, settings.allowed_hosts, settings.allowed_origins)
        server_context = ServerContext(front, guard, _door_limits(settings), set(), outbound)

        def closing() -> None:
            pages.draining = front.draining = True
            core.change_notifier.end_streams()

        def opened() -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            # Both are open; it is what the clients of this transport are to be given.
            path = SSE if settings.transport == "sse" else MCP
            log.info("listening", extra={"url": f"http://{host}:{port}{path}"})

        # What is here now stays; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTOR_THRESHOLDS)
        sign = await HttpServer(server_context, _DRAIN_SECONDS).serve(
            listener, opened, closing, legacy.interrupt_requests
        )
        # As the shell says it for a program that was interrupted; being told to end is a good end.
        return 128 + sign if sign == signal.SIGINT else 0


def _door_limits(settings: Settings) -> HttpServerLimits:
    return HttpServerLimits(
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
