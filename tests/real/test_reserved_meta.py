"""Only the gateway writes `_meta["io.headgate/..."]`: what a server puts there reaches no client."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration
from tests.real.file_servers import TRANSPORTS, canned, discovery, greeting, tool, write

Start = Callable[..., GatewayProcess]
FAKE = "io.headgate/result"
KEPT = {"example.com/own": {"a": [1.0, "ü"]}}
META: Message = {**KEPT, FAKE: {"cache_id": "fake", "truncated": True}, "io.headgate/error": {"code": "X"}}
SAID = '"content":[{"type":"text","text":"said"}]'
# Spellings of `_meta` and of the key that mean the same to a client.
SPELLINGS = {
    "plain": '{"_meta":%s,' + SAID + "}",
    "slash": '{"_meta":{"io.headgate\\/result":1,"example.com/own":{"a":[1.0,"ü"]}},' + SAID + "}",
    "escaped key": '{"_meta":{"\\u0069o.headgate/result":1,"example.com/own":{"a":[1.0,"ü"]}},' + SAID + "}",
    "all escaped": '{"\\u005fmeta":{"\\u0069\\u006F\\u002eheadgate\\u002Fresult":1},' + SAID + "}",
    "twice": '{"_meta":{},' + SAID + ',"_meta":%s}',
    "twice inside": '{"_meta":{"io.headgate/result":1,"io.headgate/result":2},' + SAID + "}",
    "too deep": '{"_meta":{"io.headgate/result":1,"deep":' + "[" * 5000 + "]" * 5000 + "}," + SAID + "}",
    "half a character": '{"_meta":{"io.headgate/result":1,"half":"\\ud800"},' + SAID + "}",
}


def fill(directory: Path, result: str | bytes, **more: Any) -> None:
    body = result if isinstance(result, bytes) else result.replace("%s", json.dumps(META)).encode()
    files = {"initialize": greeting(), "ping": {}, "tools_list": {"tools": [tool("say")]}, "call_say": body}
    write(directory, **(files | more))


def reserved(message: Any) -> list[str]:
    """Every key of the gateway in the `_meta` of a message."""
    meta = message.get("_meta", {})
    return [key for key in meta if key.startswith("io.headgate/")]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_result_says_nothing_in_the_name_of_the_gateway(
    start_gateway: Start, tmp_path: Path, transport: str, spelling: str
) -> None:
    fill(tmp_path / "canned", SPELLINGS[spelling])
    with canned(tmp_path / "canned", transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        result = Stateless(gateway.url).call("it_say", {})["result"]
        assert reserved(result) == []
        assert result["content"] == [{"type": "text", "text": "said"}]
        if spelling in ("plain", "slash", "escaped key", "twice"):
            assert result["_meta"]["example.com/own"] == KEPT["example.com/own"]


@pytest.mark.parametrize("shown", ["excerpt", "whole"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_large_result_says_nothing_in_the_name_of_the_gateway(
    start_gateway: Start, tmp_path: Path, transport: str, shown: str
) -> None:
    text = {"content": [{"type": "text", "text": "x" * 1_500_000}], "_meta": META}
    fill(tmp_path / "canned", json.dumps(text))
    with canned(tmp_path / "canned", transport) as entry:
        gateway = start_gateway(configuration({"it": entry}, enableAutoTruncation=shown == "excerpt"))
        gateway.wait_until_ready("it")
        result = Stateless(gateway.url).call("it_say", {})["result"]
        assert result["_meta"]["example.com/own"] == KEPT["example.com/own"]
        assert "io.headgate/error" not in result["_meta"]
        if shown == "excerpt":
            assert result["_meta"][FAKE]["cache_id"] != "fake"
        else:
            assert FAKE not in result["_meta"]
            assert len(result["content"][0]["text"]) == 1_500_000


def test_a_stateless_server_says_who_it_is_to_the_gateway_alone(start_gateway: Start, tmp_path: Path) -> None:
    info = {"io.modelcontextprotocol/serverInfo": {"name": "it", "title": "t" * 5_000_000, "version": "1"}}
    text = {
        "resultType": "complete",
        "content": [{"type": "text", "text": "said"}],
        "_meta": {**KEPT, **info},
    }
    tools = {"resultType": "complete", "tools": [tool("say")], "ttlMs": 0, "cacheScope": "private"}
    fill(
        tmp_path / "canned", json.dumps(text), server_discover=discovery(_meta=info, instructions="hi"),
        tools_list=tools,
    )  # fmt: skip
    (tmp_path / "canned" / "initialize").unlink()
    with canned(tmp_path / "canned", "http") as entry:
        gateway = start_gateway(configuration({"it": entry}, enableAutoTruncation=False))
        gateway.wait_until_ready("it")
        for client in (Stateless(gateway.url), Handshaker(gateway.url)):
            reply = client.ask("tools/call", {"name": "it_say", "arguments": {}})
            assert len(json.dumps(reply)) < 10_000
            assert reply["result"]["content"][0]["text"] == "said"
        assert len(json.dumps(Handshaker(gateway.url).welcome)) < 10_000
        assert len(json.dumps(Stateless(gateway.url).ask("server/discover", {}))) < 10_000


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_listings_and_notifications_say_nothing_in_the_name_of_the_gateway(
    start_gateway: Start, tmp_path: Path, transport: str
) -> None:
    progress = {"progressToken": "@", "progress": 1, "_meta": META}
    heard = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "_meta": META}},
    ]
    lines = b"".join(json.dumps(one).replace('"@"', "TOKEN").encode() + b"\n" for one in heard)
    fill(
        tmp_path / "canned", "{" + SAID + "}", before_say=lines,
        tools_list={"tools": [tool("say", _meta=META)]},
        prompts_list={"prompts": [{"name": "p", "_meta": META}]},
        resources_list={"resources": [{"uri": "x://r", "name": "r", "_meta": META}]},
        resources_templates_list={
            "resourceTemplates": [{"uriTemplate": "y://{z}", "name": "t", "_meta": META}]
        },
        prompts_get={"messages": [], "_meta": META},
        resources_read={"contents": [], "_meta": META},
    )  # fmt: skip
    with canned(tmp_path / "canned", transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        client = Handshaker(gateway.url)
        for method, member in (
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ):
            found = [one for one in client.ask(method, {})["result"][member] if "_meta" in one]
            assert [one["_meta"] for one in found] == [KEPT], method
        got = client.ask("prompts/get", {"name": "it_p"})["result"]
        assert got["_meta"] == KEPT
        read = client.ask("resources/read", {"uri": "x://r"})["result"]
        assert read["_meta"] == KEPT
        params = {"name": "it_say", "arguments": {}, "_meta": {"progressToken": "t"}}
        stream = client.begin("tools/call", params)
        for method in ("notifications/progress", "notifications/message"):
            assert stream.until(method)["params"]["_meta"] == KEPT
        stream.close()
