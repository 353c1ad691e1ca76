"""retrieve_tools: searches the catalog for an agent, and in dynamic mode adds what it finds to its list."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Protocol

import msgspec

from headgate.catalog.arguments import Retrieval, retrieval
from headgate.catalog.directory import nearest_servers
from headgate.catalog.finder import Finder, Reason, Wish
from headgate.catalog.fusion import Fused
from headgate.catalog.names import Key
from headgate.catalog.pool import Pools, Registration
from headgate.catalog.signature import brief, compact, description_of, schema_of
from headgate.catalog.turns import Turn
from headgate.domain.call import Answer, Caller, Owner, Request, circle_of
from headgate.domain.errors import ServerNotFound
from headgate.domain.item import Item
from headgate.domain.profile import Profile

# Servers, in an error message.
_MOST_NAMED: Final = 20
_UNFINISHED: Final = "; the index is still being made, so there may be more: try again in a moment"
NOTHING: Final = {"message": "No relevant tools found", "tools": []}


class Tools(Protocol):
    """The tools that can be found."""

    def servers(self) -> tuple[str, ...]:
        """The servers, in the order of the configuration."""

    def shows_all(self, profile: Profile) -> bool:
        """Whether clients of that profile see every tool."""

    def tool(self, key: Key, profile: Profile) -> Item | None:
        """One tool as clients of that profile see it, if they do."""

    def __len__(self) -> int:
        """How many there are."""


class Access(Protocol):
    """Decides who may see what."""

    def sees_all(self, caller: Caller) -> bool:
        """Whether nothing is hidden from the caller."""

    def may_see(self, caller: Caller, item: Item) -> bool:
        """Whether the tool is shown to the caller at all."""


# Gives servers that have just been started a moment to tell what they have.
Await = Callable[[Profile, Owner | None], Awaitable[None]]
# Whether what a client finds is added to its list.
Grows = Callable[[Request], bool]
# Told the circle whose list of tools has changed.
Tell = Callable[[str], None]


class RetrieveTools:
    """The tool, in search mode and in dynamic mode."""

    def __init__(
        self,
        finder: Finder,
        tools: Tools,
        access: Access,
        pools: Pools,
        grows: Grows,
        *,
        top_k: int,
        await_tools: Await,
        tell: Tell,
    ) -> None:
        self._finder = finder
        self._tools = tools
        self._access = access
        self._pools = pools
        self._grows = grows
        self._top_k = top_k
        self._await_tools = await_tools
        self._tell = tell
        # For whoever watches the gateway: how often something was looked for, and how often in vain.
        self.searches = 0
        self.in_vain = 0

    async def run(self, request: Request) -> Answer:
        """What was found, as text and as the same in structure; raises InvalidArguments or ServerNotFound."""
        asked = retrieval(request.params)
        servers = self._servers(asked.servers)
        await self._await_tools(request.profile, request.owner)
        found: dict[str, list[Fused]] = {}
        reasons: dict[str, dict[Key, Reason]] = {}
        turn = Turn()
        for query in dict.fromkeys(asked.queries or [asked.query or ""]):
            await turn.pass_on()
            wish = Wish(query, asked.limit or self._top_k, servers, bool(asked.read_only))
            found[query] = await self._finder.find(wish, self._allowed(request))
            self.searches += 1
            self.in_vain += not found[query]
            if asked.detail == "explain":
                keys = [one.key for one in found[query]]
                reasons[query] = await self._finder.explain(wish, self._allowed(request), keys)
        registration = self._register(request, found)
        reply = _Reply(self._tools, request.profile, asked, registration, reasons)
        told = reply.told(found, pool_limit=self._pools.limit)
        if not self._finder.current:
            told["message"] += _UNFINISHED
        if registration is not None and (registration.new or registration.evicted):
            self._tell(circle_of(request.owner, request.caller))
        return Answer(_result(told))

    def _servers(self, wanted: list[str] | None) -> frozenset[str] | None:
        known = self._tools.servers()
        for server in wanted or ():
            if server not in known:
                finder = f"there are {', '.join(known[:_MOST_NAMED])}" if known else "there is none"
                raise ServerNotFound(server, nearest_servers(server, known), finder=finder)
        return frozenset(wanted) if wanted else None

    def _allowed(self, request: Request) -> Callable[[Key], bool] | None:
        """What may be shown; None when that is everything, as it mostly is."""
        if self._tools.shows_all(request.profile) and self._access.sees_all(request.caller):
            return None

        def allowed(key: Key) -> bool:
            item = self._tools.tool(key, request.profile)
            return item is not None and self._access.may_see(request.caller, item)

        return allowed

    def _register(self, request: Request, found: dict[str, list[Fused]]) -> Registration | None:
        if not self._grows(request):
            return None
        scores: dict[Key, float] = {}
        # Of the first query first; the best score of a tool that answers several.
        for answers in found.values():
            for one in answers:
                scores[one.key] = max(one.score, scores.get(one.key, 0.0))
        return self._pools.register(circle_of(request.owner, request.caller), scores) if scores else None


class _Reply:
    """Puts what was found into words that cost few tokens."""

    def __init__(
        self,
        tools: Tools,
        profile: Profile,
        asked: Retrieval,
        registration: Registration | None,
        reasons: dict[str, dict[Key, Reason]],
    ) -> None:
        self._tools = tools
        self._profile = profile
        self._asked = asked
        self._registration = registration
        self._reasons = reasons

    def told(self, found: dict[str, list[Fused]], *, pool_limit: int) -> dict[str, Any]:
        """The whole answer."""
        if not any(found.values()):
            return dict(NOTHING)
        if self._asked.queries is None:
            ((query, answers),) = found.items()
            told = self._one(query, answers)
        else:
            told = {
                "message": _message(sum(map(len, found.values()))),
                "results": [self._one(query, answers) for query, answers in found.items()],
            }
        if self._registration is not None:
            told["newly_registered"] = self._names(self._registration.new)
            told["evicted_tools"] = self._names(self._registration.evicted)
            told["pool_size"] = self._registration.size
            told["pool_limit"] = pool_limit
        told["total_available_tools"] = len(self._tools)
        return told

    def _one(self, query: str, answers: list[Fused]) -> dict[str, Any]:
        tools = [self._tool(query, one) for one in answers]
        shown = [tool for tool in tools if tool is not None]
        return {"message": _message(len(shown)), "tools": shown, "query": query[:200]}

    def _tool(self, query: str, one: Fused) -> dict[str, Any] | None:
        item = self._tools.tool(one.key, self._profile)
        if item is None:
            return None
        full = self._asked.detail == "full"
        description = description_of(item.definition)
        told: dict[str, Any] = {
            "name": item.public_name,
            "original_name": item.name,
            "server": item.server,
            "description": description if full else brief(description),
            "score": round(one.score, 2),
        }
        if self._registration is not None:
            told["newly_registered"] = one.key in self._registration.new
        if full or self._registration is None or one.key in self._registration.left_out:
            # What is not listed can be called all the same.
            schema = schema_of(item.definition)
            told["input_schema"] = schema if full else compact(schema)
        reason = self._reasons.get(query, {}).get(one.key)
        if reason is not None:
            told["why"] = _why(reason)
        return told

    def _names(self, keys: Collection[Key]) -> list[str]:
        """Under which names they are listed; what only others of the circle see is not told."""
        items = (self._tools.tool(key, self._profile) for key in keys)
        return [item.public_name for item in items if item is not None]


def _message(count: int) -> str:
    if not count:
        return str(NOTHING["message"])
    return f"Found {count} tool" if count == 1 else f"Found {count} tools"


def _why(reason: Reason) -> dict[str, Any]:
    """Which words and fields, and how near in meaning."""
    told: dict[str, Any] = {"lexical": round(reason.words, 4)}
    if reason.meaning is not None:
        told |= {"vector": round(reason.meaning, 4), "cosine": round(reason.cosine or 0.0, 4)}
    if reason.explanation is not None:
        told["terms"] = [msgspec.to_builtins(one) for one in reason.explanation.contributions]
        told["not_matched"] = list(reason.explanation.missing)
        told["sure"] = round(reason.explanation.confidence, 4)
        if reason.explanation.meaning is not None:
            told["word_vectors"] = {
                "nearness": round(reason.explanation.meaning, 4),
                "share": round(reason.explanation.meaning_share, 4),
            }
        if reason.explanation.clause:
            told["clause"] = list(reason.explanation.clause)
    return told


def _result(told: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(told).decode()
    return msgspec.json.encode({"content": [{"type": "text", "text": text}], "structuredContent": told})
