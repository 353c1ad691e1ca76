"""retrieve_tools: what it answers in each mode, in how much detail, and to whom it shows what."""

import json
from typing import Any

import pytest

from headgate.catalog.catalog import Catalog
from headgate.catalog.errors import ServerNotFound
from headgate.catalog.finder import Finder
from headgate.catalog.retrieve_tools import RetrieveTools
from headgate.catalog.tool_pool import ToolPools
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile
from headgate.domain.errors import InvalidArguments
from headgate.domain.identity import EVERYTHING, LOCAL_IDENTITY, Identity, VisibilityRule
from headgate.domain.item import ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import ClientSession, McpResponse
from testkit.waiting import eventually
from tests.access.granted import GrantedVisibility
from tests.catalog.sample_catalog import ROOTS, SAMPLING, catalog_of
from tests.catalog.sample_listings import UnreachableChannel
from tests.catalog.test_finder import OFFICE, tool
from tests.delivery.scripted_upstream import WAIT_SECONDS, Clock
from tests.gateway_harness import request

NOTHING = {"message": "No relevant tools found", "tools": []}
NONSENSE = "xkcd qwfpgj zzzz"
# What every answer says in every mode, beside what it found.
POOL_MEMBERS = {
    "newly_registered": [],
    "evicted_tools": [],
    "pool_size": 0,
    "pool_limit": 15,
    "total_available_tools": 7,
}
CONTRACT = {"message", "tools", "query", *POOL_MEMBERS}
# Only related words: a folder is not a file, but it is not nothing either.
VAGUE = "a folder full of old photographs and a violin"


def hiding(*servers: str) -> VisibilityRule:
    """Hides the tools of some servers from everybody but the local user."""
    others = GrantedVisibility(("*:*", *(f"!{server}:*" for server in servers)))
    return lambda caller: EVERYTHING if caller == LOCAL_IDENTITY or not servers else others


class RetrievalFixture:
    """retrieve_tools before a catalog of seven tools."""

    def __init__(
        self,
        mode: ListingMode = ListingMode.SEARCH,
        *,
        limit: int = 15,
        top_k: int = 5,
        hidden: tuple[str, ...] = (),
        patience_seconds: float = 5.0,
    ) -> None:
        self.catalog: Catalog = catalog_of(*OFFICE, visible=hiding(*hidden))
        for server, tools in OFFICE.items():
            self.catalog.replace_listing(server, ItemKind.TOOLS, tools)
        self.clock = Clock()
        self.pools = ToolPools(limit, self.clock)
        self.told: list[str] = []
        self.awaited: list[ClientProfile] = []
        self.finder = Finder(lambda: self.catalog.every_tool, patience_seconds=patience_seconds)
        self.tool = RetrieveTools(
            self.finder,
            self.catalog,
            self.pools,
            lambda request: mode is ListingMode.DYNAMIC,
            top_k=top_k,
            await_tools=self._await,
            tell=self.told.append,
        )

    async def _await(self, profile: ClientProfile, owner: ClientSession | None, caller: Identity) -> None:
        self.awaited.append(profile)

    async def answer(
        self, profile: ClientProfile = PLAIN_PROFILE, who: str = "", owner: str = "", **given: Any
    ) -> McpResponse:
        session = ClientSession(owner, UnreachableChannel()) if owner else None
        asked = request(
            "tools/call", "retrieve_tools", {"arguments": given}, who, profile=profile, session=session
        )
        return await self.tool.run(asked)

    async def ask(self, *args: Any, **given: Any) -> dict[str, Any]:
        answer = await self.answer(*args, **given)
        assert isinstance(answer.result, bytes)
        result = json.loads(answer.result)
        (block,) = result["content"]
        assert block["type"] == "text"
        assert json.loads(block["text"]) == result["structuredContent"]
        assert "isError" not in result
        told: dict[str, Any] = result["structuredContent"]
        return told

    async def find(self, *args: Any, **given: Any) -> list[str]:
        return [one["name"] for one in (await self.ask(*args, **given))["tools"]]


