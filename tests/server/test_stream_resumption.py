"""A client of the handshake era that lost its connection or its gateway resumes where it was."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.clients.plain_http import (
    EXAMPLE,
    LEGACY,
    Session,
    Stream,
    asking,
    listening,
    modern_call,
    request,
    scripted,
    send,
    settle,
)
from testkit.gateway_process import GatewayProcess, free_port, running_gateway
from testkit.waiting import wait_until

WAIT_SECONDS = 5.0
Start = Callable[..., GatewayProcess]
LISTS = [f"notifications/{capability}/list_changed" for capability in ("tools", "prompts", "resources")]


def hold(id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """A call that tells progress at once and is answered when it is released."""
    params = {"name": "own_hold", "arguments": arguments, "_meta": {"progressToken": "t"}}
    return request("tools/call", params, id)


def methods(stream: Stream) -> list[str]:
    """What is said on a stream until it ends."""
    told = []
    try:
        while True:
            told.append(stream.message()["method"])
    except EOFError:
        return told


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("pad", [0, 100_000, 3_000_000])
def test_a_call_outlives_its_connection_and_its_answer_is_fetched(
    gateway: GatewayProcess, journal: Path, version: str, pad: int
) -> None:
    session = Session(gateway, version)
    with asking(session, hold(pad=pad)) as stream:
        assert stream.message()["method"] == "notifications/progress"
        number = journal.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    assert session.call("own_release", id=2)["structuredContent"]["released"] >= 1
    with listening(session, stream.id) as again:
        answer = again.message()
        assert answer["id"] == 1
        assert len(answer["result"]["structuredContent"]["pad"]) == pad
        with pytest.raises(EOFError):
            again.event()
    assert f"cancelled {number}" not in journal.read_text(encoding="utf-8")


def test_a_client_that_is_back_in_time_gets_the_answer_as_it_comes(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    with asking(session, hold("q")) as stream:
        stream.message()
    with listening(session, stream.id) as again:
        assert session.ask("ping")["result"] == {}
        session.call("own_release", id=2)
        assert again.message()["id"] == "q"
        with pytest.raises(EOFError):
            again.event()
    resumed = gateway.metrics()["headgate_streams_resumed_total"]
    # And once more, in case it was lost on the way.
    with listening(session, stream.id) as again:
        assert again.message()["id"] == "q"
    assert gateway.metrics()["headgate_streams_resumed_total"] == resumed + 1


def test_a_connection_that_is_only_half_open_does_not_lock_its_client_out(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    with asking(session, hold()) as stream:
        stream.message()
        with listening(session, stream.id) as again:
            session.call("own_release", id=2)
            assert again.message()["id"] == 1
            with pytest.raises(EOFError):
                stream.event()


def test_a_call_that_went_on_alone_can_be_cancelled(gateway: GatewayProcess, journal: Path) -> None:
    session = Session(gateway)
    with asking(session, hold()) as stream:
        stream.message()
        number = journal.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    session.notify("notifications/cancelled", {"requestId": 1})
    with listening(session, stream.id) as again:
        assert "error" in again.message()
    wait_until(
        lambda: f"cancelled {number}" in journal.read_text(encoding="utf-8"),
        WAIT_SECONDS,
        "cancelled upstream",
    )


def test_a_call_that_went_on_alone_ends_with_its_session(gateway: GatewayProcess, journal: Path) -> None:
    session = Session(gateway)
    with asking(session, hold()) as stream:
        stream.message()
        number = journal.read_text(encoding="utf-8").splitlines()[-1].split()[1]
    # The gateway has noticed once the answer can be had from elsewhere only.
    with listening(session, stream.id):
        pass
    assert send(gateway, "DELETE", "/mcp", session.headers).status == 200
    wait_until(
        lambda: f"cancelled {number}" in journal.read_text(encoding="utf-8"),
        WAIT_SECONDS,
        "cancelled upstream",
    )


def test_an_id_of_another_session_shows_nothing_of_it(gateway: GatewayProcess) -> None:
    session, thief = Session(gateway), Session(gateway)
    with asking(session, hold(pad=10)) as stream:
        stream.message()
    session.call("own_release", id=2)
    with listening(thief, stream.id) as stolen:
        assert send(gateway, "DELETE", "/mcp", thief.headers).status == 200
        # It is a stream like any other: all that it hears is that it may have missed something.
        assert methods(stolen) == LISTS
    with listening(session, stream.id) as again:
        assert again.message()["id"] == 1


@pytest.mark.parametrize("id", ["nonsense", "0", "a-1-1", "-", "é", "x" * 4000, "0-0-99999999999999999999"])
def test_an_unknown_id_opens_a_new_stream(gateway: GatewayProcess, id: str) -> None:
    session = Session(gateway)
    with listening(session, id) as stream:
        assert send(gateway, "DELETE", "/mcp", session.headers).status == 200
        assert methods(stream) == LISTS


@pytest.mark.parametrize(("version", "fields"), [("2025-06-18", {b""}), (LEGACY, {b"id", b"data", b"retry"})])
def test_a_stream_begins_with_an_id_for_clients_that_know_what_it_is(
    gateway: GatewayProcess, version: str, fields: set[bytes]
) -> None:
    with listening(Session(gateway, version)) as stream:
        lines = iter(stream.response.readline, b"\r\n")
        first = dict(line.strip().split(b":", 1) for line in lines)
    assert set(first) == fields
    assert not first.get(b"data", b"").strip()


@pytest.fixture
def own_gateway(start_gateway: Start, tmp_path: Path) -> GatewayProcess:
    """Return a gateway whose list of tools may change."""
    own = start_gateway({"mcpServers": {"own": scripted(tmp_path / "journal")}})
    settle(own)
    return own


def test_the_stream_for_what_comes_unasked_goes_on_where_it_was(own_gateway: GatewayProcess) -> None:
    session = Session(own_gateway)
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    with listening(session) as stream:
        modern_call(own_gateway, "own_grow", {"tool": "one"})
        assert stream.message() == changed
        first = stream.id
        modern_call(own_gateway, "own_grow", {"tool": "two"})
        assert stream.message() == changed
        assert stream.id != first
    modern_call(own_gateway, "own_grow", {"tool": "three"})
    settle(own_gateway)
    with listening(session, first) as again:
        # The second, as if it had been lost, and the third, which came meanwhile.
        assert [again.message(), again.message()] == [changed, changed]
        modern_call(own_gateway, "own_grow", {"tool": "four"})
        assert again.message() == changed


def test_nobody_is_told_of_a_change_twice_who_was_not_away(own_gateway: GatewayProcess) -> None:
    session = Session(own_gateway)
    with listening(session) as stream:
        modern_call(own_gateway, "own_grow", {"tool": "one"})
        stream.message()
    with listening(session, stream.id) as again:
        assert send(own_gateway, "DELETE", "/mcp", session.headers).status == 200
        assert methods(again) == []


def test_a_gateway_that_ends_does_not_wait_for_streams_or_for_calls_left_alone(
    own_gateway: GatewayProcess,
) -> None:
    session, other = Session(own_gateway), Session(own_gateway)
    with asking(session, hold()) as alone:
        alone.message()
    with listening(other, "unknown") as first:
        first.message()
        # Read by another connection, before the gateway has noticed that the first is gone.
        with listening(other, first.id) as again:
            assert set(methods(first)) <= set(LISTS)
            # Less than it would wait for an answer under way.
            assert own_gateway.stop(5.0) == 0
            assert set(methods(again)) <= set(LISTS)


def test_a_gateway_that_ends_lets_a_client_that_came_back_have_its_answer(start_gateway: Start) -> None:
    short = start_gateway({"mcpServers": {"example": EXAMPLE}})
    session = Session(short)
    params = {"name": "example_wait", "arguments": {"seconds": 2}, "_meta": {"progressToken": 1}}
    with asking(session, request("tools/call", params)) as stream:
        stream.message()
    with listening(session, stream.id) as again:
        assert again.message()["params"]["progress"] == 2
        assert short.stop() == 0
        assert [again.message().get("id") for _ in range(3)] == [None, None, 1]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_session_carries_on_after_the_gateway_was_restarted(tmp_path: Path, how: str) -> None:
    config, port = {"mcpServers": {"example": EXAMPLE}}, free_port()
    with running_gateway(config, tmp_path, port=port) as before:
        session = Session(before, "2025-06-18", {"roots": {}})
        assert session.call("example_calculate", {"expression": "6*7"})["content"][0]["text"] == "42"
        getattr(before, how)()
    with running_gateway(config, tmp_path, port=port) as after:
        assert session.call("example_calculate", {"expression": "6*7"})["content"][0]["text"] == "42"
        assert session.notify("notifications/initialized").status == 202
        assert after.metrics()['headgate_sessions_revived_total{reason="restart"}'] == 1
        with listening(session) as stream:
            assert {stream.message()["method"] for _ in LISTS} == set(LISTS)
        assert send(after, "DELETE", "/mcp", session.headers).status == 200
        assert session.post(request("ping")).status == 404


def test_a_session_carries_on_after_it_was_forgotten(start_gateway: Start) -> None:
    brief = start_gateway({"mcpServers": {"example": EXAMPLE}, "proxySettings": {"sessionIdleSeconds": 0.1}})
    session = Session(brief)
    wait_until(lambda: brief.metrics()["headgate_sessions"] == 0, 15.0, "the session is forgotten")
    assert session.call("example_calculate", {"expression": "6*7"})["content"][0]["text"] == "42"
    assert brief.metrics()['headgate_sessions_revived_total{reason="idle"}'] == 1


def test_a_session_of_one_gateway_is_one_of_another_with_the_same_key_only(
    start_gateway: Start, tmp_path: Path
) -> None:
    config = {"mcpServers": {"example": EXAMPLE}}
    one, stranger = start_gateway(config), start_gateway(config)
    session = Session(one)
    twin_directory = tmp_path / "twin"
    (twin_directory / "data").mkdir(parents=True)
    shutil.copy(one.data_dir / "seal.key", twin_directory / "data" / "seal.key")
    with running_gateway(config, twin_directory) as twin:
        assert send_ping(twin, session) == 200
    assert send_ping(stranger, session) == 404
    assert send_ping(one, session) == 200


def send_ping(gateway: GatewayProcess, session: Session) -> int:
    headers = {**session.headers, "Accept": "application/json, text/event-stream"}
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    return send(gateway, "POST", "/mcp", {**headers, "Content-Type": "application/json"}, body).status


def test_a_session_id_that_was_changed_is_unknown(gateway: GatewayProcess) -> None:
    session = Session(gateway)
    id = session.headers["Mcp-Session-Id"]
    for place in (0, len(id) // 2, len(id) - 1):
        session.headers["Mcp-Session-Id"] = id[:place] + ("A" if id[place] != "A" else "B") + id[place + 1 :]
        assert session.post(request("ping")).status == 404
    session.headers["Mcp-Session-Id"] = id
    assert session.ask("ping")["result"] == {}
