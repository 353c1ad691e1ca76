"""Outages that last longer than the retries: what became of a call is asked of the gateway afterwards."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mcp import Client

from headgate.tx import RetryPolicy, TxConfig, TxInDoubtError, TxResult, TxSession
from testkit.faults.tcp_proxy import FaultProxy, Faults, fault_proxy
from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.sdk_servers.rmcp_shop import FEATURES
from testkit.upstreams import configuration, http_server, server_command, stdio_entry
from testkit.waiting import eventually

START_SECONDS = 30.0
QUICK = TxConfig(retry_policy=RetryPolicy(max_attempts=2, base_delay_ms=100))
# A client that pins the newest era opens without a request.
ERAS = pytest.mark.parametrize("era", ["legacy", "auto", "2026-07-28"])
PAYMENT = {"words": "paid 5"}


class Site:
    """A gateway that can be killed and started again at the same address."""

    def __init__(self, place: Path, gateways: ExitStack) -> None:
        self.journal = place / "journal"
        self.port, self.proxy_port = free_port(), free_port()
        self._place = place
        self._gateways = gateways

    def start(self) -> GatewayProcess:
        """Start it, with the ledger that it had."""
        command = server_command("servers.outcomes", "by-argument", self.journal)
        hosts = [f"127.0.0.1:{self.proxy_port}"]
        config = configuration({"s": stdio_entry(command)}, allowedHosts=hosts)
        running = running_gateway(
            config, self._place / "gateway", port=self.port, start_seconds=START_SECONDS
        )
        gateway = self._gateways.enter_context(running)
        gateway.wait_until_ready(seconds=START_SECONDS)
        return gateway

    def executions(self) -> list[str]:
        """The tools that were called at the server, in order."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
        return [json.loads(line)[0] for line in lines]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as gateways:
        yield Site(tmp_path, gateways)


async def lost_answer(tx: TxSession, proxy: FaultProxy) -> TxResult:
    """A call that is carried out and recorded, and whose answer is lost in an outage."""
    # Nothing of the opening is under way any more.
    await tx.list_tools()
    proxy.faults.withhold_answers = True
    calling = asyncio.create_task(tx.call_tool("s_pay", PAYMENT, idempotency_key="order 17"))
    await eventually(lambda: b"paid 5" in proxy.withheld, START_SECONDS, "the call is answered")
    proxy.close()
    return await calling


@ERAS
@pytest.mark.parametrize("killed", [False, True], ids=["connection cut", "gateway killed"])
async def test_a_repeat_after_the_outage_gets_the_recorded_answer(
    site: Site, era: str, *, killed: bool
) -> None:
    gateway = await asyncio.to_thread(site.start)
    async with (
        fault_proxy(site.port, site.proxy_port) as proxy,
        TxSession(Client(proxy.url, mode=era), QUICK) as tx,
    ):
        lost = await lost_answer(tx, proxy)
        assert (lost.final_status, lost.processed, lost.durable) == ("failed", None, True)
        assert tx.features == set(FEATURES)
        # The outage goes on, and every repeat says so.
        for _ in range(2):
            away = await tx.call_tool("s_pay", PAYMENT, idempotency_key="order 17")
            assert (away.error_code, away.processed, away.retryable) == ("CONNECTION_ERROR", None, True)
        if killed:
            await asyncio.to_thread(gateway.kill)
            await asyncio.to_thread(site.start)
        proxy.faults = Faults()
        await proxy.open()
        back = await tx.call_tool("s_pay", PAYMENT, idempotency_key="order 17")
        assert (back.final_status, back.duplicate, back.processed) == ("completed", True, True)
        assert back.unwrap().content[0].text == "paid 5"
    assert site.executions() == ["pay"]


@ERAS
async def test_what_the_gateway_does_not_know_either_is_in_doubt_by_its_word(site: Site, era: str) -> None:
    gateway = await asyncio.to_thread(site.start)
    async with TxSession(Client(gateway.url, mode=era), QUICK) as tx:
        slow = {"outcome": "slow"}
        calling = asyncio.create_task(tx.call_tool("s_pay", slow, idempotency_key="order 18"))
        await eventually(lambda: site.executions() == ["pay"], START_SECONDS, "the call is carried out")
        await asyncio.to_thread(gateway.kill)
        assert (await calling).processed is None
        await asyncio.to_thread(site.start)
        # With the id of the operation, by which it can be settled.
        with pytest.raises(TxInDoubtError, match=r"operation [0-9a-f]{32}"):
            await tx.call_tool("s_pay", slow, idempotency_key="order 18")
    assert site.executions() == ["pay"]


async def test_a_plain_server_in_the_place_of_the_gateway_is_not_sent_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = server_command("sdk_servers.rmcp_shop", site=True)
    with http_server([*command, "--rmcp"]) as knowing, http_server(command) as plain:
        async with fault_proxy(port_of(knowing)) as proxy, TxSession(Client(proxy.url), QUICK) as tx:
            proxy.faults.withhold_answers = True
            calling = asyncio.create_task(tx.call_tool("pay", idempotency_key="k"))
            await eventually(lambda: b"pay 1" in proxy.withheld, START_SECONDS, "the call is answered")
            proxy.close()
            assert (await calling).processed is None
            proxy.target_port, proxy.faults = port_of(plain), Faults()
            await proxy.open()
            with pytest.raises(TxInDoubtError, match="may have been carried out"):
                await tx.call_tool("pay", idempotency_key="k")
            assert (tx.features, tx.is_durable) == (frozenset(), False)
            assert tx.fallback == "the server does not announce rmcp"
            assert "plain MCP is spoken since the connection was lost" in caplog.text
            requests = json.loads((await tx.call_tool("seen")).unwrap().content[0].text)
    assert [params["name"] for method, params in requests if method == "tools/call"] == ["seen"]


def port_of(url: str) -> int:
    """The port of an address."""
    return urlsplit(url).port or 0