THINGS = (
    *("apples", "bridges", "castles", "doors", "elephants", "fences", "gardens", "houses", "icebergs"),
    *("jackets", "kettles", "lanterns", "mirrors", "needles", "oceans", "pillows", "queens", "rivers"),
    *("sailors", "tigers", "umbrellas", "violins", "windows", "yachts", "zebras"),
)

# The answer in search mode.


async def test_a_tool_is_told_with_everything_that_a_call_needs() -> None:
    told = await RetrievalFixture().ask(query="delete a file")
    assert set(told) - {"also"} == CONTRACT
    assert told["query"] == "delete a file"
    assert told["total_available_tools"] == 7
    assert told["message"] == f"Found {len(told['tools'])} tools"
    first = told["tools"][0]
    assert 0 < first.pop("score") <= 1
    assert first == {
        "name": "files_delete_file",
        "original_name": "delete_file",
        "server": "files",
        "description": "Delete a file from the disk for good.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }


async def test_one_tool_is_counted_as_one() -> None:
    assert (await RetrievalFixture().ask(query="delete a file", limit=1))["message"] == "Found 1 tool"


@pytest.mark.parametrize("mode", ListingMode)
@pytest.mark.parametrize("query", ["", "   ", NONSENSE, NONSENSE * 600, "ファイルを削除する", "?"])
async def test_what_nothing_answers_is_answered_with_nothing(mode: ListingMode, query: str) -> None:
    desk = RetrievalFixture(mode)
    nothing = NOTHING | {"query": query[:200]}
    assert await desk.ask(query=query) == nothing | POOL_MEMBERS
    assert await desk.ask(queries=[query, query]) == NOTHING | {"results": [nothing]} | POOL_MEMBERS
    assert desk.told == []
    assert len(desk.pools) == 0


async def test_a_long_request_is_not_sent_back_whole() -> None:
    told = await RetrievalFixture().ask(query="please delete a file from the disk, " * 300)
    assert told["tools"][0]["name"] == "files_delete_file"
    assert len(told["query"]) == 200


async def test_the_same_request_gets_the_same_bytes() -> None:
    one, other = RetrievalFixture(), RetrievalFixture()
    for detail in ("brief", "full", "explain"):
        given: dict[str, Any] = {"query": "read a file of the repository", "detail": detail}
        first = await one.answer(**given)
        assert await one.answer(**given) == first
        assert await other.answer(**given) == first


async def test_searches_are_counted_and_those_in_vain() -> None:
    desk = RetrievalFixture()
    await desk.ask(queries=["delete a file", NONSENSE])
    await desk.ask(query="delete a file")
    assert (desk.tool.searches, desk.tool.without_match) == (3, 1)


# How many, and among which.


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"limit": 1}, 1), ({"limit": 3}, 3)])
async def test_so_many_as_are_wanted_or_as_is_usual(given: dict[str, int], expected: int) -> None:
    desk = RetrievalFixture(top_k=2)
    query = "read or delete a file, search messages, show the history, record changes"
    assert len(await desk.find(query=query, limit=50)) > 3
    assert len(await desk.find(query=query, **given)) == expected


async def test_only_of_these_servers_and_only_what_changes_nothing() -> None:
    desk = RetrievalFixture()
    assert await desk.find(query="a file from the disk", servers=["files"], read_only=True) == [
        "files_read_file"
    ]
    assert await desk.find(query="delete a file", servers=["weather", "mail"], read_only=True) == []
    # None in particular.
    assert (await desk.find(query="delete a file", servers=[]))[0] == "files_delete_file"


async def test_a_server_that_does_not_exist_is_said_with_the_nearest() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    with pytest.raises(ServerNotFound) as missing:
        await desk.ask(query="delete a file", servers=["mail", "fils"])
    assert "files" in missing.value.hint
    assert "'fils'" in str(missing.value)
    assert len(desk.pools) == 0


async def test_wrong_arguments_search_for_nothing() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    for given in ({}, {"query": "x", "limit": 51}, {"query": "delete a file", "queries": ["a"]}):
        with pytest.raises(InvalidArguments):
            await desk.ask(**given)
    assert (desk.tool.searches, desk.awaited) == (0, [])


async def test_servers_that_have_just_been_started_are_given_a_moment() -> None:
    desk = RetrievalFixture()
    await desk.ask(query="x", profile=SAMPLING)
    assert desk.awaited == [SAMPLING]


