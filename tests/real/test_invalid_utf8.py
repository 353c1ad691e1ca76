"""One bad byte in a listing costs the definition that it is in, and not the server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration
from tests.real.file_servers import TRANSPORTS, canned, greeting, tool, write

Start = Callable[..., GatewayProcess]
LARGE = "y" * 1_200_000
KINDS: dict[str, tuple[str, str, list[Message]]] = {
    "tools/list": ("tools", "name", [tool(name, description=f"{name} @") for name in ("a", "b", "c")]),
    "prompts/list": ("prompts", "name", [{"name": name, "description": f"{name} @"} for name in "abc"]),
    "resources/list": (
        "resources",
        "uri",
        [{"uri": f"x://{name}", "name": name, "description": f"{name} @"} for name in "abc"],
    ),
    "resources/templates/list": (
        "resourceTemplates",
        "uriTemplate",
        [{"uriTemplate": f"{name}://{{x}}", "name": name, "description": f"{name} @"} for name in "abc"],
    ),
}


def damaged(listing: bytes) -> bytes:
    """With a byte that is not UTF-8 in the second definition."""
    return listing.replace(b"b @", b"b \xff")


def write_all(directory: Path, **more: Any) -> None:
    write(directory, initialize=greeting(), ping={}, call_a={"content": [{"type": "text", "text": "fine"}]})
    for method, (member, _, items) in KINDS.items():
        write(directory, **{method.replace("/", "_"): {member: items, **more}})
        file = directory / method.replace("/", "_")
        file.write_bytes(damaged(file.read_bytes()))


@pytest.mark.parametrize("padding", ["", LARGE], ids=["small", "on disk"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_bad_byte_costs_the_definition_that_it_is_in(
    start_gateway: Start, tmp_path: Path, transport: str, padding: str
) -> None:
    directory = tmp_path / "canned"
    write_all(directory, **({"_padding": padding} if padding else {}))
    with canned(directory, transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        client = Handshaker(gateway.url)
        for method, (member, key, items) in KINDS.items():
            listed = client.ask(method, {})["result"][member]
            wanted = [str(item[key]) for item in items if item["name"] != "b"]
            found = [item[key] for item in listed if "headgate" not in item[key]]
            assert len(found) == 2, (method, found)
            assert all(one in "|".join(found) for one in wanted), (method, found)
        result = Stateless(gateway.url).call("it_a", {})["result"]
        assert result["content"][0]["text"] == "fine"
        assert "it is not UTF-8" in str(gateway.servers()["it"]["tools_left_out"])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_listing_with_a_bad_byte_is_remembered(
    start_gateway: Start, tmp_path: Path, transport: str
) -> None:
    directory = tmp_path / "canned"
    write_all(directory)
    with canned(directory, transport) as entry:
        for _ in range(2):
            gateway = start_gateway(
                configuration({"it": entry}), options=["--data-dir", str(tmp_path / "data")]
            )
            gateway.wait_until_ready("it")
            names = [
                tool["name"] for tool in Handshaker(gateway.url).ask("tools/list", {})["result"]["tools"]
            ]
            assert {"it_a", "it_c"} <= set(names)
            assert "it_b" not in names
            gateway.stop()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_bad_byte_in_the_instructions_costs_that_byte(
    start_gateway: Start, tmp_path: Path, transport: str
) -> None:
    directory = tmp_path / "canned"
    write_all(directory)
    file = directory / "initialize"
    write(directory, initialize=greeting(instructions="Ask nicely @"))
    file.write_bytes(file.read_bytes().replace(b"@", b"\xff"))
    with canned(directory, transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        assert "Ask nicely \ufffd" in Handshaker(gateway.url).welcome["instructions"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_bad_byte_in_a_result_still_fails_its_call_alone(
    start_gateway: Start, tmp_path: Path, transport: str
) -> None:
    directory = tmp_path / "canned"
    write_all(directory)
    write(directory, call_c=b'{"content":[{"type":"text","text":"\xff"}]}')
    with canned(directory, transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        client = Stateless(gateway.url)
        error = client.call("it_c", {})["result"]["_meta"]["io.headgate/error"]
        assert error["code"] == "INVALID_MESSAGE"
        assert client.call("it_a", {})["result"]["content"][0]["text"] == "fine"
        assert gateway.servers()["it"].get("restarts", 0) == 0
