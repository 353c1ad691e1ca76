"""Sessions of the handshake era: client state between requests, expiry and revival, and their messages."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.client_profile import PLAIN_PROFILE, client_name, profile_of
from headgate.domain.delivery_request import FEATURES
from headgate.domain.identity import Identity
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, visibility_group_of
from headgate.protocol.jsonrpc import ABSENT, Envelope, encode_notification
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, INVALID_REQUEST, ProtocolViolation, encode_error
from headgate.protocol.protocol_version import LATEST_HANDSHAKE, Era
from headgate.protocol.rmcp import shared_features
from headgate.server.change_notifier import ChangeNotifier, VisibilityGroups
from headgate.server.client_context import ClientContext, InitializedClient, SessionPreferences
from headgate.server.event_streams import ReplayBuffer
from headgate.server.method_router import MethodRouter
from headgate.server.reply import Reply
from headgate.server.session_streams import (
    LISTED_CAPABILITIES,
    ClientRequests,
    MessageSender,
    SessionChannel,
    SessionStreams,
    list_changed_method,
)
from headgate.server.shutdown import absorb_interrupt, encode_shutdown_error

log = logging.getLogger("headgate.server")

# The message of a cancellation by the client, as opposed to one because the client has left.
_CLIENT_CANCELLATION = "cancelled by the client"

_SESSION_PURPOSE = "session"
# After this a client has to begin a new session.
_REVIVABLE_SECONDS = 30 * 24 * 3600.0
# Servers and proxies in between take headers of 4 KB and more.
_MAX_ID_BYTES = 2048
# Sessions that have ended, of which it is remembered how.
_MAX_ENDED = 10_000


def cancelled_by_client(cancelled: asyncio.CancelledError) -> bool:
    """Whether the client cancelled the request and is still connected."""
    return cancelled.args == (_CLIENT_CANCELLATION,)


class RunningRequests:
    """The requests of one client that are being worked on, so that each can be cancelled."""

    def __init__(self) -> None:
        self._tasks: dict[bytes, asyncio.Task[None] | None] = {}

    def start(self, id: bytes, task: "asyncio.Task[None] | None") -> None:
        """Register the task of a request; raises ProtocolViolation when the id is in use."""
        if id in self._tasks:
            raise ProtocolViolation(INVALID_REQUEST, "A request with this id is still running", id=id)
        self._tasks[id] = task

    def finish(self, id: bytes) -> None:
        self._tasks.pop(id, None)

    def cancel(self, id: bytes) -> None:
        """Cancel a request; unknown ids are ignored."""
        task = self._tasks.get(id)
        if task is not None:
            task.cancel(_CLIENT_CANCELLATION)

    def __len__(self) -> int:
        return len(self._tasks)


class HandshakeSession:
    """One client of the handshake era."""

    def __init__(self, sender: MessageSender, identity: Identity, id: bytes = b"") -> None:
        self.identity = identity
        # 192 bits: an id is never guessed.
        self.id = id or secrets.token_urlsafe(24).encode()
        self.version = LATEST_HANDSHAKE
        self.capabilities = b"{}"
        self.profile = PLAIN_PROFILE
        # Those of rmcp that the client shares with us.
        self.features: frozenset[str] = frozenset()
        self.client_info = b""
        # What the client calls itself, and the listing that the path it opened stands for.
        self.client = ""
        self.listing: ListingMode | None = None
        self.preferences = SessionPreferences()
        # Whether it can be revived after it was closed.
        self.revivable = False
        self.running_requests = RunningRequests()
        self.client_requests = ClientRequests()
        self.channel = SessionChannel(sender, self.client_requests)
        self.owner = ClientSession(self.id.decode(), self.channel)
        self.visibility_group = visibility_group_of(self.owner, identity)

    def complete_handshake(self, version: str, capabilities: bytes, client_info: bytes) -> None:
        self.version = version
        self.capabilities = capabilities
        self.profile = profile_of(capabilities)
        self.features = shared_features(capabilities, FEATURES)
        self.client_info = client_info
        self.client = client_name(client_info)

    def accepts(self, identity: Identity) -> bool:
        """Whether it belongs to the owner of that identity, whose present grants it has from now on."""
        if identity.owner != self.identity.owner:
            return False
        self.identity = identity
        return True

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        if visibility_groups is None or self.visibility_group in visibility_groups:
            self.channel.send_notification(list_changed_method(capability), b"")

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        if self._is_subscribed(uri, owner):
            self.channel.send_notification("notifications/resources/updated", params)

    def _is_subscribed(self, uri: str, owner: ClientSession | None) -> bool:
        return uri in self.preferences.subscriptions and (owner is None or owner.id == self.owner.id)


class HttpSession(HandshakeSession):
    """A client of streamable HTTP."""

    def __init__(self, streams: SessionStreams, now: float, identity: Identity, id: bytes = b"") -> None:
        super().__init__(streams, identity, id)
        self.streams = streams
        self.last_used = now

    @property
    def idle(self) -> bool:
        return not self.running_requests and not self.streams.live

    def list_changed(self, capability: str, visibility_groups: VisibilityGroups) -> None:
        if visibility_groups is None:
            self.streams.notify_list_changed(capability)
        elif self.visibility_group in visibility_groups and not self.streams.try_send(
            encode_notification(list_changed_method(capability))
        ):
            self.streams.mark_lists_stale((capability,))

    def resource_updated(self, uri: str, params: bytes, owner: ClientSession | None) -> None:
        if not self._is_subscribed(uri, owner):
            return
        if not self.streams.try_send(encode_notification("notifications/resources/updated", params)):
            self.streams.mark_resource_stale(uri)

    def complete_handshake(self, version: str, capabilities: bytes, client_info: bytes) -> None:
        super().complete_handshake(version, capabilities, client_info)
        self.streams.version = version


class TooManySessions(Exception):
    """No session can be opened before another one ends."""


class SessionIdSigner(Protocol):
    """Makes tokens that a client can keep but not change."""

    def sign(self, purpose: str, content: bytes, seconds: float) -> str:
        """A token that carries the content, for so long."""

    def verify(self, purpose: str, token: str) -> bytes:
        """The content; raises ValueError when it is not ours, was changed, or is too old."""


class SessionPreferenceStore(Protocol):
    """Persists the preferences of sessions, by a digest of the session id."""

    def preferences(self, session: str) -> tuple[str, list[str]] | None:
        """The log level and the subscriptions, if there are any."""

    def save_preferences(self, session: str, level: str, uris: list[str]) -> None:
        """Replace them; a session without any is deleted."""


class _SessionToken(msgspec.Struct, array_like=True):
    """The content of a session id, from which any gateway with the key can revive the session."""

    issued: float
    version: str
    capabilities: bytes
    client_info: bytes


@dataclass(eq=False)
class SessionStore:
    """All sessions; idle ones are closed, and revived when their client returns."""

    change_notifier: ChangeNotifier
    max_sessions: int
    idle_seconds: float
    signer: SessionIdSigner
    preference_store: SessionPreferenceStore
    on_close: Callable[[HandshakeSession], None]
    on_revival: Callable[[HttpSession], None]
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._sessions: dict[bytes, HttpSession] = {}
        # Whether the client ended the session itself, by a digest of its id; the oldest go first.
        self._ended: dict[bytes, bool] = {}
        # What is kept for clients that come back with a Last-Event-ID.
        self.replay_buffer = ReplayBuffer()
        self._began = self.clock()
        self._loop = asyncio.get_running_loop()
        # How often a client came back to a session that was forgotten, by the reason for that.
        self.revived = {"restart": 0, "idle": 0}
        # How often a client took up a stream again that had broken off.
        self.resumed = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, initialized: InitializedClient, identity: Identity) -> HttpSession:
        """A new session of the identity; raises TooManySessions."""
        declared = (initialized.version, initialized.capabilities, initialized.client_info)
        session_token = _SessionToken(self.clock(), *declared)
        return self._add(session_token, self._issue(session_token, identity), identity)

    def _issue(self, session_token: _SessionToken, identity: Identity) -> bytes:
        """A session id with the token; empty for a client whose description does not fit into one."""
        for client_info in (session_token.client_info, b""):
            carried = msgspec.structs.replace(session_token, client_info=client_info)
            content = msgspec.msgpack.encode(carried)
            if len(content) < _MAX_ID_BYTES:
                purpose = identity.owned_purpose(_SESSION_PURPOSE)
                id = self.signer.sign(purpose, content, _REVIVABLE_SECONDS)
                if len(id) <= _MAX_ID_BYTES:
                    return id.encode()
        return b""

    def _add(self, session_token: _SessionToken, id: bytes, identity: Identity) -> HttpSession:
        if len(self._sessions) >= self.max_sessions:
            # Clients rarely end their sessions.
            idle = [session for session in self._sessions.values() if session.idle]
            if not idle:
                raise TooManySessions
            self.close_session(min(idle, key=lambda session: session.last_used))
        session = HttpSession(SessionStreams(self.replay_buffer), self._loop.time(), identity, id)
        declared = (session_token.version, session_token.capabilities, session_token.client_info)
        session.complete_handshake(*declared)
        session.preferences.on_change = partial(self._save_preferences, session)
        session.revivable = bool(id)
        self._sessions[session.id] = session
        self.change_notifier.add_listener(session)
        return session

    def _save_preferences(self, session: HttpSession) -> None:
        preferences = session.preferences
        uris = sorted(preferences.subscriptions)
        self.preference_store.save_preferences(_digest(session.id).hex(), preferences.log_level, uris)

    def get(self, id: bytes, identity: Identity) -> HttpSession | None:
        """The identity's session of that id, now in use, or None; raises TooManySessions."""
        session = self._sessions.get(id)
        if session is None or (identity is not session.identity and not session.accepts(identity)):
            return self._revive(id, identity)
        session.last_used = self._loop.time()
        return session

    def _revive(self, id: bytes, identity: Identity) -> HttpSession | None:
        """A session that this gateway, or another with its key, opened for the identity and has forgotten."""
        # An id that was issued to another identity does not verify, like one that was never issued.
        if len(id) > _MAX_ID_BYTES:
            return None
        ended_by_client = self._ended.get(_digest(id))
        if ended_by_client:
            return None
        try:
            content = self.signer.verify(identity.owned_purpose(_SESSION_PURPOSE), id.decode("ascii"))
            session_token = msgspec.msgpack.decode(content, type=_SessionToken)
        except (ValueError, DecodeError):
            return None
        session = self._add(session_token, id, identity)
        forgotten_here = ended_by_client is not None
        self.revived["idle" if forgotten_here or session_token.issued >= self._began else "restart"] += 1
        # What it missed is not known.
        session.streams.mark_lists_stale(LISTED_CAPABILITIES)
        level, uris = self.preference_store.preferences(_digest(id).hex()) or ("", [])
        session.preferences.log_level = level
        session.preferences.subscriptions.update(uris)
        self.on_revival(session)
        return session

    def expire(self) -> None:
        """Close sessions that were idle for too long, and drop streams that were not resumed in time."""
        oldest = self._loop.time() - self.idle_seconds
        for session in list(self._sessions.values()):
            if session.last_used < oldest and session.idle:
                self.close_session(session)
            else:
                session.streams.expire()

    def close_session(self, session: HttpSession, *, by_client: bool = False) -> None:
        """Close a session; one that its client ends cannot be revived."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._ended[_digest(session.id)] = by_client
        if by_client:
            session.revivable = False
            self.preference_store.save_preferences(_digest(session.id).hex(), "", [])
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self.change_notifier.remove_listener(session)
        session.client_requests.close()
        session.streams.close()
        self.on_close(session)


def _digest(id: bytes) -> bytes:
    return hashlib.blake2b(id, digest_size=16).digest()


async def reply_or_error(id: bytes, work: Awaitable[Reply]) -> Reply | None:
    """The reply to the request `id`; None when the client has cancelled it."""
    try:
        return await work
    except ProtocolViolation as violation:
        return Reply(violation.encode())
    except asyncio.CancelledError as cancelled:
        if cancelled_by_client(cancelled):
            return None
        if absorb_interrupt(cancelled):
            return Reply(encode_shutdown_error(id))
        raise
    except Exception:
        entry = secrets.token_hex(6)
        log.exception("internal error", extra={"entry": entry})
        return Reply(encode_error(id, INTERNAL_ERROR, f"internal error {entry}"))


async def handle_session_request(
    router: MethodRouter, envelope: Envelope, session: HandshakeSession, key_header: bytes | None = None
) -> Reply:
    """The reply to a request on a two-way stream; raises ProtocolViolation."""
    if envelope.method == "initialize":
        initialized = await router.initialize(envelope, session.identity, session.listing)
        session.complete_handshake(initialized.version, initialized.capabilities, initialized.client_info)
        return initialized.reply
    id = bytes(envelope.id)
    session.running_requests.start(id, asyncio.current_task())
    context = ClientContext(
        era=Era.HANDSHAKE,
        channel=session.channel,
        caller=session.identity,
        profile=session.profile,
        client=session.client,
        listing=session.listing,
        owner=session.owner,
        preferences=session.preferences,
        key_header=key_header,
        features=session.features,
    )
    try:
        return await router.handle_request(envelope, context)
    finally:
        session.running_requests.finish(id)


class _CancelledRequestParams(msgspec.Struct):
    requestId: Raw = ABSENT  # noqa: N815 (the protocol's spelling)


def cancel_request(running_requests: RunningRequests, envelope: Envelope) -> None:
    with suppress(DecodeError):
        params = msgspec.json.decode(envelope.params or b"{}", type=_CancelledRequestParams)
        running_requests.cancel(bytes(params.requestId))


def handle_one_way_message(envelope: Envelope, session: HandshakeSession, router: MethodRouter) -> None:
    """Handle a notification of a client, or its response to a server request."""
    if envelope.method == "notifications/cancelled":
        cancel_request(session.running_requests, envelope)
    elif envelope.method:
        router.handle_notification(envelope, session.owner, session.identity)
    else:
        session.client_requests.on_response(envelope)