async def test_texts_are_read_as_the_number_and_the_list_that_they_stand_for() -> None:
    desk = RetrievalFixture()
    query = "read or delete a file, search messages, show the history, record changes"
    assert len(await desk.find(query=query, limit="3")) == 3
    assert await desk.find(query="delete a file", servers="files", limit="1") == ["files_delete_file"]
    assert (await desk.find(query="delete a file", servers=""))[0] == "files_delete_file"


# Candidates behind the full entries.


async def test_further_candidates_follow_as_bare_names() -> None:
    desk = RetrievalFixture()
    query = "read or delete a file, search messages, show the history, record changes"
    every = await desk.find(query=query, limit=50)
    told = await desk.ask(query=query, limit=2)
    assert [one["name"] for one in told["tools"]] == every[:2]
    assert told["also"] == every[2:]
    assert "also" not in await desk.ask(query=query, limit=50)


async def test_there_are_at_most_fifteen_further_candidates_for_all_queries_together() -> None:
    desk = RetrievalFixture()
    desk.catalog.replace_listing(
        "git", ItemKind.TOOLS, [tool(f"paint_{what}", f"Paint {what}") for what in THINGS]
    )
    told = await desk.ask(query="paint", limit=5)
    assert (len(told["tools"]), len(told["also"])) == (5, 15)
    several = await desk.ask(queries=["paint", "paint it", "to paint"], limit=5)
    assert [len(one["also"]) for one in several["results"]] == [5, 5, 5]


async def test_in_dynamic_mode_only_full_entries_are_registered() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    query = "read or delete a file, search messages, show the history, record changes"
    told = await desk.ask(query=query, limit=2, owner="one")
    assert told["also"]
    assert told["newly_registered"] == [one["name"] for one in told["tools"]]
    assert len(desk.pools.keys("one")) == told["pool_size"] == 2


# No sure match.


@pytest.mark.parametrize("mode", [ListingMode.SEARCH, ListingMode.DYNAMIC])
async def test_without_a_sure_match_the_best_candidates_are_marked_weak(mode: ListingMode) -> None:
    desk = RetrievalFixture(mode)
    told = await desk.ask(query=VAGUE, owner="one")
    assert set(told) - {"also"} == CONTRACT | {"weak", "likely_servers", "hint"}
    assert told["weak"] is True
    assert told["message"].startswith("No sure match")
    assert all(one["weak"] is True and 0 <= one["score"] < 0.1 for one in told["tools"])
    assert "files_delete_file" in [one["name"] for one in told["tools"]]
    assert {"server": "files", "does": "read_file, delete_file"} in told["likely_servers"]
    assert "verb and an object" in told["hint"]
    assert (desk.tool.searches, desk.tool.without_match, desk.tool.weak) == (1, 0, 1)


async def test_a_sure_match_is_not_marked() -> None:
    told = await RetrievalFixture().ask(query="delete a file")
    assert "weak" not in told
    assert all("weak" not in one for one in told["tools"])


async def test_among_several_requests_only_the_one_without_a_sure_match_is_marked() -> None:
    told = await RetrievalFixture().ask(queries=["delete a file", VAGUE])
    assert [one.get("weak", False) for one in told["results"]] == [False, True]
    assert told["message"].startswith("Found")
    assert "hint" in told["results"][1]
    only = await RetrievalFixture().ask(queries=[VAGUE, NONSENSE])
    assert only["message"].startswith("No sure match")


async def test_a_weak_answer_names_nothing_that_a_caller_may_not_see() -> None:
    desk = RetrievalFixture(hidden=("files",))
    assert "files" in json.dumps(await desk.ask(query=VAGUE))
    for limit in (1, 50):
        told = await desk.ask(who="guest", query=VAGUE, limit=limit)
        assert [one["name"] for one in told["tools"]] == ["mail_send_message"]
        assert told["weak"]
        assert "file" not in json.dumps(told)


# Near-duplicates.

COPY = tool("read_file", "Read the complete contents of a file from the disk.", read_only=True)


