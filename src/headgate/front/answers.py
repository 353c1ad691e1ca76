"""Answers the requests of clients, whatever carried them and whichever era they speak."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate import __version__
from headgate.catalog.hints import CacheHint
from headgate.catalog.listing import InvalidCursor
from headgate.catalog.viewer import Viewer
from headgate.domain.call import LOCAL, Answer, Caller, Owner, Request
from headgate.domain.client import client_name
from headgate.domain.errors import (
    GatewayEnding,
    HeadgateError,
    InternalError,
    PromptNotFound,
    ResourceNotFound,
    ToolNotFound,
    TooManySubscriptions,
)
from headgate.domain.federation import CLIENT_NAME
from headgate.domain.kind import LISTED_BY, Kind
from headgate.domain.listing import Mode
from headgate.domain.profile import Profile, profile_of
from headgate.domain.ticket import FEATURES
from headgate.front import requests
from headgate.front.ending import encode_ending, taken_back
from headgate.front.receipts import failure_meta, with_receipt
from headgate.front.reply import Reply, result
from headgate.front.shown import failed, refused, shown
from headgate.front.subscription_limits import LIMITS, SubscriptionBudget
from headgate.front.visitor import Initialized, Standing, Visitor
from headgate.gateway import Gateway
from headgate.wire.envelope import ABSENT, Envelope, decode_object, parse_params
from headgate.wire.eras import (
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_PREFIX,
    STATELESS_VERSIONS,
    Era,
    negotiate,
)
from headgate.wire.results import COMPLETE, UNCACHED
from headgate.wire.rmcp import declaring, spoken, spoken_as, unsaid
from headgate.wire.violations import INVALID_PARAMS, METHOD_NOT_FOUND, Violation

log = logging.getLogger("headgate.front")

# Objects that are known to have no more than brackets around other people's bytes.
_EMPTY = b"{}"
_TOOL_CALL = "tools/call"
_OF_HANDSHAKE = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_OF_STATELESS = frozenset({"server/discover", "subscriptions/listen"})


class Surroundings(Protocol):
    """What clients want to know or to tell besides their requests."""

    async def before_listing(self, profile: Profile, owner: Owner | None) -> None:
        """Give servers a moment to tell what clients of that profile are shown."""

    def capabilities(self, era: Era) -> bytes:
        """What is promised to a client of that era."""

    async def instructions(self, viewer: Viewer) -> str:
        """What the model is advised, by the gateway and by the servers."""

    def caching(self, kind: Kind, viewer: Viewer) -> CacheHint:
        """How long a listing may be believed, and by whom."""

    async def set_level(self, owner: Owner, level: str) -> None:
        """The client wants log messages from this level on."""

    def notified(self, owner: Owner, method: str, params: bytes) -> None:
        """The client tells its servers something."""


class _Initialize(msgspec.Struct):
    protocolVersion: str  # noqa: N815 (the protocol's spelling)
    capabilities: Raw = ABSENT
    clientInfo: Raw = ABSENT  # noqa: N815 (the protocol's spelling)


class _Page(msgspec.Struct, rename={"meta": "_meta"}):
    cursor: str | None = None
    meta: dict[str, Raw] | None = None


_Work = Callable[[Envelope, Visitor], Awaitable[Reply]]


class Answers:
    """What the gateway says to a client."""

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        surroundings: Surroundings,
        gateways: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """`gateways` is the member of `_meta` that tells another gateway who is behind this one."""
        self._gateways = gateways
        self._gateway = gateway
        self._info = msgspec.json.encode({"name": name, "version": __version__})
        self._surroundings = surroundings
        self.subscriptions = SubscriptionBudget()
        both: dict[str, _Work] = {
            "prompts/get": self._get_prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
            **dict.fromkeys(LISTED_BY, self._list),
        }
        handshake: dict[str, _Work] = {
            "ping": self._pong,
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._work = {
            Era.HANDSHAKE: {
                **both,
                **handshake,
                **dict.fromkeys(_OF_STATELESS, self._unknown),
                "server/discover": self._discover_again,
            },
            Era.STATELESS: {
                **both,
                **dict.fromkeys(_OF_HANDSHAKE, self._unknown),
                "server/discover": self._discover,
            },
        }

    def answer(self, envelope: Envelope, visitor: Visitor) -> Awaitable[Reply]:
        """The reply to one request; raises Violation when it breaks the protocol.

        Not a coroutine of its own, because every call comes by here.
        """
        if envelope.method == _TOOL_CALL:
            return self._call(envelope, visitor)
        return self._answer(envelope, visitor)

    async def _answer(self, envelope: Envelope, visitor: Visitor) -> Reply:
        work = self._work[visitor.era].get(envelope.method, self._forward)
        try:
            return await work(envelope, visitor)
        except asyncio.CancelledError as cancelled:
            if not taken_back(cancelled):
                raise
            return Reply(encode_ending(bytes(envelope.id)))

    def notified(self, envelope: Envelope, owner: Owner) -> None:
        """A client of the handshake era tells something that is not the gateway's business."""
        # What is said of delivery is between the client and the gateway.
        self._surroundings.notified(owner, envelope.method, unsaid(bytes(envelope.params)))

    async def come_back(self, standing: Standing, tell: Callable[[str], None]) -> None:
        """A client of the handshake era is there again, and hears of what it subscribed to before.

        `tell` is given each resource, which may have changed meanwhile.
        """
        uris = list(standing.subscriptions)
        for uri in uris:
            self.subscriptions.add(standing.share, uri)
        for uri in uris:
            try:
                taken = not (await self.subscribe(uri)).error
            except HeadgateError as error:
                log.info("not subscribed again", extra={"uri": uri[:200], "reason": error.message})
                taken = False
            if not taken and uri in standing.subscriptions:
                # It may subscribe anew, and must not unsubscribe others when it leaves.
                standing.subscriptions.discard(uri)
                self.subscriptions.give_back(standing.share, uri)
            tell(uri)

    async def leave(self, standing: Standing) -> None:
        """A client of the handshake era is gone."""
        self.subscriptions.give_all_back(standing.share)
        while standing.subscriptions:
            await self.unsubscribe(standing.subscriptions.pop())

    # What goes to servers.

    def _call(self, envelope: Envelope, visitor: Visitor) -> Awaitable[Reply]:
        return self._carry(envelope, visitor, requests.tool_call(envelope, visitor), self._gateway.call)

    async def _get_prompt(self, envelope: Envelope, visitor: Visitor) -> Reply:
        request = requests.about(envelope, visitor, "name")
        return await self._carry(envelope, visitor, request, self._gateway.get_prompt)

    async def _read(self, envelope: Envelope, visitor: Visitor) -> Reply:
        request = requests.about(envelope, visitor, "uri")
        return await self._carry(envelope, visitor, request, self._gateway.read_resource)

    async def _complete(self, envelope: Envelope, visitor: Visitor) -> Reply:
        request = requests.completion(envelope, visitor)
        return await self._carry(envelope, visitor, request, self._gateway.complete)

    async def _forward(self, envelope: Envelope, visitor: Visitor) -> Reply:
        if envelope.method.startswith("notifications/"):
            # Servers do not answer a notification: a caller who sends it as a request would wait in vain.
            return await self._unknown(envelope, visitor)
        request = requests.anything(envelope, visitor)
        server = requests.server_named(request)

        async def forward(request: Request) -> Answer:
            return await self._gateway.forward(request, server)

        return await self._carry(envelope, visitor, request, forward)

    async def _carry(
        self,
        envelope: Envelope,
        visitor: Visitor,
        request: Request,
        work: Callable[[Request], Awaitable[Answer]],
    ) -> Reply:
        id, method = bytes(envelope.id), envelope.method
        try:
            answer = await self._found(request, work)
            if answer.receipt is not None or request.ticket is not None:
                answer = await with_receipt(answer, request.ticket)
        except HeadgateError as error:
            return failed(id, method, error, visitor.era, failure_meta(error, request.ticket))
        except asyncio.CancelledError as cancelled:
            if not taken_back(cancelled):
                raise
            ending = GatewayEnding(request.name or method)
            return failed(id, method, ending, visitor.era, failure_meta(ending, request.ticket))
        except Exception:
            entry = secrets.token_hex(6)
            log.exception(
                "internal error", extra={"entry": entry, "method": method, "about": request.name[:200]}
            )
            bug = InternalError(entry)
            return failed(id, method, bug, visitor.era, failure_meta(bug, request.ticket))
        if answer.error and visitor.era is Era.STATELESS:
            return refused(id, answer)
        return shown(id, method, request.name or method, answer, visitor.era)

    async def _found(self, request: Request, work: Callable[[Request], Awaitable[Answer]]) -> Answer:
        """The answer of a server, which may have more than has been listed so far for such clients."""
        try:
            return await work(request)
        except (ToolNotFound, PromptNotFound, ResourceNotFound):
            # The client may have listed it before this gateway was started.
            await self._surroundings.before_listing(request.profile, request.owner)
            return await work(request)

    # Resources that a client wants to hear of.

    async def subscribe(self, uri: str, caller: Caller = LOCAL) -> Answer:
        """Hear of every change of a resource; raises HeadgateError."""
        request = Request(caller=caller, method="resources/subscribe", name=uri)
        return await self._found(request, self._gateway.subscribe)

    async def unsubscribe(self, uri: str, caller: Caller = LOCAL) -> None:
        """Do not hear of it any more; whatever is wrong with the server, the client is rid of it."""
        try:
            await self._gateway.unsubscribe(Request(caller=caller, method="resources/unsubscribe", name=uri))
        except HeadgateError as error:
            log.debug("not unsubscribed", extra={"uri": uri[:200], "reason": error.message})

    async def _subscribe(self, envelope: Envelope, visitor: Visitor) -> Reply:
        request = requests.about(envelope, visitor, "uri")
        standing = visitor.standing or Standing()
        wanted, uri = standing.subscriptions, request.name
        if uri in wanted:
            return result(bytes(envelope.id), _EMPTY)
        try:
            self._count(standing, uri)
        except TooManySubscriptions as error:
            return failed(bytes(envelope.id), envelope.method, error, visitor.era)
        taken = False
        try:
            reply = await self._carry(envelope, visitor, request, self._gateway.subscribe)
            if reply.succeeded and uri in wanted:
                # It asked twice at the same time, and counts once.
                await self.unsubscribe(uri, visitor.caller)
            elif reply.succeeded:
                taken = True
                wanted.add(uri)
                _changed(visitor)
            return reply
        finally:
            if not taken:
                self.subscriptions.give_back(standing.share, uri)

    def _count(self, standing: Standing, uri: str) -> None:
        """Before the server is asked, so that many requests at once cannot exceed a limit."""
        if len(standing.subscriptions) >= LIMITS.resources:
            reason = f"a client may subscribe to {LIMITS.resources} resources"
            raise TooManySubscriptions(reason, "unsubscribe from other resources first")
        self.subscriptions.take(standing.share, uri)

    async def _unsubscribe(self, envelope: Envelope, visitor: Visitor) -> Reply:
        request = requests.about(envelope, visitor, "uri")
        wanted = visitor.standing.subscriptions if visitor.standing is not None else set()
        if request.name in wanted:
            wanted.discard(request.name)
            if visitor.standing is not None:
                self.subscriptions.give_back(visitor.standing.share, request.name)
            _changed(visitor)
            await self.unsubscribe(request.name, visitor.caller)
        return result(bytes(envelope.id), _EMPTY)

    # What the gateway answers itself.

    async def _list(self, envelope: Envelope, visitor: Visitor) -> Reply:
        id, kind = bytes(envelope.id), LISTED_BY[envelope.method]
        try:
            params = msgspec.json.decode(envelope.params or _EMPTY, type=_Page)
        except (DecodeError, UnicodeDecodeError) as error:
            raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
        viewer = _viewer(visitor, params.meta or {})
        await self._surroundings.before_listing(viewer.profile, viewer.owner)
        try:
            members = await self._gateway.list(kind, params.cursor, viewer)
        except InvalidCursor as error:
            raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
        behind = self._behind(viewer)
        if behind:
            members += b',"_meta":{' + behind + b"}"
        if visitor.era is Era.HANDSHAKE:
            return result(id, b"{" + members + b"}")
        hint = self._surroundings.caching(kind, viewer)
        caching = b'"ttlMs":%d,"cacheScope":"%s"' % (hint.ttl_ms, b"public" if hint.public else b"private")
        return result(id, b"{" + COMPLETE + b"," + caching + b"," + members + b"}")

    async def _pong(self, envelope: Envelope, visitor: Visitor) -> Reply:
        return result(bytes(envelope.id), _EMPTY)

    async def _set_level(self, envelope: Envelope, visitor: Visitor) -> Reply:
        id = bytes(envelope.id)
        level = requests.about(envelope, visitor, "level").name
        if level not in requests.LEVELS:
            raise Violation(INVALID_PARAMS, f"Invalid params: level is one of {requests.LEVELS}", id=id)
        if visitor.standing is not None and visitor.owner is not None:
            visitor.standing.log_level = level
            visitor.standing.changed()
            await self._surroundings.set_level(visitor.owner, level)
        return result(id, _EMPTY)

    async def _unknown(self, envelope: Envelope, visitor: Visitor) -> Reply:
        """A method of the other era, or no request at all."""
        id = bytes(envelope.id)
        raise Violation(METHOD_NOT_FOUND, f"Method not found: {envelope.method[:200]}", id=id)

    async def initialize(self, envelope: Envelope, listing: Mode | None = None) -> Initialized:
        """The reply to a client that shakes hands; raises Violation."""
        id = bytes(envelope.id)
        try:
            params = msgspec.json.decode(envelope.params or _EMPTY, type=_Initialize)
            decode_object(params.capabilities or _EMPTY)
        except (DecodeError, UnicodeDecodeError) as error:
            raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
        version = negotiate(params.protocolVersion)
        viewer = Viewer(
            era=Era.HANDSHAKE,
            profile=profile_of(bytes(params.capabilities)),
            client=client_name(bytes(params.clientInfo)),
            mode=listing,
        )
        behind = self._behind(viewer)
        greeting = b'{"protocolVersion":"%s","capabilities":%s,"serverInfo":%s%s%s}' % (
            version.encode(),
            self._capabilities(Era.HANDSHAKE, bytes(params.capabilities)),
            self._info,
            await self._advice(viewer),
            b',"_meta":{' + behind + b"}" if behind else b"",
        )
        return Initialized(
            version, bytes(params.capabilities), bytes(params.clientInfo), result(id, greeting)
        )

    async def _discover_again(self, envelope: Envelope, visitor: Visitor) -> Reply:
        """Negotiate rmcp with a client whose handshake is over; for any other the method is unknown."""
        declared = bytes(_meta(envelope).get(META_CAPABILITIES, b""))
        # Before the handshake the answer would tell a client that this connection is of the stateless era.
        if not visitor.client or not spoken(declared, FEATURES):
            return await self._unknown(envelope, visitor)
        return await self._discover(envelope, visitor)

    async def _discover(self, envelope: Envelope, visitor: Visitor) -> Reply:
        meta = _meta(envelope)
        viewer = _viewer(visitor, meta)
        behind = self._behind(viewer)
        discovery = b'{%s,%s,"supportedVersions":%s,"capabilities":%s%s,"_meta":{"%sserverInfo":%s%s}}' % (
            COMPLETE,
            UNCACHED,
            msgspec.json.encode(STATELESS_VERSIONS),
            self._capabilities(visitor.era, bytes(meta.get(META_CAPABILITIES, b""))),
            await self._advice(viewer),
            META_PREFIX.encode(),
            self._info,
            b"," + behind if behind else b"",
        )
        return result(bytes(envelope.id), discovery)

    def _behind(self, viewer: Viewer) -> bytes:
        """What another gateway is told of those behind this one; nobody else is."""
        return self._gateways() if viewer.client == CLIENT_NAME else b""

    def _capabilities(self, era: Era, declared: bytes) -> bytes:
        """What is promised to a client that declared this: rmcp only if it speaks that too."""
        promised, shared = self._surroundings.capabilities(era), spoken(declared, FEATURES)
        if not shared:
            return promised
        common = tuple(feature for feature in FEATURES if feature in shared)
        return declaring(promised, common, spoken_as(declared))

    async def _advice(self, viewer: Viewer) -> bytes:
        instructions = await self._surroundings.instructions(viewer)
        return b',"instructions":' + msgspec.json.encode(instructions) if instructions else b""


def _meta(envelope: Envelope) -> dict[str, Raw]:
    """The `_meta` of a request; raises Violation."""
    id = bytes(envelope.id)
    try:
        return decode_object(parse_params(envelope.params, id).get("_meta", b"{}"))
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: _meta: {error}", id=id) from error


def _viewer(visitor: Visitor, meta: Mapping[str, Raw]) -> Viewer:
    """Whoever lists; in the stateless era its request says who that is."""
    profile, client = visitor.profile, visitor.client
    if visitor.era is Era.STATELESS:
        profile = profile_of(bytes(meta.get(META_CAPABILITIES, b"{}")))
        client = client_name(bytes(meta.get(META_CLIENT_INFO, b"")))
    return Viewer(
        era=visitor.era,
        caller=visitor.caller,
        owner=visitor.owner,
        profile=profile,
        client=client,
        mode=visitor.listing,
    )


def _changed(visitor: Visitor) -> None:
    if visitor.standing is not None:
        visitor.standing.changed()
