"""How many tokens an answer of retrieve_tools has, with the tools of real servers."""

import asyncio
import lzma
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final

import msgspec

from bench.retrieval.peers import count_tokens
from bench.retrieval.semantic import BOTH, WORDS, open_finder, prepared
from bench.retrieval.synthetic import template_questions
from headgate.catalog.catalog import Catalog
from headgate.catalog.public_names import Key, public_name
from headgate.catalog.retrieve_tools import RetrieveTools
from headgate.catalog.search.tool_document import document_of
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import ClientProfile
from headgate.domain.identity import LOCAL_IDENTITY, Identity, everything_visible
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import ClientSession, McpRequest

_LISTINGS: Final = Path(__file__).resolve().parents[2] / "tests" / "data" / "catalogs.jsonl.xz"
TOOLS: Final = 900
_QUESTIONS: Final = 200
_TOP_K: Final = 5
_SEED: Final = 7
# What the gateway allows by default.
TOOL_NAME_LIMIT: Final = 60


class Replies(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens (o200k_base) of the text block of the answers to some questions."""

    way: str
    detail: str
    tools: int
    questions: int
    # Of the questions that found something.
    answered: int
    tokens_p50: float
    tokens_p95: float
    tokens_most: int


class NoNameOwners:
    """Stores nothing: the catalog lives as long as the measurement."""

    def owner(self, public_name: str) -> Key | None:
        """Notify no client."""

    def claim(self, names: Mapping[str, Key]) -> None:
        """Forgotten at once."""


def catalog_of(items: Sequence[Item]) -> Catalog:
    """Tools of real servers as a catalog in which everybody may see everything."""
    catalog = Catalog(
        name_limit=TOOL_NAME_LIMIT,
        prefixed=True,
        page_bytes=1 << 18,
        owners=NoNameOwners(),
        visible=everything_visible,
    )
    catalog.set_servers(list(dict.fromkeys(item.server for item in items)))
    for server in catalog.servers():
        own = [item.definition for item in items if item.server == server]
        catalog.replace_listing(server, ItemKind.TOOLS, own)
    return catalog


def replies() -> list[Replies]:
    """Ask for some of the tools, by words and by both, for short answers and for whole schemas."""
    print(f"bench: retrieval, replies with {TOOLS} tools", file=sys.stderr, flush=True)
    return asyncio.run(_replies(catalog_of(real_tools(TOOLS))))


def real_tools(count: int) -> list[Item]:
    """So many tools of servers that are drawn, the same each time."""
    with lzma.open(_LISTINGS, "rb") as lines:
        listings = [msgspec.json.decode(line, type=_Listed) for line in lines]
    random.Random(_SEED).shuffle(listings)
    found: list[Item] = []
    for one in listings:
        for definition in one.listing.tools:
            name = msgspec.json.decode(definition, type=_Named).name
            called = public_name(one.server, name, TOOL_NAME_LIMIT)
            found.append(Item(ItemKind.TOOLS, one.server, name, called, bytes(definition)))
    return found[:count]


class _Named(msgspec.Struct):
    name: str


class _Tools(msgspec.Struct):
    tools: list[msgspec.Raw]


class _Listed(msgspec.Struct):
    server: str
    listing: _Tools


async def _replies(catalog: Catalog) -> list[Replies]:
    questions = requests_for(catalog.every_tool, _QUESTIONS)
    found = []
    for way, embedder in ((WORDS, None), (BOTH, prepared(questions))):
        async with open_finder(lambda: catalog.every_tool, embedder) as finder:
            tool = RetrieveTools(
                finder,
                catalog,
                ToolPools(1, lambda: 0.0),
                lambda request: False,
                top_k=_TOP_K,
                await_tools=_at_once,
                tell=lambda visibility_group: None,
            )
            for detail in ("brief", "full"):
                texts = [await _ask(tool, question, detail) for question in questions]
                found.append(_counted(way, detail, len(catalog), texts))
    return found


def requests_for(items: Sequence[Item], count: int) -> list[str]:
    """Questions for some of these tools; for so many of them, the same each time."""
    documents = [document_of(one.server, one.name, one.public_name, one.definition) for one in items]
    random.Random(_SEED).shuffle(documents)
    possible = [asked[0] for document in documents if (asked := template_questions(document))]
    return possible[:count]


async def _at_once(profile: ClientProfile, owner: ClientSession | None, caller: Identity) -> None:
    """Every server has told what it has."""


async def _ask(tool: RetrieveTools, question: str, detail: str) -> str:
    arguments = msgspec.json.encode({"query": question, "detail": detail})
    answer = await tool.run(
        McpRequest(caller=LOCAL_IDENTITY, name="retrieve_tools", params={"arguments": msgspec.Raw(arguments)})
    )
    assert isinstance(answer.result, bytes)
    text: str = msgspec.json.decode(answer.result)["content"][0]["text"]
    return text


def _counted(way: str, detail: str, tools: int, texts: Sequence[str]) -> Replies:
    tokens = sorted(count_tokens(texts))
    cuts = quantiles(tokens, n=20, method="inclusive")
    return Replies(
        way=way,
        detail=detail,
        tools=tools,
        questions=len(texts),
        answered=sum(bool(msgspec.json.decode(text)["tools"]) for text in texts),
        tokens_p50=cuts[9],
        tokens_p95=cuts[18],
        tokens_most=tokens[-1],
    )
