"""One client leaves very many input requests unanswered; what others get meanwhile (M16)."""

import asyncio
from collections import Counter
from typing import Any

from campaign.streams import EventStream, converse, open_stream, rounds
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import chatty

_FORMS: dict[str, Any] = {"elicitation": {}}
_ASK = {"name": "talker_ask", "arguments": {}}
# More than any call here takes, and less than the ten minutes that an unanswered one may wait.
_SOON_SECONDS = 10.0


@case(
    "M16",
    "one client leaves input requests unanswered, by one connection, by many, and by many sessions",
    "others of both eras are asked and answered; calls that ask nothing are never refused; "
    "a call that ended for others says so",
    quick_seconds=90.0,
    full_seconds=600.0,
)
async def unanswered(trial: Trial) -> None:
    """A server with a few connections, all of which wait for one client that never answers."""
    most = trial.size(quick=4, full=32)
    count = trial.size(quick=12, full=200)
    entry = chatty(trial.directory, "talker", timeout=4, maxConnections=most)
    async with trial.gateway({"talker": entry}, spare_lines=most, stall_seconds=0.25) as gateway:
        async with client(gateway.port, modern=True, capabilities=_FORMS) as hoarder:
            asked = [await hoarder.request("tools/call", _ASK) for _ in range(count)]
            _check_asked(trial, "one connection", asked)
            await _check_others(trial, gateway, "one connection")
            await _check_return(trial, hoarder, asked[0], asked[-1])
        hoarders = [Client(gateway.port, modern=True, capabilities=_FORMS) for _ in range(count)]
        asked = [await one.request("tools/call", _ASK) for one in hoarders]
        _check_asked(trial, "many connections", asked)
        await _check_others(trial, gateway, "many connections")
        for one in hoarders:
            one.close()
        await _sessions(trial, gateway, most)


def _check_asked(trial: Trial, how: str, answers: list[Answer]) -> None:
    kinds = Counter(answer.result.get("resultType", answer.outcome) for answer in answers)
    trial.measure(f"{how}: asked", ", ".join(f"{number} x {kind}" for kind, number in kinds.items()))
    trial.check(f"{how}: each was asked", set(kinds) == {"input_required"}, kinds)


async def _check_others(trial: Trial, gateway: AsyncGatewayProcess, how: str) -> None:
    """Clients that can be asked: one call that asks, and one that asks nothing, in each era."""
    started = asyncio.get_running_loop().time()
    async with (
        asyncio.timeout(_SOON_SECONDS),
        client(gateway.port, modern=True, capabilities=_FORMS) as caller,
    ):
        plain = await caller.call("talker_echo", {"text": "x"})
        trial.check(f"{how}: a stateless call that asks nothing is served", plain.ok, plain.outcome)
        answered = await rounds(caller, "talker_ask", {})
        trial.check(f"{how}: a stateless client is asked and answered", "green" in str(answered), answered)
    async with asyncio.timeout(_SOON_SECONDS), client(gateway.port, capabilities=_FORMS) as caller:
        plain = await caller.call("talker_echo", {"text": "x"})
        trial.check(f"{how}: a handshake call that asks nothing is served", plain.ok, plain.outcome)
        answered = await converse(caller, caller.call_request("talker_ask"))
        trial.check(f"{how}: a handshake client is asked and answered", "green" in str(answered), answered)
    trial.measure(f"{how}: others", asyncio.get_running_loop().time() - started, "s for four calls")


async def _check_return(trial: Trial, hoarder: Client, first: Answer, last: Answer) -> None:
    """The client comes back: its oldest call has ended and says why, its newest goes on."""
    answers = {}
    for name, answer in (("oldest", first), ("newest", last)):
        state = answer.result["requestState"]
        responses = {key: {"action": "accept", "content": {"colour": "green"}} for key in ("q1",)}
        more = {"requestState": state, "inputResponses": responses}
        answers[name] = await hoarder.request("tools/call", _ASK | more)
    trial.measure("comes back", ", ".join(f"{name} {answer.outcome}" for name, answer in answers.items()))
    failure = answers["oldest"].failure
    said = failure is not None and failure.code == "RESOURCE_EXHAUSTED" and failure.effect == "unknown"
    trial.check("the oldest says that it made room", said, answers["oldest"].message)


async def _sessions(trial: Trial, gateway: AsyncGatewayProcess, most: int) -> None:
    """As many sessions as there are connections, each asked once on its stream and silent."""
    callers = [Client(gateway.port, modern=False, capabilities=_FORMS) for _ in range(most)]
    await asyncio.gather(*(caller.open() for caller in callers))
    streams = [await open_stream(gateway.port, caller.call_request("talker_ask")) for caller in callers]
    asked = [await stream.message() for stream in streams]
    trial.check(
        "many sessions: each was asked",
        all(message and message.get("method") == "elicitation/create" for message in asked),
        asked[:1],
    )
    await _check_others(trial, gateway, "many sessions")
    ended = await _ended(streams[0])
    failure = ((ended or {}).get("result") or {}).get("_meta", {}).get("io.headgate/error", {})
    trial.measure("the oldest session's call", f"{failure.get('code')}/{failure.get('effect')}")
    trial.check("the oldest session's call says why it ended", failure.get("effect") == "unknown", ended)
    for stream in streams:
        stream.close()
    for caller in callers:
        caller.close()


async def _ended(stream: EventStream) -> dict[str, Any] | None:
    last = None
    while (message := await stream.message()) is not None:
        last = message
        if "result" in message:
            break
    return last
