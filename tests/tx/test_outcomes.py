"""However a call ends: ledger, receipt of rmcp, library and `get_operation` say the same of it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from headgate.tx import RetryPolicy, TxConfig, TxError, TxSession
from testkit.clients.streaming_http import Handshaker, Stateless
from testkit.gateway_process import GatewayProcess, running_gateway
from testkit.upstreams import configuration, http_server, server_command, stdio_entry

START_SECONDS = 30.0
SPEAKING = {"experimental": {"rmcp": {"version": "0.1.0", "features": ["ack", "idempotency"]}}}
SOON = TxConfig(retry_policy=RetryPolicy(base_delay_ms=100))
ERA_NAMES = ("legacy", "auto")
ERAS = pytest.mark.parametrize("era", ERA_NAMES)
Message = dict[str, Any]


@dataclass(frozen=True)
class Yard:
    """A gateway before the servers whose calls end in all ways."""

    gateway: GatewayProcess
    journal: Path

    def executions(self, order: str) -> int:
        """How often the server began the call of that order."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.exists() else []
        return sum(json.loads(line)[1].get("order") == order for line in lines)

    def client(self, era: str) -> Handshaker | Stateless:
        """A client that speaks rmcp, without the library."""
        return (Handshaker if era == "legacy" else Stateless)(self.gateway.url, SPEAKING)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    place = tmp_path_factory.mktemp("outcomes")
    command = server_command("servers.outcomes", "by-argument", place / "journal")
    # One for each test that ends it: a server that ended is started again a little later each time.
    servers = ["s", *(f"{era}{who}{n}" for era in ERA_NAMES for who in ("raw", "lib") for n in (1, 2))]
    config = configuration({name: stdio_entry(command) for name in servers})
    with running_gateway(config, place / "gateway", start_seconds=START_SECONDS) as gateway:
        gateway.wait_until_ready(seconds=START_SECONDS)
        yield Yard(gateway, place / "journal")


@dataclass(frozen=True)
class Said:
    """What all parties say of one call; `processed` is None when it is unknown."""

    state: str
    processed: bool | None
    status: str
    code: str | None = None
    duplicate: bool = False
    ack: bool = True
    # What the library says where it differs: its code, or the exception that it raises.
    library: str | None = None


DONE = Said("done", True, "completed")
ERROR = Said("done", True, "completed", library="INTERNAL")
DOUBT = Said("in_doubt", None, "failed", "IN_DOUBT", duplicate=True, library="IN_DOUBT")
REFUSED = Said("failed", False, "failed", "INVALID_PARAMS")


def again(first: Said) -> Said:
    """The same, told once more."""
    return replace(first, duplicate=True)


# How a call ends the first time, how often it was executed, and what the same call with its key gets.
TABLE = {
    "result": (DONE, again(DONE), 1),
    "is_error": (DONE, again(DONE), 1),
    "error": (ERROR, again(ERROR), 1),
    "internal": (ERROR, again(ERROR), 1),
    "timeout_like": (ERROR, again(ERROR), 1),
    "refused": (REFUSED, REFUSED, 2),
    "unknown": (replace(REFUSED, code="TOOL_NOT_FOUND"), replace(REFUSED, code="TOOL_NOT_FOUND"), 2),
    "slow": (Said("in_doubt", None, "timeout", "TIMEOUT", library="IN_DOUBT"), DOUBT, 1),
    "die": (Said("in_doubt", None, "failed", "NETWORK_ERROR", library="IN_DOUBT"), DOUBT, 1),
    # Refused, after an attempt with an unknown outcome.
    "die_then_refused": (
        Said("in_doubt", None, "failed", "INVALID_PARAMS"),
        Said("in_doubt", None, "failed", "INVALID_PARAMS"),
        3,
    ),
}
_orders = count()


@ERAS
@pytest.mark.parametrize("outcome", TABLE)
def test_the_receipt_and_get_operation_say_what_the_ledger_says(yard: Yard, era: str, outcome: str) -> None:
    first, second, executions = TABLE[outcome]
    client, order = yard.client(era), f"raw {next(_orders)}"
    for expected in (first, second):
        tool = tool_of(outcome, era, "raw")
        meta = call(client, tool, {"outcome": outcome, "order": order}, order)
        operation = meta["io.headgate/operation"]
        assert (operation["state"], operation["duplicate"]) == (expected.state, expected.duplicate)
        assert delivery_status(meta) == (
            expected.ack,
            expected.processed,
            expected.status,
            expected.code,
            expected.duplicate,
        )
        told = get_operation(client, operation["op_id"])
        assert told["state"] == expected.state
        if expected.state == "failed":
            assert (told["error_code"], told["error"]) == (expected.code, f"no: {outcome}")
    assert yard.executions(order) == executions


@ERAS
@pytest.mark.parametrize("outcome", TABLE)
async def test_the_library_says_the_same(yard: Yard, era: str, outcome: str) -> None:
    first, second, executions = TABLE[outcome]
    order = f"library {next(_orders)}"
    # Each in a session of its own, so that the second one is not answered from the window of the first.
    for expected in (first, second):
        arguments = {"outcome": outcome, "order": order}
        told = await library(yard, era, tool_of(outcome, era, "lib"), arguments, order)
        assert told == (
            expected.processed,
            expected.library or expected.code,
            None if expected.library == "IN_DOUBT" else expected.duplicate,
        )
    assert yard.executions(order) == executions


