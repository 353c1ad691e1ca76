"""The first who wants to hear of a resource subscribes, the last one leaving unsubscribes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headgate.domain.errors import UpstreamLost
from headgate.domain.mcp_request import McpResponse
from headgate.upstream.handshake import NegotiationResult
from headgate.upstream.mcp_peer import McpPeer
from headgate.upstream.resource_subscriptions import ResourceSubscriptions
from headgate.upstream.transport import OutgoingRequest, UpstreamSessionExpired
from testkit.virtual_time import virtual_time
from tests.upstream.fake_connections import background, settle
from tests.upstream.scripted_server import LEGACY, MODERN, failed, soon, spec

TAKES = {"resources": {"subscribe": True}}
TELLS = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": False},
    "resources": {"listChanged": True},
}
DONE = McpResponse(b"{}")


class ListeningTransport:
    """Takes subscriptions; a `subscriptions/listen` lasts until it is ended."""

    pid = None
    limits = None

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        # The filters of the subscriptions that last.
        self.listening: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.ended: asyncio.Future[McpResponse] = asyncio.get_running_loop().create_future()
        self.answer: Callable[[str], McpResponse] = lambda _: DONE

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        params = json.loads(outgoing.params)
        params.pop("_meta", None)
        self.asked.append((outgoing.method, params))
        if outgoing.method != "subscriptions/listen":
            return self.answer(outgoing.method)
        self.listening.append(params["notifications"])
        self.most_at_once = max(self.most_at_once, len(self.listening))
        try:
            return await asyncio.shield(self.ended)
        finally:
            self.listening.remove(params["notifications"])

    async def send_notification(self, message: bytes) -> None:
        raise AssertionError("nothing is told here")

    def set_protocol_version(self, version: str) -> None:
        raise AssertionError("it is agreed on already")

    async def wait_lost(self) -> str:
        raise AssertionError("nobody waits for it here")


class Post:
    """Subscriptions and the server that they are kept at."""

    def __init__(self, version: str = LEGACY, capabilities: dict[str, Any] = TAKES) -> None:
        self.transport = ListeningTransport()
        self.peer = McpPeer(
            spec(), self.transport, NegotiationResult(version, json.dumps(capabilities).encode())
        )
        self.subscriptions = ResourceSubscriptions()

    async def add(self, uri: str = "a:/1") -> McpResponse:
        return await self.subscriptions.add(uri, self.peer)

    async def remove(self, uri: str = "a:/1") -> McpResponse:
        return await self.subscriptions.remove(uri, self.peer)

    def methods(self) -> list[str]:
        return [method.removeprefix("resources/") for method, _ in self.transport.asked]

    async def listening(self) -> "asyncio.Task[None]":
        """A subscription of the stateless era that is held."""
        task = asyncio.create_task(self.subscriptions.listen(self.peer))
        await settle()
        return task


# The handshake era.


@virtual_time
async def test_the_first_subscribes_and_the_last_one_unsubscribes() -> None:
    post = Post()
    for _ in range(3):
        assert await post.add() == DONE
    for _ in range(2):
        assert await post.remove() == DONE
    assert post.methods() == ["subscribe"]
    await post.remove()
    assert post.methods() == ["subscribe", "unsubscribe"]
    assert post.transport.asked[1][1] == {"uri": "a:/1"}


@virtual_time
async def test_who_never_subscribed_does_not_take_it_from_the_others() -> None:
    post = Post()
    await post.add()
    assert await post.remove("a:/2") == DONE
    assert post.methods() == ["subscribe"]


@virtual_time
async def test_a_subscription_that_the_server_refuses_is_none() -> None:
    post = Post()
    post.transport.answer = lambda _: failed(-32002)
    assert (await post.add()).error
    assert await post.remove() == DONE
    post.transport.answer = lambda _: DONE
    await post.add()
    assert post.methods() == ["subscribe", "subscribe"]


@pytest.mark.parametrize(
    "error", [UpstreamSessionExpired(), UpstreamLost("bank", "resources/subscribe", "it ended")]
)
@virtual_time
async def test_a_subscription_that_did_not_get_through_is_none(error: Exception) -> None:
    post = Post()

    def fail(_: str) -> McpResponse:
        raise error

    post.transport.answer = fail
    with pytest.raises(type(error)):
        await post.add()
    post.transport.answer = lambda _: DONE
    await post.add()
    assert post.methods() == ["subscribe", "subscribe"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@virtual_time
async def test_a_server_that_takes_no_subscriptions_is_not_asked(version: str) -> None:
    post = Post(version, {"resources": {"subscribe": False}})
    answer = await post.add()
    assert json.loads(answer.error)["code"] == -32601
    assert post.transport.asked == []


@virtual_time
async def test_a_new_connection_is_subscribed_to_all_that_is_wanted() -> None:
    post = Post()
    for uri in ("a:/1", "a:/2", "a:/2", "a:/3"):
        await post.add(uri)
    await post.remove("a:/3")
    post.transport.asked.clear()
    await post.subscriptions.restore(post.peer)
    assert post.transport.asked == [
        ("resources/subscribe", {"uri": "a:/1"}),
        ("resources/subscribe", {"uri": "a:/2"}),
    ]


@virtual_time
async def test_a_resource_that_is_gone_after_a_restart_does_not_cost_the_others() -> None:
    post = Post()
    for uri in ("a:/1", "a:/2"):
        await post.add(uri)
    post.transport.asked.clear()
    post.transport.answer = lambda _: failed(-32002)
    await post.subscriptions.restore(post.peer)
    assert len(post.transport.asked) == 2


@virtual_time
async def test_leaving_while_the_server_is_away_is_remembered() -> None:
    post = Post()
    await post.add()
    assert await post.subscriptions.remove("a:/1", None) == DONE
    await post.subscriptions.restore(post.peer)
    assert post.methods() == ["subscribe"]


# The stateless era.


@virtual_time
async def test_a_stateless_server_is_asked_for_the_changes_that_it_tells() -> None:
    post = Post(MODERN, TELLS)
    task = await post.listening()
    assert post.transport.listening == [{"toolsListChanged": True, "resourcesListChanged": True}]
    task.cancel()


@virtual_time
async def test_a_server_that_tells_nothing_is_not_listened_to_until_somebody_wants_something() -> None:
    post = Post(MODERN, TAKES)
    task = await post.listening()
    assert post.transport.asked == []
    await post.add()
    await settle()
    assert post.transport.listening == [{"resourceSubscriptions": ["a:/1"]}]
    task.cancel()


@virtual_time
async def test_another_wish_is_listened_to_before_the_old_subscription_ends() -> None:
    post = Post(MODERN, TAKES)
    task = await post.listening()
    await post.add("a:/1")
    await settle()
    await post.add("a:/2")
    await settle()
    assert len(post.transport.listening) == 2, "nothing may be missed in between"
    post.subscriptions.acknowledge()
    await settle()
    assert post.transport.listening == [{"resourceSubscriptions": ["a:/1", "a:/2"]}]
    task.cancel()


@virtual_time
async def test_a_server_that_acknowledges_nothing_does_not_keep_the_old_subscription() -> None:
    post = Post(MODERN, TAKES | TELLS | {"resources": {"subscribe": True}})
    task = await post.listening()
    await post.add()
    await settle()
    assert len(post.transport.listening) == 2
    await soon(lambda: len(post.transport.listening) == 1)
    assert "resourceSubscriptions" in post.transport.listening[0]
    task.cancel()


@virtual_time
async def test_a_wish_while_the_subscription_is_being_replaced_is_not_missed() -> None:
    post = Post(MODERN, TAKES)
    task = await post.listening()
    for uri in ("a:/1", "a:/2", "a:/3"):
        await post.add(uri)
        await settle()
    await asyncio.sleep(10)
    assert post.transport.listening == [{"resourceSubscriptions": ["a:/1", "a:/2", "a:/3"]}]
    assert post.transport.most_at_once == 2
    task.cancel()


@virtual_time
async def test_the_last_wish_that_goes_ends_the_subscription() -> None:
    post = Post(MODERN, TAKES)
    task = await post.listening()
    await post.add()
    await settle()
    await post.remove()
    await asyncio.sleep(10)
    assert post.transport.listening == []
    assert not task.done()
    task.cancel()


@virtual_time
async def test_a_second_wish_for_the_same_resource_changes_nothing() -> None:
    post = Post(MODERN, TAKES)
    task = await post.listening()
    await post.add()
    await settle()
    await post.add()
    await post.remove()
    await asyncio.sleep(10)
    assert len(post.transport.asked) == 1
    task.cancel()


@virtual_time
async def test_a_subscription_that_the_server_ends_is_over() -> None:
    post = Post(MODERN, TELLS)
    task = await post.listening()
    post.transport.ended.set_result(DONE)
    await task
    assert not background()


@virtual_time
async def test_a_subscription_that_is_lost_while_it_is_replaced_is_over_too() -> None:
    post = Post(MODERN, TELLS | {"resources": {"subscribe": True}})
    task = await post.listening()
    await post.add()
    await settle()
    post.transport.ended.set_exception(UpstreamLost("bank", "subscriptions/listen", "it ended"))
    with pytest.raises(UpstreamLost):
        await task
    await settle()
    assert not background()


@virtual_time
async def test_who_stops_listening_in_the_middle_leaves_nothing_behind() -> None:
    post = Post(MODERN, TELLS | {"resources": {"subscribe": True}})
    task = await post.listening()
    await post.add()
    await settle()
    task.cancel()
    await settle()
    assert post.transport.listening == []
    assert not background()
