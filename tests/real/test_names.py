"""The same configuration gives the same names, and names that a client knew before still work."""

from pathlib import Path

import pytest
from mcp import Client

from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, tool
from testkit.waiting import wait_until
from tests.real.delayed_servers import BY_WORDS, START_SECONDS, Errand, Yard, call, listed, text

SIGNALS = "awslabs.cloudwatch-applicationsignals-mcp-server"


def contested(place: Path) -> Yard:
    yard = Yard(place, ("big", "big_two"))
    yard.offer("big", tool("two_list", "List what is big."))
    yard.offer("big_two", tool("list", "List both."))
    return yard


async def seen(gateway: GatewayProcess) -> dict[str, str]:
    """What the SDK lists, and which tool of which server each name reaches."""
    async with Client(gateway.url) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        return {name: (await client.call_tool(name, {})).content[0].text for name in names}  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["big", "big_two"])
async def test_whichever_server_is_connected_first_the_names_are_the_same(tmp_path: Path, first: str) -> None:
    yard = contested(tmp_path)
    yard.open(first)
    with yard.gateway() as gateway:
        gateway.wait_until_ready(first, seconds=START_SECONDS)
        yard.open()
        names = await seen(gateway)
        assert names == {"big_two_list": "big: two_list", "big_two_list_c31add": "big_two: list"}
    # As it was, in any order of connecting.
    yard.shut()
    with yard.gateway() as gateway:
        for server in ("big_two", "big"):
            yard.open(server)
            gateway.wait_until_ready(server, seconds=START_SECONDS)
        assert await seen(gateway) == names


# Longer than a test takes: only the servers end the wait for the first listing.
LONG_WAIT = 300


@pytest.mark.parametrize("first", ["big", "big_two"])
async def test_servers_added_by_one_edit_are_named_in_configuration_order(tmp_path: Path, first: str) -> None:
    yard = contested(tmp_path)
    both = yard.config(firstListingTimeout=LONG_WAIT)
    (second,) = {"big", "big_two"} - {first}
    with yard.gateway({**both, "mcpServers": {}}) as gateway:
        assert listed(gateway) == []
        gateway.write_config(both)
        yard.open(first)
        gateway.wait_until_ready(first, seconds=START_SECONDS)
        # Neither a listing nor a call may fix the names before the other server has listed.
        under_way = Errand(lambda: call(Stateless(gateway.url), "big_two_list"))
        yard.open(second)
        names = await seen(gateway)
        assert names == {"big_two_list": "big: two_list", "big_two_list_c31add": "big_two: list"}
        assert text(under_way.result()) == "big: two_list"
        # The owner keeps its name although the other server comes first now.
        turned = dict(reversed(both["mcpServers"].items()))
        gateway.write_config({**both, "mcpServers": turned})
        wait_until(lambda: listed(gateway)[0] == "big_two_list_c31add", START_SECONDS, "the new order")
        assert await seen(gateway) == names


async def test_a_server_added_later_takes_no_name_that_was_given(tmp_path: Path) -> None:
    yard = contested(tmp_path)
    yard.open()
    both = yard.config(firstListingTimeout=LONG_WAIT)
    with yard.gateway({**both, "mcpServers": {"big_two": both["mcpServers"]["big_two"]}}) as gateway:
        assert listed(gateway) == ["big_two_list"]
        gateway.write_config(both)
        wait_until(lambda: len(listed(gateway)) == 2, START_SECONDS, "the new server")
        names = await seen(gateway)
        assert names.pop("big_two_list") == "big_two: list"
        assert set(names.values()) == {"big: two_list"}


async def test_a_gateway_that_shares_the_data_directory_takes_no_name_away(tmp_path: Path) -> None:
    yard = contested(tmp_path)
    yard.open()
    both = yard.config(firstListingTimeout=LONG_WAIT)
    other = configuration({"example": {"builtin": "example"}})
    shared = ["--data-dir", str(yard.data)]
    # It has read what the names were before the first gateway gave any, and writes after it.
    with running_gateway(other, tmp_path / "other", environment=BY_WORDS, options=shared) as beside:
        with yard.gateway({**both, "mcpServers": {"big_two": both["mcpServers"]["big_two"]}}) as gateway:
            assert listed(gateway) == ["big_two_list"]
            gateway.write_config(both)
            wait_until(lambda: len(listed(gateway)) == 2, START_SECONDS, "the new server")
            names = await seen(gateway)
        beside.write_config(configuration({"second": {"builtin": "example"}}))
        beside.wait_until_ready("second")
        assert listed(beside)
    with yard.gateway(both) as gateway:
        assert await seen(gateway) == names


async def seen_by_names(gateway: GatewayProcess, *names: str) -> dict[str, str]:
    async with Client(gateway.url) as client:
        return {name: (await client.call_tool(name, {})).content[0].text for name in names}  # type: ignore[union-attr]


async def test_a_server_that_comes_after_the_first_listing_takes_no_name_away(tmp_path: Path) -> None:
    yard = contested(tmp_path)
    yard.open("big_two")
    with yard.gateway() as gateway:
        # The listing waits for the other one, and not for ever.
        assert listed(gateway) == ["big_two_list"]
        yard.open()
        gateway.wait_until_ready(seconds=START_SECONDS)
        names = await seen(gateway)
        assert names.pop("big_two_list") == "big_two: list"
        ((late, reached),) = names.items()
        assert late.startswith("big_two_list_")
        assert reached == "big: two_list"
    with yard.gateway() as gateway:
        assert listed(gateway) == [late, "big_two_list"]


async def test_names_of_version_0_1_0_reach_their_tools_and_are_not_listed(tmp_path: Path) -> None:
    yard = Yard(tmp_path, (SIGNALS, "git"))
    yard.offer(SIGNALS, tool("list_slis", "List SLIs."), tool("audit_service_operations", "Audit."))
    yard.offer("git", tool("git_status", "Show the status."))
    yard.open()
    with yard.gateway() as gateway:
        assert listed(gateway) == [
            "awslabs_cloudwatch_applicationsignals_list_slis",
            "cloudwatch_applicationsi_audit_service_operations",
            "git_status",
        ]
        former = {
            "awslabs_cloudwatch_applicationsignals_mcp_server_": f"{SIGNALS}: list_slis",
            "awslabs_cloudwatch_applicationsignals_mcp__589b48": f"{SIGNALS}: audit_service_operations",
            "git_git_status": "git: git_status",
        }
        assert await seen_by_names(gateway, *former) == former
        client = Handshaker(gateway.url)
        for name, reached in former.items():
            assert text(call(client, "call_tool", name=name, args={})) == reached
        expanded = call(client, "expandSchema", toolName="git_git_status")
        assert '"text"' in text(expanded)
