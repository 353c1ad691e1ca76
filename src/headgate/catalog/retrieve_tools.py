"""retrieve_tools: searches the catalog for an agent, and in dynamic mode adds found tools to its list."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import msgspec

from headgate.catalog.catalog import Catalog
from headgate.catalog.definition_text import read_tool
from headgate.catalog.errors import ServerNotFound
from headgate.catalog.finder import Finder, MatchGroups, MatchReason, ToolQuery
from headgate.catalog.item_lookup import nearest_servers
from headgate.catalog.own_tools import RetrieveToolsArguments, read_retrieve_arguments
from headgate.catalog.public_names import OWN_NAMES, Key
from headgate.catalog.search.tool_ranking import Allowed
from headgate.catalog.tool_pool import PoolUpdate, ToolPools
from headgate.catalog.tool_summaries import (
    MOST_CHARACTERS,
    FittedReply,
    ReplyEntry,
    brief,
    compact,
    fit_reply,
    schema_of,
    size_of,
)
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.identity import Identity, Visibility
from headgate.domain.item import Item
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse, visibility_group_of
from headgate.event_loop import TimeSlice
from headgate.search.rank_fusion import FusedScore

# Servers, in an error message.
_MOST_NAMED: Final = 20
_UNFINISHED: Final = "; the index is still being made, so there may be more: try again in a moment"
NO_MATCH: Final = {"message": "No relevant tools found", "tools": []}
# Candidates after the full entries, by name only: of all queries together, and at least of each.
_MOST_ALSO: Final = 15
_FEWEST_ALSO: Final = 3
# Of a reply without a sure match: the servers of its best candidates, and example tools of each.
_LIKELY_SERVERS: Final = 3
_EXAMPLES: Final = 6
_LONGEST_EXAMPLE: Final = 60
_REPHRASE: Final = (
    "Search again with a verb and an object as a tool's author would write them, such as 'create issue', "
    "or only in one of likely_servers with servers."
)

# Appended to parts that did not fit.
_NARROW: Final = (
    "Get the arguments of one with expandSchema, or search again with servers, other words or a lower limit."
)
# Characters of the sentences in a reply or in one of its queries, and of its member names.
_SENTENCES: Final = 800


# Waits for a moment until servers that have just started have listed.
AwaitTools = Callable[[ClientProfile, ClientSession | None, Identity], Awaitable[None]]
# Whether tools that a client finds are added to its list.
IsDynamic = Callable[[McpRequest], bool]
# Called with the visibility group whose list of tools has changed.
NotifyListChanged = Callable[[str], None]


class RetrieveTools:
    """The tool retrieve_tools, in search mode and in dynamic mode."""

    def __init__(
        self,
        finder: Finder,
        tools: Catalog,
        pools: ToolPools,
        grows: IsDynamic,
        *,
        top_k: int,
        await_tools: AwaitTools,
        tell: NotifyListChanged,
    ) -> None:
        self._finder = finder
        self._tools = tools
        self._pools = pools
        self._is_dynamic = grows
        self._top_k = top_k
        self._await_tools = await_tools
        self._notify_list_changed = tell
        # For metrics: searches, those without any match, and those without a sure match.
        self.searches = 0
        self.without_match = 0
        self.weak = 0

    async def run(self, request: McpRequest) -> McpResponse:
        """The found tools as text and as structured content; raises InvalidArguments or ServerNotFound."""
        arguments = read_retrieve_arguments(request.params)
        visibility = self._tools.visibility(request.caller)
        servers = self._servers(arguments.servers, visibility)
        await self._await_tools(request.profile, request.session, request.caller)

        def allowed(key: Key) -> bool:
            return self._tools.tool(key, request.profile, visibility) is not None

        searched = []
        time_slice = TimeSlice()
        queries = list(dict.fromkeys(arguments.queries or [arguments.query or ""]))
        for query in queries:
            await time_slice.yield_if_expired()
            tool_query = ToolQuery(query, arguments.limit or self._top_k, servers, bool(arguments.read_only))
            more = max(_FEWEST_ALSO, _MOST_ALSO // len(queries))
            sees_all = self._tools.shows_all(request.profile) and visibility.is_unrestricted
            searched.append(await self._search(tool_query, more, None if sees_all else allowed, arguments))
        visibility_group = visibility_group_of(request.session, request.caller)
        registration = self._register(request, searched)
        builder = _RetrievalReply(self._tools, request.profile, visibility, arguments, registration)
        reply = builder.build(
            searched, pool_size=len(self._pools.keys(visibility_group)), pool_limit=self._pools.limit
        )
        if not self._finder.is_current:
            reply["message"] += _UNFINISHED
        if registration is not None and (registration.new or registration.evicted):
            self._notify_list_changed(visibility_group)
        text = msgspec.json.encode(reply).decode()
        result = {"content": [{"type": "text", "text": text}], "structuredContent": reply}
        return McpResponse(msgspec.json.encode(result))

    async def _search(
        self, tool_query: ToolQuery, more: int, allowed: Allowed | None, arguments: RetrieveToolsArguments
    ) -> "_QueryMatches":
        found = await self._finder.candidates(tool_query, allowed, more)
        weak = found.weak and bool(found.groups)
        self.searches += 1
        self.without_match += not found.groups
        self.weak += weak
        entries = found.groups[: tool_query.limit]
        reasons: dict[Key, MatchReason] = {}
        if arguments.detail == "explain":
            reasons = await self._finder.explain(tool_query, allowed, [group[0].key for group in entries])
        return _QueryMatches(
            query=tool_query.query,
            entries=entries,
            also=[group[0].key for group in found.groups[tool_query.limit : tool_query.limit + more]],
            weak=weak,
            likely_servers=self._likely_servers(found, allowed) if weak else [],
            reasons=reasons,
        )

    def _likely_servers(self, found: MatchGroups, allowed: Allowed | None) -> list[dict[str, str]]:
        """The servers of the best candidates, each with example tools that the caller may see."""
        servers = dict.fromkeys(group[0].key[0] for group in found.groups)
        described = []
        for server in list(servers)[:_LIKELY_SERVERS]:
            count, names = self._finder.examples(server, allowed, _EXAMPLES)
            listed = ", ".join(name[:_LONGEST_EXAMPLE] for name in names)
            does = f"{count} tools, such as {listed}" if count > len(names) else listed
            described.append({"server": server, "does": does})
        return described

    def _servers(self, requested: list[str] | None, visibility: Visibility) -> frozenset[str] | None:
        requested = [server for server in requested or () if server]
        known = self._tools.visible_servers(visibility)
        for server in requested:
            if server not in known:
                finder = f"there are {', '.join(known[:_MOST_NAMED])}" if known else "there is none"
                raise ServerNotFound(server, nearest_servers(server, known), finder=finder)
        return frozenset(requested) if requested else None

    def _register(self, request: McpRequest, searched: list["_QueryMatches"]) -> PoolUpdate | None:
        if not self._is_dynamic(request):
            return None
        scores: dict[Key, float] = {}
        # In the order of the queries; with the best score of a tool that matches several.
        for one in [group[0] for matches in searched for group in matches.entries]:
            scores[one.key] = max(one.score, scores.get(one.key, 0.0))
        group = visibility_group_of(request.session, request.caller)
        return self._pools.register(group, scores) if scores else None


class _QueryMatches(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates of one query: groups in full, and tools by name only."""

    query: str
    entries: list[list[FusedScore]]
    also: list[Key]
    weak: bool
    likely_servers: list[dict[str, str]]
    reasons: dict[Key, MatchReason]


