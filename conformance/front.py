"""The client that the suite's client scenarios judge: a plain SDK client behind the gateway.

The suite starts `python -m conformance.front [--direct] URL`. The gateway gets URL as its one
server, so every request that the suite sees is the gateway's; with --direct there is no gateway, and the
suite judges the SDK's client.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from conformance.cells import NEW
from testkit import async_gateway_process

Do = Callable[[Client], Awaitable[None]]

# Within the suite's limit for a scenario, so that the gateway is ended in good order.
_SCENARIO_SECONDS: Final = 15.0
_READY_SECONDS: Final = 10.0
_UNFIT: Final = (
    "invalid_empty_header", "invalid_object_header", "invalid_array_header", "invalid_null_header",
    "invalid_number_header", "invalid_duplicate_same_case", "invalid_duplicate_diff_case",
    "invalid_space_in_name", "invalid_colon_in_name", "invalid_non_ascii_name", "invalid_control_char_name",
)  # fmt: skip


async def _list(client: Client) -> None:
    await client.list_tools()


async def _add(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def _elicit(client: Client) -> None:
    await client.call_tool("test_client_elicitation_defaults", {})


async def _reconnect(client: Client) -> None:
    await client.call_tool("test_reconnection", {})


async def _rounds(client: Client) -> None:
    await client.list_tools()
    for name in ("echo_state", "no_state", "unrelated", "no_result_type"):
        await client.call_tool(f"test_mrtr_{name}", {})


async def _everything(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        await client.call_tool(tool.name, {})
    for resource in (await client.list_resources()).resources:
        await client.read_resource(resource.uri)
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name)


async def _mirrored(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def _fit(client: Client) -> None:
    for tool in (await client.list_tools()).tools:
        await client.call_tool(tool.name, {"region": "us-west1"})


async def _unfit(client: Client) -> None:
    await _fit(client)
    # The SDK's client leaves them out; the gateway must not pass them on for a client that sends them.
    for name in _UNFIT:
        params = types.CallToolRequestParams(name=name, arguments={"value": "x"})
        try:
            await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
        except MCPError as error:
            print(f"{name}: {error}", file=sys.stderr)


async def _echo_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


_DO: Final[dict[str, Do]] = {
    "tools_call": _add,
    "elicitation-sep1034-client-defaults": _elicit,
    "sse-retry": _reconnect,
    "sep-2322-client-request-state": _rounds,
    "http-standard-headers": _everything,
    "http-custom-headers": _mirrored,
    "http-invalid-tool-headers": _fit,
    "json-schema-2020-12-preservation": _echo_schema,
}
_DO_THROUGH: Final = _DO | {"http-invalid-tool-headers": _unfit}


async def _accept(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Accept every form as it stands: with its default values, and yes to what has none."""
    if not isinstance(params, types.ElicitRequestFormParams):
        return types.ElicitResult(action="decline")
    properties: dict[str, Any] = params.requested_schema.get("properties", {})
    content = {name: schema.get("default", True) for name, schema in properties.items()}
    return types.ElicitResult(action="accept", content=content)


async def _talk(url: str, scenarios: Mapping[str, Do]) -> None:
    mode = "auto" if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") == NEW else "legacy"
    async with Client(url, mode=mode, elicitation_callback=_accept, cache=None) as client:
        await scenarios.get(os.environ["MCP_CONFORMANCE_SCENARIO"], _list)(client)


async def _talk_through(url: str, logs: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        if logs is not None:
            directory = logs / "gateways" / os.environ["MCP_CONFORMANCE_SCENARIO"]
            directory.mkdir(parents=True, exist_ok=True)
        settings = {"prefix": False, "listing": "full"}
        config = {"mcpServers": {"suite": {"url": url}}, "proxySettings": settings}
        async with async_gateway_process.running(directory, config) as running:
            await running.wait_ready(["suite"], _READY_SECONDS)
            await _talk(f"http://127.0.0.1:{running.port}/mcp", _DO_THROUGH)


async def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m conformance.front")
    parser.add_argument("url")
    parser.add_argument("--direct", action="store_true", help="without the gateway")
    parser.add_argument("--logs", type=Path, help="keep the gateway's log here")
    options = parser.parse_args()
    async with asyncio.timeout(_SCENARIO_SECONDS):
        await (_talk(options.url, _DO) if options.direct else _talk_through(options.url, options.logs))


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(_main())
