"""Near-duplicates: one tool that several servers offer is one group, and different tools never are."""

import time

import pytest

from headgate.catalog.search.duplicate_tools import DuplicateGroups
from headgate.catalog.search.tool_document import ToolDocument

READ = "Read the complete contents of a file from the file system."


def document(
    key: str, description: str = READ, parameters: str = "path", *, read_only: bool = True
) -> ToolDocument:
    server, name = key.split(".")
    return ToolDocument(
        key=(server, name),
        public_name=f"{server}_{name}",
        name=name,
        description=description,
        parameters=parameters,
        read_only=read_only,
    )


def together(*documents: ToolDocument) -> list[list[str]]:
    groups = DuplicateGroups()
    groups.add(documents)
    assert len(groups) == len(groups.tools)
    return [[".".join(key) for key in group] for group in groups.tools]


@pytest.mark.parametrize(
    "other",
    [
        document("b.read_file"),
        document("b.readFile"),
        document("b.b_read_file"),
        document("a.read_file_v2"),
        document("b.read_file", READ.removesuffix(".") + ", whole."),
        # Another name for it at another server, in the very same words.
        document("b.get_file"),
    ],
    ids=lambda one: ".".join(one.key),
)
def test_the_same_tool_is_one_group(other: ToolDocument) -> None:
    assert len(together(document("a.read_file"), other)) == 1


@pytest.mark.parametrize(
    "other",
    [
        # Long descriptions that differ by one word, and the one word is what matters.
        document("a.write_file", READ.replace("Read", "Write")),
        document("b.write_file", READ.replace("Read", "Write")),
        # A server that describes two of its tools alike still has two.
        document("a.read_lines"),
        document("b.read_file", parameters="path offset limit"),
        document("b.read_file", "Show an image of the camera in the hall."),
        document("b.read_file", read_only=False),
        document("b.read_file", ""),
    ],
    ids=lambda one: ".".join(one.key),
)
def test_different_tools_are_two_groups(other: ToolDocument) -> None:
    assert len(together(document("a.read_file"), other)) == 2


def test_a_word_that_every_server_writes_makes_no_group() -> None:
    github, slack = (
        document("github.search", "Search.", "query"),
        document("slack.search", "Search.", "query"),
    )
    assert len(together(github, slack)) == 2


def test_groups_and_their_members_keep_the_order() -> None:
    found = together(
        document("c.read_file"),
        document("a.move", "Move it there."),
        document("b.read_file"),
        document("a.x", ""),
    )
    assert found == [["c.read_file", "b.read_file"], ["a.move"], ["a.x"]]


def test_nothing_is_no_group() -> None:
    assert together() == []


def test_descriptions_that_differ_by_the_server_are_of_two_tools() -> None:
    said = "Find the place of these coordinates in {}, with its name, its region and its postal code."
    uganda = document("uganda.geocode", said.format("Uganda"))
    egypt = document("egypt.geocode", said.format("Egypt"))
    assert len(together(uganda, egypt)) == 2
    assert len(together(uganda, document("other.geocode", said.format("Uganda")))) == 1


def test_many_tools_of_one_name_with_long_descriptions_are_compared_quickly() -> None:
    tools = [document(f"s{number}.search", f"{'lorem ipsum ' * 600} {number}") for number in range(60)]
    began = time.thread_time()
    together(*tools)
    # About 10 ms; comparing whole descriptions pair by pair takes seconds.
    assert time.thread_time() - began < 0.5
