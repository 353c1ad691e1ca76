"""An upstream after the handshake: its tools are listed page by page, and spoken to in its own era."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from headgate.domain.call import LOCAL, Answer, Call, Request
from headgate.domain.errors import InvalidAnswer
from headgate.domain.server import ServerSpec, Transport
from headgate.domain.tool import Tool
from headgate.upstream.link import Outgoing
from headgate.upstream.peer import Greeting, Peer

SPEC = ServerSpec(name="far", transport=Transport.STDIO)
MODERN, LEGACY = "2026-07-28", "2025-06-18"


class AnsweringLink:
    """Answers each request with what a function makes of its params."""

    pid = None

    def __init__(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self._answer = answer
        self.asked: list[Outgoing] = []

    async def request(self, outgoing: Outgoing) -> Answer:
        self.asked.append(outgoing)
        return Answer(self._answer(json.loads(outgoing.params or b"{}")))

    async def notify(self, message: bytes) -> None:
        """Nobody listens."""

    def adopt(self, version: str) -> None:
        """Nothing changes."""

    async def lost(self) -> str:
        await asyncio.Event().wait()
        return ""


def peer(link: AnsweringLink, version: str = LEGACY, capabilities: bytes = b'{"tools":{}}') -> Peer:
    return Peer(SPEC, link, Greeting(version, Raw(capabilities)))


async def test_every_page_is_listed_byte_for_byte() -> None:
    pages = {
        None: b'{"tools":[{"name":"a" , "x":1.0}],"nextCursor":"1"}',
        "1": b'{"tools":[],"nextCursor":"2"}',
        "2": b'{"tools":[{ "name":"b"}],"nextCursor":""}',
    }
    link = AnsweringLink(lambda params: pages[params.get("cursor")])
    assert await peer(link).list_tools() == [b'{"name":"a" , "x":1.0}', b'{ "name":"b"}']


async def test_pages_that_go_in_circles_are_given_up() -> None:
    link = AnsweringLink(lambda _: b'{"tools":[{"name":"a"}],"nextCursor":"again"}')
    with pytest.raises(InvalidAnswer, match="circles"):
        await peer(link).list_tools()
    assert len(link.asked) < 5


@pytest.mark.parametrize("answer", [b"{}", b"[]", b'{"tools":{}}', b'{"tools":[],"nextCursor":5}'])
async def test_what_is_no_list_is_said_to_be_none(answer: bytes) -> None:
    with pytest.raises(InvalidAnswer, match="tools/list"):
        await peer(AnsweringLink(lambda _: answer)).list_tools()


@pytest.mark.parametrize("capabilities", [b'{"prompts":{}}', b'{"logging":{},"resources":{}}'])
async def test_a_server_that_has_no_tools_is_not_asked_for_them(capabilities: bytes) -> None:
    link = AnsweringLink(lambda _: b"{}")
    assert await peer(link, capabilities=capabilities).list_tools() == []
    assert link.asked == []


@pytest.mark.parametrize("capabilities", [b"{}", b"", b'{"tools":{"listChanged":true}}'])
async def test_a_server_that_may_have_tools_is_asked(capabilities: bytes) -> None:
    link = AnsweringLink(lambda _: b'{"tools":[{"name":"a"}]}')
    assert len(await peer(link, capabilities=capabilities).list_tools()) == 1


async def test_half_a_character_in_one_description_does_not_cost_the_server() -> None:
    # JSON.stringify writes the half of an emoji that a cut left over as a lone surrogate.
    odd = b'{"name":"odd","description":"cut \\ud83d"}'
    link = AnsweringLink(lambda _: b'{"tools":[{"name":"a"},' + odd + b',{"name":"b"}]}')
    listed = await peer(link).list_tools()
    assert {b'{"name":"a"}', b'{"name":"b"}'} <= set(listed)


async def test_a_depth_that_no_parser_takes_in_one_tool_does_not_cost_the_server() -> None:
    deep = b'{"name":"deep","x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    link = AnsweringLink(lambda _: b'{"tools":[{"name":"a"},' + deep + b"]}")
    assert b'{"name":"a"}' in await peer(link).list_tools()


def a_call(**request: Any) -> Call:
    wanted = {"arguments": b'{"b":1.0,"a":[ ]}', "meta": {"traceparent": Raw(b'"00-1"')}, **request}
    return Call(Request(caller=LOCAL, tool="far_pay", **wanted), Tool("far", "pay", "far_pay", b"{}", b"{}"))


async def test_a_call_to_a_handshake_server_carries_what_the_client_sent() -> None:
    link = AnsweringLink(lambda _: b"{}")
    answer = await peer(link).call(a_call(more={"new/member": Raw(b"[ 1 ]")}))
    (asked,) = link.asked
    assert asked.params == (
        b'{"name":"pay","arguments":{"b":1.0,"a":[ ]},"_meta":{"traceparent":"00-1"},"new/member":[ 1 ]}'
    )
    assert not answer.typed


async def test_a_call_to_a_stateless_server_says_who_sends_it_and_what_the_client_can() -> None:
    link = AnsweringLink(lambda _: b"{}")
    answer = await peer(link, MODERN).call(a_call(capabilities=b'{"elicitation":{}}'))
    meta = json.loads(link.asked[0].params)["_meta"]
    assert meta.pop("io.modelcontextprotocol/clientInfo")["name"] == "headgate"
    assert meta == {
        "traceparent": "00-1",
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    assert link.asked[0].name == "pay"
    assert answer.typed


async def test_each_call_that_wants_progress_has_a_token_of_its_own() -> None:
    link = AnsweringLink(lambda _: b"{}")
    speaker = peer(link)
    for _ in range(3):
        await speaker.call(a_call(on_progress=lambda _: None))
    tokens = [json.loads(asked.params)["_meta"]["progressToken"] for asked in link.asked]
    assert len(set(tokens)) == 3
    assert tokens == [asked.progress_token for asked in link.asked]