async def test_the_same_tool_of_several_servers_is_one_entry_that_names_the_others() -> None:
    desk = RetrievalFixture()
    desk.catalog.replace_listing(
        "git", ItemKind.TOOLS, [COPY, tool("log", "Show the history of a repository.")]
    )
    desk.catalog.replace_listing("mail", ItemKind.TOOLS, [COPY])
    told = await desk.ask(query="read the complete contents of a file")
    first = told["tools"][0]
    assert {first["name"], *first["same_as"]} == {"files_read_file", "git_read_file", "mail_read_file"}
    others = [one["name"] for one in told["tools"][1:]] + told.get("also", [])
    assert not {name for name in others if name.endswith("_read_file")}
    assert told["message"] == f"Found {len(told['tools'])} tools"


async def test_what_a_caller_may_not_see_is_in_no_group() -> None:
    desk = RetrievalFixture(hidden=("git",))
    desk.catalog.replace_listing("git", ItemKind.TOOLS, [COPY])
    assert "git_read_file" in json.dumps(await desk.ask(query="read a file"))
    told = await desk.ask(who="guest", query="read a file")
    assert told["tools"][0]["name"] == "files_read_file"
    assert "git" not in json.dumps(told)


async def test_copies_that_fill_a_ranking_leave_room_for_other_tools() -> None:
    servers = [f"disk{number:02}" for number in range(60)]
    desk = RetrievalFixture()
    desk.catalog.set_servers([*OFFICE, *servers])
    for server in servers:
        desk.catalog.replace_listing(server, ItemKind.TOOLS, [COPY])
    told = await desk.ask(query="read the complete contents of a file from the disk", limit=2)
    first, second = told["tools"]
    assert len(first["same_as"]) == 60
    assert second["name"] == "files_delete_file"
    assert second["score"] <= first["score"]


# Several at once.


async def test_several_requests_are_answered_in_one_answer() -> None:
    told = await RetrievalFixture().ask(
        queries=["delete a file", NONSENSE, "weather tomorrow", "delete a file"]
    )
    assert set(told) == {"message", "results", *POOL_MEMBERS}
    assert [one["query"] for one in told["results"]] == ["delete a file", NONSENSE, "weather tomorrow"]
    first, second, third = told["results"]
    assert first["tools"][0]["name"] == "files_delete_file"
    assert (second["tools"], second["message"]) == ([], "No relevant tools found")
    assert third["tools"][0]["name"] == "weather_forecast"
    assert told["message"] == f"Found {len(first['tools']) + len(third['tools'])} tools"


async def test_one_of_several_is_answered_as_it_is_alone() -> None:
    desk = RetrievalFixture()
    alone = await desk.ask(query="delete a file")
    (among,) = (await desk.ask(queries=["delete a file"]))["results"]
    assert among["tools"] == alone["tools"]


# In how much detail.


async def test_signatures_are_short_and_in_full_everything_is_there() -> None:
    desk = RetrievalFixture()
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "description": "What to paint", "minLength": 1}},
        "$defs": {"unused": {}},
    }
    description = "Paint a picture. Then hang it up.\n\nArgs: x"
    definition = {"name": "paint", "description": description, "inputSchema": schema}
    desk.catalog.replace_listing("git", ItemKind.TOOLS, [json.dumps(definition).encode()])
    (brief,) = (await desk.ask(query="paint a picture"))["tools"]
    assert brief["description"] == "Paint a picture."
    assert brief["input_schema"] == {"type": "object", "properties": {"x": {"type": "string"}}}
    (full,) = (await desk.ask(query="paint a picture", detail="full"))["tools"]
    assert (full["description"], full["input_schema"]) == (description, schema)


async def test_an_explanation_says_which_words_in_which_fields() -> None:
    told = await RetrievalFixture().ask(query="delete a file on the moon", detail="explain")
    first = told["tools"][0]
    assert first["name"] == "files_delete_file"
    why = first["why"]
    assert 0 < why["lexical"] <= 1
    assert {"name", "description"} <= set(why["terms"][0]["fields"])
    assert all(set(term) == {"word", "term", "kind", "fields", "share"} for term in why["terms"])
    assert any(word.startswith("moon") for word in why["not_matched"])
    # There are no vectors, so nothing is said of them.
    assert "vector" not in why
    assert "why" not in (await RetrievalFixture().ask(query="delete a file"))["tools"][0]


