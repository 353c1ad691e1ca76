"""Large results on the path: cut behind the call, and read by tools that every client has."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog.errors import ToolNotFound
from headgate.domain.delivery_request import DeliveryRequest
from headgate.domain.errors import (
    Effect,
    InvalidArguments,
    ResourceExhausted,
    ResponseNotStored,
    ResultNotFound,
)
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.interfaces import ToolCaller
from headgate.protocol.message_meta import SplicedJson, with_edited_meta_on_disk
from headgate.results import job_runner
from headgate.results.large_results import JobRunner, LargeResults, TruncationSettings
from headgate.results.tools import NAMES
from headgate.storage.files.result_store import LocalResultStore, open_results
from tests.delivery.scripted_upstream import DONE, WRONG
from tests.gateway_harness import GatewayHarness, request
from tests.results.inline_workers import InlineWorkers
from tests.results.sample_results import LINK, facts_of, result, spooled, text, texts_of
from tests.upstream.spool_limits import open_files

LINES = "\n".join(f"line {number}" for number in range(2000))
LARGE = result(text(LINES))
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
LOOK = {"name": "look", "inputSchema": SCHEMA}


class Library:
    """A gateway whose large results are kept."""

    def __init__(self, store: LocalResultStore, *servers: str, answer: McpResponse, **more: Any) -> None:
        self.store = store
        responses = LargeResults(store, InlineWorkers(), _work, TruncationSettings(), lambda request: True)
        self.harness = GatewayHarness(*(servers or ("bank",)), answer=answer, responses=responses, **more)
        self.harness.offer("bank", ItemKind.TOOLS, LOOK)

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> McpResponse:
        return await self.harness.gateway.call(
            request("tools/call", name, {"arguments": arguments or {}}, **more)
        )

    async def told(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> bytes:
        answer = await self.call(name, arguments, **more)
        assert isinstance(answer.result, bytes)
        return answer.result

    async def stored(self) -> str:
        """The id of a result that was too large."""
        cache_id: str = facts_of(await self.told("bank_look"))["cache_id"]
        return cache_id


async def _work() -> JobRunner:
    return job_runner


Build = Callable[..., Library]


@pytest.fixture
async def build(tmp_path: Path) -> AsyncIterator[Build]:
    async with open_results(tmp_path / "spool") as store:
        yield lambda *servers, answer=LARGE, **more: Library(
            store, *servers, answer=answer if isinstance(answer, McpResponse) else McpResponse(answer), **more
        )
    assert open_files(tmp_path) == []


# Behind a call.


@pytest.mark.parametrize("mode", ListingMode)
async def test_what_is_small_is_handed_on_as_it_is(build: Build, mode: ListingMode) -> None:
    failure = McpResponse(error=b'{"code":-1,"message":"%b"}' % (b"x" * 10_000))
    for answer in (DONE, failure):
        library = build(answer=answer, mode=mode)
        assert await library.call("bank_look") is answer
        assert await library.store.size() == 0


@pytest.mark.parametrize("mode", ListingMode)
async def test_a_large_result_is_cut_and_read_in_every_mode_directly_and_through_call_tool(
    build: Build, mode: ListingMode
) -> None:
    library = build(mode=mode)
    cache_id = await library.stored()
    arguments = {"cache_id": cache_id, "pattern": "line 1999"}
    for reply in (
        await library.told("proxy_search", arguments),
        await library.told("call_tool", {"name": "proxy_search", "args": arguments}),
    ):
        assert texts_of(reply)[0] == "line 1999"
    assert len(library.harness.sent) == 1


async def test_a_failure_that_is_large_is_a_failure_with_its_schema(build: Build) -> None:
    library = build(answer=result(text("amount is required\n" + LINES), isError=True))
    reply = await library.told("bank_look")
    assert json.loads(reply)["isError"] is True
    assert texts_of(reply)[0].startswith("amount is required")
    assert len(reply) < 5000


async def test_the_result_of_a_task_is_cut_as_well(build: Build) -> None:
    library = build()
    answer = await library.harness.gateway.forward(request("tasks/result", params={"taskId": "1"}), "bank")
    assert isinstance(answer.result, bytes)
    assert facts_of(answer.result)["original_size"] == len(LINES)
    other = await library.harness.gateway.forward(request("tasks/get", params={"taskId": "1"}), "bank")
    assert other.result == LARGE


ROWS = [{"id": number, "name": f"name {number}"} for number in range(500)]
TYPED = result(text(json.dumps(ROWS)), structuredContent={"rows": ROWS})
PROMISING = {"name": "typed", "inputSchema": SCHEMA, "outputSchema": {"type": "object", "required": ["rows"]}}


def check_typed(reply: bytes) -> None:
    told = json.loads(reply)["structuredContent"]
    assert next(iter(told)) == "_headgate"
    assert told["_headgate"]["cache_id"] == facts_of(reply)["cache_id"]
    assert told["_headgate"]["shown"] == len(told["rows"]) < told["_headgate"]["total"] == 500


@pytest.mark.parametrize("mode", ListingMode)
async def test_a_structure_that_is_cut_has_the_notice_also_in_a_step_of_a_transaction(
    build: Build, mode: ListingMode
) -> None:
    steps = Steps()
    library = build(answer=TYPED, transactions=steps, mode=mode)
    library.harness.offer("bank", ItemKind.TOOLS, LOOK, PROMISING)
    check_typed(await library.told("bank_typed"))
    check_typed(await library.told("call_tool", {"name": "bank_typed"}))
    check_typed(await library.told("bank_typed", delivery_request=DeliveryRequest(transaction="t")))
    assert steps.made == ["bank_typed"]
    assert "structuredContent" not in json.loads(await library.told("bank_look"))


async def test_the_result_of_a_task_is_cut_as_the_tool_that_began_it_promises(build: Build) -> None:
    library = build(answer=result(task={"taskId": "1", "status": "working"}))
    library.harness.offer("bank", ItemKind.TOOLS, LOOK, PROMISING)
    await library.call("bank_typed")
    gateway, asked = library.harness.gateway, {"taskId": "1"}
    # What is asked about the task meanwhile does not hide which tool began it.
    await gateway.forward(request("tasks/get", params=asked), None)
    library.harness.desk.upstream.script[:] = [McpResponse(TYPED)]
    answer = await gateway.forward(request("tasks/result", params=asked), None)
    assert isinstance(answer.result, bytes)
    check_typed(answer.result)
    # Of another one it is not known what was promised.
    unknown = await gateway.forward(request("tasks/result", params={"taskId": "2"}), "bank")
    assert unknown.result == TYPED


# By a call that is made for it.


@pytest.mark.parametrize("name", NAMES[:-1])
async def test_a_tool_is_called_once_and_its_result_is_looked_at(build: Build, name: str) -> None:
    library = build()
    needed: dict[str, Any] = {"proxy_search": {"pattern": "line 1999"}, "proxy_filter": {"fields": ["a"]}}
    arguments = {"tool": "bank_look", "arguments": {"amount": 5}, **needed.get(name, {})}
    reply = await library.told(name, arguments)
    (sent,) = library.harness.sent
    assert json.loads(bytes(sent.request.params["arguments"])) == {"amount": 5}
    assert sent.request.name == "bank_look"
    again = await library.told("proxy_read", {"cache_id": facts_of(reply)["cache_id"], "limit": 1})
    assert texts_of(again)[0] == "line 0"
    assert len(library.harness.sent) == 1
    assert library.harness.catalog.drain_usage() == {("bank", "look"): 1}


class Steps:
    """Makes a step of every call that names a transaction, and keeps its name."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def is_step(self, request: McpRequest) -> bool:
        return request.delivery_request is not None and bool(request.delivery_request.transaction)

    async def run_step(self, request: McpRequest, use: ToolCaller) -> tuple[UpstreamCall, McpResponse]:
        self.made.append(request.name)
        return await use(request)


