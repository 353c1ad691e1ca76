"""Clients of either era reach upstreams of either era, and nothing is lost between the eras."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, era_command, era_server, lines_of, stdio_entry
from testkit.waiting import eventually
from tests.real.mcp_clients import MODES, McpClient, McpClients, words

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPSTREAMS = ("legacy-stdio", "legacy-http", "modern-stdio", "modern-http")
ENTRANCES = (
    ("http", "legacy"),
    ("http", "modern"),
    ("stdio", "legacy"),
    ("stdio", "modern"),
    ("sse", "legacy"),
)
# Two SDK servers start as children of each gateway.
START_SECONDS = 30.0
NOTICE_SECONDS = 10.0


@dataclass(frozen=True)
class Yard:
    """A running gateway in front of one upstream of each era on each transport."""

    gateway: GatewayProcess
    servers: dict[str, Any]
    journals: dict[str, Path]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    place = tmp_path_factory.mktemp("eras")
    journals = {name: place / f"{name}.journal" for name in UPSTREAMS}
    with ExitStack() as stack:
        servers = {}
        for name, journal in journals.items():
            era, _, transport = name.partition("-")
            if transport == "http":
                servers[name] = {"url": stack.enter_context(era_server(era, journal))}
            else:
                servers[name] = stdio_entry(era_command(era, journal))
        gateway = stack.enter_context(
            running_gateway(configuration(servers), place, start_seconds=START_SECONDS)
        )
        gateway.wait_until_ready(*UPSTREAMS, seconds=START_SECONDS)
        yield Yard(gateway, servers, journals)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guests(yard: Yard) -> AsyncIterator[McpClients]:
    staying = McpClients(yard.gateway)
    yield staying
    await staying.leave()


@pytest.fixture(params=ENTRANCES, ids="-".join)
def entrance(request: pytest.FixtureRequest) -> tuple[str, str]:
    front, era = request.param
    return front, era


@pytest_asyncio.fixture(loop_scope="module")
async def mcp_client(guests: McpClients, entrance: tuple[str, str]) -> McpClient:
    return await guests.mcp_client(*entrance)


@pytest.fixture(params=UPSTREAMS)
def upstream(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def test_each_tool_is_listed_as_its_server_lists_it(
    mcp_client: McpClient, upstream: str, yard: Yard
) -> None:
    era, _, _ = upstream.partition("-")
    async with Client(directly(yard.servers[upstream]), mode=MODES[era]) as direct:
        expected = {public(upstream, tool.name): dump(tool) for tool in (await direct.list_tools()).tools}

    listed = {name: dump(tool) for name, tool in (await mcp_client.tools()).items() if name in expected}

    for name, tool in expected.items():
        assert listed[name] == tool | {"name": name}


async def test_a_call_returns_the_result_of_the_tool(mcp_client: McpClient, upstream: str) -> None:
    result = await call(mcp_client, upstream, "echo", "grüße 😀")

    assert words(result) == "grüße 😀"
    assert result.structured_content == {"echoed": "grüße 😀"}
    assert not result.is_error
    # The modern era demands it of every result.
    assert mcp_client.era == "legacy" or "result_type" in result.model_fields_set


async def test_a_failure_that_the_tool_reports_stays_its_own(mcp_client: McpClient, upstream: str) -> None:
    result = await call(mcp_client, upstream, "fail", "dice")

    assert result.is_error
    assert words(result) == "no luck with dice"
    assert "io.headgate/error" not in (result.meta or {})


async def test_an_error_of_the_protocol_arrives_with_code_message_and_data(
    mcp_client: McpClient, upstream: str
) -> None:
    with pytest.raises(MCPError) as caught:
        await call(mcp_client, upstream, "refuse", "entry")

    assert caught.value.error.code == 4711
    assert caught.value.error.message == "refused entry"
    assert caught.value.error.data == {"asked": "entry", "odd": [1, None]}


async def test_progress_arrives_at_the_call_that_makes_it(mcp_client: McpClient, upstream: str) -> None:
    await march_together([mcp_client] * 4, upstream)


async def test_progress_of_clients_with_the_same_tokens_is_not_mixed_up(
    guests: McpClients, upstream: str
) -> None:
    entrances = [("http", "legacy", 0), ("http", "legacy", 1), ("http", "modern", 0), ("sse", "legacy", 0)]

    await march_together([await guests.mcp_client(*entrance) for entrance in entrances], upstream)


async def march_together(visitors: list[McpClient], upstream: str) -> None:
    """Each visitor's call reports three steps, all of them in step with each other."""
    drum = uuid4().hex
    seen: list[list[tuple[float, float | None, str | None]]] = [[] for _ in visitors]

    async def march(position: int, mcp_client: McpClient) -> CallToolResult:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen[position].append((progress, total, message))

        orders = {"drum": drum, "steps": 3, "parties": len(visitors), "offset": 10 * position}
        orders["text"] = f"soldier {position}"
        return await mcp_client.client.call_tool(public(upstream, "march"), orders, progress_callback=note)

    results = await asyncio.gather(
        *(march(position, mcp_client) for position, mcp_client in enumerate(visitors))
    )

    for position, (result, steps) in enumerate(zip(results, seen, strict=True)):
        assert words(result) == f"soldier {position}"
        assert steps == [(10 * position + step, 3, f"soldier {position} {step}") for step in (1, 2, 3)]


