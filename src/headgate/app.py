"""Joins the edges: builds everything that the settings ask for, runs it, and takes it down again."""

import asyncio
import gc
import hashlib
import logging
import signal
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Raw

from headgate.access.local import LocalAccess
from headgate.catalog.abilities import Abilities, Ability
from headgate.catalog.catalog import Catalog
from headgate.catalog.hints import CacheHint
from headgate.catalog.names import default_limit
from headgate.catalog.uris import with_server
from headgate.config.settings import Settings
from headgate.config.watch import changes, servers_to_run
from headgate.console.hook import ListChangedHook
from headgate.console.pages import Pages
from headgate.console.tally import Tally
from headgate.delivery.delivery import Delivery
from headgate.dialogue.dialogue import Dialogue
from headgate.dialogue.handles import TaskHandles
from headgate.dialogue.reminders import Reminders
from headgate.domain.call import LOCAL, Owner
from headgate.domain.errors import ConfigError
from headgate.domain.kind import Kind
from headgate.domain.profile import Profile
from headgate.domain.server import ServerSpec, Transport
from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.door import DoorLimits, House
from headgate.front.guard import Guard
from headgate.front.http import HttpFront
from headgate.front.legacy_sse import LegacySse
from headgate.front.porter import Porter
from headgate.front.pulse import beating
from headgate.front.sessions import HttpSession, Session, Sessions
from headgate.front.stateless import Stateless
from headgate.front.stdio import StdioFront, own_streams
from headgate.front.streamable import Streamable
from headgate.gateway import Gateway
from headgate.responses.whole import WholeResponses
from headgate.storage.seal import Seal, seal_key
from headgate.storage.state import StateFile
from headgate.upstream import example
from headgate.upstream.assembly import Limits
from headgate.upstream.builtin import open_builtin
from headgate.upstream.child import open_child
from headgate.upstream.fleet import Fleet, run_fleet
from headgate.upstream.greeting import Greeting
from headgate.upstream.http_link import open_http
from headgate.upstream.inbox import Inbox
from headgate.upstream.lines import Claim
from headgate.upstream.link import Link
from headgate.upstream.sse_link import open_sse
from headgate.upstream.watchdog import Watchdog
from headgate.wire.envelope import decode_object, encode_object

log = logging.getLogger("headgate")

_BUILTIN = {"example": example.TOOLS}
# Calls that are under way when the gateway is told to end get this long.
_DRAIN_SECONDS = 10
_RELOAD_SECONDS = 1.0
_BACKLOG = 2048
# What clients tell faster than servers take it is dropped.
_MOST_TASKS = 1000


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
        self, settings: Settings, state: StateFile, catalog: Catalog, abilities: Abilities, fleet: Fleet
    ) -> None:
        self.state = state
        self.catalog = catalog
        self.abilities = abilities
        self.fleet = fleet
        keys = [hashlib.sha256(secret.encode()).digest() for secret in settings.seal_keys]
        self.seal = Seal(keys or [seal_key(settings.data_dir)])
        self.tally = Tally()
        self.audience = Audience()
        self.delivery = Delivery(fleet, time.monotonic, self.tally.count)
        self.dialogue = Dialogue(self.delivery, Reminders(self.seal))
        gateway = Gateway(
            LocalAccess(), catalog, self.delivery, self.dialogue, TaskHandles(), WholeResponses()
        )
        self.surroundings = _Surroundings(catalog, abilities, fleet)
        self.answers = Answers(gateway, settings.name, self.surroundings)
        catalog.on_change(lambda kind: self.audience.changed(kind.capability))
        if settings.list_changed_exec is not None:
            self.audience.join(ListChangedHook(settings.list_changed_exec))

    def apply(self, servers: tuple[ServerSpec, ...]) -> None:
        """Run exactly these servers."""
        enabled = [server.name for server in servers if server.enabled]
        self.catalog.order(enabled)
        self.abilities.order(enabled)
        self.fleet.apply(servers)

    def revived(self, session: HttpSession) -> None:
        """A client that shook hands is there again."""
        if session.standing.subscriptions:
            self.surroundings.start(self.answers.come_back(session.standing, session.reach.outdated))

    def left(self, session: Session) -> None:
        """A client that shook hands is gone."""
        self.fleet.end(session.owner.id)
        if session.standing.subscriptions:
            self.surroundings.start(self.answers.leave(session.standing))

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


