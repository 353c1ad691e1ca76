"""The check of a catalog says which tools are found, which are confused, and which need better words."""

import msgspec

from headgate.catalog.evaluation.evaluation_report import SearchabilityReport
from headgate.catalog.evaluation.searchability import HardToFindTool, SyntheticQuery, check_searchability
from headgate.catalog.search.tool_document import ToolDocument
from tests.catalog.evaluation.catalog_samples import checked, document, item

GOOD = (
    item("mail", "send_message", "Deliver an email with attachments to several recipients."),
    item("files", "read_file", "Return the complete contents stored at a path on the local disk."),
    item("weather", "forecast", "Rain, wind and temperature expected during the coming days at a place."),
)


async def test_tools_with_good_descriptions_are_found_and_need_nothing() -> None:
    found = await checked(*GOOD)
    assert found.tools == 3
    assert found.metrics.questions >= 3
    assert found.metrics.recall_at_1 == found.metrics.recall_at_5 == 1
    assert (found.weaknesses, found.confusions) == ((), ())
    assert [(one.name, one.tools, one.recall_at_5) for one in found.servers] == [
        ("mail", 1, 1),
        ("files", 1, 1),
        ("weather", 1, 1),
    ]


async def test_twins_are_confused_and_only_one_is_found_first() -> None:
    twins = [
        item("notes", name, "Keep a short text for later reading by the owner.") for name in ("put", "zap")
    ]
    found = await checked(*GOOD, *twins)
    assert found.confusions
    for one in found.confusions:
        assert {str(one.wanted), str(one.found)} == {"notes:put", "notes:zap"}
    assert found.metrics.recall_at_1 < 1
    assert next(one for one in found.servers if one.name == "notes").recall_at_1 == 0.5


async def test_identical_tools_of_two_servers_are_two_tools() -> None:
    same = [item(server, "keep", "Store a short text for the owner.") for server in ("one", "two")]
    found = await checked(*same)
    assert found.tools == 2
    assert {one.name for one in found.servers} == {"one", "two"}
    assert found.metrics.recall_at_5 == 1


async def test_a_tool_without_a_description_is_weak_and_told_so() -> None:
    found = await checked(*GOOD, item("dark", "x1"))
    (weak,) = found.weaknesses
    assert (str(weak.name), weak.requests, weak.found, weak.missed) == ("dark:x1", 0, 0, ())
    assert "no description" in weak.advice[0]


async def test_a_description_that_repeats_the_name_is_told_so() -> None:
    found = await checked(*GOOD, item("users", "list_users", "List all the users."))
    assert "repeats its name" in found.weaknesses[0].advice[0]


async def test_a_description_of_one_word_is_told_so() -> None:
    found = await checked(*GOOD, item("sink", "flush", "Empties."))
    assert "only one word" in found.weaknesses[0].advice[0]


def test_one_that_drowns_among_equals_is_named_with_what_is_found_instead() -> None:
    crowd = [
        document("crowd", f"t{letter}", "Handle the complete stored contents of local records quickly.")
        for letter in "abcdefghij"
    ]
    weak = advised(crowd, "tj", [f"t{letter}" for letter in "abcdefghij"])
    assert weak.requests == 1
    assert weak.found == 0
    assert "almost the same as crowd:ta, crowd:tb, crowd:tc and 2 more" in weak.advice[0]
    assert [str(one) for one in weak.missed[0].found] == [f"crowd:t{letter}" for letter in "abcde"]


def test_one_that_only_its_name_sets_apart_is_told_so() -> None:
    named = [
        document("graph", name, f"{name.title()} records within the knowledge graph.")
        for name in ("beta", "gamma")
    ]
    weak = advised(named, "gamma", ["beta"])
    assert weak.advice == (
        "'some words' finds graph:beta, and only its name sets it apart: say what only it does",
    )


def test_one_that_hides_what_sets_it_apart_is_told_what_that_is() -> None:
    named = [
        document("graph", "beta", "Change records within the knowledge graph."),
        document("graph", "gamma", "Change records within the knowledge graph, with a backup on tape."),
    ]
    weak = advised(named, "gamma", ["beta"])
    assert weak.advice == ("'some words' finds graph:beta: begin with what sets it apart (backup and tape)",)


def test_one_for_which_nothing_is_found_is_told_to_use_plain_words() -> None:
    weak = advised([document("a", "b", "Reticulates splines in the foyer overnight.")], "b", [])
    assert weak.advice == ("'some words' finds nothing: say in plain words what it does",)


def test_one_of_which_too_little_is_said_to_ask_for_it_is_told_so() -> None:
    lonely = document("sea", "list_old_ships", "List all old ships of the harbour and the sea.")
    (weak,) = check_searchability([lonely], [], []).weaknesses
    assert "too little to be asked for" in weak.advice[0]


def test_parameters_of_which_nothing_is_said_are_told() -> None:
    bare = document("a", "b", "Handle the stored records quickly.", path="", mode="")
    described = document("a", "b", "Handle the stored records quickly.", path="Where.", mode="")
    assert "none of its parameters is described" in advised([bare], "b", []).advice[-1]
    assert "parameters" not in advised([described], "b", []).advice[-1]


def test_the_worst_comes_first_and_those_that_nobody_can_ask_for_last() -> None:
    tools = [document("a", name, "Handle the stored records.") for name in ("x", "y", "z")]
    asked = [
        SyntheticQuery(("a", "y"), "one"),
        SyntheticQuery(("a", "z"), "one"),
        SyntheticQuery(("a", "z"), "two"),
    ]
    found = check_searchability(tools, asked, [[("a", "x")], [("a", "x")], []])
    assert [(one.name.tool, one.requests, one.found) for one in found.weaknesses] == [
        ("z", 2, 0),
        ("y", 1, 0),
        ("x", 0, 0),
    ]
    assert [(str(one.wanted), str(one.found), one.times) for one in found.confusions] == [
        ("a:y", "a:x", 1),
        ("a:z", "a:x", 1),
    ]


def test_what_is_found_most_often_instead_of_another_comes_first() -> None:
    tools = [document("a", name, "Handle the stored records.") for name in ("x", "y", "z")]
    asked = [
        SyntheticQuery(("a", "y"), "one"),
        SyntheticQuery(("a", "z"), "one"),
        SyntheticQuery(("a", "z"), "two"),
    ]
    found = check_searchability(
        tools, asked, [[("a", "x"), ("a", "y")], [("a", "y"), ("a", "z")], [("a", "y"), ("a", "z")]]
    )
    assert [(str(one.wanted), one.times) for one in found.confusions] == [("a:z", 2), ("a:y", 1)]
    assert (found.metrics.recall_at_1, found.metrics.recall_at_5) == (0, 1)


def advised(tools: list[ToolDocument], wanted: str, found: list[str]) -> HardToFindTool:
    """What is said of a tool when a request for it finds these tools of its server."""
    server = tools[0].key[0]
    checked = check_searchability(
        tools, [SyntheticQuery((server, wanted), "some words")], [[(server, name) for name in found]]
    )
    return next(one for one in checked.weaknesses if one.name.tool == wanted)


async def test_a_check_is_the_same_each_time_but_for_the_time_it_takes() -> None:
    first, second = await checked(*GOOD), await checked(*GOOD)
    assert first == msgspec.structs.replace(second, time=first.time)


async def test_a_check_can_be_written_as_json_and_read_again() -> None:
    found = await checked(*GOOD, item("dark", "x1"))
    assert msgspec.json.decode(msgspec.json.encode(found), type=SearchabilityReport) == found
