"""An answer that no client can read is a failure that says so, and the ledger does not call it done."""

from collections.abc import Iterator
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, server_command, stdio_entry

START_SECONDS = 60.0
MALFORMED = [
    ('"result":5', "a result that is no object"),
    ('"result":[]', "a result that is no object"),
    ('"error":"no"', "an error that is no object with a code and a message"),
    ('"error":{"message":"no"}', "an error that is no object with a code and a message"),
    ('"error":{"code":"E1","message":"no"}', "an error that is no object with a code and a message"),
    ('"other":1', "neither a result nor an error"),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("malformed")
    config = configuration({"m": stdio_entry(server_command("servers.outcomes", "member"))})
    with running_gateway(config, place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("m", seconds=START_SECONDS)
        yield gateway


@pytest.mark.parametrize(("member", "fault"), MALFORMED)
@pytest.mark.parametrize("client", [Handshaker, Stateless])
def test_a_malformed_answer_is_in_doubt_for_the_client_and_in_the_ledger(
    gateway: GatewayProcess, client: type[Handshaker] | type[Stateless], member: str, fault: str
) -> None:
    def call() -> dict[str, Any]:
        key = f"{client.__name__} {member}"
        params = {
            "name": "m_answer",
            "arguments": {"member": member},
            "_meta": {"rmcp": {"idempotency_key": key}},
        }
        result: dict[str, Any] = client(gateway.url).ask("tools/call", params)["result"]
        return result

    result = call()
    assert result["isError"] is True
    assert fault in result["content"][0]["text"]
    assert result["_meta"]["io.headgate/error"]["effect"] == "unknown"
    assert result["_meta"]["io.headgate/operation"]["state"] == "in_doubt"
    again = call()
    assert again["_meta"]["io.headgate/error"]["code"] == "IN_DOUBT"
    assert again["_meta"]["io.headgate/operation"]["state"] == "in_doubt"


def test_an_error_that_clients_can_read_passes_as_it_is(gateway: GatewayProcess) -> None:
    member = '"error":{"code":-32000,"message":"no","data":{"x":1}}'
    answer = Stateless(gateway.url).ask("tools/call", {"name": "m_answer", "arguments": {"member": member}})
    assert answer["error"] == {"code": -32000, "message": "no", "data": {"x": 1}}
