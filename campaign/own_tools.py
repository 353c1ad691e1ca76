"""The gateway's own tools as clients see them, with arguments made from their schemas."""

from typing import Any

from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client

# So that all of them are listed.
ALL_LISTED = {"listDeliveryTools": True, "listResultTools": True}
_MODES = ("full", "slim", "search", "dynamic", "budget")


async def own_tools(gateway: AsyncGatewayProcess, servers: list[str]) -> dict[str, dict[str, Any]]:
    """The definition of each own tool by its name: all that are listed in any mode and are no server's."""
    found: dict[str, dict[str, Any]] = {}
    for mode in _MODES:
        caller = Client(gateway.port, modern=True, path=f"/mcp/{mode}")
        for tool in (await caller.request("tools/list")).result.get("tools", []):
            if not tool["name"].startswith(tuple(f"{server}_" for server in servers)):
                found[tool["name"]] = tool
        caller.close()
    return found


def filled(definition: dict[str, Any], text: str) -> dict[str, Any]:
    """Arguments that have this text wherever the schema takes one."""
    properties = definition.get("inputSchema", {}).get("properties", {})
    return {name: _value(schema, text) for name, schema in properties.items() if "enum" not in schema}


def _value(schema: dict[str, Any], text: str) -> Any:
    kinds = schema.get("type", "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    by_kind = {"object": {text[:40]: text}, "array": [text], "integer": 1, "number": 1, "boolean": True}
    return by_kind.get(kind, text)
