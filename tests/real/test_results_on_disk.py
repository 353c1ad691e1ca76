"""A gateway with `maxMemoryPerAgent: 0` keeps every stored result on disk, and loses none of them."""

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Message
from testkit.gateway_process import GatewayProcess
from testkit.upstreams import configuration
from testkit.waiting import wait_until
from tests.real.large_results import QUESTIONS, Agent, buried, id_of, quarry_entry, said, texts, unknown
from tests.real.mcp_clients import McpClients

START_SECONDS = 60.0
MIB = 1024 * 1024
# Of so many users two results take less than a mebibyte, and three take more.
LARGE = 8000
Start = Callable[..., GatewayProcess]


def started(start_gateway: Start, **settings: Any) -> GatewayProcess:
    wanted = {"listResultTools": True, "maxMemoryPerAgent": 0} | settings
    gateway = start_gateway(configuration({"quarry": quarry_entry()}, **wanted), start_seconds=START_SECONDS)
    gateway.wait_until_ready("quarry", seconds=START_SECONDS)
    return gateway


@asynccontextmanager
async def agent_of(gateway: GatewayProcess) -> AsyncIterator[Agent]:
    guests = McpClients(gateway)
    try:
        yield Agent(await guests.mcp_client("http", "legacy"))
    finally:
        await guests.leave()


def users(number: int, count: int = 500) -> Message:
    """A result that differs from others of the same size."""
    return said(json.dumps({"users": [{"id": n, "name": f"user{n}", "of": number} for n in range(count)]}))


async def stored(agent: Agent, place: Path, *numbers: int, count: int = 500) -> list[str]:
    files = [buried(place, users(number, count)) for number in numbers]
    return [id_of(await agent.call("quarry_dig", file=file)) for file in files]


async def owners_of(agent: Agent, ids: list[str]) -> list[int | None]:
    """What each stored result says that it is; None of one that is gone."""
    replies = [await agent.call("proxy_query", cache_id=id, sql='SELECT max("of") FROM rows') for id in ids]
    return [
        None
        if reply.get("isError") and texts(reply) == [unknown(id)]
        else json.loads(texts(reply)[0])["rows"][0][0]
        for id, reply in zip(ids, replies, strict=True)
    ]


def spool_files(gateway: GatewayProcess) -> list[str]:
    """The files of stored results that the gateway holds open."""
    links = [os.readlink(link) for link in Path(f"/proc/{gateway.pid}/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.startswith(str(gateway.data_dir / "spool"))]


@pytest.mark.parametrize("isolated", [True, False])
async def test_every_result_is_on_disk_and_every_tool_reads_it(
    start_gateway: Start, tmp_path: Path, *, isolated: bool
) -> None:
    gateway = started(start_gateway, enableAgentIsolation=isolated)
    async with agent_of(gateway) as agent:
        ids = await stored(agent, tmp_path, *range(5))

        metrics = gateway.metrics()
        assert metrics["headgate_results_stored"] == 5
        assert metrics["headgate_result_bytes_on_disk"] == metrics["headgate_result_bytes"] > 0
        assert metrics["headgate_results_evicted_total"] == 0
        assert len(spool_files(gateway)) == 5
        assert await owners_of(agent, ids) == [0, 1, 2, 3, 4]
        for tool, question in QUESTIONS.items():
            reply = await agent.call(tool, cache_id=ids[0], **question)
            assert not reply.get("isError")
        fresh = {"tool": "quarry_dig", "arguments": {"file": buried(tmp_path, users(7))}}
        reply = await agent.call("proxy_search", **fresh, pattern='"name":"user7"')
        assert json.loads(texts(reply)[0]) == {"users": [{"id": 7, "name": "user7", "of": 7}]}
        assert len(spool_files(gateway)) == 6


async def test_the_limits_of_entries_and_bytes_hold(start_gateway: Start, tmp_path: Path) -> None:
    gateway = started(start_gateway, maxEntriesPerAgent=3)
    async with agent_of(gateway) as agent:
        ids = await stored(agent, tmp_path, *range(5))
        assert await owners_of(agent, ids) == [None, None, 2, 3, 4]
        wait_until(lambda: len(spool_files(gateway)) == 3, 10, "the files of evicted results are closed")
    small = started(start_gateway, cacheMaxBytes=MIB)
    assert MIB / 3 < len(json.dumps(users(0, LARGE))) < MIB / 2
    async with agent_of(small) as agent:
        ids = await stored(agent, tmp_path, *range(4), count=LARGE)
        assert await owners_of(agent, ids) == [None, None, 2, 3]
        assert MIB / 2 < small.metrics()["headgate_result_bytes_on_disk"] <= MIB


async def test_a_session_that_ends_and_a_gateway_that_ends_leave_no_file(
    start_gateway: Start, tmp_path: Path
) -> None:
    gateway = started(start_gateway)
    async with agent_of(gateway) as agent:
        await stored(agent, tmp_path, *range(3))
        assert len(spool_files(gateway)) == 3
    wait_until(lambda: spool_files(gateway) == [], 10, "the files of the session are closed")
    async with agent_of(gateway) as agent:
        await stored(agent, tmp_path, 1)
        assert [path for path in (gateway.data_dir / "spool").glob("**/*") if path.is_file()] == []
        gateway.kill()
    assert [path for path in (gateway.data_dir / "spool").glob("**/*") if path.is_file()] == []