@ERAS
def test_a_key_of_another_call_is_refused_and_the_first_one_stays_done(yard: Yard, era: str) -> None:
    client, order = yard.client(era), f"conflict {next(_orders)}"
    first = call(client, "s_pay", {"order": order}, order)["io.headgate/operation"]
    meta = call(client, "s_pay", {"order": order, "amount": 2}, order)
    assert delivery_status(meta) == (False, False, "failed", "CONFLICT", False)
    assert "io.headgate/operation" not in meta
    assert get_operation(client, first["op_id"])["state"] == "done"
    assert yard.executions(order) == 1


@ERAS
async def test_the_library_raises_a_conflict_at_once(yard: Yard, era: str) -> None:
    order = f"library conflict {next(_orders)}"
    assert await library(yard, era, "s_pay", {"order": order}, order) == (True, None, False)
    told = await library(yard, era, "s_pay", {"order": order, "amount": 2}, order)
    assert told == (False, "CONFLICT", None)


@ERAS
def test_a_call_without_a_key_is_judged_by_the_same_rules(yard: Yard, era: str) -> None:
    client = yard.client(era)
    for outcome in ("result", "is_error", "error", "refused"):
        expected = TABLE[outcome][0]
        meta = call(client, "s_pay", {"outcome": outcome}, None)
        assert "io.headgate/operation" not in meta
        assert delivery_status(meta) == (True, expected.processed, expected.status, expected.code, False)


@ERAS
async def test_what_never_left_the_gateway_is_failed(tmp_path: Path, era: str) -> None:
    with ExitStack() as shops, ExitStack() as gateways:
        shop = shops.enter_context(http_server(server_command("sdk_servers.rmcp_shop", site=True)))
        config = configuration({"h": {"url": shop, "breaker": {"failures": 1, "rest": 60}}})
        gateway = gateways.enter_context(running_gateway(config, tmp_path, start_seconds=START_SECONDS))
        gateway.wait_until_ready(seconds=START_SECONDS)
        shops.close()
        client = Yard(gateway, tmp_path).client(era)
        # A refused connection: recorded, and nothing happened.
        meta = call(client, "h_pay", {}, "first")
        assert delivery_status(meta) == (True, False, "failed", "CONNECTION_ERROR", False)
        operation = get_operation(client, meta["io.headgate/operation"]["op_id"])
        assert (operation["state"], operation["error_code"]) == ("failed", "CONNECTION_ERROR")
        # A server that is known to be away: nothing is recorded, because nothing is tried.
        meta = call(client, "h_pay", {}, "second")
        assert delivery_status(meta) == (False, False, "failed", "TEMPORARY_FAILURE", False)
        assert "io.headgate/operation" not in meta
        told = await library(Yard(gateway, tmp_path), era, "h_pay", {}, "third")
        assert told == (False, "TEMPORARY_FAILURE", False)


def tool_of(outcome: str, era: str, who: str) -> str:
    """The tool whose call ends so: only one that may be repeated is sent again after a loss."""
    own = {"die": f"{era}{who}1_pay", "die_then_refused": f"{era}{who}2_put"}
    return own.get(outcome, "s_pay")


def call(client: Handshaker | Stateless, tool: str, arguments: Message, key: str | None) -> Message:
    """The metadata of the answer to a call, wherever it stands."""
    limit = 1000 if arguments.get("outcome") == "slow" else 20_000
    said = {"request_id": "r", "timeout_ms": limit} | ({"idempotency_key": key} if key else {})
    told = client.ask("tools/call", {"name": tool, "arguments": arguments, "_meta": {"rmcp": said}})
    meta: Message = told["result"]["_meta"] if "result" in told else told["error"]["data"]["_meta"]
    return meta


def delivery_status(meta: Message) -> tuple[Any, ...]:
    """What rmcp says of a call."""
    said = meta["rmcp"]
    assert said["request_id"] == "r"
    return (
        said["ack"],
        said.get("processed"),
        said["final_status"],
        said.get("error_code"),
        said["duplicate"],
    )


def get_operation(client: Handshaker | Stateless, op_id: str) -> Message:
    """What the gateway says of an operation afterwards."""
    told = client.ask("tools/call", {"name": "get_operation", "arguments": {"op_id": op_id}})
    operation: Message = told["result"]["structuredContent"]
    return operation


async def library(yard: Yard, era: str, tool: str, arguments: Message, key: str) -> tuple[Any, ...]:
    """What the library says: processed, the code, and whether it is a duplicate, which no exception says."""
    async with TxSession(Client(yard.gateway.url, mode=era), SOON) as tx:
        limit = 1500 if arguments.get("outcome") == "slow" else 20_000
        try:
            answer = await tx.call_tool(tool, arguments, idempotency_key=key, timeout_ms=limit)
        except TxError as error:
            return {"none": False, "unknown": None, "done": True}[error.effect], error.error_code, None
    assert answer.durable
    return answer.processed, answer.error_code, answer.duplicate
