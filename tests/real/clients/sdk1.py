"""List and call tools with the official Python SDK 1.x and print what arrived as one JSON line."""

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def visit(plan: dict[str, Any]) -> dict[str, Any]:
    async with (
        streams(plan) as (read, write, *_),
        ClientSession(read, write, timedelta(seconds=20)) as session,
    ):
        hello = await session.initialize()
        tools = await list_tools(session)
        result = await session.call_tool(plan["tool"], plan["arguments"])
        more = [await session.call_tool(call["name"], call["arguments"]) for call in plan.get("more", [])]
        report = {"protocol": hello.protocolVersion, "tools": tools, "result": dump(result)}
        return report | {"more": [dump(one) for one in more]}


def streams(plan: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    if plan["front"] == "stdio":
        command, *arguments = plan["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=plan["env"]))
    return sse_client(plan["url"]) if plan["front"] == "sse" else streamable_http_client(plan["url"])


async def list_tools(session: ClientSession) -> list[Any]:
    tools: list[Any] = []
    cursor = None
    while True:
        page = await session.list_tools(cursor=cursor)
        tools += [dump(tool) for tool in page.tools]
        cursor = page.nextCursor
        if cursor is None:
            return tools


def dump(model: Any) -> Any:
    return model.model_dump(by_alias=True, mode="json", exclude_unset=True)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(visit(json.loads(sys.argv[1])))))
