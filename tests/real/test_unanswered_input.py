"""A client that leaves input requests unanswered does not hold up other clients."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, http_server, lines_of, whole_command
from testkit.waiting import wait_until
from tests.real.answering_clients import Person

START_SECONDS = 30.0
NOTICE_SECONDS = 10.0
MOST_CONNECTIONS = 3
# More than the server has connections for.
UNANSWERED = 8


@dataclass(frozen=True)
class Town:
    """A gateway in front of a handshake server with few connections, and the journal of the server."""

    gateway: GatewayProcess
    journal: Path

    def over(self, text: str) -> bool:
        """Whether the server works on the call no longer."""
        return bool({f"finished ask {text}", f"cancelled ask {text}"} & set(lines_of(self.journal)))


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    journal = tmp_path / "old.journal"
    with ExitStack() as stack:
        url = stack.enter_context(http_server(whole_command("legacy", "old", journal)))
        # Calls wait for a connection for as long as their timeout.
        entry = {"url": url, "maxConnections": MOST_CONNECTIONS, "timeout": 5}
        gateway = stack.enter_context(
            running_gateway(configuration({"old": entry}), tmp_path, start_seconds=START_SECONDS)
        )
        gateway.wait_until_ready("old", seconds=START_SECONDS)
        yield Town(gateway, journal)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_others_are_asked_and_served_while_a_stateless_client_never_answers(
    town: Town, era: str
) -> None:
    hoarder = Stateless(town.gateway.url, ANSWERS_ALL)
    texts = [uuid4().hex for _ in range(UNANSWERED)]
    asked = [hoarder.call("old_ask", {"text": text})["result"] for text in texts]
    assert [result["resultType"] for result in asked] == ["input_required"] * UNANSWERED

    person = Person("Ann", town.gateway.url, era)
    async with person.client:
        assert await person.call("old_echo", text="asks nothing") == "asks nothing"
        assert await person.call("old_ask", text="who") == "who: Ann"

    wait_until(lambda: town.over(texts[0]), NOTICE_SECONDS, "the server is told that the oldest call is over")
    failure = came_back(hoarder, texts[0], asked[0])["result"]
    assert failure["isError"]
    told = failure["_meta"]["io.headgate/error"]
    assert (told["code"], told["effect"], told["retryable"]) == ("RESOURCE_EXHAUSTED", "unknown", False)
    assert "input" in failure["content"][0]["text"]


async def test_the_newest_call_of_the_silent_client_can_still_be_answered(town: Town) -> None:
    hoarder = Stateless(town.gateway.url, ANSWERS_ALL)
    asked = [hoarder.call("old_ask", {"text": f"call {number}"})["result"] for number in range(UNANSWERED)]

    answer = came_back(hoarder, f"call {UNANSWERED - 1}", asked[-1])["result"]

    assert answer["content"][0]["text"] == f"call {UNANSWERED - 1}: Raw"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_others_are_asked_and_served_while_sessions_never_answer(town: Town, era: str) -> None:
    silent = [Handshaker(town.gateway.url, ANSWERS_ALL) for _ in range(MOST_CONNECTIONS)]
    streams = [client.call("old_ask", text=f"session {number}") for number, client in enumerate(silent)]
    for stream in streams:
        stream.until("elicitation/create")

    person = Person("Ann", town.gateway.url, era)
    async with person.client:
        assert await person.call("old_echo", text="asks nothing") == "asks nothing"
        assert await person.call("old_ask", text="who") == "who: Ann"

    failure = streams[0].answer()["result"]
    assert failure["_meta"]["io.headgate/error"]["code"] == "RESOURCE_EXHAUSTED"
    for stream in streams:
        stream.close()


def came_back(client: Stateless, text: str, asked: Message) -> Message:
    """The answer to the same request with the input that was asked for."""
    (key,) = asked["inputRequests"]
    responses = {key: {"action": "accept", "content": {"name": "Raw"}}}
    return client.call(
        "old_ask", {"text": text}, requestState=asked["requestState"], inputResponses=responses
    )
