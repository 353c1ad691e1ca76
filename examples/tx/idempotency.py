"""One order, sent three times with one key: it is paid once, and another amount is refused."""
# ruff: noqa: T201 - it talks to a person

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer

from headgate.tx import TxApp, TxConflictError, TxSession

server = MCPServer("bank")
paid: list[int] = []


@server.tool()
async def pay(order: str, amount: int) -> str:
    """Pay an order."""
    await asyncio.sleep(0.01)
    paid.append(amount)
    return f"payment {len(paid)}"


async def main() -> None:
    """Pay once, whatever is sent."""
    async with TxSession(Client(server)) as tx:
        app = TxApp(tx)

        # The body of the function is never run: to call it is to call the server's tool.
        @app.tool(name="pay", idempotency_key_generator=lambda arguments: f"order {arguments['order']}")
        async def settle(order: str, amount: int) -> None: ...

        async with app:
            both = await asyncio.gather(settle("17", 5), settle("17", 5))
            again = await settle("17", 5)
            print("duplicates:", [answer.duplicate for answer in (*both, again)])
            try:
                await settle("17", 500)
            except TxConflictError as error:
                print("refused:", error.error_code)
    print("paid:", paid)


if __name__ == "__main__":
    asyncio.run(main())
