"""The `requestState` that a stateless client hands back: changed or borrowed, it does nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headgate.storage.files.sealer import Sealer, load_seal_key
from testkit.clients.streaming_http import ANSWERS_ALL, Handshaker, Message, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, http_server, lines_of, whole_command

START_SECONDS = 30.0
OWN = ("old", "new")
INVALID_PARAMS = -32602


@dataclass(frozen=True)
class Town:
    """Two gateways in front of a server of each era, and the journals of the servers."""

    gateway: GatewayProcess
    other: GatewayProcess
    journals: dict[str, Path]

    def finished(self, server: str, text: str) -> int:
        return lines_of(self.journals[server]).count(f"finished ask {text}")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    place = tmp_path_factory.mktemp("reminders")
    eras = {"old": "legacy", "new": "modern"}
    journals = {name: place / f"{name}.journal" for name in OWN}
    with ExitStack() as stack:
        servers = {
            name: {"url": stack.enter_context(http_server(whole_command(era, name, journals[name])))}
            for name, era in eras.items()
        }
        one, two = (
            stack.enter_context(
                running_gateway(configuration(servers), place / name, start_seconds=START_SECONDS)
            )
            for name in ("one", "two")
        )
        for gateway in (one, two):
            gateway.wait_until_ready(*OWN, seconds=START_SECONDS)
        yield Town(one, two, journals)


@dataclass(frozen=True)
class Asked:
    """A call whose client has been asked, and has not answered."""

    client: Stateless
    server: str
    text: str
    state: str
    key: str

    def come_back(self, state: Any = None, **changes: Any) -> Message:
        """Call again with an answer, and whatever is changed."""
        name = {"action": "accept", "content": {"name": "Raw"}}
        params: Message = {"name": f"{self.server}_ask", "arguments": {"text": self.text}}
        params |= {"requestState": self.state if state is None else state, "inputResponses": {self.key: name}}
        return self.client.ask("tools/call", params | changes)


@pytest.fixture(params=OWN)
def asked(town: Town, request: pytest.FixtureRequest) -> Asked:
    return ask(town.gateway, request.param)


def ask(gateway: GatewayProcess, server: str) -> Asked:
    client, text = Stateless(gateway.url, ANSWERS_ALL), uuid4().hex
    result = client.call(f"{server}_ask", {"text": text})["result"]
    assert result["resultType"] == "input_required", result
    ((key, question),) = result["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == text
    return Asked(client, server, text, result["requestState"], key)


def test_the_state_as_it_was_given_finishes_the_call(town: Town, asked: Asked) -> None:
    result = asked.come_back()["result"]

    assert result["content"][0]["text"] == f"{asked.text}: Raw"
    assert town.finished(asked.server, asked.text) == 1


def other_letter(state: str) -> str:
    middle = len(state) // 2
    return state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        other_letter,
        lambda state: state[:-4],
        lambda state: state + "AAAA",
        lambda state: "",
        lambda state: "e30",
        lambda state: {"state": state},
        lambda state: 7,
    ],
    ids=["other letter", "cut", "longer", "empty", "made up", "object", "number"],
)
def test_a_state_that_was_changed_is_refused(town: Town, asked: Asked, change: Callable[[str], Any]) -> None:
    answer = asked.come_back(change(asked.state))

    assert answer["error"]["code"] == INVALID_PARAMS
    assert town.finished(asked.server, asked.text) == 0
    # The true one is as good as before.
    assert "result" in asked.come_back()


def test_a_state_is_good_once(town: Town, asked: Asked) -> None:
    assert "result" in asked.come_back()

    assert asked.come_back()["error"]["code"] == INVALID_PARAMS
    assert town.finished(asked.server, asked.text) == 1


@pytest.mark.parametrize("change", ["arguments", "tool", "server"])
def test_a_state_is_good_for_its_own_request_only(town: Town, asked: Asked, change: str) -> None:
    other = "new" if asked.server == "old" else "old"
    changed: dict[str, Message] = {
        "arguments": {"arguments": {"text": f"{asked.text}!"}},
        "tool": {"name": f"{asked.server}_ask_model"},
        "server": {"name": f"{other}_ask"},
    }

    assert asked.come_back(**changed[change])["error"]["code"] == INVALID_PARAMS
    for server in OWN:
        assert town.finished(server, asked.text) + town.finished(server, f"{asked.text}!") == 0


def test_a_state_of_another_gateway_is_refused(town: Town, asked: Asked) -> None:
    foreign = ask(town.other, asked.server)

    assert asked.come_back(foreign.state)["error"]["code"] == INVALID_PARAMS
    assert foreign.come_back(asked.state)["error"]["code"] == INVALID_PARAMS
    for text in (asked.text, foreign.text):
        assert town.finished(asked.server, text) == 0


def test_a_state_that_is_too_old_is_refused(town: Town, asked: Asked) -> None:
    key = load_seal_key(town.gateway.data_dir)
    content = Sealer([key]).open("requestState", asked.state)
    an_hour_ago = Sealer([key], lambda: time.time() - 3600)

    answer = asked.come_back(an_hour_ago.seal("requestState", content, 600))

    assert answer["error"]["code"] == INVALID_PARAMS
    assert town.finished(asked.server, asked.text) == 0


def test_an_id_of_a_session_is_no_state(town: Town, asked: Asked) -> None:
    session = Handshaker(town.gateway.url, ANSWERS_ALL)

    assert asked.come_back(session.id)["error"]["code"] == INVALID_PARAMS
    assert town.finished(asked.server, asked.text) == 0


def test_a_client_that_comes_back_without_answers_is_asked_again(asked: Asked) -> None:
    result = asked.come_back(inputResponses={})["result"]

    assert result["resultType"] == "input_required"
    ((key, question),) = result["inputRequests"].items()
    assert question["params"]["message"] == asked.text
    again = asked.come_back(
        result["requestState"],
        inputResponses={key: {"action": "accept", "content": {"name": "Late"}}},
    )
    assert again["result"]["content"][0]["text"] == f"{asked.text}: Late"
