"""How many tokens a listing has in each mode: all servers behind one gateway, and each one alone."""

import asyncio
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, array, without_second_mode
from bench.listing.in_memory_gateway import Guest, Stand, open_stand
from bench.listing.questions import questions_for
from headgate.catalog.public_names import RETRIEVE_TOOLS
from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens

ALL: Final = "all servers"
BOTH_AZURES: Final = "with both modes of azure-mcp"
SUM: Final = "each server alone, in total"
DIRECT: Final = "no gateway"
FINDS: Final = 5
AFTER_FINDS: Final = f"dynamic after {FINDS} searches"
DEFAULT_BUDGET: Final = 3_000
BUDGETS: Final = (500, 1_000, DEFAULT_BUDGET, 10_000)
# Different clients that each search for something else.
_CLIENTS: Final = 20
_FIXED: Final = (ListingMode.SLIM, ListingMode.SEARCH, ListingMode.DYNAMIC)
_ALONE: Final = (
    ListingMode.FULL,
    ListingMode.SLIM,
    ListingMode.SEARCH,
    ListingMode.DYNAMIC,
    ListingMode.BUDGET,
    ListingMode.AUTO,
)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One listing; tokens are o200k_base."""

    servers: str
    mode: str
    tools: int
    bytes: float
    tokens: float
    # What the mode adds to the instructions.
    instructions: int
    # Of the tokens of mode full.
    share: float


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """One server behind a gateway of its own: tokens by mode."""

    server: str
    tools: int
    tokens: dict[str, int]


def budget_name(tokens: int) -> str:
    """What the listing of that budget is called in the tables."""
    return f"budget {tokens:,}"


def listed(catalogues: Sequence[Catalogue], *, quick: bool) -> list[Listed]:
    """Every mode with all servers behind one gateway."""
    once = without_second_mode(catalogues)
    found = asyncio.run(_together(ALL, once, (DEFAULT_BUDGET,) if quick else BUDGETS))
    if not quick:
        found += asyncio.run(_with_both_azures(catalogues))
    return found


async def _with_both_azures(catalogues: Sequence[Catalogue]) -> list[Listed]:
    """Only what depends on how many tools there are."""
    async with open_stand(catalogues) as stand:
        whole = await _listed(stand, BOTH_AZURES, ListingMode.FULL, None)
        return [whole, await _listed(stand, BOTH_AZURES, ListingMode.SLIM, whole)]


async def _together(servers: str, catalogues: Sequence[Catalogue], budgets: Sequence[int]) -> list[Listed]:
    raw = [one.listing.removeprefix(b'{"tools":').removesuffix(b"}") for one in catalogues]
    async with open_stand(catalogues, searched=True) as stand:
        print(f"bench: listing, {servers}", file=sys.stderr, flush=True)
        whole = await _listed(stand, servers, ListingMode.FULL, None)
        direct = Listed(
            servers=servers,
            mode=DIRECT,
            tools=sum(len(one.tools) for one in catalogues),
            bytes=sum(map(len, raw)),
            tokens=sum(map(count_tokens, raw)),
            instructions=0,
            share=sum(map(count_tokens, raw)) / whole.tokens,
        )
        lists = [direct, whole]
        lists += [await _listed(stand, servers, mode, whole) for mode in _FIXED]
        lists.append(await _after_finds(stand, servers, whole))
        for budget in budgets:
            fitted = await _listed(stand.with_budget(budget), servers, ListingMode.BUDGET, whole)
            lists.append(msgspec.structs.replace(fitted, mode=budget_name(budget)))
        return [*lists, await _listed(stand, servers, ListingMode.AUTO, whole)]


async def _listed(stand: Stand, servers: str, mode: ListingMode, whole: Listed | None) -> Listed:
    guest = Guest("guest", mode)
    tools = array(definitions := await stand.listing(guest))
    tokens = count_tokens(tools)
    return Listed(
        servers=servers,
        mode=mode,
        tools=len(definitions),
        bytes=len(tools),
        tokens=tokens,
        instructions=count_tokens((await stand.advice(guest)).encode()),
        share=tokens / whole.tokens if whole is not None else 1.0,
    )


async def _after_finds(stand: Stand, servers: str, whole: Listed) -> Listed:
    """The mean of some clients, each of which has searched for a few tools."""
    lists = []
    for number in range(_CLIENTS):
        guest = Guest(f"guest {number}", ListingMode.DYNAMIC)
        for one in questions_for(stand.items, FINDS, seed=number):
            await stand.ask(guest, RETRIEVE_TOOLS, {"query": one.text})
        lists.append(await stand.listing(guest))
    arrays = [array(definitions) for definitions in lists]
    tokens = mean(map(count_tokens, arrays))
    return Listed(
        servers=servers,
        mode=AFTER_FINDS,
        tools=round(mean(map(len, lists))),
        bytes=mean(map(len, arrays)),
        tokens=tokens,
        instructions=count_tokens((await stand.advice(guest)).encode()),
        share=tokens / whole.tokens,
    )


def alone(catalogues: Sequence[Catalogue]) -> list[Alone]:
    """Each server behind a gateway of its own."""
    print(f"bench: listing, {len(catalogues)} servers one by one", file=sys.stderr, flush=True)
    return asyncio.run(_alone(catalogues))


async def _alone(catalogues: Sequence[Catalogue]) -> list[Alone]:
    found = []
    for one in catalogues:
        async with open_stand([one]) as stand:
            tokens = {
                mode.value: count_tokens(array(await stand.listing(Guest("guest", mode)))) for mode in _ALONE
            }
            found.append(Alone(server=one.server, tools=len(stand.items), tokens=tokens))
    return found


def sums(servers: Sequence[Alone]) -> dict[str, int]:
    """The tokens of all of them by mode."""
    return {mode.value: sum(one.tokens[mode.value] for one in servers) for mode in _ALONE}
