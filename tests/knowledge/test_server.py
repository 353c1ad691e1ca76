"""The tools together: what they cost, what they say of themselves, and how they fail."""

import logging
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from headgate.domain.errors import StoreUnavailable
from headgate.domain.identity import LOCAL_IDENTITY, Identity
from headgate.knowledge.errors import InvalidKnowledgeArgument, SearchFailed, TokenBudgetExceeded
from headgate.knowledge.tools.definitions import DEFINITIONS
from headgate.knowledge.tools.response_modes import ResponseMode
from headgate.knowledge.tools.token_budget import estimate_results
from headgate.knowledge.tools.tool_router import error_content
from headgate.search.token_counter import count_tokens
from tests.knowledge.tools.tool_harness import ToolHarness, tokens_of

CALLS: dict[str, dict[str, Any]] = {
    "semantic_search": {"query": "delivery"},
    "find_vendor_info": {"vendor_name": "Acme"},
    "list_sources": {},
    "get_chunk": {"chunk_id": 1},
    "get_chunks": {"chunk_ids": [1]},
    "neighbours": {"entity": "Acme"},
}


async def library(total: int | None, chunks: int = 20) -> ToolHarness:
    desk = ToolHarness(total)
    await desk.add("a.md", *(f"delivery term number {n}" for n in range(chunks)))
    return desk


def test_every_tool_is_told_in_few_words() -> None:
    assert {one["name"] for one in DEFINITIONS} == set(CALLS)
    for one in DEFINITIONS:
        assert one["annotations"] == {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
        assert one["inputSchema"]["additionalProperties"] is False
        assert one["title"]
        jsonschema.Draft202012Validator.check_schema(one["inputSchema"])
        jsonschema.validate(CALLS[one["name"]], one["inputSchema"])
    assert count_tokens(msgspec.json.encode(DEFINITIONS)) < 1400


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one["name"])
def test_every_place_of_a_schema_has_a_type(definition: dict[str, Any]) -> None:
    """Some clients leave out a tool that has a place without one."""

    def untyped(schema: dict[str, Any], name: str) -> list[str]:
        inner = [*schema.get("properties", {}).items()]
        inner += [("items", schema["items"])] if "items" in schema else []
        own = [] if "type" in schema else [name]
        return own + [place for called, one in inner for place in untyped(one, f"{name}.{called}")]

    assert untyped(definition["inputSchema"], "") == []


def test_an_agent_is_told_how_to_spend_fewer_tokens() -> None:
    told = {one["name"]: one["description"] for one in DEFINITIONS}
    assert all(word in told["semantic_search"] for word in ("tokens", "fields", "ids_only", "get_chunks"))
    assert all("a search found" in told[name] for name in ("get_chunk", "get_chunks"))


async def test_an_answer_is_paid_by_what_it_really_takes() -> None:
    desk = await library(100_000)
    answer = await desk.ask("semantic_search", query="delivery", response_mode="full")
    assert desk.budget.remaining(LOCAL_IDENTITY) == 100_000 - tokens_of(answer)
    assert desk.budget.remaining(Identity(principal="bob")) == 100_000


async def test_what_cannot_be_afforded_is_refused_with_the_cheaper_mode() -> None:
    desk = await library(6000)
    with pytest.raises(TokenBudgetExceeded) as refused:
        await desk.ask("semantic_search", query="delivery", response_mode="full")
    assert refused.value.sentence == (
        "Not enough of the token budget: 6000 of 6000 tokens are left for the next 24 hours and this answer "
        "may take 15000; page_size 4 fits, or response_mode 'preview'"
    )
    assert error_content(refused.value)["code"] == "RATE_LIMIT"
    await desk.ask("semantic_search", query="delivery", response_mode="preview")


async def test_a_cheaper_mode_that_lacks_the_wanted_fields_is_not_proposed() -> None:
    desk = await library(6000)
    with pytest.raises(TokenBudgetExceeded, match=r"15000; page_size 4 fits$"):
        await desk.ask("semantic_search", query="delivery", response_mode="full", fields=["chunk_text"])


@pytest.mark.parametrize(
    ("total", "keys"),
    [
        (None, "chunk_text"),
        (15_000, "chunk_text"),
        (5000, "chunk_snippet"),
        (2500, "source_file"),
        (180, "rank"),
    ],
)
async def test_auto_takes_the_richest_mode_that_is_affordable(total: int | None, keys: str) -> None:
    answer = await (await library(total)).ask("semantic_search", query="delivery", response_mode="auto")
    assert keys in answer["results"][0]


async def test_auto_refuses_when_not_even_ids_are_affordable() -> None:
    with pytest.raises(TokenBudgetExceeded, match=r"may take 180; page_size 9 fits$"):
        await (await library(179)).ask("semantic_search", query="delivery", response_mode="auto")


async def test_auto_takes_the_mode_that_has_the_wanted_fields() -> None:
    desk = await library(None)
    answer = await desk.ask(
        "semantic_search", query="delivery", response_mode="auto", fields=["chunk_snippet"]
    )
    assert set(answer["results"][0]) == {"chunk_snippet"}
    together = r"No response_mode has all of these fields: \['chunk_snippet', 'chunk_text'\]"
    with pytest.raises(InvalidKnowledgeArgument, match=together) as refused:
        await desk.ask(
            "semantic_search", query="x", response_mode="auto", fields=["chunk_snippet", "chunk_text"]
        )
    assert refused.value.advice == (
        "Take response_mode preview for chunk_snippet, response_mode full for chunk_text."
    )


