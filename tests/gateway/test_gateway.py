"""One request from the client's name of a thing to its upstream."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any

import msgspec
import pytest

from headgate.catalog.errors import PromptNotFound, ResourceNotFound, ServerNotFound, ToolNotFound
from headgate.catalog.listing_variant import KnownClients, ListingContext
from headgate.catalog.tool_dialects import Dialect
from headgate.delivery.transactions.tool_definitions import STEP_TOOL
from headgate.domain.errors import (
    Effect,
    HeaderMismatch,
    MethodNotFound,
    ResourceExhausted,
    UpstreamUnavailable,
)
from headgate.domain.identity import Identity
from headgate.domain.item import Item, ItemKind
from headgate.domain.listing_mode import ListingMode
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.gateway.gateway import Gateway
from headgate.gateway.interfaces import ToolCaller
from headgate.protocol.protocol_version import Era
from testkit.waiting import eventually
from tests.delivery.scripted_upstream import DONE, SUBSCRIBED, WAIT_SECONDS
from tests.gateway_harness import GatewayHarness, Large, request

SHARED = "file:///notes"
OTHERS = f"headgate://other/{SHARED}"


def a_tool(name: str, **properties: object) -> dict[str, object]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


async def call(harness: GatewayHarness, name: str, **more: Any) -> McpResponse:
    return await harness.gateway.call(request("tools/call", name, **more))


async def waiting(harness: GatewayHarness, work: Awaitable[McpResponse]) -> "asyncio.Future[McpResponse]":
    """A request that waits for its server."""
    harness.desk.upstream.open.clear()
    task = asyncio.ensure_future(work)
    await eventually(lambda: bool(harness.desk.upstream.awaited), WAIT_SECONDS, "it waits")
    assert not task.done()
    return task


# A server that is still starting.


@pytest.mark.parametrize("name", ["bank_pay", "bank:pay", "bank__pay"])
async def test_a_call_waits_for_a_server_that_is_still_starting(name: str) -> None:
    harness = GatewayHarness()
    under_way = await waiting(harness, call(harness, name))
    harness.offer("bank", ItemKind.TOOLS, a_tool("pay"))
    harness.desk.upstream.open.set()
    assert await under_way is DONE
    assert [sent.item.name for sent in harness.sent] == ["pay"]
    assert harness.desk.upstream.awaited == ["bank"]


async def test_a_call_of_a_tool_that_the_server_turns_out_not_to_have_is_not_found() -> None:
    harness = GatewayHarness()
    under_way = await waiting(harness, call(harness, "bank_pay"))
    harness.offer("bank", ItemKind.TOOLS, a_tool("play"))
    harness.desk.upstream.open.set()
    with pytest.raises(ToolNotFound) as missing:
        await under_way
    assert "bank_play" in missing.value.hint


async def test_a_call_of_a_server_that_does_not_start_fails_with_the_cause() -> None:
    harness = GatewayHarness()
    harness.desk.upstream.absence = UpstreamUnavailable("bank", "no database", retry_after_seconds=1.0)
    with pytest.raises(UpstreamUnavailable, match="no database") as failed:
        await call(harness, "bank_pay")
    assert failed.value.effect is Effect.NONE
    assert harness.sent == []


async def test_a_name_of_no_server_is_not_found_at_once() -> None:
    harness = GatewayHarness()
    with pytest.raises(ToolNotFound):
        await call(harness, "other_pay")
    assert harness.desk.upstream.awaited == []


async def test_a_server_that_has_told_its_tools_is_not_waited_for() -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.TOOLS, a_tool("pay"))
    assert await call(harness, "bank_pay") is DONE
    with pytest.raises(ToolNotFound):
        await call(harness, "bank_steal")
    assert harness.desk.upstream.awaited == []


async def test_prompts_and_resources_wait_for_a_starting_server_too() -> None:
    for method, kind, definition, name in (
        ("get_prompt", ItemKind.PROMPTS, {"name": "hello"}, "bank_hello"),
        ("read_resource", ItemKind.RESOURCES, {"uri": SHARED, "name": "n"}, SHARED),
    ):
        harness = GatewayHarness()
        work = getattr(harness.gateway, method)(request("some", name))
        under_way = await waiting(harness, work)
        harness.offer("bank", kind, definition)
        harness.desk.upstream.open.set()
        assert await under_way is DONE


# Prompts.


async def test_a_prompt_is_asked_for_by_its_own_name() -> None:
    harness = GatewayHarness("bank", "other")
    for server in ("bank", "other"):
        harness.offer(server, ItemKind.PROMPTS, {"name": "hello"})
    assert await harness.gateway.get_prompt(request("prompts/get", "other_hello", {"arguments": {}})) is DONE
    (sent,) = harness.sent
    assert (sent.item.server, sent.item.name) == ("other", "hello")
    assert {key: bytes(value) for key, value in sent.request.params.items()} == {"arguments": b"{}"}


async def test_a_prompt_that_nobody_has_is_not_found_with_the_nearest() -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.PROMPTS, {"name": "hello"})
    with pytest.raises(PromptNotFound) as missing:
        await harness.gateway.get_prompt(request("prompts/get", "bank_hallo"))
    assert "bank_hello" in missing.value.hint
    assert harness.sent == []


async def test_a_tool_is_no_prompt_of_that_name() -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.TOOLS, a_tool("pay"))
    harness.offer("bank", ItemKind.PROMPTS)
    with pytest.raises(PromptNotFound):
        await harness.gateway.get_prompt(request("prompts/get", "bank_pay"))


# Resources.


def both(answer: McpResponse = DONE) -> GatewayHarness:
    """Two servers that have a resource of the same URI."""
    harness = GatewayHarness("bank", "other", answer=answer)
    for server in ("bank", "other"):
        harness.offer(server, ItemKind.RESOURCES, {"uri": SHARED, "name": "notes"})
        harness.offer(server, ItemKind.TEMPLATES, {"uriTemplate": f"{server}:///{{id}}", "name": "rows"})
        harness.offer(server, ItemKind.PROMPTS, {"name": "hello"})
    return harness


def contents(*uris: str) -> McpResponse:
    return McpResponse(
        json.dumps({"contents": [{"uri": uri, "text": SHARED} for uri in uris], "x": 1}).encode()
    )


async def test_who_had_a_uri_first_keeps_it_and_its_contents_are_not_touched() -> None:
    answer = contents(SHARED)
    harness = both(answer)
    assert await harness.gateway.read_resource(request("resources/read", SHARED)) is answer
    assert (harness.sent[0].item.server, harness.sent[0].item.name) == ("bank", SHARED)


async def test_a_resource_under_another_uri_is_read_by_its_own_and_shown_under_the_other() -> None:
    harness = both(contents(SHARED, "file:///part"))
    answer = await harness.gateway.read_resource(request("resources/read", OTHERS))
    assert (harness.sent[0].item.server, harness.sent[0].item.name) == ("other", SHARED)
    shown = contents(OTHERS, "file:///part").result
    assert isinstance(answer.result, bytes)
    assert isinstance(shown, bytes)
    assert json.loads(answer.result) == json.loads(shown)


async def test_contents_on_disk_are_not_opened() -> None:
    large = Large(b'{"contents":[]}')
    answer = await both(McpResponse(large)).gateway.read_resource(request("resources/read", OTHERS))
    assert answer.result is large
    assert not large.opened


async def test_an_error_about_a_resource_is_handed_on() -> None:
    wrong = McpResponse(error=b'{"code":-32002,"message":"gone"}')
    harness = both(wrong)
    assert (await harness.gateway.read_resource(request("resources/read", OTHERS))).error == wrong.error


async def test_a_uri_that_no_server_can_be_meant_by_is_not_found() -> None:
    harness = both()
    with pytest.raises(ResourceNotFound) as missing:
        await harness.gateway.read_resource(request("resources/read", "unknown:///x"))
    assert missing.value.uri == "unknown:///x"
    assert harness.sent == []


async def test_a_subscription_is_about_the_servers_own_uri() -> None:
    harness = both()
    assert await harness.gateway.subscribe(request("resources/subscribe", OTHERS)) is SUBSCRIBED
    assert await harness.gateway.unsubscribe(request("resources/unsubscribe", OTHERS)) is SUBSCRIBED
    assert harness.desk.upstream.subscriptions == [
        ("subscribe", "other", SHARED),
        ("unsubscribe", "other", SHARED),
    ]


# Completion.


@pytest.mark.parametrize(
    ("ref", "sent"),
    [
        ({"type": "ref/prompt", "name": "other_hello", "title": "T"}, {"name": "hello", "title": "T"}),
        ({"type": "ref/resource", "uri": "other:///{id}"}, {"uri": "other:///{id}"}),
        ({"type": "ref/resource", "uri": OTHERS}, {"uri": SHARED}),
    ],
)
async def test_a_completion_refers_to_what_the_server_calls_it(
    ref: dict[str, str], sent: dict[str, str]
) -> None:
    harness = both()
    argument = {"name": "id", "value": "é"}
    name = ref.get("uri") or ref["name"]
    asked = request("completion/complete", name, {"argument": argument, "ref": ref})
    assert await harness.gateway.complete(asked) is DONE
    (carried,) = harness.sent
    assert carried.item.server == "other"
    assert json.loads(bytes(carried.request.params["ref"])) == {"type": ref["type"], **sent}
    assert carried.request.params["argument"] == asked.params["argument"]


async def test_a_completion_for_what_nobody_has_is_not_found() -> None:
    harness = both()
    ref = {"type": "ref/prompt", "name": "other_bye"}
    with pytest.raises(PromptNotFound):
        await harness.gateway.complete(request("completion/complete", "other_bye", {"ref": ref}))


# Methods that the gateway does not know.


async def test_an_unknown_method_goes_to_the_only_server() -> None:
    harness = GatewayHarness("bank")
    asked = request("vendor/audit", params={"deep": [1]})
    assert await harness.gateway.forward(asked, None) is DONE
    (sent,) = harness.sent
    assert sent.item.server == "bank"
    assert sent.request is asked


async def test_an_unknown_method_goes_to_the_server_that_is_named() -> None:
    harness = GatewayHarness("bank", "other")
    await harness.gateway.forward(request("vendor/audit"), "other")
    assert [sent.item.server for sent in harness.sent] == ["other"]


async def test_an_unknown_method_that_no_one_server_is_known_to_have_is_unknown() -> None:
    harness = GatewayHarness("bank", "other")
    with pytest.raises(MethodNotFound, match="vendor/audit"):
        await harness.gateway.forward(request("vendor/audit"), None)
    assert harness.sent == []


@pytest.mark.parametrize("servers", [("bank", "other"), ("bank",)])
async def test_a_server_that_is_named_and_not_there_is_said_to_be_unknown(servers: tuple[str, ...]) -> None:
    harness = GatewayHarness(*servers)
    with pytest.raises(ServerNotFound, match="banc") as refused:
        await harness.gateway.forward(request("vendor/audit"), "banc")
    assert "nearest: bank" in refused.value.hint
    assert harness.sent == []


async def test_a_gateway_without_servers_knows_no_method() -> None:
    harness = GatewayHarness("bank")
    harness.catalog.set_servers([])
    with pytest.raises(MethodNotFound, match="no server is there"):
        await harness.gateway.forward(request("vendor/audit"), None)


@pytest.mark.parametrize("begun", [b'{"task":{"taskId":"t1"}}', b'{"resultType":"task","taskId":"t1"}'])
async def test_a_task_is_looked_after_by_the_server_that_began_it(begun: bytes) -> None:
    harness = GatewayHarness("bank", "other", answer=McpResponse(begun))
    harness.offer("other", ItemKind.TOOLS, a_tool("dig"))
    harness.offer("bank", ItemKind.TOOLS)
    await call(harness, "other_dig")
    await harness.gateway.forward(request("tasks/get", params={"taskId": "t1"}), None)
    assert [sent.item.server for sent in harness.sent] == ["other", "other"]


async def test_a_task_that_an_unknown_method_began_is_known_too() -> None:
    harness = GatewayHarness("bank", "other", answer=McpResponse(b'{"taskId":"t1"}'))
    await harness.gateway.forward(request("vendor/dig"), "other")
    await harness.gateway.forward(request("tasks/get", params={"taskId": "t1"}), None)
    assert [sent.item.server for sent in harness.sent] == ["other", "other"]


async def test_a_task_of_another_caller_is_as_good_as_unknown() -> None:
    harness = GatewayHarness("bank", "other", answer=McpResponse(b'{"task":{"taskId":"t1"}}'))
    await harness.gateway.forward(request("vendor/dig", who="ann"), "other")
    for id, who in (("t1", "bob"), ("t2", "ann")):
        with pytest.raises(MethodNotFound):
            await harness.gateway.forward(request("tasks/get", params={"taskId": id}, who=who), None)
    assert len(harness.sent) == 1


# Arguments that headers repeat.

MIRRORED = a_tool("pay", amount={"type": "integer", "x-mcp-header": "Amount"})


@pytest.mark.parametrize("headers", [{}, {b"mcp-param-amount": b"8"}, {b"mcp-param-amount": b"\xff"}])
async def test_headers_that_say_something_else_than_the_body_are_refused(headers: dict[bytes, bytes]) -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.TOOLS, MIRRORED)
    with pytest.raises(HeaderMismatch, match="Amount"):
        await call(harness, "bank_pay", params={"arguments": {"amount": 7}}, headers=headers)
    assert harness.sent == []


@pytest.mark.parametrize("headers", [None, {b"mcp-param-amount": b"7"}])
async def test_headers_that_agree_pass_and_so_do_none(
    headers: dict[bytes, bytes] | None,
) -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.TOOLS, MIRRORED)
    assert await call(harness, "bank_pay", params={"arguments": {"amount": 7}}, headers=headers) is DONE


@pytest.mark.parametrize(
    "mode", [ListingMode.SLIM, ListingMode.SEARCH, ListingMode.DYNAMIC, ListingMode.BUDGET]
)
async def test_who_was_not_shown_that_a_tool_wants_headers_need_not_send_them(mode: ListingMode) -> None:
    harness = GatewayHarness(mode=mode)
    harness.offer("bank", ItemKind.TOOLS, MIRRORED)
    asked = {"arguments": {"amount": 7}}
    assert await call(harness, "bank_pay", params=asked, headers={}) is DONE
    with pytest.raises(HeaderMismatch, match="Amount"):
        await call(harness, "bank_pay", params=asked, headers={b"mcp-param-amount": b"8"})
    assert len(harness.sent) == 1


async def test_headers_that_a_dialect_does_not_ask_for_need_not_be_sent() -> None:
    harness = GatewayHarness(clients=KnownClients(dialect=Dialect.GEMINI))
    harness.offer("bank", ItemKind.TOOLS, MIRRORED)
    assert await call(harness, "bank_pay", params={"arguments": {"amount": 7}}, headers={}) is DONE


async def test_headers_about_a_tool_that_wants_none_are_nobodys_business() -> None:
    harness = GatewayHarness()
    harness.offer("bank", ItemKind.TOOLS, a_tool("pay"))
    assert await call(harness, "bank_pay", headers={b"mcp-param-amount": b"8"}) is DONE


# Who may do what.


class ScriptedAccess:
    """Refuses the clients or tools that the test names, and records the order."""

    def __init__(self, *, admits: bool = True, permits: bool = True) -> None:
        self._admits = admits
        self._permits = permits
        self.asked: list[str] = []

    def admit(self, caller: Identity) -> None:
        self.asked.append("admit")
        if not self._admits:
            raise ResourceExhausted("too many requests")

    def permit(self, caller: Identity, item: Item) -> None:
        self.asked.append(f"permit {item.server} {item.name}")
        if not self._permits:
            raise ResourceExhausted("not for you")


Way = tuple[Callable[[Gateway], Callable[[McpRequest], Awaitable[McpResponse]]], McpRequest, str]
WAYS: dict[str, Way] = {
    "call": (attrgetter("call"), request("tools/call", "other_pay"), "other pay"),
    "prompt": (attrgetter("get_prompt"), request("prompts/get", "other_hello"), "other hello"),
    "read": (attrgetter("read_resource"), request("resources/read", OTHERS), f"other {SHARED}"),
    "subscribe": (attrgetter("subscribe"), request("resources/subscribe", OTHERS), f"other {SHARED}"),
    "complete": (
        attrgetter("complete"),
        request("completion/complete", "other_hello", {"ref": {"name": "other_hello"}}),
        "other hello",
    ),
}


def guarded(access: ScriptedAccess) -> GatewayHarness:
    harness = GatewayHarness("bank", "other", access=access)
    for server in ("bank", "other"):
        harness.offer(server, ItemKind.TOOLS, a_tool("pay"))
        harness.offer(server, ItemKind.PROMPTS, {"name": "hello"})
        harness.offer(server, ItemKind.RESOURCES, {"uri": SHARED, "name": "notes"})
        harness.offer(server, ItemKind.TEMPLATES)
    return harness


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_caller_is_counted_and_then_permitted_what_was_found(way: Way) -> None:
    access = ScriptedAccess()
    do, asked, found = way
    await do(guarded(access).gateway)(asked)
    assert access.asked == ["admit", f"permit {found}"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_caller_who_asks_too_often_does_not_even_learn_what_exists(way: Way) -> None:
    harness = guarded(ScriptedAccess(admits=False))
    do, asked, _ = way
    for name in (asked.name, "nobody_has_this"):
        with pytest.raises(ResourceExhausted, match="too many"):
            await do(harness.gateway)(msgspec.structs.replace(asked, name=name))
    assert harness.sent == []


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_what_a_caller_may_not_use_reaches_no_server(way: Way) -> None:
    harness = guarded(ScriptedAccess(permits=False))
    do, asked, _ = way
    with pytest.raises(ResourceExhausted, match="not for you"):
        await do(harness.gateway)(asked)
    assert (harness.sent, harness.desk.upstream.subscriptions) == ([], [])


async def test_an_unknown_method_is_counted_too() -> None:
    harness = guarded(ScriptedAccess(admits=False))
    with pytest.raises(ResourceExhausted):
        await harness.gateway.forward(request("vendor/audit"), "bank")
    assert harness.sent == []


# Transactions.


class Taking:
    """Takes the tool that makes steps, and says so instead of making any."""

    def is_step(self, request: McpRequest) -> bool:
        return request.name == STEP_TOOL

    async def run_step(self, request: McpRequest, use: ToolCaller) -> tuple[UpstreamCall, McpResponse]:
        raise ResourceExhausted("this was a step")


@pytest.mark.parametrize("prefixed", [True, False])
async def test_a_servers_tool_of_the_same_name_makes_no_step(*, prefixed: bool) -> None:
    harness = GatewayHarness("bank", prefixed=prefixed, transactions=Taking())
    harness.offer("bank", ItemKind.TOOLS, a_tool(STEP_TOOL))
    if prefixed:
        # The server's own goes by another name.
        with pytest.raises(ResourceExhausted, match="a step"):
            await harness.gateway.call(request("tools/call", STEP_TOOL))
    else:
        assert await harness.gateway.call(request("tools/call", STEP_TOOL)) is DONE
    assert len(harness.sent) == (0 if prefixed else 1)


# Listings.


@pytest.mark.parametrize("kind", ItemKind)
async def test_each_kind_has_a_listing(kind: ItemKind) -> None:
    harness = both()
    harness.offer("bank", ItemKind.TOOLS, a_tool("pay"))
    page = json.loads(b"{" + await harness.gateway.list(kind, None, ListingContext(era=Era.STATELESS)) + b"}")
    assert page[kind.result_member][0][kind.key]
