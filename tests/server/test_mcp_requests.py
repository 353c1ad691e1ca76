"""What a client sent becomes a request; what belongs to its own connection goes no further."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from headgate.domain.client_profile import PLAIN_PROFILE, profile_of
from headgate.domain.identity import Identity
from headgate.domain.mcp_request import ClientSession, McpRequest, McpResponse
from headgate.protocol.jsonrpc import Envelope
from headgate.protocol.jsonrpc_errors import INVALID_PARAMS, INVALID_REQUEST, ProtocolViolation
from headgate.protocol.protocol_version import Era
from headgate.server.client_context import ClientContext, SessionPreferences
from headgate.server.mcp_requests import (
    completion_request,
    named_request,
    requested_server,
    tool_call_request,
    unknown_method_request,
)

SAMPLING = profile_of(b'{"sampling":{}}')
META = "io.modelcontextprotocol/"


class Told:
    """A client that records what it received."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def send_notification(self, method: str, params: bytes) -> None:
        self.told.append((method, json.loads(params)))

    async def send_request(self, method: str, params: bytes) -> McpResponse:
        return McpResponse(b'{"asked":true}')


def stateless(channel: Told | None = None, **more: Any) -> ClientContext:
    return ClientContext(
        era=Era.STATELESS, channel=channel or Told(), caller=Identity(principal="ann"), **more
    )


def handshake(channel: Told | None = None, level: str = "") -> ClientContext:
    reached = channel or Told()
    return ClientContext(
        era=Era.HANDSHAKE,
        channel=reached,
        caller=Identity(principal="ann"),
        profile=SAMPLING,
        owner=ClientSession("session", reached),
        preferences=SessionPreferences(log_level=level),
    )


def envelope(method: str, params: bytes | dict[str, Any]) -> Envelope:
    raw = params if isinstance(params, bytes) else json.dumps(params).encode()
    return Envelope(jsonrpc="2.0", id=Raw(b"7"), method=method, params=Raw(raw))


def sent(request: McpRequest) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in request.params.items()}


def meta(request: McpRequest) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in request.meta.items()}


# What a request is about.


def test_a_tool_call_keeps_its_arguments_byte_for_byte() -> None:
    params = b'{"name":"pay","arguments":{"b" : 1.0,"a":[ ]},"new":[ 1 ],"_meta":{"traceparent":"00"}}'
    request = tool_call_request(envelope("tools/call", params), handshake())
    assert (request.method, request.name) == ("tools/call", "pay")
    assert sent(request) == {"arguments": b'{"b" : 1.0,"a":[ ]}', "new": b"[ 1 ]"}
    assert meta(request) == {"traceparent": b'"00"'}


def test_a_call_without_arguments_has_none() -> None:
    assert sent(tool_call_request(envelope("tools/call", {"name": "pay"}), handshake())) == {}


@pytest.mark.parametrize(("method", "member"), [("prompts/get", "name"), ("resources/read", "uri")])
def test_what_a_request_is_about_is_taken_out_of_its_params(method: str, member: str) -> None:
    request = named_request(envelope(method, b'{"%s":"x","more":{ }}' % member.encode()), stateless(), member)
    assert (request.name, sent(request)) == ("x", {"more": b"{ }"})


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ({"type": "ref/prompt", "name": "hello", "uri": "x"}, "hello"),
        ({"type": "ref/resource", "uri": "a:/{x}", "name": "y"}, "a:/{x}"),
    ],
)
def test_a_completion_is_about_what_it_refers_to(ref: dict[str, str], name: str) -> None:
    request = completion_request(envelope("completion/complete", {"ref": ref, "argument": {}}), handshake())
    assert request.name == name
    assert json.loads(sent(request)["ref"]) == ref


def test_what_nobody_knows_is_carried_whole() -> None:
    request = unknown_method_request(
        envelope("vendor/x", b'{"a":[ 1 ],"name":"n","_meta":{"m":1}}'), handshake()
    )
    assert (request.method, request.name) == ("vendor/x", "")
    assert sent(request) == {"a": b"[ 1 ]", "name": b'"n"'}
    assert (
        sent(unknown_method_request(Envelope(jsonrpc="2.0", id=Raw(b"7"), method="vendor/x"), handshake()))
        == {}
    )


BAD: dict[str, tuple[Any, bytes]] = {
    "no name": (named_request, b"{}"),
    "empty name": (named_request, b'{"name":""}'),
    "number": (named_request, b'{"name":5}'),
    "null": (named_request, b'{"name":null}'),
    "no ref": (completion_request, b"{}"),
    "ref is a number": (completion_request, b'{"ref":5}'),
    "ref is a list": (completion_request, b'{"ref":[]}'),
    "ref is a text": (completion_request, b'{"ref":"ref/prompt"}'),
    "ref is null": (completion_request, b'{"ref":null}'),
    "no type": (completion_request, b'{"ref":{"name":"x"}}'),
    "another type": (completion_request, b'{"ref":{"type":"ref/tool","name":"x"}}'),
    "prompt without name": (completion_request, b'{"ref":{"type":"ref/prompt","uri":"x"}}'),
    "resource without uri": (completion_request, b'{"ref":{"type":"ref/resource","name":"x"}}'),
    "no tool": (tool_call_request, b"{}"),
    "meta": (unknown_method_request, b'{"_meta":[]}'),
}


