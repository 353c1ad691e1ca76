"""What tools/list gives over all its pages, as bytes and as names."""

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from headgate.search.token_counter import count_tokens
from testkit.clients.async_http import Client, client

# What common clients put before every name of a gateway of the usual name.
PREFIX = "mcp__headgate__"
LONGEST_NAME = 64
# A model of meaning, where one is installed, takes more memory than everything that is measured here.
BY_WORDS = {"embedder": "BM25"}
# A listing that has no end.
_MOST_PAGES = 1_000
# The gateway's own tools.
OWN = (
    *("retrieve_tools", "call_tool", "expandSchema"),
    *("proxy_search", "proxy_filter", "proxy_explore", "proxy_read", "proxy_query"),
)


class _Page(msgspec.Struct):
    tools: msgspec.Raw
    nextCursor: str = ""  # noqa: N815 (the protocol's spelling)


class _Message(msgspec.Struct):
    result: _Page


class _Named(msgspec.Struct):
    name: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole listing: the bytes of the tools on each page, and their names in order."""

    pages: tuple[bytes, ...]
    names: tuple[str, ...]
    seconds: float

    @property
    def size(self) -> int:
        """Of the tools, in bytes."""
        return sum(map(len, self.pages))

    @property
    def tokens(self) -> int:
        """Of the whole tools array."""
        inner = (page[1:-1] for page in self.pages)
        return count_tokens(b"[" + b",".join(filter(None, inner)) + b"]")

    @property
    def others(self) -> tuple[str, ...]:
        """The names of tools that are not the gateway's own."""
        return tuple(name for name in self.names if name not in OWN)


async def list_all(caller: Client) -> Listed:
    """Every page of tools/list; raises AssertionError when one is no page."""
    started, pages, names, cursor = time.monotonic(), list[bytes](), list[str](), ""
    for _ in range(_MOST_PAGES):
        answer = await caller.request("tools/list", {"cursor": cursor} if cursor else {})
        try:
            page = msgspec.json.decode(answer.raw, type=_Message).result
            pages.append(bytes(page.tools))
            # A definition may be nested deeper than a parser goes: its name is read, and the rest skipped.
            names += [tool.name for tool in msgspec.json.decode(page.tools, type=list[_Named])]
        except (msgspec.DecodeError, RecursionError) as error:
            raise AssertionError(f"{caller.path} {answer.status} {error}: {answer.raw[:300]!r}") from error
        cursor = page.nextCursor
        if not cursor:
            return Listed(tuple(pages), tuple(names), time.monotonic() - started)
    raise AssertionError(f"{caller.path} has more than {_MOST_PAGES} pages")


@contextlib.asynccontextmanager
async def viewer(
    port: int, mode: str, *, modern: bool = True, name: str = "campaign"
) -> AsyncIterator[Client]:
    """A client that sees the tools in that mode."""
    async with client(port, modern=modern, path=f"/mcp/{mode}", name=name) as one:
        yield one
