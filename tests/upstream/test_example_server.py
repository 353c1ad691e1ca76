"""The built-in example server: tools that work without a network, and say what is wrong with an argument."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.domain.errors import UpstreamTimeout, UpstreamUnreachable
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.example_server import TOOLS, open_example_server
from headgate.upstream.handshake import negotiate_protocol
from headgate.upstream.notification_router import NotificationRouter
from headgate.upstream.transports.builtin import (
    BuiltinCall,
    BuiltinServer,
    BuiltinTool,
    BuiltinToolResult,
    BuiltinTransport,
    open_builtin,
)
from testkit.clients.plain_http import modern_call
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.virtual_time import virtual_time
from tests.upstream.conversation import RecordedServerEvents, outgoing

SPEC = ServerSpec(name="example", transport=TransportType.BUILTIN, builtin="example")
BUILTIN = {"example": BuiltinServer(open_example_server)}


def content(answer: McpResponse) -> dict[str, Any]:
    assert isinstance(answer.result, bytes)
    found: dict[str, Any] = json.loads(answer.result)
    return found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Return a gateway before the example server."""
    config = {"mcpServers": {"example": {"builtin": "example"}}}
    with running_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway:
        gateway.wait_until_ready()
        yield gateway


def text(gateway: GatewayProcess, name: str, **arguments: Any) -> str:
    answer = modern_call(gateway, f"example_{name}", arguments)
    assert "isError" not in answer, answer
    (block,) = answer["content"]
    said: str = block["text"]
    return said


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", "2"),
        ("(3 + 4) * 2 ** 5", "224"),
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("-7 % 3", "2"),
        ("1e300 * 1e10", "inf"),
        ("+5", "5"),
    ],
)
def test_an_expression_is_calculated(gateway: GatewayProcess, expression: str, value: str) -> None:
    assert text(gateway, "calculate", expression=expression) == value


def test_texts_are_counted_and_hashed(gateway: GatewayProcess) -> None:
    counts = json.loads(text(gateway, "count_text", text="zwei Wörter\n"))
    assert counts == {"characters": 12, "words": 2, "lines": 1, "bytes": 13}
    assert text(gateway, "hash_text", text="abc").startswith("ba7816bf")
    assert text(gateway, "hash_text", text="abc", algorithm="md5") == "900150983cd24fb0d6963f7d28e17f72"


def test_the_time_is_told_in_any_zone(gateway: GatewayProcess) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", text(gateway, "time"))
    assert text(gateway, "time", timezone="Asia/Kolkata").endswith("+05:30")


