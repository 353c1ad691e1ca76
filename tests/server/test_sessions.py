"""The handshake era over HTTP: sessions, a stream for what comes unasked, errors that are answers."""

import threading
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import LEGACY, Session, last_message, listening, post, request, send
from testkit.gateway_process import GatewayProcess, HttpAnswer
from testkit.waiting import wait_until

WAIT_SECONDS = 5.0


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_version_that_both_know_is_agreed(gateway: GatewayProcess, version: str) -> None:
    assert Session(gateway, version).version == version


@pytest.mark.parametrize("version", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_for_another_version_the_latest_of_this_era_is_offered(gateway: GatewayProcess, version: str) -> None:
    assert Session(gateway, version).version == LEGACY


def test_the_greeting_says_who_the_gateway_is(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    result = session.greeting.json()["result"]
    assert result["serverInfo"]["name"] == "headgate"
    assert result["serverInfo"]["version"]
    assert result["capabilities"] == {"tools": {"listChanged": True}}
    assert "resultType" not in result
    assert len(session.headers["Mcp-Session-Id"]) >= 32
    assert session.notify("notifications/initialized").status == 202


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 5}, {"protocolVersion": None}])
def test_a_handshake_without_a_version_is_refused(
    gateway: GatewayProcess, params: dict[str, Any] | None
) -> None:
    answer = post(gateway, request("initialize", params, id=9))
    assert answer.json()["error"]["code"] == -32602
    assert answer.json()["id"] == 9
    assert "mcp-session-id" not in answer.headers