class _RetrievalReply(msgspec.Struct, frozen=True):
    """Builds a reply of few tokens."""

    _tools: Catalog
    _profile: ClientProfile
    _visibility: Visibility
    _arguments: RetrieveToolsArguments
    _registration: PoolUpdate | None

    def build(self, searched: list[_QueryMatches], *, pool_size: int, pool_limit: int) -> dict[str, Any]:
        """The whole reply; every mode has the same members."""
        around: dict[str, Any] = {
            "newly_registered": self._names(self._registration.new if self._registration else ()),
            "evicted_tools": self._names(self._registration.evicted if self._registration else ()),
            "pool_size": pool_size,
            "pool_limit": pool_limit,
            "total_available_tools": len(self._tools.visible(PLAIN_PROFILE, self._visibility)),
        }
        room = MOST_CHARACTERS - size_of(around) - _SENTENCES
        results = list[dict[str, Any]]()
        # Each may take an equal share of the remaining room.
        for left, one in zip(range(len(searched), 0, -1), searched, strict=True):
            results.append(self._query_result(one, room // left))
            room -= size_of(results[-1])
        if self._arguments.queries is None:
            return results[0] | around
        # With a tool, in full or by name.
        answered = [one for one in results if one["tools"] or one.get("also")]
        count = sum(len(one["tools"]) for one in answered) or len(answered)
        message = _message(count, weak=all("weak" in one for one in answered))
        return {"message": message, "results": results} | ({} if answered else NO_MATCH) | around

    def _query_result(self, searched: _QueryMatches, room: int) -> dict[str, Any]:
        also, query = self._names(searched.also), searched.query[:200]
        entries = [self._entry(searched, group) for group in searched.entries]
        room -= size_of((also, query, searched.likely_servers)) + _SENTENCES
        fitted = fit_reply([entry for entry in entries if entry is not None], room)
        weak = searched.weak and fitted.found > 0
        reply: dict[str, Any] = {"message": _message(fitted.found, weak=weak), "tools": fitted.tools}
        if weak:
            reply["weak"] = True
        if also := fitted.named + also:
            reply["also"] = also
        if weak:
            reply["likely_servers"] = searched.likely_servers
        if hint := " ".join(filter(None, [_REPHRASE if weak else "", _left_out(fitted)])):
            reply["hint"] = hint
        return reply | {"query": query}

    def _entry(self, searched: _QueryMatches, group: list[FusedScore]) -> ReplyEntry | None:
        """The best existing tool of a group, and the names of its near-duplicates."""
        there = [(one, self._tools.tool(one.key, self._profile, self._visibility)) for one in group]
        items = [(one, item) for one, item in there if item is not None]
        if not items:
            return None
        one, item = items[0]
        more: dict[str, Any] = {"weak": True} if searched.weak else {}
        if len(items) > 1:
            more["same_as"] = [item.public_name for _, item in items[1:]]
        brief = self._tool(one, item, full=False) | more
        if self._arguments.detail == "full":
            return ReplyEntry(item.public_name, brief, lambda: self._tool(one, item, full=True) | more)
        reason = searched.reasons.get(one.key)
        whole = None if reason is None else lambda: brief | {"why": _why(reason)}
        return ReplyEntry(item.public_name, brief, whole)

    def _tool(self, one: FusedScore, item: Item, *, full: bool) -> dict[str, Any]:
        tool = read_tool(item.definition)
        entry: dict[str, Any] = {
            "name": item.public_name,
            "original_name": item.name,
            "server": item.server,
            "description": tool.text if full else brief(tool.text),
            "score": round(one.score, 2),
        }
        # On the client's list after this search.
        listed = False
        if self._registration is not None:
            listed = item.public_name not in OWN_NAMES and one.key not in self._registration.left_out
            entry["newly_registered"] = one.key in self._registration.new
            entry["listed"] = listed
        if full or not listed:
            # A call needs the schema, which the list does not have.
            schema = schema_of(tool)
            entry["input_schema"] = schema if full else compact(schema)
        return entry

    def _names(self, keys: Collection[Key]) -> list[str]:
        """Their listed names; tools that only others of the group see are omitted."""
        items = (self._tools.tool(key, self._profile, self._visibility) for key in keys)
        return [item.public_name for item in items if item is not None]


def _message(count: int, *, weak: bool = False) -> str:
    if not count:
        return str(NO_MATCH["message"])
    tools = f"{count} tool" if count == 1 else f"{count} tools"
    return f"No sure match; {tools} may fit" if weak else f"Found {tools}"


def _left_out(fitted: FittedReply) -> str:
    """What did not fit, and how to get it; empty if everything did."""
    parts = [
        f"{fitted.brief} tools are only brief (brief: true)" if fitted.brief else "",
        f"{len(fitted.named)} more are only named, first in also" if fitted.named else "",
        f"{fitted.unnamed} more are left out" if fitted.unnamed else "",
    ]
    if not any(parts):
        return ""
    omitted = ", ".join(filter(None, parts))
    return f"The answer is limited to {MOST_CHARACTERS:,} characters: {omitted}. {_NARROW}"


def _why(reason: MatchReason) -> dict[str, Any]:
    """The matching words and fields, and the similarity of meaning."""
    why: dict[str, Any] = {"lexical": round(reason.words, 4)}
    if reason.meaning is not None:
        why |= {"vector": round(reason.meaning, 4), "cosine": round(reason.cosine or 0.0, 4)}
    if reason.explanation is not None:
        why["terms"] = [msgspec.to_builtins(one) for one in reason.explanation.contributions]
        why["not_matched"] = list(reason.explanation.missing)
        why["sure"] = round(reason.explanation.confidence, 4)
        if reason.explanation.meaning is not None:
            why["word_vectors"] = {
                "nearness": round(reason.explanation.meaning, 4),
                "share": round(reason.explanation.meaning_share, 4),
            }
        if reason.explanation.clause:
            why["clause"] = list(reason.explanation.clause)
    return why
