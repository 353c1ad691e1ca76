"""An upstream after the handshake: what it has is listed page by page, and it is spoken to in its own era."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from headgate.catalog.paged_listing import NO_HINT, CacheHint
from headgate.domain.client_profile import PLAIN_PROFILE, ClientProfile, profile_of
from headgate.domain.errors import InvalidUpstreamResponse
from headgate.domain.identity import LOCAL_IDENTITY
from headgate.domain.item import Item, ItemKind, ParamHeader
from headgate.domain.mcp_request import McpRequest, McpResponse, UpstreamCall
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.transport import OutgoingRequest
from headgate.upstream.upstream_listings import list_all
from tests.upstream.scripted_server import failed

SPEC = ServerSpec(name="far", transport=TransportType.STDIO)
MODERN, LEGACY = "2026-07-28", "2025-06-18"


class AnsweringTransport:
    """Answers each request with what a function makes of its params."""

    pid = None
    limits = None

    def __init__(self, answer: Callable[[dict[str, Any]], bytes | McpResponse]) -> None:
        self._answer = answer
        self.asked: list[OutgoingRequest] = []
        self.told: list[bytes] = []

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        self.asked.append(outgoing)
        answer = self._answer(json.loads(outgoing.params or b"{}"))
        return McpResponse(answer) if isinstance(answer, bytes) else answer

    async def send_notification(self, message: bytes) -> None:
        self.told.append(message)

    def set_protocol_version(self, version: str) -> None:
        """Nothing changes."""

    async def wait_lost(self) -> str:
        await asyncio.Event().wait()
        return ""


def peer(
    transport: AnsweringTransport, version: str = LEGACY, capabilities: bytes = b'{"tools":{}}'
) -> McpPeer:
    return McpPeer(SPEC, transport, NegotiationResult(version, capabilities))


async def listed(
    speaker: McpPeer, kind: ItemKind = ItemKind.TOOLS, profile: ClientProfile = PLAIN_PROFILE
) -> list[bytes]:
    return (await list_all(speaker, kind, profile)).definitions


async def test_every_page_is_listed_byte_for_byte() -> None:
    pages = {
        None: b'{"tools":[{"name":"a" , "x":1.0}],"nextCursor":"1"}',
        "1": b'{"tools":[],"nextCursor":"2"}',
        "2": b'{"tools":[{ "name":"b"}],"nextCursor":""}',
    }
    transport = AnsweringTransport(lambda params: pages[params.get("cursor")])
    assert await listed(peer(transport)) == [b'{"name":"a" , "x":1.0}', b'{ "name":"b"}']


async def test_pages_that_go_in_circles_are_given_up() -> None:
    transport = AnsweringTransport(lambda _: b'{"tools":[{"name":"a"}],"nextCursor":"again"}')
    with pytest.raises(InvalidUpstreamResponse, match="circles"):
        await listed(peer(transport))
    assert len(transport.asked) < 5


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"tools":{}}', b'{"tools":[],"nextCursor":5}'])
async def test_what_is_no_list_is_said_to_be_none(answer: bytes) -> None:
    with pytest.raises(InvalidUpstreamResponse, match="tools/list"):
        await listed(peer(AnsweringTransport(lambda _: answer)))


@pytest.mark.parametrize("capabilities", [b'{"prompts":{}}', b'{"logging":{},"resources":{}}'])
async def test_a_server_that_has_no_tools_is_not_asked_for_them(capabilities: bytes) -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    assert await listed(peer(transport, capabilities=capabilities)) == []
    assert transport.asked == []


@pytest.mark.parametrize("capabilities", [b"{}", b"", b'{"tools":{"listChanged":true}}'])
async def test_a_server_that_may_have_tools_is_asked(capabilities: bytes) -> None:
    transport = AnsweringTransport(lambda _: b'{"tools":[{"name":"a"}]}')
    assert len(await listed(peer(transport, capabilities=capabilities))) == 1


async def test_half_a_character_in_one_description_does_not_cost_the_server() -> None:
    # JSON.stringify writes the half of an emoji that a cut left over as a lone surrogate.
    odd = b'{"name":"odd","description":"cut \\ud83d"}'
    transport = AnsweringTransport(lambda _: b'{"tools":[{"name":"a"},' + odd + b',{"name":"b"}]}')
    definitions = await listed(peer(transport))
    assert {b'{"name":"a"}', b'{"name":"b"}'} <= set(definitions)


async def test_a_depth_that_no_parser_takes_in_one_tool_does_not_cost_the_server() -> None:
    deep = b'{"name":"deep","x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    transport = AnsweringTransport(lambda _: b'{"tools":[{"name":"a"},' + deep + b"]}")
    assert b'{"name":"a"}' in await listed(peer(transport))


def a_call(**request: Any) -> UpstreamCall:
    params = {"arguments": Raw(b'{"b":1.0,"a":[ ]}'), **request.pop("params", {})}
    wanted = {"params": params, "meta": {"traceparent": Raw(b'"00-1"')}, **request}
    mirrors = wanted.pop("mirrors", ())
    item = Item(ItemKind.TOOLS, "far", "pay", "far_pay", mirrored_parameters=mirrors)
    return UpstreamCall(McpRequest(caller=LOCAL_IDENTITY, name="far_pay", **wanted), item)


async def test_a_call_to_a_handshake_server_carries_what_the_client_sent() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    answer = await peer(transport).send_client_request(a_call(params={"new/member": Raw(b"[ 1 ]")}))
    (asked,) = transport.asked
    assert asked.params == (
        b'{"name":"pay","arguments":{"b":1.0,"a":[ ]},"new/member":[ 1 ],"_meta":{"traceparent":"00-1"}}'
    )
    assert not answer.typed


async def test_a_call_to_a_stateless_server_says_who_sends_it_and_what_the_client_can() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    answer = await peer(transport, MODERN).send_client_request(
        a_call(profile=profile_of(b'{"elicitation":{}}'))
    )
    meta = json.loads(transport.asked[0].params)["_meta"]
    assert meta.pop("io.modelcontextprotocol/clientInfo")["name"] == "headgate"
    assert meta == {
        "traceparent": "00-1",
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    assert transport.asked[0].name == "pay"
    assert answer.typed


async def test_each_call_that_wants_progress_has_a_token_of_its_own() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    speaker = peer(transport)
    for _ in range(3):
        await speaker.send_client_request(a_call(on_progress=lambda _: None))
    tokens = [json.loads(asked.params)["_meta"]["progressToken"] for asked in transport.asked]
    assert len(set(tokens)) == 3
    assert tokens == [asked.token for asked in transport.asked]


@pytest.mark.parametrize(
    ("method", "name", "sent"),
    [
        ("prompts/get", "hello", {"name": "hello"}),
        ("resources/read", "file:///a", {"uri": "file:///a"}),
        ("completion/complete", "hello", {}),
        ("tasks/get", "", {}),
    ],
)
async def test_a_request_names_what_it_is_about_in_the_words_of_its_method(
    method: str, name: str, sent: dict[str, Any]
) -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    item = Item(ItemKind.PROMPTS, "far", name, "public")
    await peer(transport).send_client_request(
        UpstreamCall(McpRequest(caller=LOCAL_IDENTITY, method=method, params={"x": Raw(b"1")}), item)
    )
    assert json.loads(transport.asked[0].params) == sent | {"x": 1}
    assert (transport.asked[0].method, transport.asked[0].name) == (method, name)


async def test_what_a_client_sent_cannot_pretend_to_be_the_connection() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    forged = {"io.modelcontextprotocol/protocolVersion": Raw(b'"1999-01-01"'), "progressToken": Raw(b'"x"')}
    await peer(transport, MODERN).send_client_request(a_call(meta=forged, on_progress=lambda _: None))
    meta = json.loads(transport.asked[0].params)["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
    assert meta["progressToken"] == transport.asked[0].token


# Other kinds than tools.

KINDS = b'{"tools":{},"prompts":{},"resources":{}}'


@pytest.mark.parametrize("kind", ItemKind)
async def test_each_kind_is_listed_by_its_own_method_under_its_own_member(kind: ItemKind) -> None:
    transport = AnsweringTransport(lambda _: b'{"%s":[{"x":1 }]}' % kind.result_member.encode())
    assert await listed(peer(transport, capabilities=KINDS), kind) == [b'{"x":1 }']
    assert [asked.method for asked in transport.asked] == [kind.list_method]


@pytest.mark.parametrize("kind", [ItemKind.PROMPTS, ItemKind.RESOURCES, ItemKind.TEMPLATES])
async def test_a_server_that_declares_more_than_it_lists_is_served_all_the_same(kind: ItemKind) -> None:
    transport = AnsweringTransport(lambda _: failed(-32601))
    assert await listed(peer(transport, capabilities=KINDS), kind) == []


async def test_a_server_that_does_not_list_its_tools_is_not() -> None:
    with pytest.raises(InvalidUpstreamResponse, match="-32601"):
        await listed(peer(AnsweringTransport(lambda _: failed(-32601))))


@pytest.mark.parametrize("kind", [ItemKind.PROMPTS, ItemKind.RESOURCES, ItemKind.TEMPLATES])
async def test_an_error_in_the_middle_of_a_listing_does_not_pass_for_its_end(kind: ItemKind) -> None:
    first = b'{"%s":[{"x":1}],"nextCursor":"2"}' % kind.result_member.encode()
    transport = AnsweringTransport(lambda params: failed(-32603) if "cursor" in params else first)
    with pytest.raises(InvalidUpstreamResponse, match=kind.list_method):
        await listed(peer(transport, capabilities=KINDS), kind)


@pytest.mark.parametrize("cursors", [["a", "b", "a", "b"], ["a", "b", "c", "b", "c"]])
async def test_a_longer_circle_of_pages_is_noticed_too(cursors: list[str]) -> None:
    following = dict(zip([None, *cursors], cursors, strict=False))
    transport = AnsweringTransport(
        lambda params: json.dumps({"tools": [], "nextCursor": following[params.get("cursor")]}).encode()
    )
    with pytest.raises(InvalidUpstreamResponse, match="circles"):
        await listed(peer(transport))
    assert len(transport.asked) <= len(cursors)


async def test_a_stateless_server_lists_for_the_profile_that_it_is_told() -> None:
    transport = AnsweringTransport(lambda _: b'{"tools":[]}')
    await listed(peer(transport, MODERN), profile=profile_of(b'{"sampling":{}}'))
    meta = json.loads(transport.asked[0].params)["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}


@pytest.mark.parametrize(
    ("pages", "hint"),
    [
        ([{"ttlMs": 5000, "cacheScope": "public"}], CacheHint(5000, public=True)),
        ([{"ttlMs": 5000}], CacheHint(5000, public=False)),
        ([{"ttlMs": -1}], NO_HINT),
        ([{"cacheScope": "public"}], CacheHint(0, public=True)),
        ([{"ttlMs": 10**12, "cacheScope": "public"}], CacheHint(86_400_000, public=True)),
        (
            [{"ttlMs": 5000, "cacheScope": "public"}, {"ttlMs": 9000, "cacheScope": "private"}],
            CacheHint(5000, public=False),
        ),
        ([{"ttlMs": 5000, "cacheScope": "public"}, {"cacheScope": "public"}], CacheHint(0, public=True)),
    ],
)
async def test_a_listing_may_be_kept_as_long_as_its_strictest_page_says(
    pages: list[dict[str, Any]], hint: CacheHint
) -> None:
    def answer(params: dict[str, Any]) -> bytes:
        number = int(params.get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
        return json.dumps({"tools": [], **pages[number], **more}).encode()

    assert (await list_all(peer(AnsweringTransport(answer), MODERN), ItemKind.TOOLS)).hint == hint


# Log messages.


async def test_a_handshake_server_is_told_a_new_log_level_once() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    speaker = peer(transport, capabilities=b'{"tools":{},"logging":{}}')
    for level in ("info", "info", "debug"):
        await speaker.send_client_request(a_call(log_level=level))
    methods = [asked.method for asked in transport.asked]
    assert methods == ["logging/setLevel", "tools/call", "tools/call", "logging/setLevel", "tools/call"]
    assert json.loads(transport.asked[3].params) == {"level": "debug"}


async def test_a_server_that_sends_no_log_messages_is_not_told_which_are_wanted() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    await peer(transport).send_client_request(a_call(log_level="info"))
    assert [asked.method for asked in transport.asked] == ["tools/call"]


async def test_a_stateless_server_is_told_the_log_level_with_each_request() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    await peer(transport, MODERN).send_client_request(a_call(log_level="info"))
    await peer(transport, MODERN).send_client_request(a_call())
    metas = [json.loads(asked.params)["_meta"] for asked in transport.asked]
    assert [meta.get("io.modelcontextprotocol/logLevel") for meta in metas] == ["info", None]


# Arguments that headers repeat.


async def test_arguments_are_repeated_in_headers_for_a_stateless_server_only() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    mirrored = a_call(mirrors=(ParamHeader(("b",), "Amount"),), params={"arguments": Raw(b'{"b":7}')})
    await peer(transport, MODERN).send_client_request(mirrored)
    await peer(transport).send_client_request(mirrored)
    stateless, handshake = transport.asked
    assert b"Mcp-Param-Amount: 7" in stateless.headers
    assert handshake.headers == b""


async def test_a_header_of_the_client_that_nobody_knows_is_carried_but_never_in_place_of_the_body() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    headers = {b"mcp-param-amount": b"1000000", b"mcp-param-region": b"north"}
    mirrored = a_call(
        mirrors=(ParamHeader(("b",), "Amount"),), params={"arguments": Raw(b'{"b":7}')}, headers=headers
    )
    await peer(transport, MODERN).send_client_request(mirrored)
    (asked,) = transport.asked
    assert b"1000000" not in asked.headers
    assert asked.headers.lower().count(b"mcp-param-amount") == 1
    assert b"north" in asked.headers


# What the gateway asks and tells for itself.


@pytest.mark.parametrize(("version", "method"), [(MODERN, "server/discover"), (LEGACY, "ping")])
async def test_a_server_is_asked_whether_it_is_there_in_its_own_words(version: str, method: str) -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    await peer(transport, version).ping(3.0)
    (asked,) = transport.asked
    assert (asked.method, asked.timeout_seconds, asked.max_timeout_seconds) == (method, 3.0, 3.0)


async def test_a_notification_of_the_client_goes_out_as_it_is() -> None:
    transport = AnsweringTransport(lambda _: b"{}")
    await peer(transport).send_notification("notifications/roots/list_changed", b'{"a": 1}')
    assert [json.loads(message) for message in transport.told] == [
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed", "params": {"a": 1}}
    ]
