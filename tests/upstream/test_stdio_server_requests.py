"""A child asks over its pipes."""

import asyncio
import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.child_process import Watchdog
from headgate.upstream.transports.stdio import open_stdio
from tests.upstream.conversation import SAID, SAMPLING, Client, RecordedServerEvents, outgoing
from tests.upstream.spool_limits import in_memory

WAIT_SECONDS = 5.0


@pytest.fixture(autouse=True)
def no_blocking_calls_on_the_loop() -> None:
    """Allow them: the watchdog learns of a child in one small write."""


CHILD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/call":
        call = message["id"]
        asked = {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {"maxTokens": 5}}
        print(json.dumps(asked), flush=True)
    elif message.get("id") == 7:
        print(json.dumps({"jsonrpc": "2.0", "id": call, "result": {"told": message}}), flush=True)
"""


REFUSED = {
    "code": -32601,
    "message": "Method not found: sampling/createMessage (the client does not support sampling)",
}


@pytest.mark.parametrize(
    ("profile", "told"),
    [(SAMPLING, {"result": {"role": "assistant", "n": 1.0}}), (PLAIN_PROFILE, {"error": REFUSED})],
    ids=["declared", "undeclared"],
)
async def test_a_child_asks_the_client_that_called_it(
    tmp_path: Path, profile: ClientProfile, told: dict[str, Any]
) -> None:
    spec = ServerSpec(name="own", transport=TransportType.STDIO, command=sys.executable, args=("-c", CHILD))
    client, router, watchdog = (
        Client(SAID),
        NotificationRouter("own", RecordedServerEvents(), profile),
        Watchdog(),
    )
    try:
        async with open_stdio(spec, in_memory(tmp_path), watchdog, router, deque()) as transport:
            async with asyncio.timeout(WAIT_SECONDS):
                answer = await transport.round_trip(outgoing(token=1, client=client))
    finally:
        watchdog.close()
    assert isinstance(answer.result, bytes)
    assert json.loads(answer.result)["told"] == {"jsonrpc": "2.0", "id": 7, **told}
    assert len(client.asked) == ("result" in told)