async def test_a_call_that_is_made_to_be_looked_at_is_a_step_of_its_clients_transaction(build: Build) -> None:
    steps = Steps()
    library = build(transactions=steps)
    await library.told(
        "proxy_read", {"tool": "bank_look"}, delivery_request=DeliveryRequest(transaction="order-1")
    )
    await library.told("proxy_read", {"tool": "bank_look"})
    assert steps.made == ["bank_look"]
    assert len(library.harness.sent) == 2


@pytest.mark.parametrize("spelling", ["bank_look", "bank:look", "bank__look"])
async def test_the_tool_may_be_named_in_any_way(build: Build, spelling: str) -> None:
    reply = await build().told("proxy_read", {"tool": spelling, "arguments": "{}"})
    assert texts_of(reply)[0].startswith("line 0\n")


async def test_an_unknown_tool_is_said_with_the_nearest(build: Build) -> None:
    library = build()
    with pytest.raises(ToolNotFound) as missing:
        await library.call("proxy_read", {"tool": "bank_lok"})
    assert "bank_look" in missing.value.hint
    for name in ("retrieve_tools", "expandSchema"):
        with pytest.raises(ToolNotFound):
            await library.call("proxy_read", {"tool": name, "arguments": {"name": "bank_look"}})
    assert library.harness.sent == []


async def test_a_tool_may_be_named_as_call_tool_is_told_it(build: Build) -> None:
    library = build()
    await library.call("proxy_read", {"tool": "call_tool", "arguments": {"name": "bank_look"}})
    assert [call.item.name for call in library.harness.sent] == ["look"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("proxy_search", {"pattern": "a(b"}),
        ("proxy_search", {}),
        ("proxy_filter", {}),
        ("proxy_filter", {"fields": ["a["]}),
        ("proxy_read", {"unit": "pages"}),
        ("proxy_query", {}),
        ("proxy_explore", {"arguments": [1]}),
    ],
)
async def test_a_mistake_is_found_before_the_tool_is_called(
    build: Build, name: str, arguments: dict[str, Any]
) -> None:
    library = build()
    with pytest.raises(InvalidArguments):
        await library.call(name, {"tool": "bank_look", **arguments})
    assert library.harness.sent == []


