"""An agent of pydantic-ai that uses one MCP server; it runs in an environment of its own."""

import asyncio
import json
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main() -> None:
    """Answer one prompt; argv[1] says where model and server are, and how questions are answered."""
    plan = json.loads(sys.argv[1])

    async def elicited(message, response_type, params, context):
        return {"name": plan["answer"]}

    server = plan["server"].get("url") or StdioTransport(**plan["server"])
    handler = elicited if plan["answer"] else None
    # By default the second failure of a tool in a row ends the run.
    patience = {
        "max_retries": plan["turns"],
        "init_timeout": plan["seconds"],
        "read_timeout": plan["seconds"],
    }
    toolset = MCPToolset(server, elicitation_handler=handler, **patience)
    provider = OpenAIProvider(base_url=f"{plan['model']}/v1", api_key="scripted")
    async with Agent(OpenAIResponsesModel("gpt-5", provider=provider), toolsets=[toolset]) as agent:
        print((await agent.run(plan["prompt"])).output)


asyncio.run(main())
