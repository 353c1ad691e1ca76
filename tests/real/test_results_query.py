"""Clients of a gateway that query stored results: numbers as text, names as explored, and what is saved."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration
from tests.real.large_results import Agent, buried, facts, id_of, quarry_entry, said, texts
from tests.real.mcp_clients import McpClients

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 60.0
AMOUNTS = ["1,000.50", "2,000.25", "12"]
CODES = ["1,000", "2,000", "12"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    config = configuration({"quarry": quarry_entry()}, listResultTools=True, maxEntriesPerAgent=100)
    with running_gateway(config, tmp_path_factory.mktemp("query"), start_seconds=START_SECONDS) as running:
        running.wait_until_ready("quarry", seconds=START_SECONDS)
        yield running


@pytest_asyncio.fixture(loop_scope="module", params=["legacy", "modern"])
async def agent(gateway: GatewayProcess, request: pytest.FixtureRequest) -> AsyncIterator[Agent]:
    guests = McpClients(gateway)
    yield Agent(await guests.mcp_client("http", request.param))
    await guests.leave()


def as_csv(x: list[str]) -> str:
    return "name,x\n" + "".join(f'row{n},"{x[n % len(x)]}"\n' for n in range(900))


def as_json(x: list[str]) -> str:
    return json.dumps({"orders": [{"name": f"row{n}", "x": x[n % len(x)]} for n in range(900)]})


def as_json_lines(x: list[str]) -> str:
    return "\n".join(json.dumps({"name": f"row{n}", "x": x[n % len(x)]}) for n in range(900))


FORMS = pytest.mark.parametrize("write", [as_csv, as_json, as_json_lines])


async def stored(agent: Agent, place: Path, content: str) -> str:
    return id_of(await agent.call("quarry_dig", file=buried(place, said(content))))


async def query(agent: Agent, cache_id: str, sql: str, **more: Any) -> tuple[list[list[Any]], str]:
    reply = await agent.call("proxy_query", cache_id=cache_id, sql=sql, **more)
    assert not reply.get("isError"), texts(reply)
    answer, note = texts(reply)
    return json.loads(answer)["rows"], note


@FORMS
async def test_numbers_with_marks_between_thousands_are_summed_up(
    agent: Agent, tmp_path: Path, write: Any
) -> None:
    cache_id = await stored(agent, tmp_path, write(AMOUNTS))

    found, note = await query(agent, cache_id, "SELECT sum(x), max(x), sum(x > 1500) FROM rows")

    assert found == [[pytest.approx(300 * 3012.75), 2000.25, 300]]
    assert "x is read as numbers, e.g. '1,000.50'" in note


@FORMS
async def test_text_is_not_summed_up_in_silence(agent: Agent, tmp_path: Path, write: Any) -> None:
    cache_id = await stored(agent, tmp_path, write(CODES))

    for sql in (
        "SELECT sum(x) FROM rows",
        "SELECT avg(x) FROM rows",
        "SELECT count(*) FROM rows WHERE x > 5",
    ):
        reply = await agent.call("proxy_query", cache_id=cache_id, sql=sql)
        assert reply["isError"]
        assert "The column x holds text, e.g. '1,000'" in texts(reply)[0]
        assert "number(x, '.')" in texts(reply)[0]

    found, _ = await query(agent, cache_id, "SELECT sum(number(x, '.')) FROM rows")
    assert found == [[300 * 3012]]
    _, note = await query(agent, cache_id, "SELECT sum(CAST(x AS REAL)) FROM rows")
    assert "CAST takes only the number at the beginning" in note


async def test_explored_names_are_columns(agent: Agent, tmp_path: Path) -> None:
    orders = [
        {
            "Name": f"N{n}",
            "name": f"n{n}",
            "user": {"name": "Ann", "a b": {"c": {"d": n}}},
            "lines": [{"p": n}],
        }
        for n in range(300)
    ]
    cache_id = await stored(agent, tmp_path, json.dumps({"total": 300, "orders": orders}))

    reply = await agent.call("proxy_explore", cache_id=cache_id, max_depth=9)
    printed = [name for name in json.loads(texts(reply)[0])["paths"] if name.startswith("orders[]")]
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in printed)
    found, _ = await query(agent, cache_id, f"SELECT {columns} FROM rows LIMIT 1 OFFSET 7")

    values = dict(zip(printed, found[0], strict=True))
    assert values["orders[].Name"] == "N7"
    assert values["orders[].name"] == "n7"
    assert values["orders[].user.name"] == "Ann"
    assert values['orders[].user["a b"].c.d'] == 7
    assert values["orders[].lines[].p"] == "[7]"


async def test_what_is_saved_is_net_and_counted_once(
    agent: Agent, gateway: GatewayProcess, tmp_path: Path
) -> None:
    names = ("headgate_result_characters_shown_total", "headgate_result_tokens_saved")
    content = as_json(AMOUNTS)
    before = gateway.metrics()

    plain = await agent.call("quarry_dig", file=buried(tmp_path, said(content)))
    both = said(content, structuredContent=json.loads(content))
    twice = await agent.call("quarry_dig", file=buried(tmp_path, both))
    reply = await agent.call("proxy_read", cache_id=id_of(plain), limit=5)

    replies = (plain, twice, reply)
    for one in replies:
        assert facts(one)["processed_size"] == sum(map(len, texts(one)))
    assert facts(twice)["original_tokens"] == pytest.approx(facts(plain)["original_tokens"], rel=0.05)
    after = gateway.metrics()
    characters, tokens = (after[name] - before.get(name, 0) for name in names)
    assert characters == sum(facts(one)["processed_size"] for one in replies)
    received = facts(plain)["original_tokens"] + facts(twice)["original_tokens"]
    assert tokens == received - sum(facts(one)["processed_tokens"] for one in replies)