@pytest.mark.parametrize(("make", "params"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("context", [handshake, stateless])
async def test_what_says_nothing_is_refused_with_its_id(make: Any, params: bytes, context: Any) -> None:
    more = ("name",) if make is named_request else ()
    with pytest.raises(ProtocolViolation) as refused:
        make(envelope("x", params), context(), *more)
    assert (refused.value.code, refused.value.id) == (INVALID_PARAMS, b"7")


@pytest.mark.parametrize(
    ("make", "params"),
    [
        (tool_call_request, b'{"name":"a","name":"b"}'),
        (tool_call_request, b'{"name":"a","arguments":{},"arguments":{}}'),
        (named_request, b'{"name":"a","name":"b"}'),
        (named_request, b'{"name":"a","_meta":{},"_meta":{}}'),
        (completion_request, b'{"ref":{"type":"ref/prompt","name":"a","name":"b"}}'),
        (completion_request, b'{"ref":{"type":"ref/prompt","name":"a"},"ref":{}}'),
    ],
)
async def test_what_is_said_twice_is_refused(make: Any, params: bytes) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        make(envelope("x", params), stateless(), *(("name",) if make is named_request else ()))
    assert refused.value.code == INVALID_REQUEST


# Who sent it.


def test_a_handshake_client_is_its_session() -> None:
    context = handshake(level="info")
    request = tool_call_request(envelope("tools/call", {"name": "x"}), context)
    assert (request.caller, request.profile, request.session) == (
        Identity(principal="ann"),
        SAMPLING,
        context.owner,
    )
    assert (request.log_level, request.channel, request.headers) == ("info", context.channel, None)


def test_a_handshake_client_may_put_anything_into_meta() -> None:
    own = {META + "clientCapabilities": {"roots": {}}, META + "logLevel": "nonsense"}
    request = tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), handshake())
    assert request.profile == SAMPLING
    assert set(meta(request)) == set(own)


def test_a_stateless_client_says_with_each_request_what_it_can() -> None:
    own = {
        META + "protocolVersion": "2026-07-28",
        META + "clientInfo": {},
        META + "clientCapabilities": {"sampling": {}},
        META + "logLevel": "debug",
        "traceparent": "00",
        "vendor/x": 1,
    }
    request = tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), stateless())
    assert (request.profile, request.session, request.log_level) == (SAMPLING, None, "debug")
    assert set(meta(request)) == {"traceparent", "vendor/x"}


@pytest.mark.parametrize("own", [{}, {META + "clientCapabilities": {}}])
def test_a_stateless_client_that_declares_nothing_is_plain(own: dict[str, Any]) -> None:
    request = tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), stateless())
    assert request.profile is PLAIN_PROFILE


@pytest.mark.parametrize("level", ["loud", "", 5, None, ["info"]])
def test_a_log_level_that_does_not_exist_is_refused(level: Any) -> None:
    own = {META + "logLevel": level}
    with pytest.raises(ProtocolViolation) as refused:
        tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), stateless())
    assert refused.value.code == INVALID_PARAMS


def test_only_headers_that_repeat_arguments_are_carried() -> None:
    headers = {b"mcp-param-a": b"1", b"authorization": b"secret", b"mcp-name": b"x"}
    request = tool_call_request(envelope("tools/call", {"name": "x"}), stateless(headers=headers))
    assert request.headers == {b"mcp-param-a": b"1"}
    assert tool_call_request(envelope("tools/call", {"name": "x"}), stateless()).headers is None


# What reaches the client meanwhile.


def test_a_stateless_client_that_asked_for_no_log_messages_gets_none() -> None:
    channel = Told()
    for own in ({}, {META + "logLevel": "info"}):
        request = tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), stateless(channel))
        assert request.channel is not None
        request.channel.send_notification("notifications/message", b'{"n":1}')
        request.channel.send_notification("notifications/other", b'{"n":2}')
        assert asyncio.run(_ask(request)).error, "no request goes to a client of this era"
    assert [method for method, _ in channel.told] == [
        "notifications/other",
        "notifications/message",
        "notifications/other",
    ]


async def _ask(request: McpRequest) -> McpResponse:
    assert request.channel is not None
    return await request.channel.send_request("roots/list", b"")


@pytest.mark.parametrize("token", ["mine", 12345678901234567890, 1.5])
@pytest.mark.parametrize("context", [handshake, stateless])
def test_progress_comes_under_the_token_that_the_client_chose(token: Any, context: Any) -> None:
    channel = Told()
    own = {"progressToken": token}
    request = tool_call_request(envelope("tools/call", {"name": "x", "_meta": own}), context(channel))
    assert meta(request) == {}
    assert request.on_progress is not None
    request.on_progress({"progress": Raw(b"3"), "message": Raw(b'"m"')})
    assert channel.told == [
        ("notifications/progress", {"progressToken": token, "progress": 3, "message": "m"})
    ]


def test_without_a_token_there_is_no_progress() -> None:
    assert tool_call_request(envelope("tools/call", {"name": "x"}), handshake()).on_progress is None


# Which server is meant.


@pytest.mark.parametrize(
    ("own", "server"),
    [({}, None), ({"io.headgate/server": "bank"}, "bank"), ({"io.headgate/server": 5}, None)],
)
def test_a_client_may_name_the_server(own: dict[str, Any], server: str | None) -> None:
    for context in (handshake(), stateless()):
        assert (
            requested_server(unknown_method_request(envelope("vendor/x", {"_meta": own}), context)) == server
        )
