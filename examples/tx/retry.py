"""A server that is busy at first: the call is sent again while it is certain that nothing has happened."""
# ruff: noqa: T201 - it talks to a person

import asyncio

from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from headgate.tx import RetryPolicy, TxConfig, TxSession

server = MCPServer("weather")
asked = 0


@server.tool()
def forecast(city: str) -> str:
    """Tell the weather, but not at once."""
    global asked  # noqa: PLW0603 - the state of this example's server
    asked += 1
    if asked < 3:
        # 1004 is TEMPORARY_FAILURE: the server says that it did nothing.
        raise MCPError(1004, "the barometer is still warming up")
    return f"{city}: sunny"


async def main() -> None:
    """Ask once, and be answered at the third attempt."""
    config = TxConfig(retry_policy=RetryPolicy(max_attempts=4, base_delay_ms=100))
    async with TxSession(Client(server), config) as tx:
        answer = await tx.call_tool("forecast", {"city": "Bern"})
    print(answer.final_status, "after", answer.attempts, "attempts:", answer.unwrap().content[0].text)


if __name__ == "__main__":
    asyncio.run(main())
