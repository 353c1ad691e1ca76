"""Everything between the gateway and one upstream: its connections, what it lists, what it is asked."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Never, Protocol, TypeVar

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer, Call, Owner
from headgate.domain.errors import (
    HeadgateError,
    InvalidAnswer,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.kind import Kind
from headgate.domain.profile import PLAIN, Profile
from headgate.domain.server import ServerSpec, ServerStatus, State
from headgate.upstream.background import Background
from headgate.upstream.greeting import Greeting
from headgate.upstream.handshake import shake_hands
from headgate.upstream.inbox import Inbox
from headgate.upstream.lines import Claim, Lines, claim_of
from headgate.upstream.link import SessionGone
from headgate.upstream.listings import Listings, Readers
from headgate.upstream.mainline import Mainline, Open, Versions
from headgate.upstream.peer import Peer
from headgate.upstream.subscriptions import Subscriptions
from headgate.upstream.watch import Watch
from headgate.wire.envelope import encode_object
from headgate.wire.eras import LATEST_HANDSHAKE, Era

log = logging.getLogger("headgate.upstream")

# Before a subscription that has ended is opened again.
_LISTEN_AGAIN_SECONDS = 2.0
_LISTS = ("tools", "prompts", "resources")
# How often lines are looked through for those that nobody uses any more.
_TIDY_SECONDS = 30.0

_Result = TypeVar("_Result")


class Events(Readers, Protocol):
    """Who wants to know what happens to upstreams."""

    def connected(self, server: str, greeting: Greeting) -> None:
        """A new connection stands."""

    def updated(self, server: str, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource of the server has changed, for this client or for all."""


class _Updated(msgspec.Struct):
    uri: str = ""


class _News:
    """Hands what one connection hears to its keeper."""

    def __init__(self, keeper: "Keeper", profile: Profile, owner: Owner | None = None) -> None:
        self._keeper = keeper
        self._profile = profile
        self._owner = owner

    def changed(self, capability: str) -> None:
        self._keeper.changed(capability, self._profile)

    def updated(self, params: bytes) -> None:
        self._keeper.updated(params, self._owner)

    def asked(self) -> None:
        self._keeper.asked()

    def acknowledged(self) -> None:
        self._keeper.acknowledged()

    def resumed(self) -> None:
        self._keeper.resumed()


