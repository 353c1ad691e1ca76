"""Everything between the gateway and one upstream: its connections, what it lists, what it is asked."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from headgate.domain.call import Answer, Call, Owner
from headgate.domain.errors import (
    HeadgateError,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnreachable,
)
from headgate.domain.kind import Kind
from headgate.domain.profile import PLAIN, Profile
from headgate.domain.server import ServerSpec, ServerStatus, State
from headgate.upstream.background import Background
from headgate.upstream.causes import as_cause
from headgate.upstream.greeting import Greeting
from headgate.upstream.handshake import shake_hands
from headgate.upstream.hearing import Hearing
from headgate.upstream.idling import Idling
from headgate.upstream.inbox import Inbox
from headgate.upstream.lines import Claim, Line, Lines, claim_of
from headgate.upstream.link import SessionGone
from headgate.upstream.listings import Listings, Readers
from headgate.upstream.mainline import Mainline, Open, Versions
from headgate.upstream.peer import Peer, out_of_time
from headgate.upstream.pending_input import PendingInputs
from headgate.upstream.subscriptions import Subscriptions
from headgate.upstream.watch import Watch
from headgate.wire.eras import LATEST_HANDSHAKE, Era, era_of

log = logging.getLogger("headgate.upstream")

# A feature of rmcp.
_IDEMPOTENCY = "idempotency"
# How often lines are looked through for those that nobody uses any more.
_TIDY_SECONDS = 30.0

_Result = TypeVar("_Result")


class Events(Readers, Protocol):
    """Who wants to know what happens to upstreams."""

    def connected(self, server: str, greeting: Greeting) -> None:
        """A new connection stands."""

    def updated(self, server: str, uri: str, params: bytes, owner: Owner | None) -> None:
        """A resource of the server has changed, for this client or for all."""


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

    def unwell(self, reason: str | None) -> None:
        self._keeper.unwell(reason)


class Keeper:
    """One upstream."""

    def __init__(
        self,
        spec: ServerSpec,
        open_link: Open,
        versions: Versions,
        events: Events,
        subscriptions: Subscriptions | None = None,
        pending_inputs: PendingInputs | None = None,
    ) -> None:
        """`pending_inputs` are those of all upstreams together."""
        self._pending_inputs = pending_inputs or PendingInputs()
        self.spec = spec
        self.in_flight = 0
        self.lines = Lines(spec.name, self._connect_line, spec.max_connections, spec.timeout_seconds)
        self.subscriptions = subscriptions or Subscriptions()
        self._open_link = open_link
        self._versions = versions
        self._events = events
        self._inbox = Inbox(spec.name, _News(self, PLAIN))
        self._mainline = Mainline(spec, open_link, versions, self._inbox, self)
        self._listings = Listings(spec.name, events)
        self._background = Background()
        self._hearing = Hearing(
            spec.name, self.subscriptions, events.updated, lambda capability: self.changed(capability, PLAIN)
        )
        self._watch = Watch(spec.name, self.subscriptions, self._mainline, self.lines, self._background)
        self._retired = False
        self._calls = self._errors = self._questions = self._resumed = 0
        self._idle: asyncio.Event | None = None
        self._now = asyncio.get_running_loop().time
        self._idling = Idling(spec, self._now)
        # What it said about itself the last time.
        self._greeting: Greeting | None = None

    @property
    def settled(self) -> asyncio.Event:
        """Set once it has been reached, or has failed once."""
        return self._mainline.settled

    @property
    def shakes_hands(self) -> bool:
        """Whether it is of the handshake era, as far as is known; also while it is stopped."""
        if self._greeting is not None:
            return self._greeting.era is Era.HANDSHAKE
        version = self._versions.version(self.spec.name)
        return version is None or era_of(version) is Era.HANDSHAKE

    @property
    def is_ready(self) -> bool:
        """Whether a call would be sent at once."""
        return self._mainline.peer is not None

    @property
    def honours_keys(self) -> bool:
        """Whether it said that it carries out one call for each idempotency key."""
        return self._greeting is not None and _IDEMPOTENCY in self._greeting.rmcp

    async def run(self) -> None:
        """Keep it connected until cancelled."""
        try:
            async with self._background:
                await self._mainline.run(asleep=self._may_sleep)
        finally:
            await asyncio.shield(self.lines.close())

    @property
    def _may_sleep(self) -> bool:
        """Whether it need not be started before somebody uses it."""
        known = self._events.knows(self.spec.name, PLAIN)
        return self.spec.cold and known and not self.subscriptions.wanted

    # One call.

    async def send(self, call: Call) -> Answer:
        """Carry one call out; raises UpstreamError saying what may have happened."""
        self._calls += 1
        self.in_flight += 1
        started = self._now()
        try:
            peer = self._mainline.peer or await self._mainline.connected(_deadline(call))
            if peer.era is Era.HANDSHAKE and self._needs_line(call, peer):
                claim = claim_of(call.request)
                return await self._on_line(claim, lambda line: line.send(call), _deadline(call))
            try:
                return await peer.send(call)
            except SessionGone:
                # The upstream looked at the session and no further, so the call may be sent again.
                self._mainline.drop(peer)
                return await self._once_more(call)
        except HeadgateError as error:
            self._errors += 1
            if isinstance(error, UpstreamTimeout):
                self._idling.gave_up(call, started)
                self._mainline.attention.set()
            raise
        except asyncio.CancelledError:
            self._idling.gave_up(call, started)
            raise
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self._rest()

    @property
    def working(self) -> bool:
        """Whether it is at work on a call, or may be on one whose answer is still wanted."""
        return self.in_flight > 0 or self._idling.may_be_working

    def _rest(self) -> None:
        """No call is under way."""
        self._idling.begin()
        if self._idle is not None:
            self._idle.set()

    async def _once_more(self, call: Call) -> Answer:
        peer = await self._mainline.connected(_deadline(call))
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
        self._retired = self._listings.muted = self._hearing.muted = self._mainline.retired = True

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

    async def _on_line(
        self, claim: Claim, work: Callable[[Peer], Awaitable[_Result]], until: float | None = None
    ) -> _Result:
        for _ in range(2):
            line = await self._lease(claim, until)
            try:
                return await work(line.peer.result())
            except SessionGone:
                # Opened before the upstream was restarted; nothing happened.
                self.lines.drop(line)
            finally:
                self.lines.give_back(line)
        raise self._forgetful()

    async def _lease(self, claim: Claim, until: float | None) -> Line:
        try:
            async with asyncio.timeout_at(until):
                return await self.lines.lease(claim)
        except TimeoutError as error:
            raise out_of_time(self.spec.name) from error

    @asynccontextmanager
    async def _connect_line(self, profile: Profile, owner: Owner | None) -> AsyncIterator[Peer]:
        """A connection for clients of one profile; raises UpstreamError."""
        news = _News(self, profile, owner)
        inbox = Inbox(self.spec.name, news, profile, owner, self._pending_inputs)
        try:
            async with (
                asyncio.timeout(self.spec.start_timeout_seconds) as opening,
                self._open_link(self.spec, inbox, self._mainline.stderr) as link,
            ):
                greeting = await shake_hands(self.spec, link, LATEST_HANDSHAKE, profile)
                opening.reschedule(None)
                peer = Peer(self.spec, link, greeting, inbox)
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
        """Learn what clients of that profile are shown; raises HeadgateError.

        A server that is stopped until it is used is not started for that.
        """
        if self._mainline.state is State.IDLE:
            return
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
        if not self._hearing.updated(params, owner):
            self._inbox.count_noise("an update of no resource")

    def acknowledged(self) -> None:
        """The stateless upstream tells from now on what changes."""
        self._hearing.acknowledged()

    def asked(self) -> None:
        """It has put a question to a client."""
        self.lines.asks = True
        self._questions += 1

    def resumed(self) -> None:
        """A stream that broke off was taken up again."""
        self._resumed += 1

    def unwell(self, reason: str | None) -> None:
        """It answers, but cannot do its work; None once it can again."""
        self._mainline.unwell(reason)

    # The main connection, whose tenant this is.

    async def move_in(self, peer: Peer) -> None:
        """Learn what it lists; raises UpstreamError."""
        if peer.greeting.gateways and not self._retired:
            self._events.reaches(self.spec.name, peer.greeting.gateways)
        known = self._listings.start_over()
        await self._listings.learn(peer, PLAIN)
        if peer.era is Era.STATELESS:
            for profile in known:
                await self._listings.learn(peer, profile)
        await self.subscriptions.restore(peer)

    def looped(self) -> None:
        """It leads back to this gateway: what it listed is this gateway's own."""
        self._listings.clear()

    def moved_in(self, peer: Peer) -> None:
        """Tell that it is back."""
        self._greeting = peer.greeting
        self._idling.begin()
        if not self._retired:
            self._events.connected(self.spec.name, peer.greeting)
        self._hearing.begin(peer, again=self._mainline.connections > 1)

    async def stay(self, peer: Peer) -> None:
        """Close what nobody uses any more; subscribe to what changes at a stateless upstream."""
        if peer.era is Era.STATELESS:
            await self._hearing.listen(peer)
        while True:
            await asyncio.sleep(_TIDY_SECONDS)
            self.lines.expire()

    def due(self) -> float | None:
        """Seconds until something is to be listed again."""
        return self._listings.wait() if self._listings.stale else None

    async def attend(self, peer: Peer) -> None:
        """List again what is out of date; raises UpstreamError or SessionGone."""
        await self._listings.catch_up(peer, self.lines.any_of, lambda: self.working)

    def idle_in(self) -> float | None:
        """Seconds until it may not be needed any more, 0 when it is not; None for one that never stops."""
        used = bool(self.in_flight or len(self.lines) or self.subscriptions.wanted)
        return self._idling.left(used=used)

    # What an operator sees.

    def status(self) -> ServerStatus:
        """The state and the numbers of this upstream."""
        main, counts = self._mainline, self._listings.counts
        rest = max(0.0, round(main.next_attempt - self._now(), 3))
        return ServerStatus(
            name=self.spec.name,
            transport=self.spec.transport,
            state=main.state,
            protocol_version=main.peer.greeting.version if main.peer else None,
            tools=counts.get(Kind.TOOLS, 0),
            prompts=counts.get(Kind.PROMPTS, 0),
            resources=counts.get(Kind.RESOURCES, 0),
            templates=counts.get(Kind.TEMPLATES, 0),
            tools_left_out={name: as_cause(reason) for name, reason in self._listings.left_out.items()},
            lines=len(self.lines),
            lines_opened=self.lines.opened,
            questions=self._questions,
            streams_resumed=self._resumed,
            calls=self._calls,
            errors=self._errors,
            restarts=main.restarts,
            noise_lines=self._inbox.noise,
            reason=as_cause(self.spec.disabled_reason) if main.state is State.DISABLED else None,
            last_error=main.last_error,
            next_attempt_seconds=rest if main.state is State.BACKOFF and main.peer is None else None,
            pid=main.peer.link.pid if main.peer else None,
            stderr_tail=main.stderr_tail(),
        )


def _deadline(call: Call) -> float | None:
    """Until when anybody waits for it, on the loop's clock."""
    return call.errand.deadline if call.errand is not None else None
