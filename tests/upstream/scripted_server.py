"""A server in memory that a test directs, the connections to it, and what the gateway was told."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from headgate.catalog.paged_listing import CacheHint
from headgate.domain.call import LOCAL, Answer, Call, Channel, Owner, Request
from headgate.domain.errors import GatewayLoop, UpstreamTimeout
from headgate.domain.item import Item
from headgate.domain.kind import LISTED_BY, Kind
from headgate.domain.profile import PLAIN, Profile, profile_of
from headgate.domain.server import ServerSpec, Transport
from headgate.protocol.jsonrpc import Envelope
from headgate.upstream.fleet import UpstreamFleet, run_fleet
from headgate.upstream.negotiation_result import NegotiationResult
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import OutgoingRequest, UpstreamSessionExpired, UpstreamTransport

START_SECONDS = 20.0
MODERN, LEGACY = "2026-07-28", "2025-11-25"
SAMPLING = profile_of(b'{"sampling":{}}')
ROOTS = profile_of(b'{"roots":{}}')
# Declares something, but nothing that a server could ask for.
EXTENDED = profile_of(b'{"extensions":{"a/b":{}}}')
TOOLS: dict[str, Any] = {"tools": {}}


def failed(code: int, **data: Any) -> Answer:
    """A JSON-RPC error."""
    return Answer(error=json.dumps({"code": code, "message": "no", "data": data}).encode())


class SilentChannel:
    """A client to whom nothing is said."""

    def tell(self, method: str, params: bytes) -> None:
        """Nobody listens."""

    async def ask(self, method: str, params: bytes) -> Answer:
        """Nobody answers."""
        return failed(-32601)


def owner(id: str, channel: Channel | None = None) -> Owner:
    """A client of the handshake era."""
    return Owner(id, channel or SilentChannel())


def clients_own(declared: dict[str, Any]) -> dict[str, Any]:
    """What was declared for clients, without what the gateway says of itself."""
    experimental = {name: value for name, value in declared.get("experimental", {}).items() if name != "rmcp"}
    rest = {name: value for name, value in declared.items() if name != "experimental"}
    return rest | ({"experimental": experimental} if experimental else {})


class RecordedUpstreamEvents:
    """What the gateway was told."""

    def __init__(self) -> None:
        self.listing_lock = asyncio.Lock()
        self.told: list[tuple[Kind, Profile, list[bytes]]] = []
        self.hints: list[CacheHint] = []
        self.kept: set[Profile] = set()
        self.greetings: list[NegotiationResult] = []
        self.versions: list[str] = []
        self.updates: list[tuple[str, str, bytes]] = []
        self.behind: dict[str, frozenset[str]] = {}
        # This gateway, in the words of those behind it.
        self.instance = ""

    def gateways_discovered(self, server: str, gateways: frozenset[str]) -> None:
        if self.instance in gateways:
            raise GatewayLoop(server)
        self.behind[server] = gateways

    def version(self, server: str) -> str | None:
        return None

    def remember_version(self, server: str, version: str) -> None:
        self.versions.append(version)

    def prepare_listing(self, server: str, kind: Kind, definitions: list[bytes]) -> Iterator[None]:
        return iter(())

    def listing_received(
        self, server: str, kind: Kind, definitions: list[bytes], profile: Profile, hint: CacheHint
    ) -> dict[str, str]:
        self.told.append((kind, profile, definitions))
        self.hints.append(hint)
        self.kept.add(profile)
        return {}

    def has_listing(self, server: str, profile: Profile) -> bool:
        return profile in self.kept

    def server_connected(self, server: str, greeting: NegotiationResult) -> None:
        self.greetings.append(greeting)

    def resource_updated(self, server: str, uri: str, params: bytes, owner: Owner | None) -> None:
        self.updates.append((server, uri, params))

    def offers(self, kind: Kind = Kind.TOOLS, profile: Profile = PLAIN) -> list[list[bytes]]:
        """Each listing of that kind that was handed on for that profile."""
        return [definitions for what, whose, definitions in self.told if (what, whose) == (kind, profile)]


class ScriptedServer:
    """What a server is and does, whatever connection it is spoken to on."""

    def __init__(self, version: str = MODERN, capabilities: dict[str, Any] = TOOLS) -> None:
        self.version = version
        self.capabilities = capabilities
        # Answers to methods, in place of the usual ones.
        self.answers: dict[str, Answer | Exception | Callable[[OutgoingRequest], Answer]] = {}
        self.connections: list[ScriptedConnection] = []
        self.opened: list[float] = []
        self.later_ones_are_mute = False
        # Calls find no session, whatever connection they come on.
        self.forgets_calls = False
        # Set, subscriptions of the stateless era end.
        self.stop_listening = asyncio.Event()
        # Cleared, calls wait until it is set.
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @property
    def stateless(self) -> bool:
        return self.version == MODERN

    @property
    def main(self) -> "ScriptedConnection":
        """The latest connection on which the server may ask nothing."""
        return [each for each in self.connections if each.declared == {}][-1]

    @property
    def client_connections(self) -> "list[ScriptedConnection]":
        """Every other connection."""
        return [each for each in self.connections if each.declared]

    def asked(self, method: str) -> list[OutgoingRequest]:
        """Every request of that method, on any connection."""
        return [asked for each in self.connections for asked in each.asked if asked.method == method]

    def greeting(self) -> bytes:
        if self.stateless:
            told: dict[str, Any] = {"supportedVersions": [self.version]}
        else:
            told = {"protocolVersion": self.version}
        return json.dumps(told | {"capabilities": self.capabilities}).encode()

    @asynccontextmanager
    async def open(
        self, spec: ServerSpec, router: NotificationRouter, stderr: deque[str]
    ) -> AsyncIterator[UpstreamTransport]:
        self.opened.append(asyncio.get_running_loop().time())
        mute = self.later_ones_are_mute and bool(self.connections)
        connection = ScriptedConnection(self, spec, router, mute=mute)
        self.connections.append(connection)
        try:
            yield connection
        finally:
            connection.closed = True


class ScriptedConnection:
    """One connection to it, as a link."""

    pid = None
    limits = None

    def __init__(
        self, server: ScriptedServer, spec: ServerSpec, router: NotificationRouter, *, mute: bool = False
    ) -> None:
        self._server = server
        self._spec = spec
        self._router = router
        self._lost = asyncio.Event()
        self.mute = mute
        self.list_hangs = False
        # A request that needs a session finds none from now on.
        self.forgets = False
        self.closed = False
        self.declared: dict[str, Any] = {}
        self.listings: list[float] = []
        self.asked: list[OutgoingRequest] = []
        self.said: list[dict[str, Any]] = []
        self.listening = 0

    async def round_trip(self, outgoing: OutgoingRequest) -> Answer:
        self.asked.append(outgoing)
        if self.mute:
            await asyncio.Event().wait()
        if self.forgets or (self._server.forgets_calls and outgoing.method == "tools/call"):
            self.end()
            raise UpstreamSessionExpired
        answer = self._server.answers.get(outgoing.method)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer if isinstance(answer, Answer) else answer(outgoing)
        return await self._usual(outgoing)

    async def _usual(self, outgoing: OutgoingRequest) -> Answer:
        match outgoing.method:
            case "server/discover" if self._server.stateless:
                return Answer(self._server.greeting())
            case "initialize" if not self._server.stateless:
                self.declared = clients_own(json.loads(outgoing.params)["capabilities"])
                return Answer(self._server.greeting())
            case "initialize":
                return failed(-32022, supported=[MODERN])
            case "server/discover":
                return failed(-32601)
            case "subscriptions/listen":
                return await self._listen()
            case method if method in LISTED_BY:
                return await self._list(outgoing, LISTED_BY[method])
            case "tools/call" | "prompts/get" | "resources/read":
                await self._server.may_answer.wait()
        return Answer(b"{}")

    async def _list(self, outgoing: OutgoingRequest, kind: Kind) -> Answer:
        if kind is Kind.TOOLS:
            self.listings.append(asyncio.get_running_loop().time())
        if self.list_hangs:
            await asyncio.sleep(outgoing.timeout_seconds)
            raise UpstreamTimeout(self._spec.name, outgoing.what, outgoing.timeout_seconds)
        name = f"of {self._spec.timeout_seconds:g}"
        return Answer(json.dumps({kind.member: [{kind.key: name}]}, separators=(",", ":")).encode())

    async def _listen(self) -> Answer:
        self.listening += 1
        try:
            await self._server.stop_listening.wait()
        finally:
            self.listening -= 1
        return Answer(b"{}")

    async def send_notification(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def set_protocol_version(self, version: str) -> None:
        """It speaks only one."""

    async def wait_lost(self) -> str:
        await self._lost.wait()
        return "it ended"

    def end(self) -> None:
        """The connection is lost."""
        self._lost.set()

    def say(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Let the server tell something."""
        self._router.route(
            Envelope(jsonrpc="2.0", method=method, params=Raw(json.dumps(params or {}).encode())),
            None,
            lambda _: None,
        )

    def say_changed(self, capability: str = "tools") -> None:
        """Let the server tell that what it lists has changed."""
        self.say(f"notifications/{capability}/list_changed")


