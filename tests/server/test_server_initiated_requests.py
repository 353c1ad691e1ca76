"""Questions of servers reach the client that caused them, and its answers reach the server."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import Session, Stream, asking, listening, request, send
from testkit.gateway_process import GatewayProcess
from testkit.waiting import wait_until
from tests.server.test_legacy_sse import HELLO, connected

WAIT_SECONDS = 5.0
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
ASK = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"type": "object"}}}


def question(id: Any = 1, tool: str = "own_ask", **more: Any) -> dict[str, Any]:
    """A call during which the server asks the client something."""
    params = {"name": tool, "arguments": {**ASK, **more}, "_meta": {"progressToken": "t"}}
    return request("tools/call", params, id)


def asked(stream: Stream) -> Any:
    """The id of the question that comes next."""
    message = stream.message()
    assert message["method"] == "elicitation/create", message
    return message["id"]


def respond(session: Session, id: Any, said: dict[str, Any]) -> None:
    assert session.post({"jsonrpc": "2.0", "id": id, **said}).status == 202


@pytest.mark.parametrize(
    "said",
    [
        {"result": {"action": "accept", "content": {"name": "x"}, "unknown": [1.0, None]}},
        {"error": {"code": -1, "message": "no", "data": {"why": "because"}}},
    ],
)
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_question_comes_with_the_call_that_caused_it(
    gateway: GatewayProcess, version: str, said: dict[str, Any]
) -> None:
    session = Session(gateway, version, ABLE)
    with asking(session, question(7)) as stream:
        message = stream.message()
        assert message | {"id": 0} == {"jsonrpc": "2.0", "id": 0, **ASK}
        respond(session, message["id"], said)
        answer = stream.message()
        assert answer["id"] == 7
        assert answer["result"]["structuredContent"]["said"] == {"jsonrpc": "2.0", **said}
        with pytest.raises(EOFError):
            stream.event()


def test_several_questions_to_several_clients_are_not_mixed_up(gateway: GatewayProcess) -> None:
    sessions = [Session(gateway, capabilities=ABLE) for _ in range(2)]
    with ExitStack() as streams:
        calls = [
            (session, id, streams.enter_context(asking(session, question(id))))
            for session in sessions
            for id in (1, 2, 3)
        ]
        ids = [asked(stream) for _, _, stream in calls]
        assert len(set(ids)) == len(calls)
        for place, (session, _, _) in reversed(list(enumerate(calls))):
            respond(session, ids[place], {"result": {"place": place}})
        for place, (_, id, stream) in enumerate(calls):
            answer = stream.message()
            assert answer["id"] == id
            assert answer["result"]["structuredContent"]["said"]["result"] == {"place": place}


def test_nobody_answers_for_another(gateway: GatewayProcess) -> None:
    session, stranger = Session(gateway, capabilities=ABLE), Session(gateway, capabilities=ABLE)
    with asking(session, question()) as stream:
        id = asked(stream)
        respond(stranger, id, {"result": {"from": "stranger"}})
        respond(session, "hg-1", {"result": {"from": "nowhere"}})
        respond(session, id, {"result": {"from": "client"}})
        said = stream.message()["result"]["structuredContent"]["said"]
        assert said["result"] == {"from": "client"}


def test_a_question_after_the_connection_was_lost_comes_on_the_stream_of_the_session(
    gateway: GatewayProcess,
) -> None:
    session = Session(gateway, capabilities=ABLE)
    with asking(session, question(1, "own_hold")) as stream:
        stream.message()
    with listening(session) as get:
        session.call("own_release", id=2)
        respond(session, asked(get), {"result": {}})
        with listening(session, stream.id) as again:
            assert again.message()["result"]["structuredContent"]["said"]["result"] == {}


def test_without_a_stream_of_its_own_the_question_comes_with_another_answer(gateway: GatewayProcess) -> None:
    session = Session(gateway, capabilities=ABLE)
    with asking(session, question(1, "own_hold")) as stream:
        stream.message()
    release = request("tools/call", {"name": "own_release", "arguments": {}}, 2)
    with asking(session, release) as other:
        respond(session, asked(other), {"result": {}})
        assert other.message()["id"] == 2
    with listening(session, stream.id) as again:
        assert again.message()["id"] == 1


def test_a_question_that_the_server_takes_back_is_taken_back_from_the_client(gateway: GatewayProcess) -> None:
    session = Session(gateway, capabilities=ABLE)
    with asking(session, question()) as stream:
        id = asked(stream)
        assert session.call("own_regret", id=2)["structuredContent"] == {"regretted": 1}
        told = stream.message()
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == id
        respond(session, id, {"result": {"too": "late"}})
        session.notify("notifications/cancelled", {"requestId": 1})
        assert "error" in stream.message()


def test_a_call_that_is_cancelled_takes_its_question_along(gateway: GatewayProcess, journal: Path) -> None:
    session = Session(gateway, capabilities=ABLE)
    before = cancelled(journal)
    with asking(session, question()) as stream:
        asked(stream)
        session.notify("notifications/cancelled", {"requestId": 1})
        while "error" not in (last := stream.message()):
            assert last["method"] == "notifications/cancelled"
    wait_until(lambda: cancelled(journal) > before, WAIT_SECONDS, "cancelled upstream")


def cancelled(journal: Path) -> int:
    return journal.read_text(encoding="utf-8").count("cancelled")


def test_who_ends_the_session_leaves_nothing_waiting(gateway: GatewayProcess) -> None:
    session = Session(gateway, capabilities=ABLE)
    with asking(session, question()) as stream:
        asked(stream)
        assert send(gateway, "DELETE", "/mcp", session.headers).status == 200
        # Its server ends with it, so the call fails, or the answer says that the client cannot be asked.
        assert "result" in stream.message()


def test_a_client_that_cannot_be_asked_is_not(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    said = session.call("own_ask", ASK)["structuredContent"]["said"]
    assert "error" in said


def test_a_client_of_the_legacy_transport_is_asked_on_its_stream(gateway: GatewayProcess) -> None:
    with connected(gateway) as client:
        client.ask("initialize", HELLO | {"capabilities": ABLE}, 0)
        client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        message = client.ask("tools/call", {"name": "own_ask", "arguments": ASK}, 5)
        assert message["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}}
        assert client.post(answer).status == 202
        result = client.stream.message()
        assert result["id"] == 5
        assert json.loads(result["result"]["content"][0]["text"])["said"]["result"] == {"action": "decline"}


def test_one_question_ends_none_of_many_calls_that_ask_nothing(
    gateway: GatewayProcess, journal: Path
) -> None:
    """On stdio a question does not say which call it belongs to: it counts as one call that waits."""
    session, many = Session(gateway, capabilities=ABLE), 120
    before = journal.read_text().count("held")
    with listening(session) as stream, ThreadPoolExecutor(many + 1) as pool:
        calls = [pool.submit(session.call, "own_hold", None, f"hold {number}") for number in range(many)]
        held = before + many
        wait_until(lambda: journal.read_text().count("held") == held, WAIT_SECONDS, "all are under way")
        asking_call = pool.submit(session.call, "own_ask", ASK, "ask")
        respond(session, asked(stream), {"result": {"action": "decline"}})
        assert asking_call.result()["structuredContent"]["said"]
        session.call("own_release", id="release")
        assert [call.result() for call in calls if call.result().get("isError")] == []
