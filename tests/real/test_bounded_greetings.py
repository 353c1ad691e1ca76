"""What a server says of itself reaches clients within bounds."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration
from tests.real.file_servers import CAPABILITIES, TRANSPORTS, canned, discovery, greeting, tool, write

Start = Callable[..., GatewayProcess]
MOST_OF_ONE, MOST_OF_ALL = 16_384, 65_536
HUGE = "Read me. " * 600_000
INFO: Message = {
    "name": "n" * 200_000,
    "title": "t" * 200_000,
    "version": "1",
    "websiteUrl": "https://example.com/" + "w" * 200_000,
    "icons": [{"src": "data:image/png;base64," + "A" * 200_000}],
}


def fill(directory: Path, era: str, **said: Any) -> None:
    cached = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    write(directory, ping={}, tools_list={"tools": [tool("say")], **(cached if era == "modern" else {})})
    if era == "modern":
        info = {"io.modelcontextprotocol/serverInfo": said.pop("serverInfo", INFO)}
        write(directory, server_discover=discovery(_meta=info, **said))
    else:
        write(directory, initialize=greeting(**said))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_says_megabytes_of_itself_is_cut(
    start_gateway: Start, tmp_path: Path, transport: str, era: str
) -> None:
    experiments = {f"com.example/{number}": {"text": "x" * 90} for number in range(10_000)}
    said = {"instructions": HUGE, "serverInfo": INFO}
    fill(tmp_path / "canned", era, capabilities=CAPABILITIES | {"experimental": experiments}, **said)
    with canned(tmp_path / "canned", transport) as entry:
        gateway = start_gateway(configuration({"it": entry}))
        gateway.wait_until_ready("it")
        for welcome in (
            Handshaker(gateway.url).welcome,
            Stateless(gateway.url).ask("server/discover", {})["result"],
        ):
            assert len(json.dumps(welcome)) < 2 * MOST_OF_ONE
            assert HUGE[:1000] in welcome["instructions"]
            assert welcome["instructions"].endswith("[Cut by the gateway: 5,400,000 characters]")
            assert welcome["capabilities"].keys() >= {"tools", "prompts", "resources"}
        names = [one["name"] for one in Handshaker(gateway.url).ask("tools/list", {})["result"]["tools"]]
        assert "it_say" in names
        assert len(gateway.get("/ready").body) + len(gateway.get("/").body) < 100_000
        assert "instructions cut" in gateway.log()
        gateway.stop()
        # The catalog keeps listings, and not what the server says of itself.
        assert sum(file.stat().st_size for file in gateway.data_dir.glob("*.json")) < 100_000


def test_the_advice_of_all_servers_together_is_bounded_and_fair(start_gateway: Start, tmp_path: Path) -> None:
    with ExitStack() as servers:
        entries = {}
        for number in range(8):
            text = f"short {number}" if number % 2 else f"long {number} " + "x" * 30_000
            fill(tmp_path / f"canned{number}", "legacy", instructions=text)
            entries[f"s{number}"] = servers.enter_context(canned(tmp_path / f"canned{number}"))
        for number in range(8, 12):
            fill(tmp_path / f"canned{number}", "legacy", instructions=f"long {number} " + "x" * 30_000)
            entries[f"s{number}"] = servers.enter_context(canned(tmp_path / f"canned{number}"))
        gateway = start_gateway(configuration(entries))
        gateway.wait_until_ready(*entries)
        advice = Handshaker(gateway.url).welcome["instructions"]
        assert len(advice) < MOST_OF_ALL + 1000
        for number in range(12):
            short = number < 8 and number % 2
            assert f"{'short' if short else 'long'} {number}" in advice
        assert advice.count("Cut by the gateway") == 8


def test_a_greeting_without_end_is_refused_with_the_reason(start_gateway: Start, tmp_path: Path) -> None:
    fill(tmp_path / "canned", "legacy", instructions="x" * 9_000_000)
    with canned(tmp_path / "canned") as entry:
        gateway = start_gateway(configuration({"it": entry}))
        assert "no handshake (8 MiB)" in gateway.servers()["it"]["last_error"]
