"""What `auto` chose is said in one line, and clients that search their tools themselves get all of them."""

import re
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from mcp.client.client import Client
from mcp_types import Implementation

from headgate.search.token_counter import count_tokens
from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.upstreams import changing_listing_command, stdio_entry, tool, write_listing
from testkit.waiting import wait_until
from tests.real.source_text_clients import modern_http_client, pages

START_SECONDS = 60.0
COMMAND_SECONDS = 60.0
COUNT = 60
LINE = re.compile(r"Mode: auto -> budget\. Full ([\d,]+) tokens, slim ([\d,]+), limit 500")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("choice")
    tools = [
        tool(f"act_{number}", f"Does the thing of number {number} for you. " * 5) for number in range(COUNT)
    ]
    write_listing(place / "depot.json", tools)
    servers = {"depot": stdio_entry(changing_listing_command("depot", place / "depot.json"))}
    config = {"mcpServers": servers, "proxySettings": {"listingBudgetTokens": 500}}
    with running_gateway(config, place / "gateway") as gateway:
        gateway.wait_until_ready("depot", seconds=START_SECONDS)
        yield gateway


def numbers(text: str) -> tuple[int, int]:
    found = LINE.search(text)
    assert found is not None, text
    full, slim = (int(one.replace(",", "")) for one in found.groups())
    return full, slim


def test_serve_and_listing_say_the_choice_in_one_line(gateway: GatewayProcess) -> None:
    wait_until(lambda: LINE.search(gateway.log()) is not None, START_SECONDS, "the choice is logged")
    full, slim = numbers(gateway.log())
    assert full > slim > 500
    command = [sys.executable, "-m", "headgate", "listing", "--config", str(gateway.config_path)]
    command += ["--data-dir", str(gateway.data_dir)]
    done = subprocess.run(
        command, capture_output=True, check=True, timeout=COMMAND_SECONDS, env=clean_environment(), text=True
    )
    printed_full, printed_slim = numbers(done.stdout)
    # The report counts the own tools as well.
    assert full <= printed_full < full + 200
    assert slim <= printed_slim < slim + 1000
    # So does the log, and both say what a client gets.
    listed = [listed_tokens(gateway, mode) for mode in ("full", "slim")]
    assert [full, slim] == [printed_full, printed_slim] == listed


def listed_tokens(gateway: GatewayProcess, mode: str) -> int:
    """Of the array as it is sent: servers write their definitions with more or fewer blanks."""
    with modern_http_client(gateway.url.replace("/mcp", f"/mcp/{mode}")) as client:
        (page,) = pages(client)
    return count_tokens(bytes(msgspec.json.decode(page, type=dict[str, msgspec.Raw])["tools"]))


async def test_a_client_that_searches_its_tools_itself_gets_all_of_them(gateway: GatewayProcess) -> None:
    async with Client(
        gateway.url, mode="legacy", client_info=Implementation(name="claude-code", version="2.1.0")
    ) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == COUNT
        assert all(len(one.description or "") > 150 for one in tools)
    async with Client(gateway.url, mode="legacy") as client:
        tools = (await client.list_tools()).tools
        assert "retrieve_tools" in [one.name for one in tools]
        stubs = [one for one in tools if one.name.startswith("depot_")]
        assert stubs
        # A stub declares the arguments that it has room for.
        assert all(one.input_schema["properties"].keys() == {"text"} for one in stubs)
