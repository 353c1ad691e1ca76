"""Connections that are lost under a call: the program goes on, and so do the calls that may."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from headgate.tx import RetryPolicy, TxConfig, TxSession
from testkit.gateway_process import free_port
from testkit.upstreams import server_command

COMMAND = server_command("servers.outcomes", "dying")
SOON = TxConfig(retry_policy=RetryPolicy(base_delay_ms=100))
CHILD = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])


@asynccontextmanager
async def at(place: StdioServerParameters) -> AsyncIterator[TxSession]:
    """A session with a server that can die."""
    async with TxSession(Client(place, mode="legacy"), SOON) as tx:
        yield tx


async def test_a_read_is_made_again_at_a_new_connection(tmp_path: Path) -> None:
    async with at(CHILD) as tx:
        before = (await tx.call_tool("look", {})).unwrap().content[0].text
        answer = await tx.call_tool("look", {"until": str(tmp_path / "died")})
    assert (answer.final_status, answer.attempts) == ("completed", 2)
    assert answer.unwrap().content[0].text != before


async def test_a_payment_is_not_and_the_next_call_has_a_new_connection(tmp_path: Path) -> None:
    async with at(CHILD) as tx:
        lost = await tx.call_tool("pay", {"until": str(tmp_path / "died")})
        assert (lost.error_code, lost.attempts, lost.processed) == ("NETWORK_ERROR", 1, None)
        assert (await tx.call_tool("pay", {})).final_status == "completed"
        assert (await tx.list_tools()).tools


async def test_a_transport_that_cannot_be_opened_twice_stays_closed(tmp_path: Path) -> None:
    async with TxSession(Client(stdio_client(CHILD), mode="legacy"), SOON) as tx:
        await tx.call_tool("pay", {"until": str(tmp_path / "died")})
        answer = await tx.call_tool("pay", {})
    assert (answer.error_code, answer.processed) == ("CONNECTION_ERROR", False)
    assert answer.error_message is not None
    assert "open a new session" in answer.error_message


async def test_a_server_that_is_not_there_is_an_error_of_the_opening() -> None:
    tx = TxSession(Client(f"http://127.0.0.1:{free_port()}/mcp"))
    with pytest.raises(ExceptionGroup) as raised:
        await tx.__aenter__()
    assert "ConnectError" in repr(raised.value)
    assert not tx.is_open