def test_no_two_sessions_have_one_id(gateway: GatewayProcess) -> None:
    assert len({Session(gateway).headers["Mcp-Session-Id"] for _ in range(10)}) == 10


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_without_a_session_is_400(gateway: GatewayProcess, method: str) -> None:
    headers = {"MCP-Protocol-Version": LEGACY, "Accept": "text/event-stream, application/json"}
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    answer = send(gateway, method, "/mcp", {**headers, "Content-Type": "application/json"}, body)
    assert answer.status == 400
    assert answer.json()["error"]["code"] == -32600


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("id", ["nonsense", "x" * 5000])
def test_an_unknown_session_is_404(gateway: GatewayProcess, method: str, id: str) -> None:
    headers = {"Mcp-Session-Id": id, "Accept": "*/*", "Content-Type": "application/json"}
    answer = send(gateway, method, "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert answer.status == 404
    assert "error" in answer.json()


def test_a_session_that_was_ended_is_unknown(gateway: GatewayProcess) -> None:
    session, other = Session(gateway), Session(gateway)
    assert session.ask("ping")["result"] == {}
    assert send(gateway, "DELETE", "/mcp", session.headers).status == 200
    assert session.post(request("ping")).status == 404
    assert send(gateway, "DELETE", "/mcp", session.headers).status == 404
    assert other.ask("ping")["result"] == {}


def test_an_unknown_method_is_an_answer_like_any_other(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    for method in ("nothing", "server/discover", "subscriptions/listen"):
        answer = session.post(request(method, {}, id="q"))
        assert answer.status == 200
        assert answer.json()["id"] == "q"
        assert answer.json()["error"]["code"] == -32601


def test_bad_params_are_an_answer_like_any_other(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    for params in ({}, {"name": 5}, {"name": "own_echo", "_meta": 5}):
        answer = session.post(request("tools/call", params, id=3))
        assert answer.status == 200
        assert answer.json()["id"] == 3
        assert answer.json()["error"]["code"] == -32602
    assert session.ask("tools/list", {"cursor": "nonsense"})["error"]["code"] == -32602


def test_a_call_with_two_names_is_answered_under_its_id(gateway: GatewayProcess) -> None:
    body = b'{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"own_echo","name":"own_hold"}}'
    answer = Session(gateway).post(body)
    assert "error" in answer.json()
    assert answer.json()["id"] == "q"


def test_results_carry_nothing_of_the_other_era(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    listed = session.ask("tools/list")["result"]
    assert set(listed) == {"tools"}
    result = session.call("example_calculate", {"expression": "6*7"})
    assert result == {"content": [{"type": "text", "text": "42"}]}


def test_meta_and_unknown_members_reach_the_server(gateway: GatewayProcess) -> None:
    params = {"name": "own_echo", "arguments": {}, "_meta": {"vendor/key": 1, "io.x": 2}, "unknown": {"a": 1}}
    received = Session(gateway).ask("tools/call", params)["result"]["structuredContent"]["params"]
    assert received == params | {"name": "echo"}


def test_a_call_without_arguments_stays_one(gateway: GatewayProcess) -> None:
    received = Session(gateway).ask("tools/call", {"name": "own_echo"})["result"]["structuredContent"][
        "params"
    ]
    assert received == {"name": "echo"}


def test_notifications_and_answers_are_accepted(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    assert session.notify("notifications/roots/list_changed").status == 202
    assert session.notify("notifications/cancelled", {"requestId": 12345}).status == 202
    assert session.notify("notifications/cancelled", {"requestId": None}).status == 202
    assert session.notify("notifications/cancelled").status == 202
    assert session.post({"jsonrpc": "2.0", "id": 1, "result": {}}).status == 202
    assert session.post({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}).status == 202


def test_a_session_has_one_stream_at_a_time_and_the_latest_is_it(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    with listening(session) as first, listening(session):
        # Who has lost a connection cannot wait until the gateway notices.
        with pytest.raises(EOFError):
            first.event()
        assert session.ask("ping")["result"] == {}


def test_a_stream_needs_a_client_that_takes_it(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    assert send(gateway, "GET", "/mcp", {**session.headers, "Accept": "application/json"}).status == 406


def test_a_stream_ends_with_its_session(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    with listening(session) as stream:
        assert send(gateway, "DELETE", "/mcp", session.headers).status == 200
        with pytest.raises(EOFError):
            stream.event()


def in_background(session: Session, message: dict[str, Any], answers: list[HttpAnswer]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(session.post(message)))
    thread.start()
    return thread


def held(journal: Path) -> int:
    return journal.read_text(encoding="utf-8").count("held")


@pytest.mark.parametrize("id", [5, "five"])
def test_an_id_that_is_in_use_is_refused_and_the_first_call_goes_on(
    gateway: GatewayProcess, journal: Path, id: Any
) -> None:
    session, other = Session(gateway), Session(gateway)
    answers: list[HttpAnswer] = []
    before = held(journal)
    thread = in_background(session, request("tools/call", {"name": "own_hold", "arguments": {}}, id), answers)
    wait_until(lambda: held(journal) > before, WAIT_SECONDS, "the call has arrived")
    second = session.post(request("ping", id=id))
    assert second.json()["error"]["code"] == -32600
    assert second.json()["id"] == id
    # Another client's ids are its own.
    assert other.ask("ping", id=id)["result"] == {}
    assert not answers
    session.notify("notifications/cancelled", {"requestId": id})
    thread.join(WAIT_SECONDS)
    assert len(answers) == 1
    assert session.ask("ping", id=id)["result"] == {}


def test_a_call_that_the_client_cancels_ends_here_and_upstream(
    gateway: GatewayProcess, journal: Path
) -> None:
    session = Session(gateway)
    answers: list[HttpAnswer] = []
    before = journal.read_text(encoding="utf-8")
    thread = in_background(session, request("tools/call", {"name": "own_hold", "arguments": {}}, 1), answers)
    wait_until(lambda: held(journal) > before.count("held"), WAIT_SECONDS, "the call has arrived")
    number = journal.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    assert session.notify("notifications/cancelled", {"requestId": 2}).status == 202
    assert thread.is_alive()
    assert session.notify("notifications/cancelled", {"requestId": 1}).status == 202
    thread.join(WAIT_SECONDS)
    assert "result" not in last_message(answers[0])
    wait_until(
        lambda: f"cancelled {number}" in journal.read_text(encoding="utf-8"),
        WAIT_SECONDS,
        "cancelled upstream",
    )


def test_nobody_cancels_the_calls_of_others(gateway: GatewayProcess, journal: Path) -> None:
    session, stranger = Session(gateway), Session(gateway)
    answers: list[HttpAnswer] = []
    before = held(journal)
    thread = in_background(session, request("tools/call", {"name": "own_hold", "arguments": {}}, 1), answers)
    wait_until(lambda: held(journal) > before, WAIT_SECONDS, "the call has arrived")
    stranger.notify("notifications/cancelled", {"requestId": 1})
    assert stranger.ask("ping")["result"] == {}
    assert thread.is_alive()
    session.notify("notifications/cancelled", {"requestId": 1})
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
