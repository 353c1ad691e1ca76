"""Questions of a streamable HTTP server: in the stream of a call they are about that call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.errors import UpstreamTimeout
from headgate.domain.mcp_request import McpResponse
from testkit.waiting import eventually
from tests.upstream.conversation import SAID, SAMPLING, Client, question
from tests.upstream.http_conversation import LEGACY, STREAM, WAIT_SECONDS, events, talking_to
from tests.upstream.raw_server import Received

NOT_FOUND, INTERNAL = -32601, -32603


def answered(answer: McpResponse) -> Any:
    assert isinstance(answer.result, bytes)
    return json.loads(answer.result)


class Asking:
    """A server that asks about each call in the stream of that call."""

    def __init__(self, *, hurried: bool = False) -> None:
        # Whether it gives the answer to the call in the same breath.
        self.hurried = hurried
        self.calls: dict[str, Received] = {}
        self.replies: dict[str, dict[str, Any]] = {}
        self.unasked: Received | None = None

    async def behave(self, request: Received) -> None:
        if request.method == "GET":
            self.unasked = request
            await request.say(STREAM)
            return
        message = request.json()
        if "method" not in message:
            self.replies[message["id"]] = message
            await request.answer(b"", "202 Accepted")
            await self._finish(message["id"])
        elif message["method"] != "tools/call":
            await request.answer(b"", "202 Accepted")
        else:
            await self._ask(request, f"about {message['params']['who']}")

    async def _ask(self, request: Received, id: str) -> None:
        self.calls[id] = request
        said = STREAM + events(question(id))
        if self.hurried:
            await request.say(said + self._result(id))
        else:
            await request.say(said)

    async def _finish(self, id: str) -> None:
        if id in self.calls:
            await self.calls[id].say(self._result(id))

    def _result(self, id: str) -> bytes:
        return events({"jsonrpc": "2.0", "id": self.calls[id].json()["id"], "result": {"done": id}})


async def test_a_question_in_the_stream_of_a_call_is_about_that_call(tmp_path: Path) -> None:
    server = Asking()
    clients = {"ann": Client(), "bob": Client()}
    async with talking_to(server.behave, tmp_path, LEGACY, SAMPLING) as talk:
        calls = {
            who: asyncio.create_task(
                talk.ask(token=number, client=client, params=json.dumps({"who": who}).encode())
            )
            for number, (who, client) in enumerate(clients.items(), 1)
        }
        await eventually(lambda: all(one.asked for one in clients.values()), WAIT_SECONDS, "both are asked")
        for who, client in clients.items():
            client.answer.set_result(McpResponse(json.dumps({"from": who}).encode()))
            assert answered(await calls[who]) == {"done": f"about {who}"}
        assert {id: reply["result"]["from"] for id, reply in server.replies.items()} == {
            "about ann": "ann",
            "about bob": "bob",
        }


async def test_a_question_in_one_breath_with_the_answer_is_asked_all_the_same(tmp_path: Path) -> None:
    server = Asking(hurried=True)
    async with talking_to(server.behave, tmp_path, LEGACY, SAMPLING) as talk:
        await talk.ask(token=1, client=Client(SAID), params=b'{"who":"ann"}')
        await eventually(lambda: "about ann" in server.replies, WAIT_SECONDS, "answered")
        assert server.replies["about ann"]["result"]["role"] == "assistant"


async def test_the_time_of_a_call_over_http_stands_still_too_within_its_maximum(tmp_path: Path) -> None:
    server = Asking()
    client = Client()
    async with talking_to(server.behave, tmp_path, LEGACY, SAMPLING) as talk:
        params = {"seconds": 0.2, "token": 1, "params": b'{"who":"ann"}'}
        call = asyncio.create_task(talk.ask(client=client, **params))
        await asyncio.wait({call}, timeout=0.6)
        assert not call.done()
        client.answer.set_result(SAID)
        await call
        with pytest.raises(UpstreamTimeout):
            await talk.ask(client=Client(), most_seconds=0.5, **params)


@pytest.mark.parametrize("names", [["ann"], ["ann", "bob"]])
async def test_a_question_on_the_other_stream_is_for_the_only_client_that_waits(
    tmp_path: Path, names: list[str]
) -> None:
    server = Asking()
    clients = {who: Client() for who in names}
    async with talking_to(server.behave, tmp_path, LEGACY, SAMPLING) as talk:
        calls = [
            asyncio.create_task(
                talk.ask(token=number, client=clients[who], params=json.dumps({"who": who}).encode())
            )
            for number, who in enumerate(names, 1)
        ]
        await eventually(lambda: all(one.asked for one in clients.values()), WAIT_SECONDS, "all are asked")
        assert server.unasked is not None
        await server.unasked.say(events(question("unasked")))
        if len(names) > 1:
            await eventually(lambda: "unasked" in server.replies, WAIT_SECONDS, "refused")
            assert server.replies["unasked"]["error"]["code"] == INTERNAL
        else:
            await eventually(lambda: len(clients["ann"].asked) == 2, WAIT_SECONDS, "asked")
        for client in clients.values():
            client.answer.set_result(SAID)
        await asyncio.gather(*calls)
        await eventually(lambda: "unasked" in server.replies, WAIT_SECONDS, "answered")
        assert ("result" in server.replies["unasked"]) is (len(names) == 1)


async def test_a_question_that_is_not_declared_is_refused_over_http(tmp_path: Path) -> None:
    server = Asking()
    async with talking_to(server.behave, tmp_path, LEGACY) as talk:
        await talk.ask(token=1, client=Client(SAID), params=b'{"who":"ann"}')
        assert server.replies["about ann"]["error"]["code"] == NOT_FOUND