async def test_a_cancellation_reaches_the_tool_and_no_other_call(
    mcp_client: McpClient, upstream: str, yard: Yard, tmp_path: Path
) -> None:
    doomed, spared = uuid4().hex, uuid4().hex
    journal = yard.journals[upstream]
    release = tmp_path / "release"
    abandoned = asyncio.create_task(call(mcp_client, upstream, "hold", doomed, until=str(tmp_path / "never")))
    kept = asyncio.create_task(call(mcp_client, upstream, "hold", spared, until=str(release)))
    started = {f"started {doomed}", f"started {spared}"}
    await eventually(lambda: started <= set(lines_of(journal)), NOTICE_SECONDS, "both calls have started")

    abandoned.cancel()

    await eventually(lambda: f"cancelled {doomed}" in lines_of(journal), NOTICE_SECONDS, "the tool is told")
    release.touch()
    assert words(await kept) == f"held {spared}"
    assert f"cancelled {spared}" not in lines_of(journal)


async def test_meta_of_request_and_result_arrives(mcp_client: McpClient, upstream: str) -> None:
    sent: dict[str, Any] = {
        "vendor.example/trail": {"depth": [1, {"two": None}], "text": "ü"},
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
        "baggage": "user=ann",
    }

    result = await mcp_client.client.call_tool(public(upstream, "show_meta"), {}, meta=sent)  # type: ignore[arg-type]

    arrived = json.loads(words(result))
    assert {key: arrived.get(key) for key in sent} == sent
    protocol_keys = [key for key in arrived if key.startswith("io.modelcontextprotocol/")]
    assert bool(protocol_keys) is upstream.startswith("modern"), protocol_keys
    assert result.meta is not None
    assert result.meta["vendor.example/answer"] == {"to": "everything", "is": 42}


async def test_a_change_of_the_list_reaches_every_client(guests: McpClients, upstream: str) -> None:
    entrances = [
        ("http", "legacy", 0),
        ("http", "legacy", 1),
        ("http", "modern", 0),
        ("http", "modern", 1),
        ("sse", "legacy", 0),
    ]
    visitors = [await guests.mcp_client(*entrance) for entrance in entrances]

    await grow_before(visitors, upstream)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_change_of_the_list_reaches_the_client_on_stdio(
    guests: McpClients, upstream: str, era: str
) -> None:
    await grow_before([await guests.mcp_client("stdio", era)], upstream)


async def grow_before(visitors: list[McpClient], upstream: str) -> None:
    """The upstream gets a new tool; every visitor hears of it, finds it in the list and can call it."""
    name = f"grown_{uuid4().hex[:12]}"
    async with AsyncExitStack() as stack:
        for mcp_client in visitors:
            await stack.enter_async_context(mcp_client.watching())
        await call(visitors[0], upstream, "grow", name)
        await asyncio.gather(*(mcp_client.wait_for_tool(public(upstream, name)) for mcp_client in visitors))
    for mcp_client in visitors:
        assert words(await call(mcp_client, upstream, name)) == f"{name} is here"


async def call(
    mcp_client: McpClient, upstream: str, tool: str, text: str = "", **more: Any
) -> CallToolResult:
    return await mcp_client.client.call_tool(public(upstream, tool), {"text": text} | more)


def public(upstream: str, tool: str) -> str:
    return f"{upstream.replace('-', '_')}_{tool}"


def directly(entry: dict[str, Any]) -> Any:
    return entry.get("url") or StdioServerParameters(command=entry["command"], args=entry["args"])


def dump(model: Any) -> dict[str, Any]:
    fields: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return fields
