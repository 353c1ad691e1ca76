"""What a conversation pays for tools in the end: the listing, and finding out about tools that it hides.

Every use is of another tool, the worst case for hidden tools: one that is used again is known.
"""

import asyncio
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Final

import msgspec

from bench.listing.catalogs import Catalogue, array
from bench.listing.in_memory_gateway import Guest, Stand, open_stand
from bench.listing.questions import Wanted, questions_for
from bench.listing.tokens import budget_name
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.domain.listing_mode import ListingMode
from headgate.search.token_counter import count_tokens

FEW: Final = "five servers"
USES: Final = (1, 10, 50)
UNEXPANDED: Final = "slim, never expanding"
_CONVERSATIONS: Final = 10
_BUDGETS: Final = (1_000, 3_000, 10_000)
# Who does not find the tool among the best five looks at more.
_MORE: Final = 20


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation after so many uses of tools: the mean of some."""

    servers: str
    tools: int
    mode: str
    uses: int
    # What tools take of the context: the listing as it is now, instructions, what was asked and answered.
    context: float
    # The same added up over all requests to the model, as if nothing were ever cached.
    sent: float
    # Requests to the model.
    turns: float


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of finding out about one tool in one mode: the mean, and what most take at most."""

    servers: str
    mode: str
    # What the model writes to ask, and what it gets.
    asked: float
    answered: float
    answered_p95: float
    # Searches that had the tool among the best five; None where nothing was searched.
    found_at_once: float | None
    uses: int


class Discovery(msgspec.Struct, frozen=True):
    """Both tables."""

    spent: list[Spent]
    found: list[Found]


def discovery(servers: str, catalogues: Sequence[Catalogue], *, quick: bool) -> Discovery:
    """Let some conversations use tools in every mode."""
    print(f"bench: listing, conversations with {servers}", file=sys.stderr, flush=True)
    return asyncio.run(_discovery(servers, catalogues, 1 if quick else _CONVERSATIONS))


async def _discovery(servers: str, catalogues: Sequence[Catalogue], conversations: int) -> Discovery:
    spent: list[Spent] = []
    found: list[Found] = []
    async with open_stand(catalogues, searched=True) as stand:
        ways = [
            (mode.value, stand, mode)
            for mode in (ListingMode.FULL, ListingMode.SLIM, ListingMode.SEARCH, ListingMode.DYNAMIC)
        ]
        ways.insert(2, (UNEXPANDED, stand, ListingMode.SLIM))
        ways += [(budget_name(one), stand.with_budget(one), ListingMode.BUDGET) for one in _BUDGETS]
        for name, own, mode in ways:
            talks = []
            start = await opened(own, Guest(name, mode))
            for number in range(conversations):
                guest = Guest(f"{name} {number}", mode)
                talk = Talk(own, guest, start, expands=name != UNEXPANDED)
                wanted = questions_for(own.items, USES[-1], seed=number)
                talks.append((talk, [await talk.use(one) for one in wanted]))
            spent += [_spent(servers, len(stand.items), name, uses, talks) for uses in USES]
            found += _found(servers, name, [talk for talk, _ in talks])
    return Discovery(spent, found)


class Opened(msgspec.Struct, frozen=True):
    """What every conversation begins with: the tools that are listed, and the tokens of that."""

    shown: dict[str, bytes]
    listed: int
    instructions: int


async def opened(stand: Stand, guest: Guest) -> Opened:
    """What the guest sees now."""
    definitions = await stand.listing(guest)
    names = (msgspec.json.decode(one, type=_Named).name for one in definitions)
    instructions = count_tokens((await stand.advice(guest)).encode())
    return Opened(dict(zip(names, definitions, strict=True)), count_tokens(array(definitions)), instructions)


class State(msgspec.Struct, frozen=True):
    """A conversation after a use."""

    context: int
    sent: int
    turns: int


class Talk:
    """One conversation, and what it has paid so far."""

    def __init__(self, stand: Stand, guest: Guest, start: Opened, *, expands: bool) -> None:
        self._stand = stand
        self._guest = guest
        self._expands = expands
        self._seen = start
        self._asked = 0
        self._sent = 0
        self._turns = 0
        # Tokens of each question to the gateway and of its answer.
        self.exchanges: list[tuple[int, int]] = []
        self.hits: list[bool] = []

    async def use(self, wanted: Wanted) -> State:
        """Find out what must be known of the tool, and call it; the call itself costs the same everywhere."""
        name = wanted.item.public_name
        shown = self._seen.shown.get(name)
        if shown is None:
            await self._search(wanted)
            if self._guest.mode is ListingMode.DYNAMIC:
                self._seen = await opened(self._stand, self._guest)
            else:
                self._asked += _wrapping(name)
        elif shown != wanted.item.handshake_definition and self._expands:
            await self._ask(EXPAND_SCHEMA, {"toolName": name})
        self._turn()
        return State(self._context, self._sent, self._turns)

    @property
    def _context(self) -> int:
        return self._seen.listed + self._seen.instructions + self._asked

    async def _search(self, wanted: Wanted) -> None:
        answer = await self._ask(RETRIEVE_TOOLS, {"query": wanted.text})
        hit = wanted.item.public_name in _names(answer)
        self.hits.append(hit)
        if not hit:
            await self._ask(RETRIEVE_TOOLS, {"query": wanted.text, "limit": _MORE})

    async def _ask(self, tool: str, arguments: dict[str, object]) -> str:
        self._turn()
        answer = "\n".join(await self._stand.ask(self._guest, tool, arguments))
        asked = count_tokens(msgspec.json.encode({"name": tool, "arguments": arguments}))
        answered = count_tokens(answer.encode())
        self.exchanges.append((asked, answered))
        self._asked += asked + answered
        return answer

    def _turn(self) -> None:
        """The model is asked once more, with everything so far."""
        self._turns += 1
        self._sent += self._context


def _wrapping(name: str) -> int:
    """What it takes to call a tool by another."""
    plain = {"name": name, "arguments": {}}
    wrapped = {"name": CALL_TOOL, "arguments": {"name": name, "args": {}}}
    return count_tokens(msgspec.json.encode(wrapped)) - count_tokens(msgspec.json.encode(plain))


def _names(answer: str) -> list[str]:
    return [tool["name"] for tool in msgspec.json.decode(answer)["tools"]]


def _spent(
    servers: str, tools: int, mode: str, uses: int, talks: Sequence[tuple[Talk, Sequence[State]]]
) -> Spent:
    states = [states[uses - 1] for _, states in talks]
    return Spent(
        servers=servers,
        tools=tools,
        mode=mode,
        uses=uses,
        context=mean(one.context for one in states),
        sent=mean(one.sent for one in states),
        turns=mean(one.turns for one in states),
    )


def _found(servers: str, mode: str, talks: Sequence[Talk]) -> list[Found]:
    exchanges = [one for talk in talks for one in talk.exchanges]
    hits = [one for talk in talks for one in talk.hits]
    if not exchanges:
        return []
    answered = sorted(answer for _, answer in exchanges)
    return [
        Found(
            servers=servers,
            mode=mode,
            asked=mean(asked for asked, _ in exchanges),
            answered=mean(answered),
            answered_p95=answered[round((len(answered) - 1) * 0.95)],
            found_at_once=mean(hits) if hits else None,
            uses=len(exchanges),
        )
    ]


class _Named(msgspec.Struct):
    name: str
