"""How each transport is opened."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from headgate.app.self_reference import refuse_itself
from headgate.config.settings import Settings
from headgate.domain.federation import GatewayChain
from headgate.domain.server import ServerSpec, Transport
from headgate.upstream.assembly import Limits
from headgate.upstream.builtin import BuiltinServer, open_builtin
from headgate.upstream.child import open_child
from headgate.upstream.http_link import open_http
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Link
from headgate.upstream.resolver import Resolver
from headgate.upstream.sse_link import open_sse
from headgate.upstream.watchdog import Watchdog


def opener(
    settings: Settings,
    chain: GatewayChain,
    watchdog: Watchdog,
    builtin: Mapping[str, BuiltinServer],
    child_files: int | None,
) -> Callable[[ServerSpec, Inbox, deque[str]], AbstractAsyncContextManager[Link]]:
    """What opens a connection to a server, whatever its transport is; raises GatewayLoop for itself.

    `child_files` is the soft limit of open files of each child, unless it is that of the gateway.
    """
    limits = Limits(
        settings.max_upstream_message_bytes, settings.spool_above_bytes, settings.data_dir / "spool"
    )
    # One for all servers, so that a server that is tried again joins the lookup that is under way.
    resolver = Resolver()

    def open_link(spec: ServerSpec, inbox: Inbox, stderr: deque[str]) -> AbstractAsyncContextManager[Link]:
        refuse_itself(spec, settings)
        match spec.transport:
            case Transport.STDIO:
                return open_child(spec, limits, watchdog, inbox, stderr, chain.environment, child_files)
            case Transport.STREAMABLE_HTTP:
                return open_http(spec, limits, inbox, chain.via_line, resolver)
            case Transport.SSE:
                return open_sse(spec, limits, inbox, chain.via_line, resolver)
            case Transport.BUILTIN:
                return open_builtin(spec, builtin, inbox)

    return open_link
