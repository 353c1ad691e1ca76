"""Routes HTTP requests by path and method, and encodes every refusal."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headgate.domain.errors import GatewayLoop
from headgate.domain.identity import Identity
from headgate.protocol.jsonrpc import parse_message
from headgate.protocol.jsonrpc_errors import INTERNAL_ERROR, INVALID_REQUEST, ProtocolViolation, encode_error
from headgate.protocol.protocol_version import HANDSHAKE_VERSIONS
from headgate.server.client_context import Authenticator
from headgate.server.guard import LISTING_MODES, MCP_PATHS, MESSAGES, SSE_PATHS, HttpRefusal
from headgate.server.http_request import RETRY_LATER, TEXT, HttpRequest
from headgate.server.legacy_sse import LegacySseHandler
from headgate.server.reply import encode_loop_error
from headgate.server.request_body import check_content_type, check_post_headers, read_message
from headgate.server.shutdown import absorb_interrupt, encode_shutdown_error
from headgate.server.stateless_http import StatelessHttpHandler
from headgate.server.streamable_http import StreamableHttpHandler

log = logging.getLogger("headgate.server")

_LOOP_REASON = "the request came back to the gateway that sent it; remove the entry that leads here"
# Answers what is not MCP: the status, the content type and the body for a method and a path.
PageHandler = Callable[[str, str], tuple[int, bytes, bytes]]
# Values of the version header in the handshake era; without one a request is of that era. An unknown version
# is refused in the stateless era.
_VERSION = b"mcp-protocol-version"
_HANDSHAKE_VERSIONS = frozenset({None, *(version.encode() for version in HANDSHAKE_VERSIONS)})
_Handler = Callable[[HttpRequest, Identity], Awaitable[None]]


@dataclass(eq=False)
class HttpRouter:
    """Serves MCP on its paths, and the pages on the others."""

    _authenticator: Authenticator
    _streamable: StreamableHttpHandler
    _stateless: StatelessHttpHandler
    _legacy: LegacySseHandler
    _pages: PageHandler
    # What this gateway is called in the Via header of its own requests.
    _pseudonym: bytes = b""
    # Whether nothing new is begun any more.
    draining = False

    def __post_init__(self) -> None:
        mcp: dict[str, _Handler] = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        stream: dict[str, _Handler] = {"GET": self._sse}
        self._routes: dict[str, dict[str, _Handler]] = {
            **dict.fromkeys(MCP_PATHS, mcp),
            **dict.fromkeys(SSE_PATHS, stream),
            MESSAGES: {"POST": self._messages},
            f"{MESSAGES}/": {"POST": self._messages},
        }

    async def __call__(self, http_request: HttpRequest) -> None:
        """One HTTP request, whose Host and Origin have been checked."""
        try:
            route = self._routes.get(http_request.path)
            if route is None:
                status, kind, body = self._pages(http_request.method, http_request.path)
                http_request.respond(status, body, kind, b"allow: GET, HEAD\r\n" if status == 405 else b"")
                return
            handler = route.get(http_request.method)
            if handler is None:
                allow = f"allow: {', '.join(route)}\r\n".encode()
                http_request.respond(405, b"method not allowed\n", TEXT, allow)
                return
            via = http_request.headers.get(b"via")
            if via is not None and self._pseudonym and self._pseudonym in via:
                http_request.respond(GatewayLoop.http_status, encode_loop_error(b"null", _LOOP_REASON))
                return
            await handler(http_request, self._authenticator.identify_http(http_request.headers))
        except ProtocolViolation as violation:
            http_request.respond(violation.status, violation.encode())
        except HttpRefusal as refused:
            extra = RETRY_LATER if refused.status == 503 else b""
            body = encode_error(b"null", INVALID_REQUEST, refused.reason)
            http_request.respond(refused.status, body, extra=extra)
        except asyncio.CancelledError as cancelled:
            # Otherwise the client has left and reads no response.
            if absorb_interrupt(cancelled):
                _refuse_for_shutdown(http_request, _request_id_of(http_request.body))
        except Exception:
            entry = secrets.token_hex(6)
            log.exception("internal error", extra={"entry": entry, "path": http_request.path[:200]})
            http_request.closes_connection = True
            http_request.respond(500, encode_error(b"null", INTERNAL_ERROR, f"internal error {entry}"))

    async def _post(self, http_request: HttpRequest, identity: Identity) -> None:
        headers = http_request.headers
        check_post_headers(headers)
        envelope = await read_message(http_request.body)
        if self.draining and envelope.method and envelope.id:
            # Answers and cancellations belong to calls under way, and pass.
            _refuse_for_shutdown(http_request, bytes(envelope.id))
        elif headers.get(_VERSION) not in _HANDSHAKE_VERSIONS:
            await self._stateless.post(envelope, http_request, identity)
        else:
            await self._streamable.post(envelope, http_request, identity)

    async def _get(self, http_request: HttpRequest, identity: Identity) -> None:
        if http_request.headers.get(_VERSION) not in _HANDSHAKE_VERSIONS:
            _refuse_method(http_request)
        elif self.draining:
            _refuse_for_shutdown(http_request)
        else:
            await self._streamable.open_get_stream(http_request, identity)

    async def _delete(self, http_request: HttpRequest, identity: Identity) -> None:
        if http_request.headers.get(_VERSION) not in _HANDSHAKE_VERSIONS:
            _refuse_method(http_request)
        else:
            self._streamable.delete(http_request, identity)

    async def _sse(self, http_request: HttpRequest, identity: Identity) -> None:
        if self.draining:
            _refuse_for_shutdown(http_request)
            return
        await self._legacy.open_stream(http_request, identity, MESSAGES, LISTING_MODES[http_request.path])

    async def _messages(self, http_request: HttpRequest, identity: Identity) -> None:
        check_content_type(http_request.headers)
        envelope = await read_message(http_request.body)
        if self.draining and envelope.method and envelope.id:
            _refuse_for_shutdown(http_request, bytes(envelope.id))
        else:
            await self._legacy.post(envelope, http_request, identity)


def _refuse_for_shutdown(http_request: HttpRequest, id: bytes = b"null") -> None:
    http_request.closes_connection = True
    http_request.respond(503, encode_shutdown_error(id), extra=RETRY_LATER)


def _request_id_of(body: bytes) -> bytes:
    try:
        return bytes(parse_message(body).id) or b"null"
    except ProtocolViolation:
        return b"null"


def _refuse_method(http_request: HttpRequest) -> None:
    """The stateless era has neither sessions nor a stream of its own."""
    http_request.respond(405, b"method not allowed\n", TEXT, b"allow: POST\r\n")
