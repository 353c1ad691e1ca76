"""The index follows the catalog, respects visibility, and is deterministic."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog.search.lexical_index import LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument
from tests.catalog.search.tools import OFFICE, found, index_of, tool

WORDS = ["file", "read", "mail", "send", "delete", "weather", "log", "files", "erase", "日本"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
TOOLS = st.lists(
    st.builds(tool, st.sampled_from("abc"), st.sampled_from(WORDS), TEXTS, read_only=st.booleans()),
    max_size=12,
    unique_by=lambda document: document.key,
)


def test_a_server_that_is_put_again_has_only_its_new_tools() -> None:
    index = index_of(OFFICE)
    index.put("files", [tool("files", "write_file", "Write to the disk.")])
    assert found(index, "file disk") == ["write_file"]
    assert len(index) == len(OFFICE) - 1


def test_a_server_that_is_removed_is_not_found_and_others_are() -> None:
    index = index_of(OFFICE)
    index.remove("files")
    index.remove("never there")
    assert found(index, "file disk") == []
    assert found(index, "weather")[0] == "forecast"


def test_others_can_search_while_a_server_is_put_step_by_step() -> None:
    index = index_of(OFFICE)
    many = [tool("many", f"count_{number}", "Counts sheep.") for number in range(50)]
    steps = sum(bool(found(index, "weather") == ["forecast"]) for _ in index.put_in_steps("many", many))
    assert steps == 50
    assert len(index.search("count sheep", 50)) == 50


def test_what_did_not_change_takes_no_step() -> None:
    index = index_of(OFFICE)
    own = [document for document in OFFICE if document.key[0] == "git"]
    assert list(index.put_in_steps("git", own)) == []
    changed = [own[0], tool("git", "log", "Another text.")]
    assert len(list(index.put_in_steps("git", changed))) == 2


def test_what_may_not_be_seen_is_not_found() -> None:
    index = index_of(OFFICE)
    hits = index.search("file disk", allowed=lambda key: key[1] != "read_file")
    assert [hit.key[1] for hit in hits] == ["delete-file"]


def test_only_the_named_servers_are_searched() -> None:
    servers = ("mail", "git")
    hits = index_of(OFFICE).search("repository file inbox", allowed=lambda key: key[0] in servers, floor=0.0)
    assert {hit.key[0] for hit in hits} == {"mail", "git"}


def test_only_tools_that_change_nothing_are_found_on_request() -> None:
    read_only = {document.key for document in OFFICE if document.read_only}
    hits = index_of(OFFICE).search("file disk", allowed=read_only.__contains__)
    assert [hit.key[1] for hit in hits] == ["read_file"]


def test_a_tool_is_found_among_thousands_that_may_not_be_seen() -> None:
    hidden = [tool("hidden", f"file_{number}", "file disk") for number in range(3000)]
    index = index_of([*hidden, *OFFICE])
    hits = index.search("read the file", allowed=lambda key: key[0] == "files")
    assert hits[0].key == ("files", "read_file")


@given(TOOLS, TEXTS, st.randoms(use_true_random=False))
def test_the_order_in_which_tools_came_does_not_matter(
    documents: list[ToolDocument], query: str, random: Random
) -> None:
    shuffled = random.sample(documents, len(documents))
    assert index_of(documents).search(query, 50) == index_of(shuffled).search(query, 50)


@given(TOOLS, TOOLS, TEXTS)
def test_an_index_that_followed_changes_answers_like_a_new_one(
    before: list[ToolDocument], after: list[ToolDocument], query: str
) -> None:
    index = index_of(before)
    for server in "abc":
        own = [document for document in after if document.key[0] == server]
        if own:
            index.put(server, own)
        else:
            index.remove(server)
    assert index.search(query, 50, floor=0.0) == index_of(after).search(query, 50, floor=0.0)
    assert len(index) == len(after)


@given(TOOLS, TEXTS, st.sets(st.sampled_from("abc")))
def test_a_filter_lets_through_what_it_allows_and_nothing_else(
    documents: list[ToolDocument], query: str, servers: set[str]
) -> None:
    index = index_of(documents)
    every = [hit.key for hit in index.search(query, 50, floor=0.0)]
    allowed = [hit.key for hit in index.search(query, 50, allowed=lambda key: key[0] in servers, floor=0.0)]
    keys = {document.key for document in documents if document.key[0] in servers}
    by_server = [hit.key for hit in index.search(query, 50, allowed=keys.__contains__, floor=0.0)]
    assert by_server == allowed
    assert {key for key in every if key[0] in servers} <= set(by_server)
    assert {key[0] for key in by_server} <= servers


@given(st.text(max_size=200))
def test_any_text_can_be_asked(query: str) -> None:
    index = index_of(OFFICE)
    assert index.search(query) == index.search(query)


def test_an_emptied_index_keeps_nothing() -> None:
    index = index_of(OFFICE)
    for server in ("mail", "files", "weather", "git"):
        index.remove(server)
    assert len(index) == 0
    assert index.search("wether file", floor=0.0) == LexicalIndex().search("wether file", floor=0.0) == []
