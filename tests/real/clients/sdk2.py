"""List and call tools with the official Python SDK 2.x and print what arrived as one JSON line."""

import asyncio
import json
import sys
from typing import Any

from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters

MODES = {"auto": "auto", "legacy": "legacy", "modern": "2026-07-28"}


async def visit(plan: dict[str, Any]) -> dict[str, Any]:
    async with Client(server(plan), mode=MODES[plan["era"]], read_timeout_seconds=20) as client:
        tools = await list_tools(client)
        result = await client.call_tool(plan["tool"], plan["arguments"])
        more = [await client.call_tool(call["name"], call["arguments"]) for call in plan.get("more", [])]
        report = {"protocol": client.protocol_version, "tools": tools, "result": dump(result)}
        return report | {"more": [dump(one) for one in more]}


def server(plan: dict[str, Any]) -> Any:
    if plan["front"] == "stdio":
        command, *arguments = plan["command"]
        return StdioServerParameters(command=command, args=arguments, env=plan["env"])
    return sse_client(plan["url"]) if plan["front"] == "sse" else plan["url"]


async def list_tools(client: Client) -> list[Any]:
    tools: list[Any] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [dump(tool) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return tools


def dump(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(visit(json.loads(sys.argv[1])))))
