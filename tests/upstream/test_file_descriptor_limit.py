"""A gateway without file descriptors says so, and does not blame the server that it cannot reach."""

import asyncio
import resource
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.domain.errors import UpstreamUnreachable
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.http.http_connector import ConnectFailed, Origin, OriginConnector
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.child_process import Watchdog
from headgate.upstream.transports.stdio import open_stdio
from tests.upstream.conversation import RecordedServerEvents
from tests.upstream.spool_limits import in_memory

REASON = "the gateway has no file descriptor left; raise its limit of open files"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let nothing be opened in this block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_child_is_not_blamed_for_descriptors_that_the_gateway_lacks(tmp_path: Path) -> None:
    spec = ServerSpec(name="own", transport=TransportType.STDIO, command=sys.executable)
    watchdog = Watchdog()
    # Threads are started before.
    await asyncio.to_thread(lambda: None)
    with no_descriptors(), pytest.raises(UpstreamUnreachable, match=REASON):
        async with open_stdio(
            spec, in_memory(tmp_path), watchdog, NotificationRouter("own", RecordedServerEvents()), deque()
        ):
            pass


async def test_an_http_server_is_not_blamed_for_descriptors_that_the_gateway_lacks() -> None:
    connector = OriginConnector(Origin("http://127.0.0.1:9/mcp"), 5.0)
    with no_descriptors(), pytest.raises(ConnectFailed, match=REASON):
        await connector.connect(asyncio.Protocol)
