"""The gauges and counters of a gateway that serves HTTP, read from its running parts."""

from headgate.app.wiring import GatewayRuntime
from headgate.server.http_connection import OpenConnections
from headgate.server.http_exchange import KeepAlive
from headgate.server.legacy_sse import LegacySseHandler
from headgate.server.outbound_queue import OutboundBudget
from headgate.server.sessions import SessionStore
from headgate.web.metrics import Counters, Gauges


class ServerMetrics:
    """The values of /metrics besides those of calls."""

    def __init__(
        self,
        runtime: GatewayRuntime,
        sessions: SessionStore,
        legacy: LegacySseHandler,
        keep_alive: KeepAlive,
        connections: OpenConnections,
        outbound: OutboundBudget,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._legacy = legacy
        self._keep_alive = keep_alive
        self._connections = connections
        self._outbound = outbound

    def gauges(self) -> Gauges:
        """The present values."""
        runtime = self._runtime
        values = {
            "sessions": len(self._sessions) + len(self._legacy),
            "in_flight": len(self._keep_alive),
            "connections": len(self._connections),
            "outbound_bytes": self._outbound.bytes,
            "replay_bytes": self._sessions.replay_buffer.bytes,
            "tools": len(runtime.catalog),
            "list_changes": runtime.change_notifier.tool_list_changes,
            **runtime.search.gauges(),
            **runtime.results.gauges(),
            **runtime.transactions.gauges(),
            **runtime.knowledge.gauges(),
        }
        return {(name, ""): value for name, value in values.items()} | runtime.delivery_services.gauges()

    def counters(self) -> Counters:
        """The counts since the start."""
        runtime = self._runtime
        revived = {
            ("sessions_revived", f'{{reason="{reason}"}}'): count
            for reason, count in self._sessions.revived.items()
        }
        closed = {
            ("connections_closed", f'{{reason="{reason}"}}'): count
            for reason, count in self._outbound.closed.items()
        }
        return {
            **revived,
            **closed,
            ("connections_refused", ""): self._connections.refused,
            ("outbound_dropped", '{kind="notification"}'): self._outbound.dropped_notifications,
            ("outbound_dropped", '{kind="event"}'): self._sessions.replay_buffer.dropped,
            ("streams_resumed", ""): self._sessions.resumed,
            **runtime.search_tools.counters(),
            **runtime.search.counters(),
            **runtime.results.counters(),
            **runtime.delivery_services.counters(),
            **runtime.knowledge.counters(),
        }
