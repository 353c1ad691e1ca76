"""The finder: it follows the catalog, finds by words and meaning, and respects visibility."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog.catalog import Catalog
from headgate.catalog.finder import Finder, ToolQuery
from headgate.catalog.search.tool_document import ToolDocument, ToolKey
from headgate.domain.item import Item, ItemKind
from headgate.search.rank_fusion import FusedScore
from tests.catalog.sample_catalog import catalog_of

BOUND_SECONDS = 20.0


def tool(name: str, description: str, *, read_only: bool = False, **properties: Any) -> bytes:
    definition = {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": {"readOnlyHint": read_only},
    }
    return json.dumps(definition).encode()


OFFICE = {
    "mail": [
        tool("send_message", "Send an email to one or more recipients."),
        tool("search_inbox", "Search the inbox for messages of a sender.", read_only=True),
    ],
    "files": [
        tool("read_file", "Read the complete contents of a file from the disk.", read_only=True),
        tool("delete_file", "Delete a file from the disk for good.", path={"type": "string"}),
    ],
    "weather": [tool("forecast", "The weather of the next days at a place.", read_only=True)],
    "git": [
        tool("commit", "Record changes to the repository."),
        tool("log", "Show the history of a repository.", read_only=True),
    ],
}
FORECAST, DELETE, COMMIT = ("weather", "forecast"), ("files", "delete_file"), ("git", "commit")


def office(*order: str) -> Catalog:
    catalog = catalog_of(*OFFICE)
    for server in order or OFFICE:
        catalog.replace_listing(server, ItemKind.TOOLS, OFFICE[server])
    return catalog


def finder_of(catalog: Catalog, meaning: "ScriptedMeaning | None" = None) -> Finder:
    return Finder(lambda: catalog.every_tool, meaning)


async def names(finder: Finder, query: str, **tool_query: Any) -> list[str]:
    return [one.key[1] for one in await finder.find(ToolQuery(query, **tool_query))]


class ScriptedMeaning:
    """Knows how near each tool is, whatever is asked for."""

    def __init__(self, cosines: Mapping[ToolKey, float] | None) -> None:
        self.near = cosines
        self.known: dict[str, list[ToolKey]] = {}
        self.told: list[tuple[str, str]] = []
        self.also: list[ToolKey] = []

    def put(self, server: str, documents: Sequence[ToolDocument]) -> None:
        self.known[server] = [document.key for document in documents]
        self.told.append(("put", server))

    def remove(self, server: str) -> None:
        del self.known[server]
        self.told.append(("remove", server))

    async def cosines(
        self, query: str, limit: int, *, allowed: Callable[[ToolKey], bool] | None, also: Collection[ToolKey]
    ) -> Mapping[ToolKey, float] | None:
        self.also = list(also)
        if self.near is None:
            return None
        nearest = sorted(self.near.items(), key=lambda one: -one[1])[:limit]
        wanted = dict(nearest) | {key: self.near[key] for key in also if key in self.near}
        return {key: near for key, near in wanted.items() if allowed is None or allowed(key)}

    def progress(self) -> tuple[int, int]:
        count = sum(map(len, self.known.values()))
        return (0 if self.near is None else count), count


# What is found.


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("send an email to somebody", "send_message"),
        ("delete a file", "delete_file"),
        ("what is the weather tomorrow", "forecast"),
        ("show the history of the repository", "log"),
        ("delete_file", "delete_file"),
        ("DELETE FILE!!!", "delete_file"),
        ("delet the fiel", "delete_file"),
    ],
)
async def test_the_tool_that_is_meant_comes_first(query: str, first: str) -> None:
    assert (await names(finder_of(office()), query))[0] == first


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n\t ",
        "xkcd qwfpgj zzzz",
        "?!…",
        "the of and to",
        "\x00\x01",
        "🙂🙂🙂",
        "ファイルを削除する",
        "удалить файл",
        "احذف الملف",
        "5 + 5 = 10",
    ],
)
async def test_a_request_that_no_tool_answers_finds_nothing(query: str) -> None:
    assert await names(finder_of(office()), query) == []


async def test_words_of_another_language_are_found_where_a_tool_has_them() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s",
        ItemKind.TOOLS,
        [
            tool("delete", "Удалить файл навсегда"),
            tool("lesen", "Liest eine Datei vollständig ein"),
            tool("読む", "ファイル の 内容 を 読む"),
        ],
    )
    finder = finder_of(catalog)
    assert await names(finder, "удалить файл") == ["delete"]
    assert await names(finder, "Datei vollständig") == ["lesen"]


async def test_a_request_of_ten_kilobytes_is_answered() -> None:
    finder = finder_of(office())
    long = "please delete a file from the disk for good, " * 230
    assert len(long) > 10_000
    assert (await names(finder, long))[0] == "delete_file"
    for nonsense in ("qwfpgj " * 1500, "x" * 10_240, "( " * 5_120, "ü" * 10_240):
        assert await names(finder, nonsense) == []


async def test_no_more_is_found_than_is_wanted_and_the_best_comes_first() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing(
        "s", ItemKind.TOOLS, [tool(f"delete_{number}", "Delete a file from disk.") for number in range(80)]
    )
    finder = finder_of(catalog)
    for limit in (1, 5, 50):
        found = await finder.find(ToolQuery("delete a file", limit=limit))
        assert len(found) == limit
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert all(0 < one.score <= 1 for one in found)


async def test_identical_tools_of_two_servers_are_two_tools_that_are_both_found() -> None:
    catalog = catalog_of("one", "two", "mail")
    for server in ("one", "two"):
        catalog.replace_listing(server, ItemKind.TOOLS, OFFICE["files"])
    catalog.replace_listing("mail", ItemKind.TOOLS, OFFICE["mail"])
    finder = finder_of(catalog)
    found = await finder.find(ToolQuery("delete a file"))
    assert {one.key for one in found[:2]} == {("one", "delete_file"), ("two", "delete_file")}
    assert found[0].score == pytest.approx(found[1].score, abs=0.05)
    assert len(finder) == 6


async def test_an_empty_catalog_finds_nothing() -> None:
    assert await names(finder_of(catalog_of("s")), "delete a file") == []


# Among which tools.


async def test_only_the_wanted_servers_are_searched() -> None:
    finder = finder_of(office())
    query = "search messages and delete a file"
    assert {one.key[0] for one in await finder.find(ToolQuery(query))} >= {"mail", "files"}
    mail = await finder.find(ToolQuery(query, servers=frozenset({"mail"})))
    assert {one.key[0] for one in mail} == {"mail"}
    both = await finder.find(ToolQuery(query, servers=frozenset({"mail", "files"})))
    assert {one.key[0] for one in both} == {"mail", "files"}
    assert await names(finder, "delete a file", servers=frozenset({"weather"})) == []
    assert await names(finder, "delete a file", servers=frozenset()) == []


async def test_only_tools_that_change_nothing_are_found_when_that_is_wanted() -> None:
    finder = finder_of(office())
    assert (await names(finder, "a file from the disk"))[0] in ("delete_file", "read_file")
    assert await names(finder, "a file from the disk", read_only=True) == ["read_file"]


async def test_what_may_not_be_seen_is_never_found() -> None:
    finder = finder_of(office())
    assert DELETE in {one.key for one in await finder.find(ToolQuery("delete a file"))}

    def allowed(key: ToolKey) -> bool:
        return key[0] != "files"

    for query in ("delete a file", "delete_file", "files", "read the complete contents of a file"):
        found = await finder.find(ToolQuery(query, limit=50), allowed)
        assert "files" not in {one.key[0] for one in found}
        hidden = [("files", "delete_file"), ("files", "read_file")]
        assert await finder.explain(ToolQuery(query), allowed, hidden) == {}


# Always the same.


async def test_two_searches_and_two_finders_find_the_same() -> None:
    tool_query = ToolQuery("read the history of the file and send a message", limit=50)
    one, other = finder_of(office()), finder_of(office())
    first = await one.find(tool_query)
    assert len(first) > 2
    assert await one.find(tool_query) == first
    assert await other.find(tool_query) == first


SEARCH = """
import asyncio
from headgate.catalog.finder import ToolQuery
from tests.catalog.test_finder import finder_of, office

