"""A change at a server reaches exactly the clients that subscribed to it, in either era."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import mcp_types as types
import pytest
import pytest_asyncio
from mcp.client.client import Client
from mcp.client.subscriptions import ResourceUpdated

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless, Stream
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.parts import Parts
from testkit.upstreams import configuration, http_server, lines_of, stdio_entry, whole_command
from testkit.waiting import eventually, wait_until
from tests.real.answering_clients import Company
from tests.real.mcp_clients import ANSWER_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
OWN = ("old", "new")
UPDATED = "notifications/resources/updated"
LOG = "notifications/message"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


@dataclass(frozen=True)
class Square:
    """A gateway in front of a server of each era, and what reached them."""

    gateway: GatewayProcess
    journals: dict[str, Path]

    def subscribed(self, server: str, uri: str) -> list[str]:
        """What a handshake server received about the resource, in order."""
        told = (line.split() for line in lines_of(self.journals[server]))
        return [words[0] for words in told if words[0].endswith("subscribe") and words[1] == uri]

    def withdrawn(self, server: str, uri: str) -> bool:
        """Whether the server need not tell of the resource any more, although it once had to."""
        if server == "old":
            return self.subscribed(server, uri)[-1:] == ["unsubscribe"]
        listens = [line.split() for line in lines_of(self.journals[server]) if line.startswith("listen")]
        return any(uri in words for words in listens) and uri not in listens[-1]


@pytest.fixture(scope="module")
def square(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Square]:
    place = tmp_path_factory.mktemp("square")
    eras = {"old": "legacy", "new": "modern"}
    journals = {name: place / f"{name}.journal" for name in OWN}
    everything = [str(parts.node), str(parts.npm_bin("mcp-server-everything")), "stdio"]
    with ExitStack() as stack:
        servers: dict[str, Any] = {
            name: {"url": stack.enter_context(http_server(whole_command(era, name, journals[name])))}
            for name, era in eras.items()
        }
        servers["every"] = stdio_entry(everything)
        gateway = stack.enter_context(
            running_gateway(configuration(servers), place, start_seconds=START_SECONDS)
        )
        gateway.wait_until_ready(*servers, seconds=START_SECONDS)
        yield Square(gateway, journals)


@pytest.fixture(params=OWN)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def uri(server: str) -> str:
    """A resource that no other test has heard of."""
    return f"{server}://room/{uuid4().hex}"


def touch(client: Handshaker, uri: str) -> None:
    name = f"{uri.partition(':')[0]}_touch"
    result = client.ask("tools/call", {"name": name, "arguments": {"text": uri}})["result"]
    assert not result.get("isError"), result


def updated(stream: Stream) -> str:
    uri: str = stream.until(UPDATED)["params"]["uri"]
    return uri


# Single resources.


async def test_two_clients_are_one_subscription_of_the_server(square: Square, server: str, uri: str) -> None:
    ann, bob = Handshaker(square.gateway.url), Handshaker(square.gateway.url)
    with ann.listening() as of_ann, bob.listening() as of_bob:
        for client in (ann, bob, ann):
            assert client.ask("resources/subscribe", {"uri": uri})["result"] == {}
        touch(ann, uri)
        assert updated(of_ann) == updated(of_bob) == uri

        assert ann.ask("resources/unsubscribe", {"uri": uri})["result"] == {}
        other = f"{uri}-other"
        assert ann.ask("resources/subscribe", {"uri": other})["result"] == {}
        for one in (uri, other):
            touch(bob, one)
        assert updated(of_bob) == uri
        # The first one is none of its business any more.
        assert updated(of_ann) == other
        ann.leave()
        assert not square.withdrawn(server, uri)
        assert bob.ask("resources/unsubscribe", {"uri": uri})["result"] == {}
        wait_until(lambda: square.withdrawn(server, uri), NOTICE_SECONDS, "the server is told")
        bob.leave()
    if server == "old":
        assert square.subscribed(server, uri) == ["subscribe", "unsubscribe"]


async def test_a_client_that_leaves_is_subscribed_to_nothing(square: Square, server: str, uri: str) -> None:
    ann = Handshaker(square.gateway.url)
    assert ann.ask("resources/subscribe", {"uri": uri})["result"] == {}

    ann.leave()

    wait_until(lambda: square.withdrawn(server, uri), NOTICE_SECONDS, "the server is told")


async def test_a_stateless_client_hears_of_the_resources_that_it_listens_to(
    square: Square, server: str, uri: str
) -> None:
    raw = Handshaker(square.gateway.url)
    other = f"{uri}-other"
    async with Client(square.gateway.url, mode="auto", read_timeout_seconds=ANSWER_SECONDS) as client:
        async with client.listen(resource_subscriptions=[other]) as subscription:
            for one in (uri, other):
                touch(raw, one)
            async with asyncio.timeout(ANSWER_SECONDS):
                assert await anext(subscription) == ResourceUpdated(uri=other)
        await eventually(lambda: square.withdrawn(server, other), NOTICE_SECONDS, "the server is told")
    raw.leave()


async def test_only_subscriptions_that_a_server_has_taken_are_acknowledged(square: Square) -> None:
    client = Stateless(square.gateway.url)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["nowhere://at/all", "old://one"]}
    stream = client.begin("subscriptions/listen", {"notifications": wanted})
    acknowledged = stream.until("notifications/subscriptions/acknowledged")["params"]
    stream.close()

    assert acknowledged["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["old://one"]}


@pytest.mark.parametrize("declared", [{}, ANSWERS_ALL], ids=["shared connection", "own connection"])
async def test_updates_of_a_real_server_arrive(square: Square, declared: dict[str, Any]) -> None:
    client = Handshaker(square.gateway.url, declared)
    resource = "demo://resource/static/document/architecture.md"
    toggle = {"name": "every_toggle_subscriber_updates", "arguments": {}}
    with client.listening() as stream:
        assert client.ask("resources/subscribe", {"uri": resource})["result"] == {}
        assert "Started" in client.ask("tools/call", toggle)["result"]["content"][0]["text"]
        assert updated(stream) == resource
        assert "Stopped" in client.ask("tools/call", toggle)["result"]["content"][0]["text"]
    client.leave()


# Lists.


@asynccontextmanager
async def watching(client: Client, news: "asyncio.Queue[str]") -> AsyncIterator[None]:
    """Hear of every list: a client of the modern era must say that it wants to."""
    if client.mode == "legacy":
        yield
        return
    every = client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
    async with every as subscription:

        async def pass_on() -> None:
            async for event in subscription:
                news.put_nowait(type(event).__name__)

        passing = asyncio.create_task(pass_on())
        yield
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)


async def names(client: Client, kind: str) -> list[str]:
    match kind:
        case "tools":
            return [one.name for one in (await client.list_tools(cache_mode="bypass")).tools]
        case "prompts":
            return [one.name for one in (await client.list_prompts(cache_mode="bypass")).prompts]
        case _:
            return [str(one.uri) for one in (await client.list_resources(cache_mode="bypass")).resources]


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
@pytest.mark.parametrize("able", [False, True], ids=["plain", "can be asked"])
async def test_a_change_of_a_list_is_told_to_clients_of_both_eras(
    square: Square, company: Company, server: str, kind: str, *, able: bool
) -> None:
    grown = f"{server}://{uuid4().hex}" if kind == "resources" else f"g{uuid4().hex[:12]}"
    public = grown if kind == "resources" else f"{server}_{grown}"
    queues: list[asyncio.Queue[str]] = [asyncio.Queue(), asyncio.Queue()]

    async with AsyncExitStack() as stack:
        clients = []
        for mode, news in zip(("legacy", "auto"), queues, strict=True):
            client = Client(
                square.gateway.url,
                mode=mode,
                read_timeout_seconds=ANSWER_SECONDS,
                message_handler=noting(news),
                elicitation_callback=decline if able else None,
            )
            clients.append(await stack.enter_async_context(client))
            await names(client, kind)
            await stack.enter_async_context(watching(client, news))
        await clients[0].call_tool(f"{server}_grow_{kind}", {"text": grown})
        for client, news in zip(clients, queues, strict=True):
            async with asyncio.timeout(ANSWER_SECONDS):
                while public not in await names(client, kind):
                    await news.get()


async def decline(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


def noting(news: "asyncio.Queue[str]") -> Any:
    async def note(message: Any) -> None:
        method = getattr(message, "method", "")
        if method.endswith("list_changed"):
            news.put_nowait(method)

    return note


# Log messages.


def logged(stream: Stream) -> list[tuple[str, str]]:
    """The log messages that came before the answer."""
    messages: list[tuple[str, str]] = []
    while (message := stream.next()) is not None and "method" in message:
        if message["method"] == LOG:
            messages.append((message["params"]["level"], message["params"]["data"]))
    stream.close()
    return messages


@pytest.mark.parametrize("declared", [{}, ANSWERS_ALL], ids=["plain", "can be asked"])
async def test_each_handshake_client_gets_the_log_messages_that_it_asked_for(
    square: Square, server: str, declared: Message
) -> None:
    strict, curious = Handshaker(square.gateway.url, declared), Handshaker(square.gateway.url, declared)
    assert strict.ask("logging/setLevel", {"level": "error"})["result"] == {}
    assert curious.ask("logging/setLevel", {"level": "info"})["result"] == {}
    with strict.listening() as unasked:
        for _ in range(2):
            assert logged(strict.call(f"{server}_log", text="a")) == [("error", "error of a")]
            assert logged(curious.call(f"{server}_log", text="b")) == [
                ("info", "info of b"),
                ("warning", "warning of b"),
                ("error", "error of b"),
            ]
        # Nothing of the others has come meanwhile: this is the first thing that does.
        assert strict.ask("resources/subscribe", {"uri": f"{server}://one"})["result"] == {}
        touch(strict, f"{server}://one")
        first = unasked.next()
        assert first is not None
        assert first["method"] == UPDATED
    strict.leave()
    curious.leave()


async def test_a_level_that_does_not_exist_is_refused(square: Square) -> None:
    client = Handshaker(square.gateway.url)

    assert client.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602
    client.leave()


@pytest.mark.parametrize("declared", [{}, ANSWERS_ALL], ids=["plain", "can be asked"])
async def test_a_stateless_client_gets_log_messages_for_the_requests_that_ask_for_them(
    square: Square, server: str, declared: Message
) -> None:
    client = Stateless(square.gateway.url, declared)
    call = {"name": f"{server}_log", "arguments": {"text": "c"}}

    for _ in range(2):
        wanted = client.begin("tools/call", call | {"_meta": {LOG_LEVEL: "warning"}})
        assert logged(wanted) == [("warning", "warning of c"), ("error", "error of c")]
        assert logged(client.begin("tools/call", call)) == []
    refused = client.ask("tools/call", call | {"_meta": {LOG_LEVEL: "loud"}})
    assert refused["error"]["code"] == -32602


# Progress, also where a client has connections of its own.


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(square: Square) -> AsyncIterator[Company]:
    people = Company(square.gateway.url)
    yield people
    await people.leave()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_progress_reaches_clients_that_can_be_asked(company: Company, server: str, era: str) -> None:
    ann = await company.person("Ann", era)

    async def walk(text: str) -> list[tuple[float, float | None, str | None]]:
        steps: list[tuple[float, float | None, str | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        await ann.client.call_tool(f"{server}_steps", {"text": text}, progress_callback=note)
        return steps

    walks = await asyncio.gather(*map(walk, "abc"))

    assert walks == [[(step, 3, f"{text} {step}") for step in (1, 2, 3)] for text in "abc"]