async def test_schemas_of_any_depth_are_answered_or_left_out() -> None:
    desk = RetrievalFixture()
    depths = [*range(880, 1010, 3), 5000]
    desk.catalog.replace_listing(
        "git",
        ItemKind.TOOLS,
        [
            b'{"name":"paint_%d","description":"Paint a picture","inputSchema":%s}'
            % (depth, b'{"a":' * depth + b"1" + b"}" * depth)
            for depth in depths
        ],
    )
    # What is too deep for any client is not in the catalog at all.
    taken = len(desk.catalog) - 5
    assert taken > 10
    for detail in ("brief", "full"):
        answer = await desk.answer(query="paint a picture", limit=50, detail=detail)
        assert isinstance(answer.result, bytes)
        assert answer.result.count(b'"original_name":') == taken


# Dynamic mode.


async def test_what_is_found_is_registered_and_its_circle_told() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    told = await desk.ask(query="delete a file", limit=1, owner="one")
    assert told["newly_registered"] == ["files_delete_file"]
    assert (told["evicted_tools"], told["pool_size"], told["pool_limit"]) == ([], 1, 15)
    (first,) = told["tools"]
    assert (first["newly_registered"], first["listed"]) == (True, True)
    assert "input_schema" not in first
    assert desk.told == ["one"]
    assert desk.pools.keys("one") == (("files", "delete_file"),)


async def test_what_is_found_again_is_not_new_and_nobody_is_told() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    await desk.ask(query="delete a file", limit=1, owner="one")
    again = await desk.ask(query="delete a file", limit=1, owner="one")
    assert again["newly_registered"] == []
    assert again["tools"][0]["newly_registered"] is False
    assert again["pool_size"] == 1
    assert desk.told == ["one"]
    # For another client it is new.
    assert (await desk.ask(query="delete a file", limit=1, owner="two"))["newly_registered"]
    assert desk.told == ["one", "two"]


async def test_what_leaves_is_named() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC, limit=1)
    await desk.ask(query="delete a file", limit=1, owner="one")
    desk.clock.forward(3600.0)
    told = await desk.ask(query="the weather of the next days at a place", limit=1, owner="one")
    assert told["newly_registered"] == ["weather_forecast"]
    assert told["evicted_tools"] == ["files_delete_file"]
    assert (told["pool_size"], told["pool_limit"]) == (1, 1)
    assert desk.told == ["one", "one"]


async def test_more_than_fits_is_told_but_not_registered() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC, limit=2, top_k=50)
    told = await desk.ask(query="read or delete a file, show the history, record changes", owner="one")
    assert len(told["tools"]) > 2
    assert (len(told["newly_registered"]), told["pool_size"], told["evicted_tools"]) == (2, 2, [])
    assert [one["newly_registered"] for one in told["tools"]].count(True) == 2


async def test_what_is_found_and_not_registered_is_told_with_what_a_call_needs() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC, limit=1)
    first, *others = (await desk.ask(query="delete a file"))["tools"]
    assert first["newly_registered"]
    assert "input_schema" not in first
    assert others
    assert all(not one["newly_registered"] and one["input_schema"]["type"] == "object" for one in others)
    assert [one["listed"] for one in (first, *others)] == [True, *(False for _ in others)]


async def test_a_search_of_half_an_index_says_so() -> None:
    desk = RetrievalFixture(patience_seconds=0.0)
    assert (await desk.ask(query="delete a file"))["message"].endswith("try again in a moment")
    await eventually(lambda: desk.finder.is_current, WAIT_SECONDS, "everything is indexed")
    assert (await desk.ask(query="delete a file"))["message"].startswith("Found")


async def test_a_tool_that_answers_several_requests_is_registered_once_with_its_best_score() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    told = await desk.ask(queries=["a file", "delete a file from the disk for good"], limit=2, owner="one")
    assert len(set(told["newly_registered"])) == len(told["newly_registered"]) == told["pool_size"]
    assert "files_delete_file" in told["newly_registered"]


async def test_in_full_detail_the_schema_is_told_in_dynamic_mode_too() -> None:
    told = await RetrievalFixture(ListingMode.DYNAMIC).ask(query="delete a file", detail="full")
    assert told["tools"][0]["input_schema"]["properties"] == {"path": {"type": "string"}}


