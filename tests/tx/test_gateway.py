"""The library and the gateway, each on its side of the same connection."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client

from headgate.tx import Transaction, TxConflictError, TxError, TxSession
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration, server_command, stdio_entry

DYING = server_command("servers.outcomes", "dying")


async def test_a_gateway_keeps_keys_and_transactions_and_sends_large_results_whole(
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    gateway = start_gateway(configuration({"m": stdio_entry(DYING)}))
    for mode in ("legacy", "auto"):
        async with TxSession(Client(gateway.url, mode=mode)) as tx:
            assert tx.features == {"ack", "retry", "idempotency", "transactions", "chunking"}
            # The gateway's ledger outlives the session of the first era.
            first = await tx.call_tool("m_pay", {"amount": 5}, idempotency_key="order 17")
            assert first.duplicate is (mode == "auto")
            # Over 10 MB as its server writes it, with six bytes for each letter.
            large = await tx.call_tool("m_look", {"letters": 2_000_000})
            assert large.unwrap().content[0].text == "é" * 2_000_000
            await _undo(tx)
    async with TxSession(Client(gateway.url)) as tx:
        with pytest.raises(TxConflictError):
            await tx.call_tool("m_pay", {"amount": 6}, idempotency_key="order 17")
        await _name_no_compensation(tx)


async def _name_no_compensation(tx: TxSession) -> None:
    begun: Any = (await tx.call_tool("transaction_begin")).unwrap()
    id = begun.structured_content["transaction_id"]
    step = {"transaction_id": id, "tool": "m_pay", "args": {"amount": 1}, "compensate": {"tool": "m_pya"}}
    refused = await tx.call_tool("transaction_step", step)
    assert (refused.error_code, refused.processed) == ("TOOL_NOT_FOUND", False)
    assert "'m_pya'; nearest: m_pay" in str(refused.error_message)
    kept: Any = (await tx.call_tool("get_transaction", {"transaction_id": id})).unwrap()
    assert (kept.structured_content["state"], kept.structured_content["steps"]) == ("initiated", [])


async def _undo(tx: TxSession) -> None:
    t = tx.transaction()
    with pytest.raises(TxError, match="no money"):
        await _pay_and_fail(t)
    assert t.state == "rolled_back"
    kept: Any = (await tx.call_tool("get_transaction", {"transaction_id": t.transaction_id})).unwrap()
    assert kept.structured_content["state"] == "completed"
    assert [step["state"] for step in kept.structured_content["steps"]] == ["done", "failed"]


async def _pay_and_fail(t: Transaction) -> None:
    async with t:
        await t.call_tool("m_pay", {"amount": 1}, compensate=("m_pay", {"amount": -1}))
        with pytest.raises(TxError, match="Unknown tool"):
            await t.call_tool("m_pya")
        # The gateway did not count it, and neither do we.
        await t.call_tool("m_pay", {"fails": "no money"})


async def test_a_compensation_of_a_server_that_has_not_told_its_tools_may_be_there_later(
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    starting = stdio_entry([sys.executable, "-IS", "-c", "raise SystemExit(1)"])
    gateway = start_gateway(configuration({"m": stdio_entry(DYING), "slow": starting}))
    async with TxSession(Client(gateway.url)) as tx:
        begun: Any = (await tx.call_tool("transaction_begin")).unwrap()
        id = begun.structured_content["transaction_id"]
        step = {"transaction_id": id, "tool": "m_pay", "args": {"amount": 1}}
        made: Any = (
            await tx.call_tool("transaction_step", {**step, "compensate": {"tool": "slow_undo"}})
        ).unwrap()
        assert made.meta["io.headgate/transaction"]["undoable"]