def test_tokens_are_random(gateway: GatewayProcess) -> None:
    assert len({text(gateway, "random_token") for _ in range(20)}) == 20
    assert len(text(gateway, "random_token", bytes=3)) == 6


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calculate", {}),
        ("calculate", {"expression": 5}),
        ("calculate", {"expression": ""}),
        ("calculate", {"expression": "1 +"}),
        ("calculate", {"expression": "1 / 0"}),
        ("calculate", {"expression": "0 ** -1"}),
        ("calculate", {"expression": "(-8) ** 0.5"}),
        ("calculate", {"expression": "__import__('os')"}),
        ("calculate", {"expression": "x" * 201}),
        ("calculate", {"expression": "(" * 150}),
        ("calculate", {"expression": "\0"}),
        ("calculate", {"expression": "'a' * 9"}),
        ("calculate", {"expression": "10.0 ** 400"}),
        ("calculate", {"expression": "1j"}),
        ("count_text", {}),
        ("count_text", {"text": None}),
        ("hash_text", {"text": "a", "algorithm": "crc32"}),
        ("hash_text", {"text": "a", "algorithm": []}),
        ("hash_text", {}),
        ("time", {"timezone": "Middle/Earth"}),
        ("time", {"timezone": 5}),
        ("time", {"timezone": "../../etc/passwd"}),
        ("time", {"timezone": ""}),
        ("time", {"timezone": "x\0"}),
        ("time", {"timezone": "Europe"}),
        ("time", {"timezone": "a" * 5000}),
        ("random_token", {"bytes": 0}),
        ("random_token", {"bytes": 65}),
        ("random_token", {"bytes": "8"}),
        ("random_token", {"bytes": 1.5}),
        ("wait", {"seconds": -1}),
        ("wait", {"seconds": 61}),
        ("wait", {"seconds": "1"}),
        ("wait", {"seconds": None}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_argument_is_explained_to_the_model(
    gateway: GatewayProcess, name: str, arguments: dict[str, Any]
) -> None:
    answer = modern_call(gateway, f"example_{name}", arguments)
    assert answer.get("isError") is True
    assert "_meta" not in answer, "it is the tool that explains, not the gateway"
    block, *schemas = answer["content"]
    assert len(block["text"]) < 400
    # Where an argument is missing or of another type, the gateway adds what the tool wants.
    assert all(one["text"].startswith(f"input_schema of example_{name}: ") for one in schemas)


@pytest.mark.parametrize("arguments", [[], "x", 5])
async def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    params = json.dumps({"name": "time", "arguments": arguments}).encode()
    answer = await BuiltinTransport(SPEC, TOOLS).round_trip(outgoing(name="time", params=params))
    assert json.loads(answer.error)["code"] == -32602


async def call(name: str, arguments: Any, **settings: Any) -> dict[str, Any]:
    params = json.dumps({"name": name, "arguments": arguments}).encode()
    transport = BuiltinTransport(SPEC, TOOLS)
    return content(await transport.round_trip(outgoing(name=name, params=params, **settings)))


@pytest.mark.parametrize("params", [b'{"name":"time"}', b'{"name":"time","arguments":null}'])
async def test_arguments_that_are_missing_are_none(params: bytes) -> None:
    answer = await BuiltinTransport(SPEC, TOOLS).round_trip(outgoing(name="time", params=params))
    assert "isError" not in content(answer)


@pytest.mark.parametrize("advice", ["", "Names like it: Acme."])
async def test_advice_is_a_text_after_the_text(advice: str) -> None:
    async def run(arguments: dict[str, Any], asked: BuiltinCall) -> BuiltinToolResult:
        return BuiltinToolResult("Nobody is called so.", {"error": "nobody"}, advice, failed=True)

    transport = BuiltinTransport(SPEC, (BuiltinTool({"name": "who"}, run),))
    answer = content(await transport.round_trip(outgoing(name="who", params=b'{"name":"who"}')))
    texts = [block["text"] for block in answer["content"]]
    assert texts == ["Nobody is called so.", *filter(None, [advice])]
    assert (answer["structuredContent"], answer["isError"]) == ({"error": "nobody"}, True)


@virtual_time
async def test_waiting_tells_its_progress() -> None:
    heard: list[dict[str, Any]] = []
    answer = await call("wait", {"seconds": 2}, token=1, progress=heard)
    assert answer["content"][0]["text"] == "waited 2 s"
    assert [told["progress"] for told in heard] == [1, 2, 3, 4]
    assert {told["total"] for told in heard} == {4}


@virtual_time
async def test_waiting_can_be_cancelled_and_cut_off() -> None:
    waiting = asyncio.create_task(call("wait", {"seconds": 60}))
    await asyncio.sleep(1.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(UpstreamTimeout):
        await call("wait", {"seconds": 60}, most_seconds=5.0)


@virtual_time
async def test_the_server_speaks_the_stateless_era() -> None:
    async with open_builtin(
        SPEC, BUILTIN, NotificationRouter("example", RecordedServerEvents())
    ) as transport:
        greeting = await negotiate_protocol(SPEC, transport, None)
        assert greeting.version == "2026-07-28"
        listed = content(await transport.round_trip(outgoing("tools/list")))["tools"]
        assert [tool["name"] for tool in listed] == [tool.definition["name"] for tool in TOOLS]
        assert all(tool["inputSchema"]["type"] == "object" for tool in listed)
        unknown = await transport.round_trip(outgoing("prompts/list"))
        assert json.loads(unknown.error)["code"] == -32601


@virtual_time
@pytest.mark.parametrize("advice", ["", "Ask for the time first."])
async def test_the_server_tells_its_advice(advice: str) -> None:
    servers = {"example": BuiltinServer(open_example_server, advice)}
    async with open_builtin(
        SPEC, servers, NotificationRouter("example", RecordedServerEvents())
    ) as transport:
        assert (await negotiate_protocol(SPEC, transport, None)).instructions == advice


@virtual_time
async def test_a_server_that_is_not_built_in_is_not_reached() -> None:
    spec = ServerSpec(name="x", transport=TransportType.BUILTIN, builtin="nothing")
    with pytest.raises(UpstreamUnreachable, match="nothing"):
        async with open_builtin(spec, BUILTIN, NotificationRouter("x", RecordedServerEvents())):
            pass
