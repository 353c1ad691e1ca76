"""A stdio server is a child in a group of its own: it knows what it must, and leaves nothing behind."""

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.domain.child_environment import inherited_environment
from testkit.clients.plain_http import Session, modern_call, request, scripted
from testkit.gateway_process import GatewayProcess, HttpAnswer, running_gateway
from testkit.procfs import still_alive
from testkit.waiting import wait_until

WAIT_SECONDS = 10.0
Start = Callable[..., GatewayProcess]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place for everything that the children write."""
    return tmp_path_factory.mktemp("children")


@pytest.fixture(scope="module")
def gateway(directory: Path) -> Iterator[GatewayProcess]:
    """Return a gateway that has something to hide, before children of many kinds."""
    journal = directory / "journal"
    noisy = scripted(
        journal,
        FIRST_WORDS="Welcome!\n\x1b[31mred\n{}\n",
        LAST_WORDS="first\n\n" + "x" * 2000 + "\nlast words\n",
    )
    servers = {
        "own": scripted(journal, OWN="1", LANG="C") | {"cwd": str(directory)},
        "noisy": noisy,
        "mute": scripted(journal),
        "missing": {"command": "no-such-command-anywhere"},
        "nowhere": {"command": sys.executable, "cwd": str(directory / "nowhere")},
        "directory": {"command": str(directory)},
        "short": {
            "command": sys.executable,
            "args": ["-c", "import sys; sys.exit('these are my last words')"],
        },
    }
    environment = {"HOME": "/home/somebody", "LANG": "C.UTF-8", "SECRET_TOKEN": "s", "PYTHONPATH": "src"}
    with running_gateway({"mcpServers": servers}, directory / "gateway", environment=environment) as gateway:
        gateway.wait_until_ready("own", "noisy", "mute")
        yield gateway


def look(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = modern_call(gateway, "own_look")["structuredContent"]
    return found


def test_a_child_is_given_what_every_program_needs_and_its_own(
    gateway: GatewayProcess, directory: Path
) -> None:
    (chain,) = [line for line in look(gateway)["environment"] if line.startswith("HEADGATE_CHAIN=")]
    assert re.fullmatch(r"HEADGATE_CHAIN=[0-9a-f]{16}/[0-9a-f]{16}", chain)
    (mark,) = [line for line in look(gateway)["environment"] if line.startswith("HEADGATE_PROCESS=")]
    assert re.fullmatch(r"HEADGATE_PROCESS=[0-9a-f]{16}\.\d+;", mark)
    network = inherited_environment(
        {k: v for k, v in os.environ.items() if k not in ("PATH", "HOME", "LANG")}, ()
    )
    assert look(gateway)["environment"] == sorted(
        [
            chain,
            mark,
            f"PATH={os.environ['PATH']}",
            "HOME=/home/somebody",
            "LANG=C",
            "OWN=1",
            f"JOURNAL={directory / 'journal'}",
            # What reaches the network from where the tests run.
            *(f"{name}={value}" for name, value in network.items()),
        ]
    )


def test_a_child_runs_where_it_should_and_in_a_group_of_its_own(
    gateway: GatewayProcess, directory: Path
) -> None:
    seen = look(gateway)
    assert seen["directory"] == str(directory.resolve())
    assert seen["group"] == gateway.servers()["own"]["pid"] != os.getpgid(gateway.pid)


def test_a_message_with_line_breaks_reaches_a_child_as_one_line(gateway: GatewayProcess) -> None:
    message = request("tools/call", {"name": "own_echo", "arguments": {"a": [1, "line\nbreak"]}})
    answer = Session(gateway).post(json.dumps(message, indent=2).replace("\n", "\r\n").encode())
    assert answer.json()["result"]["structuredContent"]["params"]["arguments"] == {"a": [1, "line\nbreak"]}


def test_noise_is_counted_and_last_words_are_kept(gateway: GatewayProcess) -> None:
    assert modern_call(gateway, "noisy_echo")["structuredContent"]
    wait_until(
        lambda: "last words" in gateway.servers()["noisy"].get("stderr_tail", ()),
        WAIT_SECONDS,
        "stderr has come",
    )
    noisy = gateway.servers()["noisy"]
    assert noisy["ignored_messages"] == 3
    assert noisy["stderr_tail"][0] == "first"
    assert max(map(len, noisy["stderr_tail"])) <= 500


@pytest.mark.parametrize("name", ["missing", "nowhere", "directory"])
def test_a_command_that_does_not_start_says_why(gateway: GatewayProcess, name: str) -> None:
    assert "did not start" in gateway.servers()[name]["last_error"]


def test_the_last_words_of_a_child_that_does_not_live_are_told(gateway: GatewayProcess) -> None:
    wait_until(
        lambda: "these are my last words" in gateway.servers()["short"].get("last_error", ""),
        WAIT_SECONDS,
        "its last words",
    )


def test_a_child_that_closes_its_output_and_lives_on_is_replaced(gateway: GatewayProcess) -> None:
    before = gateway.servers()["mute"]["pid"]
    told = modern_call(gateway, "mute")["_meta"]["io.headgate/error"]
    assert told["code"] == "NETWORK_ERROR"
    assert told["effect"] == "unknown"
    wait_until(
        lambda: gateway.servers()["mute"].get("pid", before) != before, WAIT_SECONDS, "another one is ready"
    )
    assert not still_alive({before})
    assert modern_call(gateway, "mute_echo")["structuredContent"]


def test_a_child_that_reads_nothing_fills_nobodys_memory(start_gateway: Start, tmp_path: Path) -> None:
    gateway = start_gateway(
        {"mcpServers": {name: scripted(tmp_path / "journal") for name in ("own", "deaf")}}
    )
    gateway.wait_until_ready()
    assert modern_call(gateway, "deaf")["structuredContent"] == {"deaf": True}
    session = Session(gateway)
    answers: list[HttpAnswer] = []

    def call(number: int) -> None:
        params = {"name": "deaf_echo", "arguments": {"a": "x" * 4_000_000}}
        answers.append(session.post(request("tools/call", params, number)))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(7)]
    for caller in callers:
        caller.start()
    wait_until(lambda: len(answers) >= 1, WAIT_SECONDS, "some are refused")
    refused = [answer.json()["result"]["_meta"]["io.headgate/error"] for answer in answers]
    assert {told["code"] for told in refused} == {"RESOURCE_EXHAUSTED"}
    assert {told["effect"] for told in refused} == {"none"}
    # The others are served, and those who wait can still give up.
    assert modern_call(gateway, "own_echo")["structuredContent"]
    for number in range(7):
        session.notify("notifications/cancelled", {"requestId": number})
    for caller in callers:
        caller.join(WAIT_SECONDS)
    assert len(answers) == 7


@pytest.mark.parametrize("how", ["removed", "stopped"])
def test_nothing_that_a_child_started_outlives_it(start_gateway: Start, tmp_path: Path, how: str) -> None:
    config: dict[str, Any] = {"mcpServers": {"own": scripted(tmp_path / "journal")}}
    gateway = start_gateway(config)
    gateway.wait_until_ready()
    family = {
        modern_call(gateway, "own_family")["structuredContent"]["grandchild"],
        gateway.servers()["own"]["pid"],
    }
    assert still_alive(family) == family
    if how == "removed":
        gateway.write_config({"mcpServers": {"example": {"builtin": "example"}}})
    else:
        gateway.stop()
    wait_until(lambda: not still_alive(family), WAIT_SECONDS, "child and grandchild are gone")
