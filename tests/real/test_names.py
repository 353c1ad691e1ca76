"""The same configuration gives the same names, and names that a client knew before still work."""

from pathlib import Path

import pytest
from mcp import Client

from tests.gate import Gate
from tests.real.plain import Handshaker
from tests.real.upstreams import tool
from tests.real.yard import START_SECONDS, Yard, call, listed, text

SIGNALS = "awslabs.cloudwatch-applicationsignals-mcp-server"


def contested(place: Path) -> Yard:
    yard = Yard(place, ("big", "big_two"))
    yard.offer("big", tool("two_list", "List what is big."))
    yard.offer("big_two", tool("list", "List both."))
    return yard


async def seen(gate: Gate) -> dict[str, str]:
    """What the SDK lists, and which tool of which server each name reaches."""
    async with Client(gate.url) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        return {name: (await client.call_tool(name, {})).content[0].text for name in names}  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["big", "big_two"])
async def test_whichever_server_is_connected_first_the_names_are_the_same(tmp_path: Path, first: str) -> None:
    yard = contested(tmp_path)
    yard.open(first)
    with yard.gate() as gate:
        gate.wait_until_ready(first, seconds=START_SECONDS)
        yard.open()
        names = await seen(gate)
        assert names == {"big_two_list": "big: two_list", "big_two_list_c31add": "big_two: list"}
    # As it was, whoever is there first.
    yard.shut()
    with yard.gate() as gate:
        for server in ("big_two", "big"):
            yard.open(server)
            gate.wait_until_ready(server, seconds=START_SECONDS)
        assert await seen(gate) == names


async def seen_by_names(gate: Gate, *names: str) -> dict[str, str]:
    async with Client(gate.url) as client:
        return {name: (await client.call_tool(name, {})).content[0].text for name in names}  # type: ignore[union-attr]


async def test_a_server_that_comes_after_the_first_listing_takes_no_name_away(tmp_path: Path) -> None:
    yard = contested(tmp_path)
    yard.open("big_two")
    with yard.gate() as gate:
        # The listing waits for the other one, and not for ever.
        assert listed(gate) == ["big_two_list"]
        yard.open()
        gate.wait_until_ready(seconds=START_SECONDS)
        names = await seen(gate)
        assert names.pop("big_two_list") == "big_two: list"
        ((late, reached),) = names.items()
        assert late.startswith("big_two_list_")
        assert reached == "big: two_list"
    with yard.gate() as gate:
        assert listed(gate) == [late, "big_two_list"]


async def test_names_of_version_0_1_0_reach_their_tools_and_are_not_listed(tmp_path: Path) -> None:
    yard = Yard(tmp_path, (SIGNALS, "git"))
    yard.offer(SIGNALS, tool("list_slis", "List SLIs."), tool("audit_service_operations", "Audit."))
    yard.offer("git", tool("git_status", "Show the status."))
    yard.open()
    with yard.gate() as gate:
        assert listed(gate) == [
            "awslabs_cloudwatch_applicationsignals_list_slis",
            "cloudwatch_applicationsi_audit_service_operations",
            "git_status",
        ]
        former = {
            "awslabs_cloudwatch_applicationsignals_mcp_server_": f"{SIGNALS}: list_slis",
            "awslabs_cloudwatch_applicationsignals_mcp__589b48": f"{SIGNALS}: audit_service_operations",
            "git_git_status": "git: git_status",
        }
        assert await seen_by_names(gate, *former) == former
        client = Handshaker(gate.url)
        for name, reached in former.items():
            assert text(call(client, "call_tool", name=name, args={})) == reached
        expanded = call(client, "expandSchema", toolName="git_git_status")
        assert '"text"' in text(expanded)
