"""Messages of a client with a session: requests on a two-way stream, notifications and responses."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable

import msgspec
from msgspec import DecodeError, Raw

from headgate.protocol.jsonrpc import ABSENT, Envelope
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, ProtocolViolation, encode_error
from headgate.protocol.protocol_version import Era
from headgate.server.client_context import ClientContext
from headgate.server.method_router import MethodRouter
from headgate.server.reply import Reply
from headgate.server.sessions import HandshakeSession, RunningRequests, cancelled_by_client
from headgate.server.shutdown import absorb_interrupt, encode_shutdown_error

log = logging.getLogger("headgate.server")


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
    """Handle notifications/cancelled."""
    try:
        running_requests.cancel(
            bytes(msgspec.json.decode(envelope.params or b"{}", type=_CancelledRequestParams).requestId)
        )
    except DecodeError:
        return


def handle_one_way_message(envelope: Envelope, session: HandshakeSession, router: MethodRouter) -> None:
    """Handle a notification of a client, or its response to a server request."""
    if envelope.method == "notifications/cancelled":
        cancel_request(session.running_requests, envelope)
    elif envelope.method:
        router.handle_notification(envelope, session.owner, session.identity)
    else:
        session.client_requests.on_response(envelope)