async def test_without_sessions_those_with_the_same_key_share_a_pool() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    assert (await desk.ask(query="delete a file", who="alice"))["newly_registered"]
    assert not (await desk.ask(query="delete a file", who="alice"))["newly_registered"]
    assert (await desk.ask(query="delete a file", who="bob"))["newly_registered"]
    assert (await desk.ask(query="delete a file"))["newly_registered"]
    assert len(set(desk.told)) == 3


@pytest.mark.parametrize("mode", [ListingMode.FULL, ListingMode.SEARCH])
async def test_in_the_other_modes_nothing_is_registered(mode: ListingMode) -> None:
    desk = RetrievalFixture(mode)
    told = await desk.ask(query="delete a file", owner="one")
    assert {name: told[name] for name in POOL_MEMBERS} == POOL_MEMBERS
    assert "newly_registered" not in told["tools"][0]
    assert "input_schema" in told["tools"][0]
    assert (desk.told, len(desk.pools)) == ([], 0)


# Who may see what.


async def test_what_a_caller_may_not_see_is_never_found_or_explained() -> None:
    desk = RetrievalFixture(hidden=("files",))
    assert "files_delete_file" in await desk.find(query="delete a file")
    for query in ("delete a file", "files_delete_file", "read the contents of a file from the disk"):
        for detail in ("brief", "full", "explain"):
            answer = await desk.answer(who="guest", query=query, limit=50, detail=detail)
            assert isinstance(answer.result, bytes)
            shown = answer.result.replace(query.encode(), b"")
            assert b"files" not in shown
            assert b"delete_file" not in shown
    assert await desk.find(who="guest", query="delete a file", servers=["files"]) == []


async def test_what_a_profile_may_not_see_is_never_found() -> None:
    desk = RetrievalFixture()
    desk.catalog.replace_listing("files", ItemKind.TOOLS, OFFICE["files"][:1], ROOTS)
    desk.catalog.replace_listing(
        "files", ItemKind.TOOLS, [*OFFICE["files"], tool("paint", "Paint a picture")], SAMPLING
    )
    assert "files_delete_file" in await desk.find(query="delete a file")
    assert "files_delete_file" not in await desk.find(query="delete a file", profile=ROOTS, limit=50)
    assert await desk.find(query="paint a picture", profile=SAMPLING) == ["files_paint"]
    for profile in (PLAIN_PROFILE, ROOTS):
        assert await desk.find(query="paint a picture", profile=profile) == []


async def test_a_profile_is_shown_its_own_definition() -> None:
    desk = RetrievalFixture()
    desk.catalog.replace_listing(
        "weather", ItemKind.TOOLS, [tool("forecast", "The weather, for samplers")], SAMPLING
    )
    for profile, said in ((PLAIN_PROFILE, "next days"), (SAMPLING, "for samplers")):
        (found,) = (await desk.ask(query="weather", profile=profile, limit=1))["tools"]
        assert said in found["description"]


async def test_what_another_profile_has_found_is_not_named_when_it_leaves() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC, limit=1)
    desk.catalog.replace_listing("git", ItemKind.TOOLS, [tool("paint", "Paint a picture")], SAMPLING)
    told = await desk.ask(query="paint a picture", profile=SAMPLING)
    assert told["newly_registered"] == ["git_paint"]
    desk.clock.forward(3600.0)
    # In the stateless era both share a pool.
    answer = await desk.answer(query="delete a file from the disk for good", limit=1)
    assert isinstance(answer.result, bytes)
    assert b"files_delete_file" in answer.result
    assert b"paint" not in answer.result


async def test_a_tool_that_has_vanished_is_neither_found_nor_registered() -> None:
    desk = RetrievalFixture(ListingMode.DYNAMIC)
    assert "files_delete_file" in await desk.find(query="delete a file")
    desk.catalog.replace_listing("files", ItemKind.TOOLS, [])
    assert "files_delete_file" not in await desk.find(query="delete a file", owner="one", limit=50)
    desk.catalog.set_servers(["mail"])
    assert await desk.find(query="the weather of the next days") == []
