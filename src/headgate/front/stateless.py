"""Streamable HTTP of the stateless era: every request stands alone and says who sends it."""

import asyncio

import msgspec
from msgspec import DecodeError, Raw

from headgate.front.answers import Answers
from headgate.front.audience import Audience
from headgate.front.exchange import Exchange
from headgate.front.outbox import Outbox
from headgate.front.pulse import Pulse
from headgate.front.streamable import stream
from headgate.front.visit import Visit
from headgate.wire.envelope import (
    ABSENT,
    Envelope,
    decode_object,
    encode_notification,
    encode_object,
    encode_result,
)
from headgate.wire.eras import META_CAPABILITIES, META_SUBSCRIPTION, META_VERSION, STATELESS_VERSIONS, Era
from headgate.wire.framing import sse_event
from headgate.wire.headers import decode_value
from headgate.wire.results import COMPLETE
from headgate.wire.violations import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    Violation,
)

# Which member of params the Mcp-Name header repeats.
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class _Params(msgspec.Struct, rename={"meta": "_meta"}):
    name: Raw = ABSENT
    uri: Raw = ABSENT
    meta: Raw = ABSENT
    notifications: Raw = ABSENT


class _Filter(msgspec.Struct):
    toolsListChanged: bool = False  # noqa: N815 (the protocol's spelling)


_params = msgspec.json.Decoder(_Params)


class Stateless:
    """Serves clients that do not shake hands."""

    def __init__(self, answers: Answers, audience: Audience, pulse: Pulse) -> None:
        self._answers = answers
        self._audience = audience
        self._pulse = pulse

    async def post(self, envelope: Envelope, visit: Visit) -> None:
        """One message from a client; raises Violation."""
        if not envelope.method:
            raise Violation(INVALID_REQUEST, "Only requests and notifications are sent in this era")
        if not envelope.id:
            _check_version(visit.headers[b"mcp-protocol-version"].decode("latin-1"), b"null")
            visit.respond(202, b"")
            return
        check(envelope, visit.headers)
        if envelope.method == "subscriptions/listen":
            await self._listen(envelope, visit)
            return
        exchange = Exchange(visit, self._pulse.now)
        self._pulse.watch(exchange)
        try:
            reply = await self._answers.answer(envelope, Era.STATELESS, exchange.emit)
        except asyncio.CancelledError:
            exchange.abandon()
            raise
        finally:
            self._pulse.forget(exchange)
        await exchange.finish(reply)

    async def _listen(self, envelope: Envelope, visit: Visit) -> None:
        subscription = Subscription(envelope)
        self._audience.join(subscription.tools_changed)
        try:
            await stream(
                visit,
                subscription.outbox,
                self._audience,
                first=sse_event(subscription.acknowledgement),
                last=sse_event(subscription.last_word),
            )
        finally:
            self._audience.leave(subscription.tools_changed)


class Subscription:
    """What one client asked to be told, put into its outbox under the id of its request."""

    def __init__(self, envelope: Envelope) -> None:
        self.id = bytes(envelope.id)
        self.outbox = Outbox()
        self.ended = asyncio.Event()
        tag = encode_object({META_SUBSCRIPTION: Raw(self.id)})
        self._changed = encode_notification("notifications/tools/list_changed", b'{"_meta":' + tag + b"}")
        self.wants_tools = _wants_tools(envelope)
        told = b'{"toolsListChanged":true}' if self.wants_tools else b"{}"
        params = b'{"_meta":' + tag + b',"notifications":' + told + b"}"
        self.acknowledgement = encode_notification("notifications/subscriptions/acknowledged", params)

    def tools_changed(self) -> None:
        """The tools have changed."""
        if self.wants_tools:
            self.outbox.notify(self._changed)

    @property
    def last_word(self) -> bytes:
        """What ends the subscription in good order."""
        return encode_result(self.id, b"{" + COMPLETE + b"}")


def _wants_tools(envelope: Envelope) -> bool:
    try:
        wanted = _params.decode(envelope.params or b"{}").notifications
        return msgspec.json.decode(wanted or b"{}", type=_Filter).toolsListChanged
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(
            INVALID_PARAMS, f"Invalid params: notifications: {error}", id=bytes(envelope.id)
        ) from error


def check(envelope: Envelope, headers: dict[bytes, bytes] | None) -> None:
    """Refuse a request that does not say who sends it, or whose headers say something else than its body."""
    id = bytes(envelope.id)
    try:
        params = _params.decode(envelope.params or b"{}")
        meta = decode_object(params.meta or b"{}")
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: {error}", id=id) from error
    missing = [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]
    if missing:
        raise Violation(INVALID_PARAMS, f"Invalid params: _meta lacks {', '.join(missing)}", id=id)
    try:
        version = msgspec.json.decode(meta[META_VERSION], type=str)
    except DecodeError as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: {META_VERSION} must be a string", id=id) from error
    if headers is not None:
        _check_headers(envelope, headers, version, params)
    _check_version(version, id)


def _check_headers(envelope: Envelope, headers: dict[bytes, bytes], version: str, params: _Params) -> None:
    id = bytes(envelope.id)
    if headers.get(b"mcp-protocol-version") != version.encode():
        raise Violation(HEADER_MISMATCH, "MCP-Protocol-Version differs from the version in the body", id=id)
    if headers.get(b"mcp-method") != envelope.method.encode():
        raise Violation(HEADER_MISMATCH, "Mcp-Method differs from the method in the body", id=id)
    key = _NAMED.get(envelope.method)
    if key is None:
        return
    named: Raw = getattr(params, key)
    if not named:
        return
    try:
        expected = msgspec.json.decode(named, type=str)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Violation(INVALID_PARAMS, f"Invalid params: {key}: {error}", id=id) from error
    header = headers.get(b"mcp-name")
    if header is None or decode_value(header) != expected:
        raise Violation(HEADER_MISMATCH, f"Mcp-Name differs from the {key} in the body", id=id)


def _check_version(version: str, id: bytes) -> None:
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version[:100]}
        raise Violation(UNSUPPORTED_VERSION, "Unsupported protocol version", id=id, data=data)
