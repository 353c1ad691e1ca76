"""The HTTP front: which path and method mean what, and how each refusal is said."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from headgate.domain.errors import GatewayLoop
from headgate.front.ending import encode_ending, taken_back
from headgate.front.guard import Refused
from headgate.front.intake import check_accept, check_content_type, read_message
from headgate.front.legacy_sse import LegacySse
from headgate.front.loop_refusal import encode_loop
from headgate.front.paths import MCP_PATHS, MESSAGES, SSE_PATHS, listing_of
from headgate.front.stateless import Stateless
from headgate.front.streamable import Streamable
from headgate.front.visit import RETRY_LATER, TEXT, Visit
from headgate.wire.envelope import parse
from headgate.wire.eras import Era, era_of
from headgate.wire.violations import INTERNAL_ERROR, INVALID_REQUEST, Violation, encode_error

log = logging.getLogger("headgate.front")

_LOOP = "the request came back to the gateway that sent it; remove the entry that leads here"
# Answers what is not MCP: the status, the content type and the body for a method and a path.
Pages = Callable[[str, str], tuple[int, bytes, bytes]]
_Handler = Callable[[Visit], Awaitable[None]]


class HttpFront:
    """Serves MCP on its paths, and `pages` on the others."""

    def __init__(
        self,
        streamable: Streamable,
        stateless: Stateless,
        legacy: LegacySse,
        pages: Pages,
        pseudonym: bytes = b"",
    ) -> None:
        """`pseudonym` is what this gateway is called in the Via header of its own requests."""
        # Whether nothing new is begun any more.
        self.draining = False
        self._pseudonym = pseudonym
        self._streamable = streamable
        self._stateless = stateless
        self._legacy = legacy
        self._pages = pages
        mcp: dict[str, _Handler] = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        stream: dict[str, _Handler] = {"GET": self._sse}
        self._routes: dict[str, dict[str, _Handler]] = {
            **dict.fromkeys(MCP_PATHS, mcp),
            **dict.fromkeys(SSE_PATHS, stream),
            MESSAGES: {"POST": self._messages},
            f"{MESSAGES}/": {"POST": self._messages},
        }

    async def __call__(self, visit: Visit) -> None:
        """One HTTP request, whose Host and Origin have been checked."""
        try:
            route = self._routes.get(visit.path)
            if route is None:
                status, kind, body = self._pages(visit.method, visit.path)
                visit.respond(status, body, kind, b"allow: GET, HEAD\r\n" if status == 405 else b"")
                return
            handler = route.get(visit.method)
            if handler is None:
                allow = f"allow: {', '.join(route)}\r\n".encode()
                visit.respond(405, b"method not allowed\n", TEXT, allow)
                return
            via = visit.headers.get(b"via")
            if via is not None and self._pseudonym and self._pseudonym in via:
                visit.respond(GatewayLoop.http_status, encode_loop(b"null", _LOOP))
                return
            await handler(visit)
        except Violation as violation:
            visit.respond(violation.status, violation.encode())
        except Refused as refused:
            extra = RETRY_LATER if refused.status == 503 else b""
            body = encode_error(b"null", INVALID_REQUEST, refused.reason)
            visit.respond(refused.status, body, extra=extra)
        except asyncio.CancelledError as cancelled:
            # Otherwise the client has left, and nobody reads an answer.
            if taken_back(cancelled):
                _refuse_ending(visit, _id_of(visit.body))
        except Exception:
            entry = secrets.token_hex(6)
            log.exception("internal error", extra={"entry": entry, "path": visit.path[:200]})
            visit.close = True
            visit.respond(500, encode_error(b"null", INTERNAL_ERROR, f"internal error {entry}"))

    async def _post(self, visit: Visit) -> None:
        headers = visit.headers
        check_content_type(headers)
        check_accept(headers)
        envelope = await read_message(visit.body)
        if self.draining and envelope.method and envelope.id:
            # Answers and cancellations belong to calls under way, and pass.
            _refuse_ending(visit, bytes(envelope.id))
        elif _stateless(headers):
            await self._stateless.post(envelope, visit)
        else:
            await self._streamable.post(envelope, visit)

    async def _get(self, visit: Visit) -> None:
        if _stateless(visit.headers):
            _only_post(visit)
        elif self.draining:
            _refuse_ending(visit)
        else:
            await self._streamable.listen(visit)

    async def _delete(self, visit: Visit) -> None:
        if _stateless(visit.headers):
            _only_post(visit)
        else:
            self._streamable.delete(visit)

    async def _sse(self, visit: Visit) -> None:
        if self.draining:
            _refuse_ending(visit)
            return
        await self._legacy.open(visit, MESSAGES, listing_of(visit.path))

    async def _messages(self, visit: Visit) -> None:
        check_content_type(visit.headers)
        envelope = await read_message(visit.body)
        if self.draining and envelope.method and envelope.id:
            _refuse_ending(visit, bytes(envelope.id))
        else:
            await self._legacy.post(envelope, visit)


def _stateless(headers: dict[bytes, bytes]) -> bool:
    """Whether a request is of the era without sessions; an unknown version is, and is told so there."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and era_of(version.decode("latin-1")) is Era.STATELESS


def _refuse_ending(visit: Visit, id: bytes = b"null") -> None:
    visit.close = True
    visit.respond(503, encode_ending(id), extra=RETRY_LATER)


def _id_of(body: bytes) -> bytes:
    """The id of a request, or null."""
    try:
        return bytes(parse(body).id) or b"null"
    except Violation:
        return b"null"


def _only_post(visit: Visit) -> None:
    """The stateless era has neither sessions nor a stream of its own."""
    visit.respond(405, b"method not allowed\n", TEXT, b"allow: POST\r\n")
