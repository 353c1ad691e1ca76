"""How each transport is opened."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from headgate.app.self_reference import refuse_itself
from headgate.config.settings import Settings
from headgate.domain.federation import GatewayChain
from headgate.domain.server import ServerSpec, Transport
from headgate.upstream.http.host_resolver import HostResolver
from headgate.upstream.message_assembly import MessageLimits
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import UpstreamTransport
from headgate.upstream.transports.builtin import BuiltinServer, open_builtin
from headgate.upstream.transports.process_watchdog import Watchdog
from headgate.upstream.transports.sse import open_sse
from headgate.upstream.transports.stdio import open_stdio
from headgate.upstream.transports.streamable_http import open_streamable_http


def opener(
    settings: Settings,
    chain: GatewayChain,
    watchdog: Watchdog,
    builtin: Mapping[str, BuiltinServer],
    child_files: int | None,
) -> Callable[[ServerSpec, NotificationRouter, deque[str]], AbstractAsyncContextManager[UpstreamTransport]]:
    """What opens a connection to a server, whatever its transport is; raises GatewayLoop for itself.

    `child_files` is the soft limit of open files of each child, unless it is that of the gateway.
    """
    limits = MessageLimits(
        settings.max_upstream_message_bytes, settings.spool_above_bytes, settings.data_dir / "spool"
    )
    # One for all servers, so that a server that is tried again joins the lookup that is under way.
    resolver = HostResolver()

    def open_transport(
        spec: ServerSpec, router: NotificationRouter, stderr: deque[str]
    ) -> AbstractAsyncContextManager[UpstreamTransport]:
        refuse_itself(spec, settings)
        match spec.transport:
            case Transport.STDIO:
                return open_stdio(spec, limits, watchdog, router, stderr, chain.environment, child_files)
            case Transport.STREAMABLE_HTTP:
                return open_streamable_http(spec, limits, router, chain.via_line, resolver)
            case Transport.SSE:
                return open_sse(spec, limits, router, chain.via_line, resolver)
            case Transport.BUILTIN:
                return open_builtin(spec, builtin, router)

    return open_transport
