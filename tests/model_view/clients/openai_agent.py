"""An agent of openai-agents that uses one MCP server; it runs in an environment of its own."""

import asyncio
import json
import sys

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from openai import AsyncOpenAI


async def main() -> None:
    """Answer one prompt; argv[1] says where model and server are, and what the model reads of a result."""
    plan = json.loads(sys.argv[1])
    set_tracing_disabled(True)
    model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(base_url=f"{plan['model']}/v1", api_key="scripted"))
    connect = MCPServerStreamableHttp if "url" in plan["server"] else MCPServerStdio
    async with connect(
        params=plan["server"],
        name="headgate",
        # The default of 5 s is for an idle machine.
        client_session_timeout_seconds=plan["seconds"],
        use_structured_content=plan["structured"],
    ) as server:
        agent = Agent("scripted", model=model, mcp_servers=[server])
        print((await Runner.run(agent, plan["prompt"], max_turns=plan["turns"])).final_output)


asyncio.run(main())