class _Surroundings:
    """What the fronts want to know of servers, and tell them, besides requests."""

    def __init__(self, catalog: Catalog, abilities: Abilities, fleet: Fleet) -> None:
        self._catalog = catalog
        self._abilities = abilities
        self._fleet = fleet
        self._tasks: set[asyncio.Task[None]] = set()
        self.capabilities = abilities.capabilities
        self.instructions = abilities.instructions
        self.caching = catalog.caching

    async def started(self) -> None:
        """Just after the start, wait a moment for servers to say what they can do."""
        if not self._abilities.complete:
            await self._fleet.wait_for_start()

    async def before_listing(self, profile: Profile, owner: Owner | None) -> None:
        """Give servers a moment to tell what clients of that profile are shown."""
        alone = profile.can_be_asked
        await self._fleet.wait_for_listing(Claim(profile, owner, LOCAL.principal, alone))

    async def set_level(self, owner: Owner, level: str) -> None:
        """The client wants log messages from this level on."""
        await self._fleet.set_level(owner.id, level)

    def notified(self, owner: Owner, method: str, params: bytes) -> None:
        """The client tells its servers something; what the gateway has acted on itself goes no further."""
        if method in ("notifications/initialized", "notifications/progress"):
            return
        if len(self._tasks) >= _MOST_TASKS:
            log.debug("notification of a client dropped", extra={"method": method[:200]})
        else:
            self.start(self._fleet.notify(owner.id, method, params))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work, name="for a client")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_tell_failure)


class _Events:
    """Hands what upstreams tell to whom it concerns."""

    core: _Core

    def __init__(self, catalog: Catalog, abilities: Abilities) -> None:
        self._catalog = catalog
        self._abilities = abilities

    def look_ahead(self, server: str, kind: Kind, definitions: list[bytes]) -> Iterator[None]:
        """Look at what the server is about to offer, one definition at a step."""
        return self._catalog.look_ahead(server, kind, definitions)

    def offered(
        self, server: str, kind: Kind, definitions: list[bytes], profile: Profile, hint: CacheHint
    ) -> dict[str, str]:
        """This is what the server has of one kind."""
        return self._catalog.offer(server, kind, definitions, profile, hint).left_out

    def knows(self, server: str, profile: Profile) -> bool:
        """Whether a listing for that profile is kept."""
        return self._catalog.offered(server, profile)

    def connected(self, server: str, greeting: Greeting) -> None:
        """A new connection stands."""
        capabilities = greeting.capabilities.decode(errors="replace")
        self._abilities.tell(server, Ability(greeting.version, capabilities, greeting.instructions))
        self.core.delivery.recovered(server)

    def updated(self, server: str, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource of the server has changed."""
        members = decode_object(params or b"{}")
        members.pop("_meta", None)
        # A client may have subscribed under either name.
        for name in {self._catalog.public_uri(server, uri), with_server(server, uri)}:
            members["uri"] = Raw(msgspec.json.encode(name))
            self.core.audience.updated(name, encode_object(members), owner)


@asynccontextmanager
async def _core(settings: Settings) -> AsyncIterator[_Core]:
    state_path = settings.data_dir / "state.json"
    if settings.reset_data:
        state_path.unlink(missing_ok=True)
    state = StateFile(state_path)
    catalog = Catalog(
        name_limit=settings.tool_name_limit or default_limit(settings.name),
        prefixed=settings.prefix,
        page_bytes=settings.page_bytes,
        owners=state,
    )
    abilities = Abilities(state)
    events = _Events(catalog, abilities)
    watchdog = Watchdog()
    try:
        async with run_fleet(_opener(settings, watchdog), state, events) as fleet:
            events.core = core = _Core(settings, state, catalog, abilities, fleet)
            core.apply(settings.servers)
            try:
                yield core
            finally:
                core.dialogue.close()
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
    sessions = Sessions(
        core.audience,
        settings.max_sessions,
        settings.session_idle_seconds,
        core.seal,
        core.state,
        on_close=core.left,
        on_revival=core.revived,
    )
    async with beating(sessions.expire) as pulse:
        legacy = LegacySse(core.answers, core.audience, settings.max_sessions, core.left)

        def gauges() -> dict[str, float]:
            return {
                "sessions": len(sessions) + len(legacy),
                "in_flight": len(pulse),
                "tools": len(core.catalog),
                "list_changes": core.audience.told,
            }

        def counters() -> dict[tuple[str, str], int]:
            revived = {
                ("sessions_revived", f'{{reason="{reason}"}}'): count
                for reason, count in sessions.revived.items()
            }
            return {**revived, ("streams_resumed", ""): sessions.resumed}

        pages = Pages(core.fleet, core.tally, gauges, counters)
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
