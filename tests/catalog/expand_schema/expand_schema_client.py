"""expandSchema before tools that a test gives, asked as a client asks."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from headgate.catalog.errors import InvalidExpansionRequest
from headgate.catalog.expand_schema import ExpandSchema
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest

NAME = "stripe_create_payment"


class StaticTools:
    """Some tools, of which strangers see none."""

    def __init__(self, *items: Item) -> None:
        self.items = {item.public_name: item for item in items}

    def find(self, name: str, caller: Identity, profile: ClientProfile) -> Item | None:
        return self.items.get(name) if caller == LOCAL_IDENTITY and profile == PLAIN_PROFILE else None

    def nearest(self, name: str, caller: Identity) -> list[str]:
        return [known for known in self.items if known[:3] == name[:3]]


def tool(schema: dict[str, Any] | bytes, **more: Any) -> Item:
    """A tool with this inputSchema."""
    rest = json.dumps({"name": NAME, **more}).encode()
    written = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return item(rest[:-1] + b',"inputSchema":' + written + b"}")


def item(definition: bytes, name: str = NAME) -> Item:
    return Item(ItemKind.TOOLS, "stripe", name, name, definition, definition)


def an_object(**properties: Any) -> dict[str, Any]:
    """A schema with these properties; keywords beside them come by `|`."""
    return {"type": "object", "properties": properties}


class ExpandSchemaClient:
    """The tool, and what it says to one client."""

    def __init__(self, *items: Item) -> None:
        self.tool = ExpandSchema(StaticTools(*items))

    async def answer(self, arguments: Any, who: Identity = LOCAL_IDENTITY) -> dict[str, Any]:
        params = {"arguments": Raw(json.dumps(arguments).encode())}
        answer = await self.tool.run(McpRequest(caller=who, name="expandSchema", params=params))
        assert isinstance(answer.result, bytes)
        result: dict[str, Any] = json.loads(answer.result)
        return result

    async def texts(self, path: Any = None, mode: Any = None) -> list[str]:
        """Every block of the answer."""
        return blocks(await self.answer({"toolName": NAME, "path": path, "mode": mode}))

    async def text(self, path: Any = None, mode: Any = None) -> str:
        """The only block of the answer."""
        (text,) = await self.texts(path, mode)
        return text

    async def value(self, *path: Any, mode: str = "schema") -> Any:
        """What the first block holds."""
        return json.loads((await self.texts(list(path), mode))[0])

    async def refusal(self, path: Any, mode: Any = None) -> str:
        with pytest.raises(InvalidExpansionRequest) as refused:
            await self.texts(path, mode)
        return refused.value.message


def blocks(result: dict[str, Any]) -> list[str]:
    assert set(result) == {"content"}
    assert all(block["type"] == "text" for block in result["content"])
    return [block["text"] for block in result["content"]]


def ask(definition: Item, path: Any = None, mode: Any = None) -> list[str]:
    """One answer, for tests that are not on a loop."""
    return asyncio.run(ExpandSchemaClient(definition).texts(path, mode))
