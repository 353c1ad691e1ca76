"""Joins the edges: builds everything that the settings ask for, runs it, and takes it down again."""

import asyncio
import gc
import logging
import signal
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headgate.access.local import LocalAccess
from headgate.catalog.catalog import Catalog
from headgate.catalog.names import default_limit
from headgate.config.settings import Settings
from headgate.config.watch import changes, servers_to_run
from headgate.console.hook import ListChangedHook
from headgate.console.pages import Pages
from headgate.console.tally import Tally
from headgate.delivery.delivery import Delivery
from headgate.domain.errors import ConfigError
from headgate.domain.server import ServerSpec, Transport
from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.door import DoorLimits, House
from headgate.front.guard import Guard
from headgate.front.http import HttpFront
from headgate.front.legacy_sse import LegacySse
from headgate.front.porter import Porter
from headgate.front.pulse import beating
from headgate.front.sessions import Sessions
from headgate.front.stateless import Stateless
from headgate.front.stdio import StdioFront, own_streams
from headgate.front.streamable import Streamable
from headgate.gateway import Gateway
from headgate.responses.whole import WholeResponses
from headgate.storage.state import StateFile
from headgate.upstream import example
from headgate.upstream.assembly import Limits
from headgate.upstream.builtin import open_builtin
from headgate.upstream.child import open_child
from headgate.upstream.fleet import Fleet, run_fleet
from headgate.upstream.http_link import open_http
from headgate.upstream.inbox import Inbox
from headgate.upstream.link import Link
from headgate.upstream.sse_link import open_sse
from headgate.upstream.watchdog import Watchdog

log = logging.getLogger("headgate")

_BUILTIN = {"example": example.TOOLS}
# Calls that are under way when the gateway is told to end get this long.
_DRAIN_SECONDS = 10
_RELOAD_SECONDS = 1.0
_BACKLOG = 2048


async def serve(settings: Settings, load: Callable[[], Settings]) -> int:
    """Run the gateway until it is told to end; returns the exit code. Raises ConfigError at the start."""
    async with _core(settings) as core:
        reloading = asyncio.create_task(core.follow(load, settings), name="reload")
        reloading.add_done_callback(_tell_failure)
        try:
            if settings.transport == "stdio":
                return await _serve_stdio(core, settings)
            return await _serve_http(core, settings)
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    """Say it when something that should go on for ever has failed."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s failed", task.get_name(), exc_info=error)


class _Core:
    """Everything between the fronts and the upstreams."""

    def __init__(
        self, settings: Settings, catalog: Catalog, fleet: Fleet, gateway: Gateway, tally: Tally
    ) -> None:
        self.catalog = catalog
        self.fleet = fleet
        self.tally = tally
        self.audience = Audience()
        self.answers = Answers(gateway, settings.name, fleet.wait_for_listing)
        catalog.on_change(self.audience.tools_changed)
        if settings.list_changed_exec is not None:
            self.audience.join(ListChangedHook(settings.list_changed_exec).tools_changed)

    def apply(self, servers: tuple[ServerSpec, ...]) -> None:
        """Run exactly these servers."""
        self.catalog.order([server.name for server in servers if server.enabled])
        self.fleet.apply(servers)

    async def follow(self, load: Callable[[], Settings], settings: Settings) -> None:
        """Take over every change of the server list; what else changed needs a restart, and is said so."""
        servers, prefix = settings.servers, settings.prefix
        async for fresh in changes(load, settings, _RELOAD_SECONDS):
            warn(fresh)
            if fresh.prefix is not prefix:
                # Names would change under the feet of every client, and two tools could share one.
                log.warning(
                    "proxySettings.prefix has changed: restart the gateway, the servers stay as they are"
                )
                continue
            servers = servers_to_run(fresh, servers, prefix=prefix)
            for server in servers:
                if server.name in fresh.left_out:
                    log.warning(
                        "server %r keeps running with its old definition until its entry in %s is mended",
                        server.name,
                        fresh.config_path,
                    )
            self.apply(servers)
            log.info("configuration reloaded", extra={"servers": len(servers)})
            if _apart_from_servers(fresh) != _apart_from_servers(settings):
                log.warning("settings other than the servers take effect after a restart")
            settings = fresh


def _apart_from_servers(settings: Settings) -> tuple[object, ...]:
    of_servers = ("servers", "left_out", "warnings", "config_path")
    fields = (name for name in settings.__struct_fields__ if name not in of_servers)
    return tuple(getattr(settings, name) for name in fields)


def warn(settings: Settings) -> None:
    """Say what is odd about the configuration."""
    for warning in settings.warnings:
        log.warning(warning)


class _Events:
    """Hands what upstreams tell to the catalog and to delivery."""

    catalog: Catalog
    delivery: Delivery

    def offered(self, server: str, definitions: list[bytes]) -> dict[str, str]:
        """These are the server's tools."""
        return self.catalog.offer(server, definitions).left_out

    def connected(self, server: str) -> None:
        """A new connection stands."""
        self.delivery.recovered(server)