class Keeper:
    """One upstream."""

    def __init__(
        self,
        spec: ServerSpec,
        open_link: Open,
        versions: Versions,
        events: Events,
        subscriptions: Subscriptions | None = None,
    ) -> None:
        self.spec = spec
        self.in_flight = 0
        self.lines = Lines(spec.name, self._connect_line, spec.max_connections, spec.timeout_seconds)
        self.subscriptions = subscriptions or Subscriptions()
        self._open_link = open_link
        self._events = events
        self._inbox = Inbox(spec.name, _News(self, PLAIN))
        self._mainline = Mainline(spec, open_link, versions, self._inbox, self)
        self._listings = Listings(spec.name, events)
        self._background = Background()
        self._watch = Watch(spec.name, self.subscriptions, self._mainline, self.lines, self._background)
        self._retired = False
        # Whether changes may have been missed since somebody last listened to it.
        self._deaf = False
        self._calls = self._errors = self._questions = self._resumed = 0
        self._idle: asyncio.Event | None = None

    @property
    def settled(self) -> asyncio.Event:
        """Set once it has been reached, or has failed once."""
        return self._mainline.settled

    @property
    def shakes_hands(self) -> bool:
        """Whether it is of the handshake era, as far as is known."""
        peer = self._mainline.peer
        return peer is None or peer.era is Era.HANDSHAKE

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        try:
            async with self._background:
                await self._mainline.run()
        finally:
            await asyncio.shield(self.lines.close())

    # One call.

    async def send(self, call: Call) -> Answer:
        """Carry one call out; raises UpstreamError saying what may have happened."""
        self._calls += 1
        self.in_flight += 1
        try:
            peer = self._mainline.peer or await self._mainline.connected()
            if peer.era is Era.HANDSHAKE and self._needs_line(call, peer):
                return await self._on_line(claim_of(call.request), lambda line: line.send(call))
            try:
                return await peer.send(call)
            except SessionGone:
                # The upstream looked at the session and no further, so the call may be sent again.
                self._mainline.drop(peer)
                return await self._once_more(call)
        except HeadgateError as error:
            self._errors += 1
            if isinstance(error, UpstreamTimeout):
                self._mainline.attention.set()
            raise
        finally:
            self.in_flight -= 1
            if not self.in_flight and self._idle is not None:
                self._idle.set()

    async def _once_more(self, call: Call) -> Answer:
        peer = await self._mainline.connected()
        try:
            return await peer.send(call)
        except SessionGone as error:
            raise self._forgetful() from error

    def _forgetful(self) -> UpstreamUnreachable:
        return UpstreamUnreachable(self.spec.name, "it forgets every session at once")

    async def await_ready(self) -> None:
        """Wait until it has told what it has; raises UpstreamUnavailable with the cause."""
        try:
            await self._mainline.connected()
        except UpstreamUnavailable:
            # The call that waited ends here and never gets to `send`.
            self._calls += 1
            self._errors += 1
            raise

    def retire(self) -> None:
        """Another keeper speaks for the server from now on; this one only finishes its calls."""
        self._retired = self._listings.muted = self._mainline.retired = True

    async def idle(self) -> None:
        """Wait until no call is under way."""
        self._idle = asyncio.Event()
        if self.in_flight:
            await self._idle.wait()

    # Clients that it may ask something: each has a connection of its own.

    def _needs_line(self, call: Call, peer: Peer) -> bool:
        request = call.request
        if self.spec.shared or (request.profile is PLAIN and not request.log_level):
            return False
        return request.profile != PLAIN or peer.greeting.logs

    async def _on_line(self, claim: Claim, work: Callable[[Peer], Awaitable[_Result]]) -> _Result:
        for _ in range(2):
            line = await self.lines.lease(claim)
            try:
                return await work(line.peer.result())
            except SessionGone:
                # Opened before the upstream was restarted; nothing happened.
                self.lines.drop(line)
            finally:
                self.lines.give_back(line)
        raise self._forgetful()

    @asynccontextmanager
    async def _connect_line(self, profile: Profile, owner: Owner | None) -> AsyncIterator[Peer]:
        """A connection for clients of one profile; raises UpstreamError."""
        inbox = Inbox(self.spec.name, _News(self, profile, owner), profile, owner)
        try:
            async with (
                asyncio.timeout(self.spec.start_timeout_seconds) as opening,
                self._open_link(self.spec, inbox, self._mainline.stderr) as link,
            ):
                greeting = await shake_hands(self.spec, link, LATEST_HANDSHAKE, profile)
                opening.reschedule(None)
                peer = Peer(self.spec, link, greeting)
                if owner is not None:
                    # What its calls change is told on this connection; nobody need wait for that.
                    self._background.start(self._watch.restore(peer))
                yield peer
        except TimeoutError as error:
            raise self._mainline.too_late() from error
        finally:
            inbox.close()

    # What it lists.

    def knows(self, profile: Profile) -> bool:
        """Whether it is known, or cannot be known now, what clients of that profile are shown."""
        if self._mainline.peer is None or profile == PLAIN:
            return True
        return self.spec.shared or self._listings.knows(profile)

    async def learn(self, claim: Claim) -> None:
        """Learn what clients of that profile are shown; raises HeadgateError."""
        peer = await self._mainline.connected()
        if peer.era is Era.HANDSHAKE:
            await self._on_line(claim, lambda line: self._listings.learn(line, claim.profile))
            return
        try:
            await self._listings.learn(peer, claim.profile)
        except SessionGone as error:
            raise self._forgetful() from error

    def mind_age(self) -> None:
        """A client is about to list: look again at what may have changed without a word."""
        peer = self._mainline.peer
        if peer is not None and self._listings.age(peer.greeting):
            self._mainline.attention.set()

    # Resources that somebody wants to hear of.

    async def subscribe(self, uri: str) -> Answer:
        """Hear of every change of a resource; the upstream's answer, raises UpstreamError."""
        return await self._watch.subscribe(uri)

    async def unsubscribe(self, uri: str) -> Answer:
        """One client less wants to hear of it; raises UpstreamError."""
        return await self._watch.unsubscribe(uri)

    # What it says about itself.

    def changed(self, capability: str, profile: Profile) -> None:
        """What it lists is out of date."""
        if self.shakes_hands and profile != PLAIN:
            news = self._listings.changed(capability, profile)
        else:
            # Clients of other profiles may have no connection now on which they would be told.
            news = self._listings.changed_for_all(capability)
        if news:
            self._mainline.attention.set()

    def updated(self, params: bytes, owner: Owner | None = None) -> None:
        """A resource has changed, for one client or for all."""
        try:
            uri = msgspec.json.decode(params or b"{}", type=_Updated).uri
        except (DecodeError, UnicodeDecodeError):
            self._inbox.count_noise("an update of no resource")
            return
        if not self._retired:
            self._events.updated(self.spec.name, uri, params, owner)

    def acknowledged(self) -> None:
        """The stateless upstream tells from now on what changes."""
        self.subscriptions.acknowledge()
        self._tell_what_was_missed()

    def _tell_what_was_missed(self) -> None:
        """Nobody knows what became of resources while nobody was told, so they count as changed."""
        if self._deaf and not self._retired:
            for uri in self.subscriptions.wanted:
                params = encode_object({"uri": Raw(msgspec.json.encode(uri))})
                self._events.updated(self.spec.name, uri, params, None)
        self._deaf = False

    def asked(self) -> None:
        """It has put a question to a client."""
        self.lines.asks = True
        self._questions += 1

    def resumed(self) -> None:
        """A stream that broke off was taken up again."""
        self._resumed += 1

    # The main connection, whose tenant this is.

    async def move_in(self, peer: Peer) -> None:
        """Learn what it lists; raises UpstreamError."""
        known = self._listings.start_over()
        await self._listings.learn(peer, PLAIN)
        if peer.era is Era.STATELESS:
            for profile in known:
                await self._listings.learn(peer, profile)
        await self.subscriptions.restore(peer)

    def moved_in(self, peer: Peer) -> None:
        """Tell that it is back."""
        if not self._retired:
            self._events.connected(self.spec.name, peer.greeting)
        self._deaf = self._mainline.connections > 1
        if peer.era is Era.HANDSHAKE:
            self._tell_what_was_missed()

    async def stay(self, peer: Peer) -> None:
        """Close what nobody uses any more; subscribe to what changes at a stateless upstream."""
        if peer.era is Era.STATELESS:
            await self._listen(peer)
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self.lines.expire()

    async def _listen(self, peer: Peer) -> Never:
        while True:
            try:
                await self.subscriptions.listen(peer)
            except (UpstreamError, SessionGone) as error:
                log.debug("subscription ended", extra={"server": self.spec.name, "reason": str(error)})
            except Exception:
                # The next subscription may go better, and nobody else would hear of this.
                log.exception("subscription failed", extra={"server": self.spec.name})
            await asyncio.sleep(_LISTEN_AGAIN_SECONDS)
            # Something may have changed while nobody listened.
            self._deaf = True
            for capability in _LISTS:
                if peer.greeting.tells_changes(capability):
                    self.changed(capability, PLAIN)

    def due(self) -> float | None:
        """Seconds until something is to be listed again."""
        return self._listings.wait() if self._listings.stale else None

    async def attend(self, peer: Peer) -> None:
        """List again what is out of date; raises UpstreamError or SessionGone."""
        problem: UpstreamError | None = None
        for profile, kinds in self._listings.take_stale().items():
            speaker = peer if peer.era is Era.STATELESS or profile is PLAIN else self.lines.any_of(profile)
            if speaker is None:
                # Nobody of that profile is connected; whoever comes next has it listed.
                self._listings.forget(profile)
                continue
            try:
                await self._listings.learn(speaker, profile, kinds)
            except (UpstreamError, SessionGone) as error:
                if speaker is not peer:
                    # What is wrong with another connection is no reason to end this one.
                    self._listings.forget(profile)
                elif self.in_flight and isinstance(error, UpstreamTimeout):
                    # It may do one thing after the other: it is asked again later, and its calls go on.
                    self._listings.put_back(profile, kinds)
                elif isinstance(error, InvalidAnswer):
                    # The clients of other profiles are shown what is new to them all the same.
                    problem = error
                else:
                    raise
        if problem is not None:
            raise problem

    # What an operator sees.

    def status(self) -> ServerStatus:
        """The state and the numbers of this upstream."""
        main, counts = self._mainline, self._listings.counts
        rest = max(0.0, round(main.next_attempt - asyncio.get_running_loop().time(), 3))
        return ServerStatus(
            name=self.spec.name,
            transport=self.spec.transport,
            state=main.state,
            protocol_version=main.peer.greeting.version if main.peer else None,
            tools=counts.get(Kind.TOOLS, 0),
            prompts=counts.get(Kind.PROMPTS, 0),
            resources=counts.get(Kind.RESOURCES, 0),
            templates=counts.get(Kind.TEMPLATES, 0),
            tools_left_out=self._listings.left_out,
            lines=len(self.lines),
            lines_opened=self.lines.opened,
            questions=self._questions,
            streams_resumed=self._resumed,
            calls=self._calls,
            errors=self._errors,
            restarts=max(0, main.connections - 1),
            noise_lines=self._inbox.noise,
            last_error=main.last_error,
            next_attempt_seconds=rest if main.state is State.BACKOFF else None,
            pid=main.peer.link.pid if main.peer else None,
            stderr_tail=tuple(main.stderr)[-20:],
        )
