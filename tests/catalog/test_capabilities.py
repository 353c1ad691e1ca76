"""The gateway promises what some server keeps, to clients that can use it, and nothing else."""

import json
from typing import Any

import pytest

from headgate.catalog.capabilities import MergedCapabilities, ServerDeclaration
from headgate.protocol.protocol_version import Era

OLD, NEW = "2025-11-25", "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"


class InMemoryDeclarations:
    """A memory that lasts as long as one test."""

    def __init__(self) -> None:
        self.known: dict[str, ServerDeclaration] = {}

    def ability(self, server: str) -> ServerDeclaration | None:
        return self.known.get(server)

    def remember_ability(self, server: str, ability: ServerDeclaration) -> None:
        self.known[server] = ability


def ability(version: str = OLD, advice: str = "", **capabilities: Any) -> ServerDeclaration:
    return ServerDeclaration(version, json.dumps(capabilities), advice)


def abilities(**servers: ServerDeclaration) -> MergedCapabilities:
    found = MergedCapabilities(InMemoryDeclarations())
    found.set_servers(list(servers))
    for server, said in servers.items():
        found.declare(server, said)
    return found


def promised(found: MergedCapabilities, era: Era = Era.HANDSHAKE) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(found.capabilities(era))
    return decoded


TOOLS = {"listChanged": True}


def test_without_servers_only_tools_are_promised() -> None:
    assert promised(abilities()) == {"tools": TOOLS}


@pytest.mark.parametrize("era", Era)
def test_a_feature_of_one_server_is_promised(era: Era) -> None:
    found = abilities(
        a=ability(NEW, prompts={}, completions={}), b=ability(OLD, logging={}), c=ability(OLD, resources={})
    )
    assert promised(found, era) == {
        "tools": TOOLS,
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
        "resources": {"listChanged": True},
    }


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_subscriptions_are_promised_when_any_server_takes_them(order: tuple[str, str]) -> None:
    said = {"a": ability(resources={}), "b": ability(resources={"subscribe": True})}
    found = abilities(**{name: said[name] for name in order})
    assert promised(found)["resources"] == {"listChanged": True, "subscribe": True}


@pytest.mark.parametrize("value", [None, True, [], "yes", 1])
def test_a_feature_that_is_said_in_the_wrong_way_is_none(value: Any) -> None:
    names = ("prompts", "resources", "logging", "completions", "extensions", "experimental", "tasks")
    found = abilities(a=ability(**dict.fromkeys(names, value)))
    assert promised(found) == {"tools": TOOLS}


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{" * 5000, "[" * 5000 + "]" * 5000])
def test_a_server_that_says_nonsense_does_not_cost_the_others(text: str) -> None:
    found = abilities(a=ServerDeclaration(OLD, text), b=ability(prompts={}))
    assert "prompts" in promised(found)


def test_what_nobody_knows_is_handed_on_and_the_first_server_has_the_word() -> None:
    found = abilities(
        a=ability(extensions={"x/y": {"v": 1}}, experimental={"e": {}}),
        b=ability(extensions={"x/y": {"v": 2}, "z": {}}),
    )
    assert promised(found)["extensions"] == {"x/y": {"v": 1}, "z": {}}
    assert promised(found)["experimental"] == {"e": {}}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("era", Era)
def test_tasks_are_promised_within_one_era_only(version: str, era: Era) -> None:
    found = abilities(a=ability(version, extensions={TASKS: {}}, tasks={"list": {}}))
    same = (version == NEW) == (era is Era.STATELESS)
    assert (TASKS in promised(found, era).get("extensions", {})) is same
    assert ("tasks" in promised(found, era)) is same
    if not same:
        assert "extensions" not in promised(found, era), "nothing is left of it"


# What they advise.


def test_the_only_server_advises_in_its_own_words() -> None:
    assert abilities(a=ability(advice="be quick")).instructions() == "be quick"
    assert abilities(a=ability()).instructions() == ""


def test_the_advice_of_several_servers_stands_under_their_names_in_order() -> None:
    found = abilities(b=ability(advice="be quick"), c=ability(), a=ability(advice="be kind"))
    assert found.instructions() == "# b\n\nbe quick\n\n# a\n\nbe kind"


# Who has said something.


def test_a_server_is_remembered_across_restarts() -> None:
    memory = InMemoryDeclarations()
    first = MergedCapabilities(memory)
    first.set_servers(["a"])
    assert first.undeclared == ["a"]
    first.declare("a", ability(prompts={}))
    assert first.undeclared == []
    again = MergedCapabilities(memory)
    again.set_servers(["a"])
    assert again.undeclared == []
    assert "prompts" in promised(again)


def test_what_a_server_says_now_counts_more_than_what_it_said() -> None:
    memory = InMemoryDeclarations()
    memory.known["a"] = ability(prompts={})
    found = MergedCapabilities(memory)
    found.set_servers(["a"])
    found.declare("a", ability(logging={}))
    assert promised(found) == {"tools": TOOLS, "logging": {}}
    found.set_servers(["a"])
    assert promised(found) == {"tools": TOOLS, "logging": {}}


def test_a_server_that_was_removed_promises_nothing_and_is_not_listened_to() -> None:
    found = abilities(a=ability(prompts={}), b=ability())
    found.set_servers(["b"])
    assert promised(found) == {"tools": TOOLS}
    found.declare("a", ability(prompts={}))
    assert promised(found) == {"tools": TOOLS}


def test_a_list_of_tasks_is_promised_where_it_is_clear_whose_tasks_they_are() -> None:
    tasks = ability(OLD, tasks={"list": {}, "cancel": {}})
    assert promised(abilities(a=tasks))["tasks"] == {"list": {}, "cancel": {}}
    assert promised(abilities(a=tasks, b=tasks))["tasks"] == {"cancel": {}}
