"""A server in memory that a test directs, the connections to it, and the events at the gateway."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Raw

from headgate.catalog.paged_listing import CacheHint
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.errors import GatewayLoop, UpstreamTimeout
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import KIND_BY_LIST_METHOD, Item, ItemKind
from headgate.domain.mcp_request import (
    ClientBackChannel,
    ClientSession,
    McpRequest,
    McpResponse,
    UpstreamCall,
)
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.protocol.jsonrpc import Envelope
from headgate.upstream.fleet import UpstreamFleet
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transport import OutgoingRequest, UpstreamSessionExpired, UpstreamTransport

START_SECONDS = 20.0
MODERN, LEGACY = "2026-07-28", "2025-11-25"
SAMPLING = profile_of(b'{"sampling":{}}')
ROOTS = profile_of(b'{"roots":{}}')
# Declares something, but nothing that a server could ask for.
EXTENDED = profile_of(b'{"extensions":{"a/b":{}}}')
TOOLS: dict[str, Any] = {"tools": {}}


def failed(code: int, **data: Any) -> McpResponse:
    """A JSON-RPC error."""
    return McpResponse(error=json.dumps({"code": code, "message": "no", "data": data}).encode())


class SilentChannel:
    """A client to whom nothing is said."""

    def send_notification(self, method: str, params: bytes) -> None:
        """Discard it."""

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        """No answer comes."""
        return failed(-32601)


def owner(id: str, channel: ClientBackChannel | None = None) -> ClientSession:
    """A client of the handshake era."""
    return ClientSession(id, channel or SilentChannel())


def clients_own(declared: dict[str, Any]) -> dict[str, Any]:
    """What was declared for clients, without what the gateway says of itself."""
    experimental = {name: value for name, value in declared.get("experimental", {}).items() if name != "rmcp"}
    rest = {name: value for name, value in declared.items() if name != "experimental"}
    return rest | ({"experimental": experimental} if experimental else {})


class RecordedUpstreamEvents:
    """The events at the gateway."""

    def __init__(self) -> None:
        self.listing_lock = asyncio.Lock()
        self.told: list[tuple[ItemKind, ClientProfile, list[bytes]]] = []
        self.hints: list[CacheHint] = []
        self.kept: set[ClientProfile] = set()
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

    def prepare_listing(self, server: str, kind: ItemKind, definitions: list[bytes]) -> Iterator[None]:
        return iter(())

    def listing_received(
        self, server: str, kind: ItemKind, definitions: list[bytes], profile: ClientProfile, hint: CacheHint
    ) -> dict[str, str]:
        self.told.append((kind, profile, definitions))
        self.hints.append(hint)
        self.kept.add(profile)
        return {}

    def has_listing(self, server: str, profile: ClientProfile) -> bool:
        return profile in self.kept

    def server_connected(self, server: str, greeting: NegotiationResult) -> None:
        self.greetings.append(greeting)

    def resource_updated(self, server: str, uri: str, params: bytes, owner: ClientSession | None) -> None:
        self.updates.append((server, uri, params))

    def offers(
        self, kind: ItemKind = ItemKind.TOOLS, profile: ClientProfile = PLAIN_PROFILE
    ) -> list[list[bytes]]:
        """Each listing of that kind that was handed on for that profile."""
        return [definitions for what, whose, definitions in self.told if (what, whose) == (kind, profile)]


class ScriptedServer:
    """What a server is and does, whatever connection it is spoken to on."""

    def __init__(self, version: str = MODERN, capabilities: dict[str, Any] = TOOLS) -> None:
        self.version = version
        self.capabilities = capabilities
        # Answers to methods, in place of the usual ones.
        self.answers: dict[str, McpResponse | Exception | Callable[[OutgoingRequest], McpResponse]] = {}
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
    """One connection to it, as a transport."""

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

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
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
            return answer if isinstance(answer, McpResponse) else answer(outgoing)
        return await self._usual(outgoing)

    async def _usual(self, outgoing: OutgoingRequest) -> McpResponse:
        match outgoing.method:
            case "server/discover" if self._server.stateless:
                return McpResponse(self._server.greeting())
            case "initialize" if not self._server.stateless:
                self.declared = clients_own(json.loads(outgoing.params)["capabilities"])
                return McpResponse(self._server.greeting())
            case "initialize":
                return failed(-32022, supported=[MODERN])
            case "server/discover":
                return failed(-32601)
            case "subscriptions/listen":
                return await self._listen()
            case method if method in KIND_BY_LIST_METHOD:
                return await self._list(outgoing, KIND_BY_LIST_METHOD[method])
            case "tools/call" | "prompts/get" | "resources/read":
                await self._server.may_answer.wait()
        return McpResponse(b"{}")

    async def _list(self, outgoing: OutgoingRequest, kind: ItemKind) -> McpResponse:
        if kind is ItemKind.TOOLS:
            self.listings.append(asyncio.get_running_loop().time())
        if self.list_hangs:
            await asyncio.sleep(outgoing.timeout_seconds)
            raise UpstreamTimeout(self._spec.name, outgoing.what, outgoing.timeout_seconds)
        name = f"of {self._spec.timeout_seconds:g}"
        return McpResponse(
            json.dumps({kind.result_member: [{kind.key: name}]}, separators=(",", ":")).encode()
        )

    async def _listen(self) -> McpResponse:
        self.listening += 1
        try:
            await self._server.stop_listening.wait()
        finally:
            self.listening -= 1
        return McpResponse(b"{}")

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
    def transports(self) -> list[ScriptedConnection]:
        return self.server.connections

    @property
    def opened(self) -> list[float]:
        return self.server.opened

    @asynccontextmanager
    async def fleet(
        self, name: str = "bank", seconds: float = 60.0, **more: Any
    ) -> AsyncIterator[UpstreamFleet]:
        async with UpstreamFleet(self.server.open, self.facts, self.facts) as fleet:
            fleet.apply([spec(name, seconds, **more)])
            await fleet.await_ready(name)
            yield fleet


def spec(name: str = "bank", seconds: float = 60.0, **more: Any) -> ServerSpec:
    return ServerSpec(
        name=name,
        transport=TransportType.BUILTIN,
        timeout_seconds=seconds,
        start_timeout_seconds=START_SECONDS,
        **more,
    )


def call(
    profile: ClientProfile = PLAIN_PROFILE, whose: ClientSession | None = None, **request: Any
) -> UpstreamCall:
    """One call of a tool."""
    wanted = {"name": "bank_pay", "params": {"arguments": Raw(b"{}")}, **request}
    return UpstreamCall(
        McpRequest(caller=LOCAL_IDENTITY, profile=profile, session=whose, **wanted),
        Item(ItemKind.TOOLS, "bank", "pay", "bank_pay"),
    )


async def soon(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait on the loop's own clock until the condition holds."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while not condition():
        if loop.time() > give_up_at:
            raise TimeoutError
        await asyncio.sleep(0.01)
