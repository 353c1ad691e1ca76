"""Handles that clients keep for the gateway: sessions, places in streams, tasks, reminders (R12, R16)."""

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from campaign.questions import FORMS
from campaign.streams import accept, listen_request, open_stream, streaming
from campaign.trial import Trial, case
from headgate.domain.identity import Identity, IdentitySource
from headgate.domain.item import Item, ItemKind
from headgate.domain.mcp_request import McpRequest, UpstreamCall
from headgate.domain.mcp_request import McpResponse as UpstreamAnswer
from headgate.input_requests.request_state import STATE_LIFETIME_SECONDS, SealedRequestState
from headgate.input_requests.task_registry import MemoryTaskRegistry
from headgate.storage.files.sealer import Sealer
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import ACCEPT, LEGACY, Answer, Client, client
from testkit.misbehaving_upstreams import chatty, recorded

_CANARY = "only-for-the-first-client"
_INVALID_PARAMS = -32602
_BOB = Identity(principal="bob", source=IdentitySource.API_KEY)


def _changed(token: str, position: int) -> str:
    """The token with another letter at one place."""
    other = "A" if token[position] != "A" else "B"
    return token[:position] + other + token[position + 1 :]


def _sample(token: str, count: int) -> list[int]:
    """Places that are spread over the whole token, the first and the last among them."""
    step = max(1, len(token) // count)
    return sorted({*range(0, len(token), step), len(token) - 1})


@case(
    "R12",
    "handles of others: sessions, Last-Event-ID, legacy sessions, tasks",
    "the same answer as for one that never existed; nothing of another's is seen",
)
async def foreign_handles(trial: Trial) -> None:
    """To know or to guess a handle gives nothing away."""
    servers = {"talker": chatty(trial.directory, "talker"), "other": chatty(trial.directory, "other")}
    async with trial.gateway(servers) as gateway, client(gateway.port) as caller:
        await _check_sessions(trial, gateway, caller)
        await _check_places(trial, gateway, caller)
        await _check_legacy(trial, gateway)
        await _check_tasks(trial, caller)


async def _ask_in(port: int, session: str) -> Answer:
    headers = {
        "Content-Type": "application/json",
        "Accept": ACCEPT,
        "MCP-Protocol-Version": LEGACY,
        "Mcp-Session-Id": session,
    }
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
    async with asyncio.timeout(5), http1.connected(port) as connection:
        return Answer(await connection.exchange(http1.request(port, "POST", "/mcp", headers, body)))


async def _check_sessions(trial: Trial, gateway: AsyncGatewayProcess, caller: Client) -> None:
    assert caller.session
    unknown = await _ask_in(gateway.port, secrets.token_urlsafe(96))
    async with client(gateway.port) as another:
        ended = another.session or ""
    key = secrets.token_bytes(32)
    positions = _sample(caller.session, trial.size(quick=20, full=400))
    tried = {
        "ended by its client": ended,
        "cut": caller.session[:-1],
        "longer": caller.session + "A",
        "twice": caller.session * 2,
        "sealed by a stranger": Sealer([key]).seal("session", b"\x94\x00", 60),
        "a path": "../../etc/passwd",
        "encoded": "%2e%2e%2f",
        "1.5 KB": "A" * 1500,
        "20 KB": "A" * 20_000,
        **{f"changed at {at}": _changed(caller.session, at) for at in positions},
    }
    wrong = []
    for label, session in tried.items():
        answer = await _ask_in(gateway.port, session)
        if (answer.status, answer.raw) != (unknown.status, unknown.raw):
            wrong.append(f"{label}: {answer.status} {answer.raw[:100]!r}")
    trial.measure(
        "sessions",
        f"{len(tried) - len(wrong)} of {len(tried)} answered like an unknown one ({unknown.status})",
    )
    trial.check(
        "sessions: the same answer as for an unknown one", unknown.status == 404 and not wrong, wrong[:5]
    )
    trial.check("the right one still works", (await _ask_in(gateway.port, caller.session)).status == 200)


async def _check_places(trial: Trial, gateway: AsyncGatewayProcess, caller: Client) -> None:
    """The first client leaves a stream; the second tries to take it up."""
    flood = {"method": "notifications/message", "params": {"level": "info", "data": _CANARY}, "count": 5}
    async with client(gateway.port) as owner:
        await owner.request("logging/setLevel", {"level": "debug"})
        stream = await open_stream(gateway.port, owner.call_request("talker_tell_flood", flood))
        first = await stream.event()
        stream.close()
        place = first.id if first else ""
        stolen = await _hear(gateway.port, caller, place)
        unknown = await _hear(gateway.port, caller, "0123abcd-1-0")
        own = await _hear(gateway.port, owner, place)
    trial.measure(
        "Last-Event-ID", f"{stolen.count(_CANARY)} messages of another, {own.count(_CANARY)} of one's own"
    )
    trial.check("nothing of another's stream", place and _CANARY not in stolen, stolen[:200])
    trial.check("the same as for an unknown place", stolen == unknown, (stolen[:200], unknown[:200]))
    trial.check("its owner gets what was missed", own.count(_CANARY) == 5, own[:200])


async def _hear(port: int, caller: Client, place: str) -> str:
    """What comes on a stream that is taken up at a place, for a moment."""
    heard = []
    async with streaming(port, listen_request(caller, place)) as stream:
        try:
            while (message := await stream.message(0.4)) is not None:
                heard.append(msgspec.json.encode(message).decode())
        except TimeoutError:
            pass
    return "\n".join(heard)


async def _check_legacy(trial: Trial, gateway: AsyncGatewayProcess) -> None:
    """Sessions of the legacy transport, whose ids are in addresses."""
    async with streaming(
        gateway.port, http1.request(gateway.port, "GET", "/sse", {"Accept": "text/event-stream"})
    ) as stream:
        piece = await anext(stream.connection.body(stream.headers))
        session = piece.decode().partition("session_id=")[2].split()[0]
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'

        async def post(one: str) -> tuple[int, bytes]:
            path, headers = f"/messages?session_id={quote(one)}", {"Content-Type": "application/json"}
            async with http1.connected(gateway.port) as connection:
                response = await connection.exchange(http1.request(gateway.port, "POST", path, headers, body))
            return response.status, response.body

        unknown = await post(secrets.token_urlsafe(24))
        tried = [_changed(session, at) for at in _sample(session, 16)] + ["", "../x", "\0", "A" * 4000]
        answers = {one: await post(one) for one in tried}
        wrong = {
            one[:40]: answer for one, answer in answers.items() if answer != unknown and answer[0] != 400
        }
        trial.measure(
            "legacy sessions",
            f"{len(tried) - len(wrong)} of {len(tried)} answered like an unknown one ({unknown[0]})",
        )
        trial.check("legacy sessions: the same answer", unknown[0] == 404 and not wrong, wrong)
        trial.check("the right one is taken", (await post(session))[0] == 202)


async def _check_tasks(trial: Trial, caller: Client) -> None:
    await caller.call("talker_task", {"id": "task-one"})
    known = await caller.request("tasks/get", {"taskId": "task-one"})
    trial.check("a task is found at its server", known.result.get("server") == "talker", known.raw)
    unknown = [await caller.request("tasks/get", {"taskId": one}) for one in ("task-two", "", "x" * 10_000)]
    codes = {answer.rpc_error.code if answer.rpc_error else 0 for answer in unknown}
    trial.measure("unknown tasks", f"{len(unknown)} refused with {codes}")
    trial.check("an unknown one has no owner", codes == {-32601}, codes)
    # There is one principal in this version, so another one is tried on the table itself.
    handles, item = MemoryTaskRegistry(), Item(ItemKind.TOOLS, "talker", "task", "talker_task")
    began = McpRequest(caller=Identity(principal="ann"), name="talker_task")
    handles.record_task(UpstreamCall(began, item), UpstreamAnswer(b'{"task":{"taskId":"task-one"}}'))
    about = {"taskId": msgspec.Raw(b'"task-one"')}
    tools = [
        handles.tool_of_task(McpRequest(caller=Identity(principal=who), params=about))
        for who in ("ann", "bob")
    ]
    found = [tool and tool.server for tool in tools]
    trial.check("another principal's is as good as none", found == ["talker", None], found)


class _Forger:
    """Knows the gateway's key, and so can make reminders that only differ in what is tried."""

    def __init__(self, gateway: AsyncGatewayProcess) -> None:
        key = (Path(gateway.log).parent / "data" / "seal.key").read_bytes()
        self._key = key
        self.seal = Sealer([key])

    def content(self, state: str) -> SealedRequestState:
        """What is in a reminder."""
        return msgspec.msgpack.decode(self.seal.open("requestState", state), type=SealedRequestState)

    def made(
        self, sealed_state: SealedRequestState, *, age: float = 0.0, purpose: str = "requestState"
    ) -> str:
        """A reminder as the gateway would have made it so many seconds ago."""
        past = Sealer([self._key], clock=lambda: time.time() - age)
        return past.seal(purpose, msgspec.msgpack.encode(sealed_state), STATE_LIFETIME_SECONDS)


@case(
    "R16",
    "requestState that was changed, is too old, foreign, replayed, or of another request",
    "refused with -32602; nothing is sent upstream; the right one works once",
    quick_seconds=40,
)
async def state_sealer(trial: Trial) -> None:
    """Towards a server of either era, a reminder is good for the call that it was given for, once."""
    servers = {
        "old": chatty(trial.directory, "old"),
        "new": chatty(trial.directory, "new", "--era", "stateless"),
        "twin": chatty(trial.directory, "twin", "--era", "stateless"),
    }
    async with (
        trial.gateway(servers, spare_lines=4) as gateway,
        client(gateway.port, modern=True, capabilities=FORMS) as caller,
    ):
        forger = _Forger(gateway)
        for server in ("old", "new"):
            await _check_reminders(trial, caller, forger, server)


async def _check_reminders(trial: Trial, caller: Client, forger: _Forger, server: str) -> None:
    call = {"name": f"{server}_ask", "arguments": {"count": 1, "note": "mine"}}
    asked = (await caller.request("tools/call", call)).result
    state = asked["requestState"]
    responses = {key: accept(each) for key, each in asked["inputRequests"].items()}
    sealed_state = forger.content(state)
    other = {"name": call["name"], "arguments": {"count": 1, "note": "yours"}}
    positions = _sample(state, trial.size(quick=40, full=len(state)))
    wrong: dict[str, tuple[dict[str, Any], Any]] = {
        **{f"changed at {at}": (call, _changed(state, at)) for at in positions},
        "cut": (call, state[:-1]),
        "longer": (call, state + "A"),
        "empty": (call, ""),
        "no text": (call, 7),
        "null": (call, None),
        "1 MB": (call, "A" * 1_000_000),
        "expired": (call, forger.made(sealed_state, age=STATE_LIFETIME_SECONDS + 1)),
        "of another principal": (call, forger.made(sealed_state, purpose=_BOB.owned_purpose("requestState"))),
        "other arguments": (other, state),
        "no arguments": ({"name": call["name"]}, state),
        "another tool": ({"name": f"{server}_echo", "arguments": call["arguments"]}, state),
        "another server": ({"name": "twin_ask", "arguments": call["arguments"]}, state),
        "for another purpose": (call, forger.made(sealed_state, purpose="session")),
        "of another gateway": (call, Sealer([secrets.token_bytes(32)]).seal("requestState", b"x", 60)),
        "the server's own": (call, "1/new"),
    }
    before = _executed(trial)
    passed = []
    for label, (params, wrong_state) in wrong.items():
        answer = await caller.request(
            "tools/call", params | {"inputResponses": responses, "requestState": wrong_state}
        )
        if answer.rpc_error is None or answer.rpc_error.code != _INVALID_PARAMS:
            passed.append(f"{label}: {answer.outcome} {answer.raw[:150]!r}")
    trial.measure(f"{server}: refused", f"{len(wrong) - len(passed)} of {len(wrong)}")
    trial.check(f"{server}: -32602 for each", not passed, passed[:4])
    trial.check(f"{server}: nothing was sent upstream", _executed(trial) == before, _executed(trial) - before)
    right = call | {"inputResponses": responses, "requestState": state}
    first = await caller.request("tools/call", right)
    trial.check(f"{server}: the right one works", "green" in first.text, first.raw[:300])
    sent = _executed(trial)
    again = await asyncio.gather(*(caller.request("tools/call", right) for _ in range(5)))
    codes = {answer.rpc_error.code if answer.rpc_error else 0 for answer in again}
    trial.measure(f"{server}: replayed", f"{len(again)} times, {_executed(trial) - sent} executed")
    trial.check(f"{server}: and only once", codes == {_INVALID_PARAMS} and _executed(trial) == sent, codes)


def _executed(trial: Trial) -> int:
    return sum(len(recorded(trial.directory, name, "call ")) for name in ("old", "new", "twin"))
