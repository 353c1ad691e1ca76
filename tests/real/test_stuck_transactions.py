"""An operator resolves transactions of a real gateway that are stuck, while it runs and while it does not."""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.streaming_http import Stateless
from testkit.gateway_process import GatewayProcess, clean_environment, running_gateway
from testkit.upstreams import configuration, lines_of, server_command, stdio_entry
from testkit.waiting import wait_until

START_SECONDS = 60.0
# A retry is taken over within about a second; a busy machine may take many times that.
RETRY_SECONDS = 30.0
COMMAND_SECONDS = 60.0


@dataclass(frozen=True)
class Desk:
    """A gateway before the server of bookings, and the commands of its operator."""

    place: Path

    def gateway(self) -> AbstractContextManager[GatewayProcess]:
        command = server_command("servers.outcomes", "by-file", self.place)
        return running_gateway(
            configuration({"desk": stdio_entry(command)}),
            self.place / "gateway",
            environment={"HEADGATE_EMBEDDER": "BM25"},
            start_seconds=START_SECONDS,
        )

    def script(self, tool: str, said: str | None) -> None:
        """From now on the tool does that; None lets it work."""
        if said is None:
            (self.place / tool).unlink(missing_ok=True)
        else:
            (self.place / tool).write_text(said)

    @property
    def effects(self) -> list[str]:
        return lines_of(self.place / "journal")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        data_dir = str(self.place / "gateway" / "data")
        return subprocess.run(
            [sys.executable, "-m", "headgate", *arguments, "--data-dir", data_dir],
            cwd=self.place,
            env=clean_environment() | {"HOME": str(self.place), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def told(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def refused(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), done
        (line,) = done.stderr.splitlines()
        return line

    def resolve(self, id: str, *options: str) -> str:
        return self.told("transactions", "resolve", id, *options)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def own(gateway: GatewayProcess, name: str, **arguments: Any) -> dict[str, Any]:
    """What one of the gateway's own tools tells a client."""
    told: dict[str, Any] = Stateless(gateway.url).call(name, arguments)["result"]["structuredContent"]
    return told


def step(gateway: GatewayProcess, id: str, tool: str, undo: str | None = "desk_cancel") -> None:
    compensate = {"compensate": {"tool": undo, "args": {"password": "hunter2"}}} if undo else {}
    answer = Stateless(gateway.url).call(
        "transaction_step", {"transaction_id": id, "tool": f"desk_{tool}", "args": {"n": 1}} | compensate
    )
    assert "result" in answer, answer


def stuck(gateway: GatewayProcess, *tools: str, undo: str | None = "desk_cancel") -> str:
    """The id of a transaction whose rollback stops at its last step."""
    id: str = own(gateway, "transaction_begin")["transaction_id"]
    for tool in tools:
        step(gateway, id, tool, undo)
    assert own(gateway, "transaction_rollback", transaction_id=id)["state"] == "failed"
    return id


def wait_for_state(gateway: GatewayProcess, id: str, state: str) -> dict[str, Any]:
    def reached() -> bool:
        return bool(own(gateway, "get_transaction", transaction_id=id)["state"] == state)

    wait_until(reached, RETRY_SECONDS, f"{id} is {state}")
    return own(gateway, "get_transaction", transaction_id=id)


def test_a_retry_is_made_by_the_gateway_that_runs(desk: Desk) -> None:
    desk.script("cancel", "refuse: " + "the office is closed today, " * 20)
    with desk.gateway() as gateway:
        id = stuck(gateway, "book")
        listed = desk.told("transactions", "list")
        assert f"{id}  stuck" in listed
        assert f"headgate transactions show {id} --data-dir" in listed
        # The list of recorded calls shows it too.
        assert "1 transaction is stuck and waits for a person" in desk.told("operations", "list")
        shown = desk.told("transactions", "show", id[:8])
        assert shown.count("the office is closed today") > 20, "the last error is whole"
        assert "hunter2" not in shown
        desk.script("cancel", None)
        said = desk.resolve(id, "--retry", "--note", "the office is open")
        assert "the gateway that runs on" in said
        after = wait_for_state(gateway, id, "rolled_back")
    assert desk.effects == ["book", "cancel"]
    assert "operator: retry from step 1 on (the office is open)" in [one["event"] for one in after["history"]]


def test_a_retry_without_a_gateway_is_made_by_the_next_one_that_starts(desk: Desk) -> None:
    desk.script("cancel", "refuse")
    with desk.gateway() as gateway:
        id = stuck(gateway, "book")
        gateway.kill()
    desk.script("cancel", None)
    assert "No gateway runs on" in desk.resolve(id, "--retry")
    assert json.loads(desk.told("transactions", "list", "--json"))[0]["status"] == "rolling_back"
    assert "not stuck" in desk.refused("transactions", "resolve", id, "--leave")
    assert desk.effects == ["book"]
    # Killed in the middle of the compensation, which must not be made twice.
    desk.script("cancel", "wait")
    with desk.gateway() as gateway:
        wait_until(lambda: desk.effects == ["book", "cancel"], RETRY_SECONDS, "the compensation is made")
        gateway.kill()
    desk.script("cancel", None)
    with desk.gateway() as gateway:
        reason = wait_for_state(gateway, id, "failed")["reason"]
        assert "may have been carried out" in reason
        assert desk.effects == ["book", "cancel"]
        line = desk.refused("transactions", "resolve", id, "--retry")
        assert "may have been carried out, so it is not made again" in line
        (op_id,) = (word for word in line.replace("`", " ").split() if len(word) == 32 and word != id)
        gateway.kill()
    desk.told("operations", "resolve", op_id, "--happened")
    assert "No gateway runs on" in desk.resolve(id, "--retry")
    with desk.gateway() as gateway:
        wait_for_state(gateway, id, "rolled_back")
    assert desk.effects == ["book", "cancel"]


def test_a_compensation_in_doubt_is_made_again_only_with_consent(desk: Desk) -> None:
    desk.script("cancel", "die before")
    with desk.gateway() as gateway:
        id = stuck(gateway, "book")
        desk.script("cancel", None)
        gateway.wait_until_ready("desk", seconds=START_SECONDS)
        line = desk.refused("transactions", "resolve", id, "--retry")
        assert "--on-doubt retry" in line
        assert own(gateway, "get_transaction", transaction_id=id)["state"] == "failed"
        desk.resolve(id, "--retry", "--on-doubt", "retry")
        after = wait_for_state(gateway, id, "rolled_back")
    assert desk.effects == ["book", "cancel"]
    assert any(
        "although its compensation may have been carried out" in one["event"] for one in after["history"]
    )


def test_the_words_of_an_operator_end_the_waiting_and_its_client_sees_them(desk: Desk) -> None:
    with desk.gateway() as gateway:
        first, second, third = (stuck(gateway, "ship", undo=None) for _ in range(3))
        name = "headgate_transactions_stuck"
        wait_until(lambda: gateway.metrics()[name] == 3, RETRY_SECONDS, "all are counted")
        assert "no compensation to retry" in desk.refused("transactions", "resolve", first, "--retry")
        assert "is rolled_back" in desk.resolve(first, "--compensated", "--note", "called the carrier")
        by_hand = own(gateway, "get_transaction", transaction_id=first)
        assert (by_hand["state"], by_hand["steps"][0]["state"]) == ("rolled_back", "undone_by_hand")
        assert by_hand["reason"] == "an operator undid it by hand (called the carrier)"
        assert "stays failed" in desk.resolve(second, "--leave")
        left = own(gateway, "get_transaction", transaction_id=second)
        assert (left["state"], left["not_undone"], "waits_for" in left) == ("failed", [1], False)
        assert "left it as it is" in left["reason"]
        listed = json.loads(desk.told("transactions", "list", "--json"))
        assert [one["transaction_id"] for one in listed] == [third]
        assert "1 transaction is stuck" in desk.told("operations", "list")
        wait_until(lambda: gateway.metrics()[name] == 1, RETRY_SECONDS, "one waits")
        gateway.kill()
    # What was decided survives.
    with desk.gateway() as gateway:
        assert own(gateway, "get_transaction", transaction_id=first)["state"] == "rolled_back"
        refused = Stateless(gateway.url).call("transaction_rollback", {"transaction_id": second})["result"]
        assert refused["isError"]
        assert own(gateway, "get_transaction", transaction_id=second)["state"] == "failed"
        # The gateway has written nothing yet, and is seen all the same.
        assert json.loads(desk.resolve(third, "--leave", "--json"))["gateway_runs"]
        assert desk.told("transactions", "list") == "No transaction is stuck or rolling back or running.\n"
        assert "stuck" not in desk.told("operations", "list")
    assert desk.effects == ["ship"] * 3