async def test_auto_names_the_fields_of_all_modes_where_one_is_wrong() -> None:
    with pytest.raises(InvalidKnowledgeArgument, match=r"response_mode 'auto': \['nope'\]") as refused:
        await ToolHarness().ask("semantic_search", query="x", response_mode="auto", fields=["nope"])
    assert "'chunk_snippet'" in refused.value.message
    assert "'chunk_text'" in refused.value.message


async def test_an_explanation_is_reserved_too() -> None:
    with pytest.raises(TokenBudgetExceeded, match="may take 1380"):
        await (await library(1379)).ask(
            "semantic_search", query="delivery", response_mode="ids_only", explain=True
        )
    desk = await library(100_000)
    answer = await desk.ask(
        "semantic_search",
        query="delivery",
        response_mode="ids_only",
        explain=True,
        boosts=True,
        response_format="desktop",
    )
    context = answer["execution_context"]
    assert context["tokens_used"] <= context["tokens_estimated"] == 1580


@pytest.mark.parametrize("many", [1, 10, 50])
@pytest.mark.parametrize("mode", ["ids_only", "metadata", "preview"])
@pytest.mark.parametrize("wrapping", ["standard", "desktop"])
async def test_what_is_reserved_is_enough_for_what_is_around_the_results_too(
    many: int, mode: str, wrapping: str
) -> None:
    desk = ToolHarness()
    for number in range(50):
        await desk.add(f"documents/handbook/{number}.md", f"delivery {'of many things ' * 20}{number}")
    answer = await desk.ask(
        "semantic_search", query="delivery", page_size=many, response_mode=mode, response_format=wrapping
    )
    price = estimate_results(many, [ResponseMode(mode)], enveloped=wrapping == "desktop")
    assert tokens_of(answer) <= price.by_mode[ResponseMode(mode)]


async def test_an_error_is_in_the_envelope_that_was_asked_for() -> None:
    tools = ToolHarness().tools
    error = InvalidKnowledgeArgument("no", hint="ask again")
    told = tools.failure_content("semantic_search", {"response_format": "desktop"}, error)
    assert told == {
        "_metadata": {
            "operation": "semantic_search",
            "version": told["_metadata"]["version"],
            "timestamp": "2026-11-16T12:00:00Z",
            "request_id": "request-1",
            "status": "error",
        },
        "error": "no",
        "action": "ask again",
        "code": "INVALID_PARAMS",
    }
    assert set(tools.failure_content("semantic_search", {}, error)) == {"error", "action", "code"}


async def test_the_last_page_is_priced_by_what_is_left_of_it() -> None:
    desk = await library(None, chunks=12)
    first = await desk.ask("semantic_search", query="delivery", response_mode="full")
    last = await desk.ask(
        "semantic_search",
        query="delivery",
        response_mode="full",
        response_format="desktop",
        cursor=first["pagination"]["cursor"],
    )
    assert last["execution_context"]["tokens_estimated"] == 2 * 1500


async def test_refused_and_failed_calls_cost_nothing() -> None:
    desk = await library(100_000)
    desk.store.away = True
    for name, arguments in CALLS.items():
        with pytest.raises(StoreUnavailable, match="Database unavailable, retry in 5s"):
            await desk.ask(name, **arguments)
    assert desk.budget.remaining(LOCAL_IDENTITY) == 100_000
    assert desk.tools.usage.budget.reserved == 0


@pytest.mark.parametrize("name", CALLS)
async def test_what_is_our_fault_is_logged_and_tells_nothing_inside(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await library(None)
    desk.store.broken = RuntimeError("SELECT secret FROM /var/lib")
    with caplog.at_level(logging.ERROR), pytest.raises(SearchFailed) as failed:
        await desk.ask(name, **CALLS[name])
    told = error_content(failed.value)
    assert [record.__dict__["entry"] in told["error"] for record in caplog.records] == [True]
    assert "SELECT secret" in caplog.text
    assert told["code"] == "SEARCH_FAILED"
    assert told["retry_after_seconds"] == 5
    assert "SELECT" not in str(told)
    assert desk.tools.usage.failures[name] == 1


async def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(
        InvalidKnowledgeArgument, match="there is no tool 'drop_table'; there are semantic_search"
    ):
        await ToolHarness().ask("drop_table")


async def test_usage_tells_what_became_of_the_calls() -> None:
    desk = await library(100_000)
    answer = await desk.ask("semantic_search", query="delivery")
    await desk.ask("list_sources")
    with pytest.raises(InvalidKnowledgeArgument):
        await desk.ask("semantic_search", query=" ")
    usage = desk.tools.usage
    assert (usage.calls["semantic_search"], usage.failures["semantic_search"]) == (2, 1)
    assert usage.snapshots == 1
    assert usage.budget.callers == 1
    assert usage.budget.spent > tokens_of(answer)
