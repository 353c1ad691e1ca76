"""A client carries on as before after its gateway, its server or its session was gone for a while."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp_types import TextResourceContents

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stream
from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.parts import Parts
from testkit.procfs import descendants, still_alive
from testkit.upstreams import configuration, http_server, stdio_entry, whole_command
from testkit.waiting import eventually, wait_until
from tests.real.answering_clients import Person

START_SECONDS = 30.0
NOTICE_SECONDS = 15.0
NAME = {"action": "accept", "content": {"name": "Raw"}}
UPDATED = "notifications/resources/updated"
REVIVED = 'headgate_sessions_revived_total{{reason="{}"}}'


class Street:
    """A server of each era on HTTP; each can be started anew, and then knows nothing of what was."""

    def __init__(self, place: Path) -> None:
        self._commands = {
            "old": whole_command("legacy", "old", place / "old.journal"),
            "new": whole_command("modern", "new", place / "new.journal"),
        }
        self._ports = {name: free_port() for name in self._commands}
        self._lives = {name: ExitStack() for name in self._commands}
        self.entries = {name: {"url": f"http://127.0.0.1:{port}/mcp"} for name, port in self._ports.items()}
        for name in self._commands:
            self._start(name)

    def restart(self, name: str) -> None:
        self._lives[name].close()
        self._start(name)

    def _start(self, name: str) -> None:
        self._lives[name].enter_context(http_server(self._commands[name], port=self._ports[name]))

    def close(self) -> None:
        for life in self._lives.values():
            life.close()


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    street = Street(tmp_path_factory.mktemp("street"))
    yield street
    street.close()


class GatewayRestarter:
    """Runs one gateway after the other, each at the same address and with what the one before has kept."""

    def __init__(self, config: dict[str, Any], directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._port = free_port()
        self._lives = ExitStack()
        self.gateway = self._start()

    def restart(self, sign: signal.Signals) -> None:
        """End the gateway, and start the next one."""
        if sign is signal.SIGKILL:
            self.gateway.kill()
        else:
            assert self.gateway.stop() == 0
        self.gateway = self._start()

    def _start(self) -> GatewayProcess:
        # As a client finds it that comes back at once, while servers are still starting.
        settings: dict[str, Any] = {"wait_for_servers": False, "start_seconds": START_SECONDS}
        running = running_gateway(self._config, self._directory, port=self._port, **settings)
        return self._lives.enter_context(running)

    def counted(self, metric: str) -> float:
        return self.gateway.metrics().get(metric, 0.0)

    def close(self) -> None:
        self._lives.close()


@pytest.fixture(scope="module")
def the_restarter(
    street: Street, parts: Parts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayRestarter]:
    everything = [str(parts.node), str(parts.npm_bin("mcp-server-everything")), "stdio"]
    config = configuration(street.entries | {"every": stdio_entry(everything)})
    supervisor = GatewayRestarter(config, tmp_path_factory.mktemp("gateway"))
    yield supervisor
    supervisor.close()


@pytest.fixture
def restarter(the_restarter: GatewayRestarter) -> GatewayRestarter:
    the_restarter.gateway.wait_until_ready("old", "new", "every", seconds=START_SECONDS)
    return the_restarter


async def everything_works(person: Person) -> None:
    """Calls, questions, prompts and resources of every server, none of which fails."""
    read = await person.client.read_resource("old://one")
    assert isinstance(read.contents[0], TextResourceContents)
    assert read.contents[0].text == "old has old://one"
    assert (await person.client.get_prompt("new_greet", {"who": "me"})).messages
    for server in ("old", "new"):
        text = uuid4().hex
        assert await person.call(f"{server}_echo", text=text) == text
        assert await person.call(f"{server}_ask", text=text) == f"{text}: {person.name}"
    assert await person.call("every_echo", message="hello") == "Echo: hello"
    assert f"- Name: {person.name}" in await person.call("every_trigger_elicitation_request")


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_clients_carry_on_after_the_gateway_was_restarted(
    restarter: GatewayRestarter, sign: signal.Signals
) -> None:
    ann = Person("Ann", restarter.gateway.url, "legacy")
    bob = Person("Bob", restarter.gateway.url, "modern")
    async with ann.client, bob.client:
        await asyncio.gather(everything_works(ann), everything_works(bob))

        await asyncio.to_thread(restarter.restart, sign)

        await asyncio.gather(everything_works(ann), everything_works(bob))
        # The other one has no session.
        assert restarter.counted(REVIVED.format("restart")) == 1
        assert restarter.counted(REVIVED.format("idle")) == 0


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_what_a_client_asked_to_hear_of_outlives_the_gateway(
    restarter: GatewayRestarter, sign: signal.Signals
) -> None:
    client = Handshaker(restarter.gateway.url)
    settle(client)
    assert hears(client)
    wait_until(lambda: kept(restarter.gateway), NOTICE_SECONDS, "it is written down")

    restarter.restart(sign)

    with client.listening() as stream:
        assert missed(stream) == {"old://one", "new://one"}
    assert hears(client)
    client.leave()


def kept(gateway: GatewayProcess) -> bool:
    """Whether the next gateway would know what a client asked for: that is written within a second or two."""
    state = gateway.data_dir / "state.json"
    standings = json.loads(state.read_bytes()).get("standings", {}) if state.exists() else {}
    return ["error", ["new://one", "old://one"]] in standings.values()


def settle(client: Handshaker) -> None:
    """Ask for log messages and for news of one resource of each server."""
    assert "result" in client.ask("logging/setLevel", {"level": "error"})
    for uri in ("old://one", "new://one"):
        assert "result" in client.ask("resources/subscribe", {"uri": uri}), uri


def hears(client: Handshaker) -> bool:
    """Whether the client gets updates, and log messages of the level it set."""
    with client.listening() as stream:
        for server in ("old", "new"):
            touch(client, f"{server}://one")
            # A client with a connection of its own may hear of an update on both.
            while stream.until(UPDATED)["params"]["uri"] != f"{server}://one":
                pass
    for server in ("old", "new"):
        call = client.call(f"{server}_log", text="tides")
        messages = list(rest(call))
        call.close()
        logged = [one["params"] for one in messages if one.get("method") == "notifications/message"]
        assert [(one["level"], one["data"]) for one in logged] == [("error", "error of tides")], server
    return True


def missed(stream: Stream) -> set[str]:
    """The resources whose changes may have been missed meanwhile."""
    updates = (stream.until(UPDATED) for _ in range(2))
    return {update["params"]["uri"] for update in updates}


def touch(client: Handshaker, uri: str) -> None:
    answer = client.ask("tools/call", {"name": f"{uri.partition(':')[0]}_touch", "arguments": {"text": uri}})
    assert not answer["result"].get("isError"), answer


def rest(stream: Stream) -> Iterator[Message]:
    while (message := stream.next()) is not None:
        yield message


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_clients_carry_on_after_a_child_was_killed(restarter: GatewayRestarter, era: str) -> None:
    gateway, restarts = restarter.gateway, 'headgate_upstream_restarts_total{server="every"}'
    before = restarter.counted(restarts)
    ann = Person("Ann", gateway.url, era)
    async with ann.client:
        await everything_works(ann)

        # Its own connection to the server is a child of its own.
        children = descendants(gateway.pid)
        assert len(children) >= 2
        for child in children:
            os.kill(child, signal.SIGKILL)
        await eventually(lambda: not still_alive(children), NOTICE_SECONDS, "the children are gone")

        await everything_works(ann)
        assert restarter.counted(restarts) == before + 1


@pytest.mark.parametrize("server", ["old", "new"])
async def test_clients_carry_on_after_a_remote_server_was_restarted(
    restarter: GatewayRestarter, street: Street, server: str
) -> None:
    url, uri = restarter.gateway.url, f"{server}://one"
    restarts = f'headgate_upstream_restarts_total{{server="{server}"}}'
    before = restarter.counted(restarts)
    people, raw = (Person("Ann", url, "legacy"), Person("Bob", url, "modern")), Handshaker(url)
    async with people[0].client, people[1].client:
        for person in people:
            assert await person.call(f"{server}_ask", text="before") == f"before: {person.name}"
        assert "result" in raw.ask("resources/subscribe", {"uri": uri})
        with raw.listening() as stream:
            touch(raw, uri)
            assert stream.until(UPDATED)["params"]["uri"] == uri

            await asyncio.to_thread(street.restart, server)

            for person in people:
                assert await person.call(f"{server}_ask", text="after") == f"after: {person.name}"
            # It may have changed meanwhile.
            assert stream.until(UPDATED)["params"]["uri"] == uri
            touch(raw, uri)
            assert stream.until(UPDATED)["params"]["uri"] == uri
    raw.leave()
    # A stateless server has no session to lose, so no client reconnects.
    if server == "old":
        assert restarter.counted(restarts) == before + 1


def test_clients_carry_on_after_their_session_was_forgotten(street: Street, tmp_path: Path) -> None:
    config = configuration(street.entries, sessionIdleSeconds=0.1)
    with running_gateway(config, tmp_path, start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready("old", "new", seconds=START_SECONDS)
        client = Handshaker(gateway.url, ANSWERS_ALL)
        settle(client)
        assert answers(client, "old")
        assert answers(client, "new")

        wait_until(lambda: gateway.metrics()["headgate_sessions"] == 0, NOTICE_SECONDS, "it is forgotten")

        assert answers(client, "old")
        assert answers(client, "new")
        with client.listening() as stream:
            assert missed(stream) == {"old://one", "new://one"}
        assert hears(client)
        assert gateway.metrics()[REVIVED.format("idle")] == 1
        assert gateway.metrics()[REVIVED.format("restart")] == 0


def answers(client: Handshaker, server: str) -> bool:
    """Whether a question of the server reaches the client, and its answer the call."""
    text = uuid4().hex
    stream = client.call(f"{server}_ask", text=text)
    client.reply(stream.until("elicitation/create"), result=NAME)
    told: str = stream.answer()["result"]["content"][0]["text"]
    stream.close()
    return told == f"{text}: Raw"


def test_a_session_that_its_client_ended_stays_ended(restarter: GatewayRestarter) -> None:
    client = Handshaker(restarter.gateway.url)
    client.leave()

    stream = client.begin("tools/list", {})

    assert stream.status == 404
    stream.close()


@pytest.mark.parametrize("server", ["old", "new"])
def test_a_stream_that_broke_off_is_taken_up_where_it_stopped(
    restarter: GatewayRestarter, server: str
) -> None:
    before = restarter.counted("headgate_streams_resumed_total")
    client = Handshaker(restarter.gateway.url, ANSWERS_ALL)
    stream = client.call(f"{server}_ask_twice", text="bridge")
    first = stream.until("elicitation/create")
    stream.close()
    # Answered while no stream is open: what follows waits for the client.
    client.reply(first, result=NAME)

    with client.listening(stream.last_id) as again:
        second = again.until("sampling/createMessage")
        client.reply(
            second,
            result={"role": "assistant", "model": "m", "content": {"type": "text", "text": "thought"}},
        )
        answer = again.answer()

    assert answer["result"]["content"][0]["text"] == "bridge: Raw, thought"
    assert restarter.counted("headgate_streams_resumed_total") == before + 1
    client.leave()


def test_an_answer_that_came_while_the_client_was_away_is_kept(restarter: GatewayRestarter) -> None:
    calls = 'headgate_calls_total{server="old",outcome="ok"}'
    before = restarter.counted(calls)
    client = Handshaker(restarter.gateway.url, ANSWERS_ALL)
    stream = client.call("old_ask", text="away")
    question = stream.until("elicitation/create")
    place = stream.last_id
    stream.close()
    client.reply(question, result=NAME)
    wait_until(lambda: restarter.counted(calls) == before + 1, NOTICE_SECONDS, "the call is answered")

    for _ in range(2):
        with client.listening(place) as again:
            assert again.answer()["result"]["content"][0]["text"] == "away: Raw"
    client.leave()
