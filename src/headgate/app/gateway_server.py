"""Runs the gateway on stdio or HTTP until a signal ends it."""

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import NamedTuple

from headgate.access.local import LocalAuthenticator
from headgate.app.config_reload import ConfigurationState, follow_config_changes
from headgate.app.loop_detection import chain_of, refuse_loop
from headgate.app.wiring import AccessRules, GatewayRuntime, open_gateway_runtime
from headgate.config.settings import Settings
from headgate.domain.errors import ConfigError
from headgate.domain.gateway_chain import GatewayChain
from headgate.event_loop import BackgroundTasks
from headgate.server.client_context import Authenticator
from headgate.server.guard import MCP, SSE, RequestGuard
from headgate.server.http_connection import HttpServerLimits, OpenConnections, ServerContext
from headgate.server.http_exchange import KeepAlive, running_keep_alive
from headgate.server.http_router import HttpRouter
from headgate.server.http_server import HttpServer
from headgate.server.legacy_sse import LegacySseHandler
from headgate.server.outbound_queue import OutboundBudget
from headgate.server.sessions import SessionStore
from headgate.server.stateless_http import StatelessHttpHandler
from headgate.server.stdio import StdioServer, claim_standard_streams, refuse_as_loop
from headgate.server.streamable_http import StreamableHttpHandler
from headgate.web.metrics import Counters, Gauges
from headgate.web.operator_pages import OperatorPages

log = logging.getLogger("headgate")

# Calls in flight at shutdown have this long to finish.
_DRAIN_SECONDS = 10
# By default Python looks for cycles after every 700 objects, which is every few calls; a call leaves none.
_COLLECTOR_THRESHOLDS = (5_000, 10, 10)
_BACKLOG = 2048
# The exit code of a configuration that cannot be used.
_EXIT_CONFIG_REFUSED = 2


async def serve(
    settings: Settings,
    load: Callable[[], Settings],
    *,
    authenticator: Authenticator | None = None,
    access: AccessRules | None = None,
) -> int:
    """Run the gateway until a signal ends it; returns the exit code. Raises ConfigError at the start.

    Without an authenticator and access rules every client is the local user, who may do everything.
    """
    authenticator = authenticator or LocalAuthenticator()
    chain = await asyncio.to_thread(chain_of, settings)
    try:
        refuse_loop(settings, chain)
    except ConfigError as loop:
        if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
            raise
        return await _refuse_parent_gateway(loop)
    async with (
        open_gateway_runtime(settings, chain=chain, access=access) as runtime,
        BackgroundTasks() as background,
    ):
        state = ConfigurationState(settings)
        background.start(follow_config_changes(load, settings, runtime.apply_servers, state), name="reload")
        if settings.transport == "stdio":
            return await _serve_stdio(runtime, settings, authenticator)
        return await _serve_http(runtime, settings, authenticator, chain, state)


async def _serve_stdio(runtime: GatewayRuntime, settings: Settings, authenticator: Authenticator) -> int:
    server = StdioServer(authenticator, runtime.router, runtime.change_notifier, settings.max_body_bytes)
    source, sink = claim_standard_streams()
    serving = asyncio.create_task(server.serve(source, sink), name="stdio")
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, serving.cancel)
    await asyncio.wait({serving})
    if serving.cancelled() or (error := serving.exception()) is None:
        return 0
    log.error("stdio failed", exc_info=error)
    return 1


async def _refuse_parent_gateway(loop: ConfigError) -> int:
    """Tell the gateway that started this one why that is refused."""
    sentence = f"{loop.message}; {loop.hint}"
    log.error(sentence)
    source, sink = claim_standard_streams()
    # Whatever the transport is: a gateway speaks to its child processes on these streams.
    await asyncio.to_thread(refuse_as_loop, source, sink, sentence)
    return _EXIT_CONFIG_REFUSED


