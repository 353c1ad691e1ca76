"""The legacy SSE transport: one long stream to the client, a POST per message from it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testkit.clients.plain_http import Stream, opened, post, request
from testkit.gateway_process import GatewayProcess, HttpAnswer
from testkit.waiting import wait_until

HELLO = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


class OldClient:
    """A client that came before streamable HTTP."""

    def __init__(self, gateway: GatewayProcess, stream: Stream) -> None:
        self.gateway = gateway
        self.stream = stream
        kind, self.endpoint = stream.event()
        assert kind == "endpoint"

    def post(self, message: Any) -> HttpAnswer:
        return post(self.gateway, message, {"Accept": None}, self.endpoint)

    def ask(self, method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
        assert self.post(request(method, params, id)).status == 202
        return self.stream.message()


@contextmanager
def connected(gateway: GatewayProcess, path: str = "/sse") -> Iterator[OldClient]:
    with opened(gateway, "GET", path, {}) as stream:
        yield OldClient(gateway, stream)


@pytest.mark.parametrize("path", ["/sse", "/mcp/sse"])
def test_a_client_shakes_hands_lists_and_calls(gateway: GatewayProcess, path: str) -> None:
    with connected(gateway, path) as client:
        assert client.endpoint.startswith("/messages?session_id=")
        assert client.ask("initialize", HELLO, 0)["result"]["protocolVersion"] == "2024-11-05"
        assert client.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
        assert client.ask("ping", id="p") == {"jsonrpc": "2.0", "id": "p", "result": {}}
        names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        assert "own_echo" in names
        called = client.ask("tools/call", {"name": "example_calculate", "arguments": {"expression": "6*7"}})
        assert called["result"] == {"content": [{"type": "text", "text": "42"}]}


def test_clients_do_not_hear_each_other(gateway: GatewayProcess) -> None:
    with connected(gateway) as one, connected(gateway) as two:
        assert one.endpoint != two.endpoint
        one.post(request("ping", id="one"))
        two.post(request("ping", id="two"))
        assert two.stream.message()["id"] == "two"
        assert one.stream.message()["id"] == "one"


def test_errors_come_on_the_stream(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        assert client.ask("nothing", id=4)["error"]["code"] == -32601
        assert client.ask("tools/call", {"name": 5}, id=5)["error"]["code"] == -32602
        twice = b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a","name":"b"}}'
        assert client.post(twice).status == 202
        assert client.stream.message()["id"] == 6


def test_progress_comes_on_the_stream(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        params = {"name": "own_steps", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}}
        first = client.ask("tools/call", params)
        assert first["params"]["progressToken"] == "t"
        assert client.stream.message()["params"]["progress"] == 2
        assert client.stream.message()["result"]["structuredContent"] == {"steps": 2}


def test_a_cancelled_call_is_not_answered(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        client.post(request("tools/call", {"name": "own_hold", "arguments": {}}, 1))
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert client.ask("ping", id=2)["id"] == 2


@pytest.mark.parametrize("query", ["", "?session_id=", "?session_id=nonsense", "?session_id=%00", "?other=1"])
def test_an_unknown_session_is_404(gateway: GatewayProcess, query: str) -> None:
    assert post(gateway, request("ping"), path=f"/messages{query}").status == 404


def test_a_session_ends_with_its_stream(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        endpoint = client.endpoint
    wait_until(
        lambda: post(gateway, request("ping"), path=endpoint).status == 404, 5.0, "the session is forgotten"
    )


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'])
def test_a_body_that_is_no_message_is_400(gateway: GatewayProcess, body: bytes) -> None:
    with connected(gateway) as client:
        answer = client.post(body)
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["code"] in (-32700, -32600)
        assert client.ask("ping")["result"] == {}


def test_a_client_with_as_many_calls_as_it_may_have_can_still_cancel_them(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        client.ask("initialize", HELLO, 0)
        params = {"name": "example_wait", "arguments": {"seconds": 30}}
        taken = [client.post(request("tools/call", params, id)).status for id in range(1, 258)]
        assert taken == [202] * 256 + [503]
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert client.post(cancelled).status == 202
        wait_until(lambda: client.post(request("ping", id="p")).status == 202, 5.0, "there is room again")
