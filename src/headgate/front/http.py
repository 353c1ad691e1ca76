"""The HTTP front: which path and method mean what, and how each refusal is said."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from headgate.front import asgi
from headgate.front.asgi import App, Receive, Scope, Send
from headgate.front.guard import Guard, Refused
from headgate.front.intake import ClientLeft, check_accept, check_content_type, read_body, read_message
from headgate.front.legacy_sse import LegacySse
from headgate.front.stateless import Stateless
from headgate.front.streamable import Streamable
from headgate.wire.eras import Era, era_of
from headgate.wire.violations import INTERNAL_ERROR, Violation, encode_error

log = logging.getLogger("headgate.front")

_Handler = Callable[["Scope", dict[bytes, bytes], Receive, Send], Awaitable[None]]


class HttpFront:
    """The ASGI application: MCP on its paths, `pages` on the others."""

    def __init__(
        self,
        guard: Guard,
        streamable: Streamable,
        stateless: Stateless,
        legacy: LegacySse,
        pages: App,
        max_body_bytes: int,
    ) -> None:
        self._guard = guard
        self._streamable = streamable
        self._stateless = stateless
        self._legacy = legacy
        self._pages = pages
        self._max_body_bytes = max_body_bytes
        mcp: dict[str, _Handler] = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self._routes: dict[str, dict[str, _Handler]] = {
            "/mcp": mcp,
            "/mcp/": mcp,
            "/sse": {"GET": self._sse},
            "/mcp/sse": {"GET": self._sse},
            "/messages": {"POST": self._messages},
            "/messages/": {"POST": self._messages},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP request."""
        try:
            headers = self._guard.check(scope["headers"])
            route = self._routes.get(scope["path"])
            if route is None:
                await self._pages(scope, receive, send)
                return
            handler = route.get(scope["method"])
            if handler is None:
                allow = (b"allow", ", ".join(route).encode())
                await asgi.respond(send, 405, b"method not allowed\n", asgi.TEXT, allow)
                return
            await handler(scope, headers, receive, send)
        except Violation as violation:
            await asgi.respond(send, violation.status, violation.encode(), asgi.JSON)
        except Refused as refused:
            body = encode_error(b"null", -32600, refused.reason)
            # What is left of the body would be taken for the next request.
            closing = ((b"connection", b"close"),) if refused.status == 413 else ()
            await asgi.respond(send, refused.status, body, asgi.JSON, *closing)
        except ClientLeft:
            return
        except asyncio.CancelledError:
            # The client left, or the gateway ends: there is nobody to answer.
            return
        except Exception:
            entry = secrets.token_hex(6)
            log.exception("internal error", extra={"entry": entry, "path": str(scope["path"])[:200]})
            body = encode_error(b"null", INTERNAL_ERROR, f"internal error {entry}")
            await asgi.respond(send, 500, body, asgi.JSON)

    async def _post(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        check_content_type(headers)
        check_accept(headers)
        body = await read_body(receive, headers, self._max_body_bytes)
        envelope = await read_message(body)
        version = headers.get(b"mcp-protocol-version")
        if version is None or era_of(version.decode("latin-1")) is Era.HANDSHAKE:
            await self._streamable.post(envelope, headers, send)
        else:
            await self._stateless.post(envelope, headers, send)

    async def _get(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        if await self._without_streams(headers, send):
            return
        await self._streamable.listen(headers, send)

    async def _delete(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        if await self._without_streams(headers, send):
            return
        await self._streamable.delete(headers, send)

    async def _without_streams(self, headers: dict[bytes, bytes], send: Send) -> bool:
        """The stateless era has neither sessions nor a stream of its own."""
        version = headers.get(b"mcp-protocol-version")
        if version is None or era_of(version.decode("latin-1")) is Era.HANDSHAKE:
            return False
        await asgi.respond(send, 405, b"method not allowed\n", asgi.TEXT, (b"allow", b"POST"))
        return True

    async def _sse(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        await self._legacy.open(send, "/messages")

    async def _messages(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        check_content_type(headers)
        envelope = await read_message(await read_body(receive, headers, self._max_body_bytes))
        await self._legacy.post(envelope, scope["query_string"], send)