class ScriptedFleet:
    """A fleet of one server, and what became of it."""

    def __init__(self, server: ScriptedServer | None = None) -> None:
        self.facts = RecordedUpstreamEvents()
        self.server = server or ScriptedServer()

    @property
    def links(self) -> list[ScriptedConnection]:
        return self.server.connections

    @property
    def opened(self) -> list[float]:
        return self.server.opened

    @asynccontextmanager
    async def fleet(
        self, name: str = "bank", seconds: float = 60.0, **more: Any
    ) -> AsyncIterator[UpstreamFleet]:
        async with run_fleet(self.server.open, self.facts, self.facts) as fleet:
            fleet.apply([spec(name, seconds, **more)])
            await fleet.await_ready(name)
            yield fleet


def spec(name: str = "bank", seconds: float = 60.0, **more: Any) -> ServerSpec:
    return ServerSpec(
        name=name,
        transport=Transport.BUILTIN,
        timeout_seconds=seconds,
        start_timeout_seconds=START_SECONDS,
        **more,
    )


def call(profile: Profile = PLAIN, whose: Owner | None = None, **request: Any) -> Call:
    """One call of a tool."""
    wanted = {"name": "bank_pay", "params": {"arguments": Raw(b"{}")}, **request}
    return Call(
        Request(caller=LOCAL, profile=profile, owner=whose, **wanted),
        Item(Kind.TOOLS, "bank", "pay", "bank_pay"),
    )


async def soon(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait on the loop's own clock until the condition holds."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while not condition():
        if loop.time() > give_up_at:
            raise TimeoutError
        await asyncio.sleep(0.01)
