"""A streamable HTTP server that a test writes, and the gateway's connection to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.mcp_request import ClientSession, McpResponse
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.streamable_http import StreamableHttpTransport, open_streamable_http
from tests.upstream.conversation import RecordedServerEvents, outgoing
from tests.upstream.raw_server import Behaviour, RawServer, raw_server
from tests.upstream.spool_limits import in_memory

WAIT_SECONDS = 10.0
MODERN, LEGACY = "2026-07-28", "2025-11-25"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class HttpConversation:
    """A transport, its server, and the messages that the server sent on its own."""

    def __init__(
        self,
        transport: StreamableHttpTransport,
        server: RawServer,
        router: NotificationRouter,
        news: RecordedServerEvents,
        spec: ServerSpec,
    ) -> None:
        self.transport = transport
        self.news = news
        self.server = server
        self.router = router
        self.spec = spec

    async def ask(self, **settings: Any) -> McpResponse:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.transport.round_trip(outgoing(**settings))


@asynccontextmanager
async def talking_to(
    behaviour: Behaviour,
    directory: Path,
    version: str = MODERN,
    profile: ClientProfile = PLAIN_PROFILE,
    owner: ClientSession | None = None,
    **settings: Any,
) -> AsyncIterator[HttpConversation]:
    """Talk for as long as the block lasts; `settings` are the server's in the configuration."""
    async with raw_server(behaviour) as server:
        spec = ServerSpec(
            name="far", transport=TransportType.STREAMABLE_HTTP, **{"url": server.url, **settings}
        )
        news = RecordedServerEvents()
        router = NotificationRouter("far", news, profile, owner)
        async with open_streamable_http(spec, in_memory(directory), router) as transport:
            if version:
                transport.set_protocol_version(version)
            yield HttpConversation(transport, server, router, news, spec)


def events(*messages: Any) -> bytes:
    """Each message as an event, without a number."""
    return b"".join(
        b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n" for message in messages
    )