@asynccontextmanager
async def _core(settings: Settings) -> AsyncIterator[_Core]:
    state_path = settings.data_dir / "state.json"
    if settings.reset_data:
        state_path.unlink(missing_ok=True)
    state = StateFile(state_path)
    events = _Events()
    events.catalog = catalog = Catalog(
        name_limit=settings.tool_name_limit or default_limit(settings.name),
        prefixed=settings.prefix,
        page_bytes=settings.page_bytes,
        owners=state,
    )
    watchdog, tally = Watchdog(), Tally()
    try:
        async with run_fleet(_opener(settings, watchdog), state, events) as fleet:
            events.delivery = delivery = Delivery(fleet, time.monotonic, tally.count)
            gateway = Gateway(LocalAccess(), catalog, delivery, WholeResponses())
            core = _Core(settings, catalog, fleet, gateway, tally)
            core.apply(settings.servers)
            yield core
    finally:
        watchdog.close()
        await state.flush()


def _opener(
    settings: Settings, watchdog: Watchdog
) -> Callable[[ServerSpec, Inbox, deque[str]], AbstractAsyncContextManager[Link]]:
    """How each transport is opened."""
    limits = Limits(
        settings.max_upstream_message_bytes, settings.spool_above_bytes, settings.data_dir / "spool"
    )

    def open_link(spec: ServerSpec, inbox: Inbox, stderr: deque[str]) -> AbstractAsyncContextManager[Link]:
        match spec.transport:
            case Transport.STDIO:
                return open_child(spec, limits, watchdog, inbox, stderr)
            case Transport.STREAMABLE_HTTP:
                return open_http(spec, limits, inbox)
            case Transport.SSE:
                return open_sse(spec, limits, inbox)
            case Transport.BUILTIN:
                return open_builtin(spec, _BUILTIN, inbox)

    return open_link


async def _serve_stdio(core: _Core, settings: Settings) -> int:
    front = StdioFront(core.answers, core.audience, settings.max_body_bytes)
    source, sink = own_streams()
    serving = asyncio.create_task(front.serve(source, sink), name="stdio")
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, serving.cancel)
    serving.add_done_callback(_tell_failure)
    await asyncio.wait({serving})
    return 0 if serving.cancelled() or serving.exception() is None else 1


async def _serve_http(core: _Core, settings: Settings) -> int:
    listener = _listener(settings)
    port = listener.getsockname()[1]
    sessions = Sessions(core.audience, settings.max_sessions, settings.session_idle_seconds)
    async with beating(sessions.expire) as pulse:
        legacy = LegacySse(core.answers, core.audience, settings.max_sessions)

        def gauges() -> dict[str, float]:
            return {
                "sessions": len(sessions) + len(legacy),
                "in_flight": len(pulse),
                "tools": len(core.catalog),
                "list_changes": core.audience.told,
            }

        pages = Pages(core.fleet, core.tally, gauges)
        front = HttpFront(
            Streamable(core.answers, sessions, core.audience, pulse),
            Stateless(core.answers, core.audience, pulse),
            legacy,
            pages,
        )
        guard = Guard(settings.host, port, settings.allowed_hosts, settings.allowed_origins)
        house = House(front, guard, _door_limits(settings), set())

        def closing() -> None:
            pages.draining = True
            core.audience.dismiss()

        def opened() -> None:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            log.info("listening", extra={"url": f"http://{host}:{port}/mcp"})

        # What is here now stays; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        sign = await Porter(house, _DRAIN_SECONDS).serve(listener, opened, closing)
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
