"""Over HTTP, what one identity owns does not exist for another, also after a restart."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import JSON_HEADERS, opened, post, request, send, settle
from testkit.gateway_process import GatewayProcess
from tests.access.clients import HandshakeClient, StatelessClient, as_identity
from tests.access.conftest import start

# Each sees the bank too, so that nothing but ownership stands between them.
OTHERS = ["carol", "other alice", None]
METHODS = ["POST", "GET", "DELETE"]
UNKNOWN = "x" * 60


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("who", OTHERS)
def test_the_session_of_another_is_unknown(gateway: GatewayProcess, who: str | None, method: str) -> None:
    session = HandshakeClient(gateway, "alice")
    never_issued = HandshakeClient(gateway, who)
    never_issued.headers["Mcp-Session-Id"] = UNKNOWN
    answer = session.used_by(who, method)
    assert answer.status == 404
    assert answer.body == never_issued.used_by(who, method).body
    assert session.ask("ping")["result"] == {}


@pytest.mark.parametrize("who", ["alice", "carol", "other alice"])
def test_the_session_of_the_local_user_is_unknown_to_others(gateway: GatewayProcess, who: str) -> None:
    session = HandshakeClient(gateway)
    assert session.used_by(who).status == 404
    assert session.used_by(None).status == 200


def test_sessions_stay_with_their_owners_over_a_restart(tmp_path: Path) -> None:
    with start(tmp_path) as gateway:
        sessions = [HandshakeClient(gateway, who) for who in ("alice", "other alice", None)]
    with start(tmp_path) as gateway:
        settle(gateway, "bank", "files")
        for session in sessions:
            session.gateway = gateway
            for who in ({"alice", "carol", "other alice", None}) - {session.who}:
                assert [session.used_by(who, method).status for method in METHODS] == [404, 404, 404]
            assert session.used_by(session.who).status == 200
        hidden = json.dumps(sessions[0].ask("tools/list"))
        assert "files" not in hidden
        assert "files_read_note" in json.dumps(sessions[2].ask("tools/list"))


@pytest.mark.parametrize("who", OTHERS)
def test_the_stream_of_another_takes_no_messages(gateway: GatewayProcess, who: str | None) -> None:
    headers = {"Accept": "text/event-stream", **as_identity("alice")}
    with opened(gateway, "GET", "/sse", headers) as stream:
        path = stream.event()[1]
        ping = json.dumps(request("ping")).encode()
        other = send(gateway, "POST", path, {**JSON_HEADERS, **as_identity(who)}, ping)
        unknown = send(gateway, "POST", f"{path[:-4]}none", {**JSON_HEADERS, **as_identity(who)}, ping)
        assert (other.status, other.body) == (unknown.status, unknown.body)
        assert other.status == 404
        assert send(gateway, "POST", path, {**JSON_HEADERS, **as_identity("alice")}, ping).status == 202
        assert stream.message()["result"] == {}


def call(client: HandshakeClient | StatelessClient, name: str, /, **arguments: Any) -> dict[str, Any]:
    return client.ask("tools/call", {"name": name, "arguments": arguments})


@pytest.mark.parametrize("who", ["carol", "other alice"])
def test_the_task_of_another_does_not_exist(gateway: GatewayProcess, who: str) -> None:
    task, owner = f"task-of-alice-{who}", HandshakeClient(gateway, "alice")
    call(owner, "bank_task", id=task)
    at_bank = {"_meta": {"io.headgate/server": "bank"}}
    assert owner.ask("tasks/get", {"taskId": task})["result"]["server"] == "bank"
    for more in ({}, at_bank):
        answers = [
            json.dumps(HandshakeClient(gateway, who).ask("tasks/get", {"taskId": id, **more})).replace(
                id, "ID"
            )
            for id in (task, "never-begun")
        ]
        assert answers[0] == answers[1]
        assert "error" in answers[0]


@pytest.mark.parametrize("who", ["carol", None])
def test_the_task_of_another_does_not_exist_as_a_number_either(
    gateway: GatewayProcess, who: str | None
) -> None:
    call(HandshakeClient(gateway, "alice"), "bank_task", id="7")
    asked = {"taskId": 7, "_meta": {"io.headgate/server": "bank"}}
    assert "error" in HandshakeClient(gateway, who).ask("tasks/get", asked)


def test_the_local_user_does_not_see_the_task_of_another(gateway: GatewayProcess) -> None:
    call(HandshakeClient(gateway, "alice"), "bank_task", id="hidden-task")
    asked = {"taskId": "hidden-task", "_meta": {"io.headgate/server": "bank"}}
    assert "error" in HandshakeClient(gateway).ask("tasks/get", asked)


@pytest.mark.parametrize("who", OTHERS)
def test_the_request_state_of_another_is_refused_like_a_forged_one(
    gateway: GatewayProcess, who: str | None
) -> None:
    abilities: dict[str, Any] = {"elicitation": {}}
    alice, other = (StatelessClient(gateway, name, **abilities) for name in ("alice", who))
    asked = call(alice, "bank_ask")["result"]
    assert asked["resultType"] == "input_required"
    responses = {key: {"action": "decline"} for key in asked["inputRequests"]}

    def answer(client: StatelessClient, state: str) -> dict[str, Any]:
        params = {"name": "bank_ask", "arguments": {}, "requestState": state, "inputResponses": responses}
        return client.ask("tools/call", params)

    stolen, forged = (json.dumps(answer(other, state)) for state in (asked["requestState"], UNKNOWN))
    assert stolen == forged
    assert "requestState is refused" in stolen
    assert "decline" in json.dumps(answer(alice, asked["requestState"])["result"])


@pytest.mark.parametrize("who", OTHERS)
def test_the_operation_of_another_does_not_exist(gateway: GatewayProcess, who: str | None) -> None:
    key = {"Idempotency-Key": f"order-1-{who}"}
    alice, other = HandshakeClient(gateway, "alice"), HandshakeClient(gateway, who)
    pay = request("tools/call", {"name": "bank_pay_invoice", "arguments": {"amount": 7}})
    for client in (alice, other):
        # The same key of two principals names two operations.
        done = post(gateway, pay, {**client.headers, **key}).json()["result"]
        assert "bank:pay_invoice" in json.dumps(done)
    begun = call(alice, "transaction_begin")["result"]["structuredContent"]["transaction_id"]
    for tool, member in (("get_transaction", "transaction_id"), ("transaction_rollback", "transaction_id")):
        stolen, unknown = (
            json.dumps(call(other, tool, **{member: id})).replace(id, "ID") for id in (begun, "f" * 32)
        )
        assert stolen == unknown
    assert begun in json.dumps(call(alice, "get_transaction", transaction_id=begun))


def test_what_one_principal_found_is_not_on_the_list_of_another(gateway: GatewayProcess) -> None:
    alice, carol = (StatelessClient(gateway, who, "/mcp/dynamic") for who in ("alice", "carol"))
    call(alice, "retrieve_tools", query="pay an open invoice", limit=1)
    assert "bank_pay_invoice" in json.dumps(alice.ask("tools/list"))
    assert "bank_pay_invoice" not in json.dumps(carol.ask("tools/list"))


@pytest.mark.parametrize("who", OTHERS)
def test_the_stored_result_of_another_does_not_exist(gateway: GatewayProcess, who: str | None) -> None:
    alice, other = HandshakeClient(gateway, "alice"), HandshakeClient(gateway, who)
    large = json.dumps(call(alice, "bank_echo", text="word " * 100_000))
    found = re.search(r"cache_id[^A-Za-z0-9]+([A-Za-z0-9_-]{8,})", large)
    assert found is not None, large[-500:]
    stolen, unknown = (
        json.dumps(call(other, "proxy_read", cache_id=id)).replace(id, "ID")
        for id in (found[1], "never-stored")
    )
    assert stolen == unknown
    assert "word word" in json.dumps(call(alice, "proxy_read", cache_id=found[1]))