async def search():
    finder = finder_of(office())
    for query in ("read the history of the file", "send a message", "delete the weather"):
        wish = ToolQuery(query, limit=50)
        found = await finder.find(wish)
        print(found, await finder.explain(wish, None, [one.key for one in found]))

asyncio.run(search())
"""


def test_two_processes_find_and_explain_the_same() -> None:
    """Sets and dicts of texts are ordered otherwise in each process."""
    told = {
        subprocess.run(
            [sys.executable, "-c", SEARCH],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=BOUND_SECONDS,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert b"read_file" in told.pop()


@given(st.permutations(list(OFFICE)), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_order_in_which_servers_connect_changes_nothing(order: list[str], random: Random) -> None:
    async def search() -> None:
        catalog = office(*order)
        finder = finder_of(catalog)
        tool_query = ToolQuery("read the history of the file and send a message", limit=50)
        first = await finder.find(tool_query)
        # A server that comes back with its tools in another order.
        server = random.choice(order)
        catalog.replace_listing(server, ItemKind.TOOLS, [])
        await finder.find(tool_query)
        catalog.replace_listing(server, ItemKind.TOOLS, random.sample(OFFICE[server], len(OFFICE[server])))
        assert await finder.find(tool_query) == first
        assert first == await finder_of(office()).find(tool_query)

    asyncio.run(search())


# Following the catalog.


async def test_what_changes_is_found_by_the_next_search() -> None:
    catalog = office("mail", "weather")
    finder = finder_of(catalog)
    assert "delete_file" not in await names(finder, "delete a file")
    catalog.replace_listing("files", ItemKind.TOOLS, OFFICE["files"])
    assert (await names(finder, "delete a file"))[0] == "delete_file"
    catalog.replace_listing("files", ItemKind.TOOLS, [tool("burn", "Delete a file by fire")])
    assert await names(finder, "delete a file from the disk for good") == ["burn"]
    catalog.replace_listing("files", ItemKind.TOOLS, [tool("burn", "Paints a picture")])
    assert await names(finder, "delete for good") == []
    assert await names(finder, "paint a picture") == ["burn"]
    catalog.set_servers(["weather"])
    assert await names(finder, "paint a picture") == []
    assert len(finder) == 1


async def test_a_tool_that_stops_being_harmless_is_no_longer_found_among_the_harmless() -> None:
    catalog = catalog_of("s")
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("look", "Look at a picture", read_only=True)])
    finder = finder_of(catalog)
    assert await names(finder, "look at a picture", read_only=True) == ["look"]
    catalog.replace_listing("s", ItemKind.TOOLS, [tool("look", "Look at a picture")])
    assert await names(finder, "look at a picture", read_only=True) == []
    assert await names(finder, "look at a picture") == ["look"]


async def test_searches_go_on_while_tools_are_taken_in() -> None:
    catalog = office()
    finder = finder_of(catalog)
    assert await names(finder, "delete a file")
    many = [tool(f"paint_{number}", f"Paint picture number {number}") for number in range(3000)]
    catalog.replace_listing("git", ItemKind.TOOLS, many)
    finder.refresh_soon()
    steps = 0
    while len(finder) < 3005:
        steps += 1
        await asyncio.sleep(0)
        assert steps < 1_000_000
    # Others had their turn many times before it was done.
    assert steps > 5
    assert (await names(finder, "delete a file"))[0] == "delete_file"
    assert len(await names(finder, "paint a picture")) == 5


async def test_a_change_while_tools_are_taken_in_is_taken_in_too() -> None:
    catalog = office()
    finder = finder_of(catalog)
    catalog.replace_listing(
        "git", ItemKind.TOOLS, [tool(f"paint_{number}", "Paint a picture") for number in range(2000)]
    )
    finder.refresh_soon()
    await asyncio.sleep(0)
    catalog.replace_listing("git", ItemKind.TOOLS, [tool("paint", "Paint a picture")])
    assert await names(finder, "paint a picture") == ["paint"]
    assert len(finder) == 6


async def test_a_finder_that_is_closed_in_the_middle_stops_there() -> None:
    catalog = office()
    finder = finder_of(catalog)
    catalog.replace_listing(
        "git", ItemKind.TOOLS, [tool(f"paint_{number}", "Paint a picture") for number in range(3000)]
    )
    finder.refresh_soon()
    await asyncio.sleep(0)
    async with asyncio.timeout(BOUND_SECONDS):
        await finder.close()
        await finder_of(office()).close()
    assert len(finder) < 3005


async def test_definitions_of_any_shape_are_taken_in_and_hide_nobody_else() -> None:
    odd = [
        b"nonsense",
        b"[]",
        b'{"name":"a","description":5,"inputSchema":[]}',
        b'{"name":"a","description":"\xff"}',
        b'{"name":"a","inputSchema":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"name":"a","inputSchema":{"properties":{"":{"enum":[null,{},[[]],1e400]}}}}',
        b'{"name":"a","description":"' + b"x" * 100_000 + b'"}',
        b'{"name":"a","annotations":"readOnlyHint","title":{}}',
    ]
    items = [
        Item(ItemKind.TOOLS, "odd", f"tool_{number}", f"odd_tool_{number}", text)
        for number, text in enumerate(odd)
    ]
    items += office().every_tool
    finder = Finder(lambda: items)
    assert (await names(finder, "delete a file"))[0] == "delete_file"
    assert len(finder) == len(odd) + 7


async def test_a_tool_that_says_very_much_holds_up_nobody() -> None:
    catalog = office()
    finder = finder_of(catalog)
    await finder.wait_until_current()
    random = Random(1)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20_000)]
    texts = [" ".join(random.sample(words, 20_000)) for _ in range(8)]
    chatty = [tool(f"chat_{number}", f"Chat with a parrot. {text}") for number, text in enumerate(texts)]
    many: dict[str, Any] = {word: {"description": word} for word in words[:5000]}
    chatty += [tool("ask", "Ask a parrot", **many)]
    catalog.replace_listing("git", ItemKind.TOOLS, chatty)
    started = time.process_time()
    await finder.wait_until_current()
    # To index every word of it would take a minute, most of it without a turn for anybody else.
    assert time.process_time() - started < 10
    assert (await names(finder, "chat with a parrot"))[0].startswith("chat_")
    assert "ask" in await names(finder, "ask a parrot")


# Meaning.


async def test_meaning_hears_of_every_tool_and_of_nothing_twice() -> None:
    catalog = office()
    meaning = ScriptedMeaning(None)
    finder = finder_of(catalog, meaning)
    await finder.wait_until_current()
    assert meaning.told == [("put", server) for server in OFFICE]
    assert meaning.known["files"] == [("files", "read_file"), ("files", "delete_file")]
    meaning.told.clear()
    catalog.replace_listing("git", ItemKind.TOOLS, OFFICE["git"])
    catalog.replace_listing("files", ItemKind.TOOLS, OFFICE["files"][:1])
    catalog.set_servers(["git", "files", "weather"])
    await finder.wait_until_current()
    assert sorted(meaning.told) == [("put", "files"), ("remove", "mail")]
    assert meaning.known["files"] == [("files", "read_file")]


async def test_what_shares_no_word_with_the_request_is_found_by_its_meaning() -> None:
    finder = finder_of(office(), ScriptedMeaning({FORECAST: 0.8, COMMIT: 0.1}))
    found = await finder.find(ToolQuery("umbrella needed?"))
    assert found[0].key == FORECAST
    assert found[0].words == 0
    assert found[0].cosine == 0.8


async def test_without_vectors_words_decide_as_if_there_were_no_meaning() -> None:
    finder, alone = finder_of(office(), ScriptedMeaning(None)), finder_of(office())
    empty = finder_of(office(), ScriptedMeaning({}))
    for query in ("delete a file", "read the history", "xkcd qwfpgj zzzz", "a place to eat", ""):
        expected = await alone.find(ToolQuery(query))
        assert await finder.find(ToolQuery(query)) == expected
        assert await empty.find(ToolQuery(query)) == expected


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_nothing_means_nothing(query: str) -> None:
    assert await names(finder_of(office(), ScriptedMeaning({FORECAST: 0.9})), query) == []


async def test_far_away_tools_are_not_found_by_nonsense() -> None:
    meaning = ScriptedMeaning({FORECAST: 0.05, DELETE: 0.02, COMMIT: -0.1})
    assert await names(finder_of(office(), meaning), "xkcd qwfpgj zzzz") == []


async def test_what_words_find_is_compared_by_its_meaning_too() -> None:
    meaning = ScriptedMeaning({FORECAST: 0.5})
    await finder_of(office(), meaning).find(ToolQuery("delete a file"))
    assert DELETE in meaning.also


async def test_what_may_not_be_seen_is_not_found_by_its_meaning_either() -> None:
    finder = finder_of(office(), ScriptedMeaning({FORECAST: 0.9, DELETE: 0.8, COMMIT: 0.7}))
    assert await names(finder, "umbrella", servers=frozenset({"git"})) == ["commit"]
    assert await names(finder, "umbrella", read_only=True) == ["forecast"]
    found = await finder.find(ToolQuery("delete a file"), lambda key: key == COMMIT)
    assert [one.key for one in found] == [COMMIT]
    assert list(
        await finder.explain(ToolQuery("umbrella"), lambda key: key == COMMIT, [FORECAST, COMMIT])
    ) == [COMMIT]


# Why.


async def test_a_find_is_explained_by_words_fields_and_meaning() -> None:
    finder = finder_of(office(), ScriptedMeaning({DELETE: 0.7, FORECAST: 0.2}))
    tool_query = ToolQuery("delete a file on the moon")
    found: list[FusedScore] = await finder.find(tool_query)
    (reason,) = (await finder.explain(tool_query, None, [DELETE])).values()
    assert (reason.score, reason.cosine, reason.meaning) == (found[0].score, 0.7, 1.0)
    assert reason.words == found[0].words > 0
    assert reason.explanation is not None
    words = {one.word: set(one.fields) for one in reason.explanation.contributions}
    assert {"name", "description"} <= words["delet"]
    assert any(word.startswith("moon") for word in reason.explanation.missing)


async def test_only_what_was_found_is_explained_and_the_same_each_time() -> None:
    finder = finder_of(office())
    tool_query = ToolQuery("delete a file")
    await finder.find(tool_query)
    reasons = await finder.explain(tool_query, None, [DELETE, FORECAST, ("no", "such")])
    assert list(reasons) == [DELETE]
    assert reasons[DELETE].meaning is None
    assert await finder.explain(tool_query, None, [DELETE]) == reasons
    assert await finder.explain(ToolQuery("xkcd qwfpgj zzzz"), None, [DELETE]) == {}
