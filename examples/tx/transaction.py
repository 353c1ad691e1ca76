"""A journey of three bookings: the third one fails, so the first two are cancelled, the last one first."""
# ruff: noqa: T201 - it talks to a person

import asyncio
from typing import Any

from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from headgate.tx import TxError, TxSession

server = MCPServer("travel")
log: list[str] = []


@server.tool()
def book(what: str) -> str:
    """Book something; there are no cars left."""
    if what == "car":
        raise ToolError("no cars left")
    log.append(f"book {what}")
    return f"{what} number {len(log)}"


@server.tool()
def cancel(booking: str) -> str:
    """Cancel a booking."""
    log.append(f"cancel {booking}")
    return "cancelled"


def of_booking(result: Any) -> dict[str, str]:
    """The arguments that cancel what was booked."""
    return {"booking": result.content[0].text}


async def main() -> None:
    """Book all of it or nothing."""
    async with TxSession(Client(server)) as tx:
        journey = tx.transaction()
        try:
            async with journey:
                for what in ("flight", "hotel", "car"):
                    await journey.call_tool("book", {"what": what}, compensate=("cancel", of_booking))
        except TxError as error:
            print("failed:", error.error_code)
    print("state:", journey.state)
    for line in log:
        print(line)


if __name__ == "__main__":
    asyncio.run(main())