async def _serve_http(
    runtime: GatewayRuntime,
    settings: Settings,
    authenticator: Authenticator,
    chain: GatewayChain,
    configuration: ConfigurationState,
) -> int:
    listener = _listener(settings)
    port = listener.getsockname()[1]
    sessions = SessionStore(
        runtime.change_notifier,
        settings.max_sessions,
        settings.session_idle_seconds,
        runtime.sealer,
        runtime.state,
        on_close=runtime.on_session_closed,
        on_revival=runtime.on_session_revived,
    )
    async with running_keep_alive(sessions.expire) as keep_alive:
        legacy = LegacySseHandler(
            runtime.router, runtime.change_notifier, settings.max_sessions, runtime.on_session_closed
        )

        connections, outbound = OpenConnections(), OutboundBudget()
        metrics = ServerMetrics(runtime, sessions, legacy, keep_alive, connections, outbound)
        pages = OperatorPages(
            runtime.fleet,
            configuration,
            runtime.call_metrics,
            metrics.gauges,
            metrics.counters,
            runtime.search.listings,
            lambda: runtime.delivery_services.damage,
        )
        router = HttpRouter(
            authenticator,
            StreamableHttpHandler(runtime.router, sessions, runtime.change_notifier, keep_alive),
            StatelessHttpHandler(runtime.router, runtime.change_notifier, keep_alive),
            legacy,
            pages,
            chain.own.pseudonym,
        )
        guard = RequestGuard(settings.host, port, settings.allowed_hosts, settings.allowed_origins)
        context = ServerContext(router, guard, _connection_limits(settings), connections, outbound)

        def start_draining() -> None:
            pages.draining = router.draining = True
            runtime.change_notifier.end_streams()

        def log_address() -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            # Both paths are open; this is the one for clients of the configured transport.
            path = SSE if settings.transport == "sse" else MCP
            log.info("listening", extra={"url": f"http://{host}:{port}{path}"})

        # Everything that exists now stays, so the garbage collector skips it.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTOR_THRESHOLDS)
        signal_number = await HttpServer(context, _DRAIN_SECONDS).serve(
            listener, log_address, start_draining, legacy.interrupt_requests
        )
        # SIGINT gives the exit code of a shell for an interrupted program; SIGTERM is a normal end.
        return 128 + signal_number if signal_number == signal.SIGINT else 0


class ServerMetrics(NamedTuple):
    """The gauges and counters of /metrics besides those of calls, read from the running parts."""

    runtime: GatewayRuntime
    sessions: SessionStore
    legacy: LegacySseHandler
    keep_alive: KeepAlive
    connections: OpenConnections
    outbound: OutboundBudget

    def gauges(self) -> Gauges:
        runtime = self.runtime
        values = {
            "sessions": len(self.sessions) + len(self.legacy),
            "in_flight": len(self.keep_alive),
            "connections": len(self.connections),
            "outbound_bytes": self.outbound.bytes,
            "replay_bytes": self.sessions.replay_buffer.bytes,
            "tools": len(runtime.catalog),
            "list_changes": runtime.change_notifier.tool_list_changes,
            **runtime.search.gauges(),
            **runtime.results.gauges(),
            **runtime.transactions.gauges(),
            **runtime.knowledge.gauges(),
        }
        return {(name, ""): value for name, value in values.items()} | runtime.delivery_services.gauges()

    def counters(self) -> Counters:
        runtime = self.runtime
        revived = {
            ("sessions_revived", f'{{reason="{reason}"}}'): count
            for reason, count in self.sessions.revived.items()
        }
        closed = {
            ("connections_closed", f'{{reason="{reason}"}}'): count
            for reason, count in self.outbound.closed.items()
        }
        return {
            **revived,
            **closed,
            ("connections_refused", ""): self.connections.refused,
            ("outbound_dropped", '{kind="notification"}'): self.outbound.dropped_notifications,
            ("outbound_dropped", '{kind="event"}'): self.sessions.replay_buffer.dropped,
            ("streams_resumed", ""): self.sessions.resumed,
            **runtime.search_tools.counters(),
            **runtime.search.counters(),
            **runtime.results.counters(),
            **runtime.delivery_services.counters(),
            **runtime.knowledge.counters(),
        }


def _connection_limits(settings: Settings) -> HttpServerLimits:
    return HttpServerLimits(
        body_bytes=settings.max_body_bytes,
        header_bytes=settings.max_header_bytes,
        headers=settings.max_headers,
        header_seconds=settings.header_timeout_seconds,
        body_seconds=settings.body_timeout_seconds,
    )


def _listener(settings: Settings) -> socket.socket:
    """The listening socket; raises ConfigError when the address cannot be used."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        problem = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        raise ConfigError(problem, hint="choose another --port, or stop what uses this one") from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
