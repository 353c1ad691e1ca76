"""Large results as agents meet them: what they are shown, where the rest is, and how they read on."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from mcp_types import CallToolResult

from testkit.clients.streaming_http import Message
from testkit.upstreams import server_command, stdio_entry
from tests.real.mcp_clients import McpClient

LIMIT = 8000
META_KEY = "io.headgate/result"
READERS = ("proxy_search", "proxy_filter", "proxy_explore", "proxy_read", "proxy_query")
# Something to ask of any result with each of the tools.
QUESTIONS: dict[str, Message] = {
    "proxy_search": {"pattern": "user7"},
    "proxy_filter": {"fields": ["users.name"]},
    "proxy_explore": {},
    "proxy_read": {},
    "proxy_query": {"sql": "SELECT count(*) FROM rows"},
}
# It does not end, so that its client must cancel it.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, rows"
_NEXT = re.compile(r"more with offset (\d+)")


class Agent:
    """A client of the official SDK, told of results as they came."""

    def __init__(self, mcp_client: McpClient) -> None:
        self.era = mcp_client.era
        self.mcp_client = mcp_client

    async def call(self, tool: str, /, **arguments: Any) -> Message:
        """The result of a call, which the SDK has accepted."""
        return dump(await self.mcp_client.client.call_tool(tool, arguments))

    async def pages(self, tool: str, /, **arguments: Any) -> AsyncIterator[str]:
        """The content of one reply after the other, as their notes say how to go on."""
        offset: int | None = 0
        while offset is not None:
            reply = await self.call(tool, **arguments, offset=offset)
            content, note = texts(reply)
            assert len(content) <= LIMIT
            yield content
            following = _NEXT.search(note)
            assert following is None or int(following[1]) > offset
            offset = int(following[1]) if following else None


def dump(result: CallToolResult) -> Message:
    fields: Message = result.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return fields


def texts(result: Message) -> list[str]:
    """The text of each block that is one."""
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def others(result: Message) -> list[Message]:
    """The blocks that are no text."""
    return [block for block in result["content"] if block["type"] != "text"]


def facts(result: Message) -> Message:
    """What the gateway says about a large result."""
    told: Message = result["_meta"][META_KEY]
    return told


def id_of(result: Message) -> str:
    """The id in `_meta`, which is also in the words that a model sees."""
    name: str = facts(result)["cache_id"]
    assert name in texts(result)[-1]
    return name


def is_whole(result: Message) -> bool:
    """Whether nothing was cut, and nothing added."""
    return META_KEY not in (result.get("_meta") or {})


def unknown(cache_id: str) -> str:
    """The answer for an id that is unknown, or another client's."""
    return (
        f"Cache entry {cache_id[:100]!r} not found or expired. "
        "Re-call the original tool to get a new cache_id."
    )


def bulk_command(era: str, journal: Path) -> list[str]:
    """The command of a server of one era with large results."""
    return server_command("sdk_servers.large_results", "--era", era, "--journal", journal, site=True)


def bulk_entry(era: str, journal: Path) -> Message:
    return stdio_entry(bulk_command(era, journal))


def quarry_entry() -> Message:
    """A server that answers with the result of a file."""
    return stdio_entry(server_command("servers.file_answers"))


def buried(place: Path, result: bytes | Message) -> str:
    """The file from which the quarry answers with this result."""
    path = place / f"{uuid4().hex}.result"
    path.write_bytes(result if isinstance(result, bytes) else json.dumps(result).encode())
    return str(path)


def said(*words: str, **more: Any) -> Message:
    """A result with these texts."""
    return {"content": [{"type": "text", "text": text} for text in words], **more}
