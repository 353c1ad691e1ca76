"""Fifty clients at once each get their own answers."""

import asyncio
from collections.abc import Iterator

import pytest

from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, era_command, stdio_entry
from tests.real.mcp_clients import McpClient, client_transport, words

CLIENTS = 50
ROUNDS = 5
START_SECONDS = 30.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    place = tmp_path_factory.mktemp("many")
    servers = {era: stdio_entry(era_command(era, place / "journal")) for era in ("legacy", "modern")}
    with running_gateway(configuration(servers), place, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield gateway


def visitor_number(number: int, gateway: GatewayProcess) -> McpClient:
    front, era = [("http", "legacy"), ("http", "modern"), ("sse", "legacy")][number % 3]
    return McpClient(client_transport(gateway, front), era)


async def test_fifty_clients_of_both_eras_get_their_own_answers(gateway: GatewayProcess) -> None:
    everybody_is_in = asyncio.Barrier(CLIENTS)

    async def visit(number: int) -> list[str]:
        mcp_client = visitor_number(number, gateway)
        async with mcp_client.client:
            await everybody_is_in.wait()
            questions = [
                (server, f"{number}/{turn}") for turn in range(ROUNDS) for server in ("legacy", "modern")
            ]
            calls = [
                mcp_client.client.call_tool(f"{server}_echo", {"text": text}) for server, text in questions
            ]
            answers = [words(answer) for answer in await asyncio.gather(*calls)]
            assert answers == [text for _, text in questions]
            return answers

    answers = await asyncio.gather(*(visit(number) for number in range(CLIENTS)))

    assert len({text for texts in answers for text in texts}) == CLIENTS * ROUNDS


async def test_progress_of_fifty_clients_in_step_is_not_mixed_up(gateway: GatewayProcess) -> None:
    async def visit(number: int) -> list[str | None]:
        mcp_client = visitor_number(number, gateway)
        heard: list[str | None] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)

        orders = {
            "drum": "fifty",
            "steps": 2,
            "parties": CLIENTS,
            "offset": number,
            "text": f"client {number}",
        }
        async with mcp_client.client:
            await mcp_client.client.call_tool("legacy_march", orders, progress_callback=note)
        return heard

    heard = await asyncio.gather(*(visit(number) for number in range(CLIENTS)))

    assert heard == [[f"client {number} 1", f"client {number} 2"] for number in range(CLIENTS)]