async def test_arguments_that_the_tool_refuses_come_back_with_its_schema(build: Build) -> None:
    refused = result(text("amount is required"), isError=True)
    for answer in (McpResponse(refused), WRONG):
        reply = await build(answer=answer).told("proxy_read", {"tool": "bank_look"})
        assert json.loads(reply)["isError"] is True
        assert json.dumps(SCHEMA) in " ".join(texts_of(reply))


class Closed:
    """Admits no client, or permits nothing."""

    def __init__(self, *, admits: bool) -> None:
        self._admits = admits

    def admit(self, caller: Identity) -> None:
        if not self._admits:
            raise ResourceExhausted("too many requests")

    def permit(self, caller: Identity, item: Item) -> None:
        raise ToolNotFound(item.public_name, [])


async def test_what_a_caller_may_not_use_is_not_called_for_its_result(build: Build) -> None:
    library = build(access=Closed(admits=True))
    with pytest.raises(ToolNotFound):
        await library.call("proxy_read", {"tool": "bank_look"})
    library = build(access=Closed(admits=False))
    with pytest.raises(ResourceExhausted):
        await library.call("proxy_read", {"cache_id": "0a"})
    assert library.harness.sent == []


# Whose it is.


async def test_a_result_is_its_callers_own(build: Build) -> None:
    library = build()
    shown = await library.told("bank_look", who="alice")
    arguments = {"cache_id": facts_of(shown)["cache_id"], "limit": 1}
    assert texts_of(await library.told("proxy_read", arguments, who="alice"))[0] == "line 0"
    for who in ("bob", ""):
        with pytest.raises(ResultNotFound):
            await library.call("proxy_read", arguments, who=who)


async def test_without_a_prefix_a_servers_own_tool_of_that_name_is_called_in_full(build: Build) -> None:
    library = build(mode=ListingMode.FULL, prefixed=False, answer=DONE)
    library.harness.offer(
        "bank", ItemKind.TOOLS, LOOK, {"name": "proxy_read", "inputSchema": {"type": "object"}}
    )
    assert await library.call("proxy_read", {"anything": 1}) is DONE
    with pytest.raises(InvalidArguments):
        await library.call("proxy_explore", {"anything": 1})
    assert [sent.item.name for sent in library.harness.sent] == ["proxy_read"]


# Links to resources.

SHARED = "file:///notes"


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_links_lead_to_their_server_in_an_excerpt_and_in_every_look(
    build: Build, tmp_path: Path, *, on_disk: bool
) -> None:
    data = result({**LINK, "uri": SHARED}, text(LINES))
    answer = McpResponse(await spooled(tmp_path, data) if on_disk else data)
    # The URI is that of another server's resource, which had it first.
    library = build("shop", "bank", answer=answer)
    for server in ("shop", "bank"):
        library.harness.offer(server, ItemKind.RESOURCES, {"uri": SHARED, "name": "notes"})
    public = library.harness.catalog.public_uri("bank", SHARED)
    assert public != SHARED
    shown = await library.told("bank_look")
    cache_id = facts_of(shown)["cache_id"]
    looked = await library.told("proxy_filter", {"cache_id": cache_id, "fields": ["a"]})
    for reply in (shown, looked):
        assert json.loads(reply)["content"][0]["uri"] == public


async def test_links_lead_to_their_server_in_a_fresh_look_at_what_is_on_disk(
    build: Build, tmp_path: Path
) -> None:
    answer = McpResponse(await spooled(tmp_path, result({**LINK, "uri": SHARED}, text(LINES))))
    library = build("shop", "bank", answer=answer)
    for server in ("shop", "bank"):
        library.harness.offer(server, ItemKind.RESOURCES, {"uri": SHARED, "name": "notes"})
    reply = await library.told("proxy_search", {"tool": "bank_look", "pattern": "line 1999"})
    assert json.loads(reply)["content"][1]["uri"] == library.harness.catalog.public_uri("bank", SHARED)


async def test_a_result_that_cannot_be_stored_is_lost_and_the_reason_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    # In two parts, so that it has to be written to a file of its own.
    answer = McpResponse(SplicedJson(await spooled(tmp_path, LARGE), 1, 1, b" "))
    async with open_results(blocked) as store:
        library = Library(store, answer=answer)
        with pytest.raises(ResponseNotStored, match="could not be written to disk") as raised:
            await library.told("proxy_search", {"tool": "bank_look", "pattern": "line 1999"})
        assert raised.value.effect is Effect.DONE
        assert len(library.harness.sent) == 1
    assert open_files(tmp_path) == []


async def test_a_result_on_disk_that_was_edited_is_cut_like_any_other(build: Build, tmp_path: Path) -> None:
    data = LARGE[:-1] + b',"_meta":{"gone":"' + b"x" * 100 + b'","kept":1}}'
    value = await spooled(tmp_path, data)
    edited = await asyncio.to_thread(with_edited_meta_on_disk, value, lambda meta: meta.pop("gone"))
    assert edited is value
    library = build(answer=McpResponse(edited))
    reply = json.loads(await library.told("bank_look"))
    assert reply["_meta"]["kept"] == 1
    assert "gone" not in reply["_meta"]
