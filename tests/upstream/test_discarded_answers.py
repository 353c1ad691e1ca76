"""Large answers of an HTTP server without a waiting call are closed at once, not at the next clean-up."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.errors import UpstreamRequestRefused
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.streamable_http import open_streamable_http
from tests.upstream.conversation import RecordedServerEvents, outgoing
from tests.upstream.raw_server import Received, raw_server, response
from tests.upstream.spool_limits import limits, open_files


@pytest.fixture(autouse=True)
def no_blocking_calls_on_the_loop() -> None:
    """Allow them: large answers go to disk on the loop, in small pieces."""


def events(*messages: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)


@pytest.mark.parametrize("more", [{"id": 99}, {"method": "notifications/x"}], ids=["a stranger's", "unasked"])
@pytest.mark.parametrize("where", ["on a stream", "in a refusal"])
async def test_a_large_answer_that_nobody_takes_gives_its_disk_space_back(
    tmp_path: Path, more: dict[str, Any], where: str
) -> None:
    large = {"jsonrpc": "2.0", "result": "x" * 100_000, **more}

    async def say(request: Received) -> None:
        if where == "on a stream":
            answer = {"jsonrpc": "2.0", "id": 1, "result": {"done": True}}
            await request.say(response(events(large, answer), kind="text/event-stream"))
        else:
            await request.answer(json.dumps(large).encode(), "400 Bad Request")

    async with raw_server(say) as server:
        spec = ServerSpec(name="far", transport=TransportType.STREAMABLE_HTTP, url=server.url)
        async with open_streamable_http(
            spec, limits(tmp_path), NotificationRouter("far", RecordedServerEvents())
        ) as transport:
            transport.set_protocol_version("2026-07-28")
            try:
                await transport.round_trip(outgoing())
            except UpstreamRequestRefused:
                assert where == "in a refusal"
    # A file that is left to the garbage collector is closed too, with a warning that is an error here.
    gc.collect()
    assert open_files(tmp_path) == []
