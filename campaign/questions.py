"""Servers that ask too much, clients that never answer, and what becomes of those who wait (M01-M05)."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from typing import Any

import msgspec

from campaign.bystander import bystander
from campaign.streams import EventStream, accept, converse, open_stream, rounds
from campaign.trial import Trial, Usage, case
from testkit import procfs
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import chatty, misbehaving

FORMS: dict[str, Any] = {"elicitation": {}}
_SAMPLING = {"messages": [], "maxTokens": 1}
# So many questions of one connection may be open at a time, says the gateway's source.
_MOST_OPEN = 32
# Together more than the thousand calls that may wait for input at a time.
_SILENT_SESSIONS, _CALLS_OF_ONE = 11, 100

# Results for stateless clients that are kept in files until their time is over.
_KEPT = 4


async def _flood(
    caller: Client, arguments: dict[str, Any], *, answering: bool
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Call the flood; what the client was asked, and the last message."""
    asked: list[dict[str, Any]] = []

    def respond(question: dict[str, Any]) -> dict[str, Any] | None:
        asked.append(question)
        return accept(question) if answering else None

    request = caller.call_request("talker_ask_flood", arguments)
    return asked, await converse(caller, request, respond)


def _kinds(message: dict[str, Any]) -> dict[str, int]:
    """How the server's questions were answered, as it counted."""
    return msgspec.json.decode(message["result"]["content"][0]["text"], type=dict[str, int])


def _told(kinds: dict[str, int], count: int) -> str:
    parts = [f"{number} x {kind}" for kind, number in sorted(kinds.items())]
    unanswered = count - sum(kinds.values())
    return ", ".join([*parts, *([f"{unanswered} dropped"] if unanswered else [])])


@case(
    "M01",
    "a server asks 10,000 times for what the client never declared",
    "no question reaches the client; refused or dropped; others unaffected",
)
async def undeclared(trial: Trial) -> None:
    """Neither a question of the handshake era nor one of the stateless era gets through undeclared."""
    count = 10_000
    servers = {
        "talker": chatty(trial.directory, "talker"),
        "new": chatty(trial.directory, "new", "--era", "stateless"),
        "steady": misbehaving(),
    }
    async with trial.gateway(servers, spare_lines=1) as gateway:
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            declared: dict[str, dict[str, Any]] = {"none": {}, "roots only": {"roots": {}}}
            for label, capabilities in declared.items():
                async with client(gateway.port, capabilities=capabilities) as caller:
                    flood = {"count": count, "seconds": 1.0, "method": "sampling/createMessage"}
                    asked, last = await _flood(caller, flood | {"params": _SAMPLING}, answering=True)
                    kinds = _kinds(last)
                    trial.measure(f"declared {label}", _told(kinds, count))
                    trial.check(
                        f"{label}: no question got through", not asked and "result" not in kinds, asked[:1]
                    )
                    trial.check(
                        f"{label}: some were refused with -32601",
                        any(k.startswith("-32601") for k in kinds),
                        kinds,
                    )
            async with client(gateway.port, modern=True) as caller:
                answers = await asyncio.gather(*(caller.call("new_ask") for _ in range(50)))
                outcomes = Counter(answer.outcome for answer in answers)
                trial.measure(
                    "input_required, undeclared", ", ".join(f"{n} x {o}" for o, n in outcomes.items())
                )
                trial.check("each is a typed error", all(answer.failure for answer in answers), outcomes)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
        async with client(gateway.port) as caller:
            trial.check("the server still serves", (await caller.call("talker_echo", {"text": "x"})).ok)


@case(
    "M02",
    "a server puts 10,000 questions at once to a client that may be asked",
    "a bounded number is open; the rest is refused or dropped; others unaffected",
)
async def question_flood(trial: Trial) -> None:
    """However fast a server asks, the client and the memory see a bounded number of questions."""
    count = 10_000
    servers = {"talker": chatty(trial.directory, "talker"), "steady": misbehaving()}
    async with (
        trial.gateway(servers, spare_lines=1) as gateway,
        client(gateway.port, capabilities=FORMS) as caller,
    ):
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            for label, answering in (("silent client", False), ("answering client", True)):
                flood = {"count": count, "seconds": 1.0}
                asked, last = await _flood(caller, flood, answering=answering)
                kinds = _kinds(last)
                trial.measure(label, f"asked {len(asked)}; {_told(kinds, count)}")
                trial.check(f"{label}: something was asked", asked, kinds)
                if not answering:
                    trial.check("a bounded number is open", len(asked) <= _MOST_OPEN, len(asked))
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
        polite = await converse(caller, caller.call_request("talker_ask"))
        trial.check("the next question is answered", "green" in str(polite), polite)


@case(
    "M03",
    "clients that never answer what they are asked, as many as may wait at a time and more",
    "each call ends at its maximum; lines bounded by maxConnections; others served and asked",
    quick_seconds=60,
)
async def silent_clients(trial: Trial) -> None:
    """Twelve clients of both eras are asked and keep silent, on a server with four connections to spare."""
    most, maximum = 4, 3.0
    entry = chatty(trial.directory, "talker", timeout=1, maxTimeout=maximum, maxConnections=most)
    async with trial.gateway({"talker": entry}, spare_lines=most) as gateway:
        callers = [Client(gateway.port, modern=number % 2 == 1, capabilities=FORMS) for number in range(12)]
        await asyncio.gather(*(caller.open() for caller in callers))
        lines: list[int] = []
        watching = asyncio.create_task(_watch_lines(gateway, lines))
        async with client(gateway.port) as plain:
            started = time.monotonic()
            silent = asyncio.gather(*(_keep_silent(caller) for caller in callers))
            served = 0
            while not silent.done():
                served += (await plain.call("talker_echo", {"text": "x"})).ok
                await asyncio.sleep(0.05)
            outcomes = await silent
            took = time.monotonic() - started
        watching.cancel()
        trial.measure("ended as", ", ".join(f"{n} x {o}" for o, n in Counter(o for o, _ in outcomes).items()))
        trial.measure("longest", max(seconds for _, seconds in outcomes), "s")
        trial.measure("lines", f"{max(lines, default=0)} at most, of {most}")
        trial.measure("served meanwhile", served)
        trial.check("every call ended by its maximum", took < maximum + 2.5, f"{took:.1f} s")
        trial.check("lines bounded", max(lines, default=0) <= most, lines)
        trial.check("plain clients are served", served >= 5, served)
        again = await asyncio.gather(*(_once(caller) for caller in callers[:2]))
        trial.check(
            "afterwards questions are answered again", all("green" in str(one) for one in again), again
        )
        for caller in callers:
            caller.close()
    await _at_the_limit(trial)


async def _at_the_limit(trial: Trial) -> None:
    """More calls wait for input than may, of sessions that never answer; others are asked all the same."""
    names = [f"new{number}" for number in range(3)]
    servers = {name: chatty(trial.directory, name, "--era", "stateless") for name in names}
    async with trial.gateway(servers, stall_seconds=0.25) as gateway:
        usage = Usage(gateway)
        callers = [Client(gateway.port, modern=False, capabilities=FORMS) for _ in range(_SILENT_SESSIONS)]
        await asyncio.gather(*(caller.open() for caller in callers))
        streams: list[EventStream] = []
        for caller in callers:
            requests = [caller.call_request(f"{names[one % 3]}_ask") for one in range(_CALLS_OF_ONE)]
            streams += await asyncio.gather(*(open_stream(gateway.port, request) for request in requests))
        asked = await asyncio.gather(*(stream.message() for stream in streams))
        methods = Counter(str((message or {}).get("method")) for message in asked)
        trial.measure(
            "at the limit", f"{len(streams)} calls of {len(callers)} sessions; asked {dict(methods)}"
        )
        trial.check("each silent call was asked", set(methods) == {"elicitation/create"}, methods)
        for modern in (False, True):
            async with asyncio.timeout(10), client(gateway.port, modern=modern, capabilities=FORMS) as other:
                plain = await other.call("new0_echo", {"text": "x"})
                trial.check("a call that asks nothing is served", plain.ok, plain.outcome)
                trial.check("another client is asked", "green" in str(await _once(other, "new1_ask")))
        trial.measure("RSS at the limit", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +64 MB", usage.peak_growth_mib <= 64, f"{usage.peak_growth_mib:.0f} MB")
        for stream in streams:
            stream.close()
        for caller in callers:
            caller.close()


async def _watch_lines(gateway: AsyncGatewayProcess, lines: list[int]) -> None:
    while True:
        lines.append((await gateway.servers())["talker"].get("client_connections", 0))
        await asyncio.sleep(0.1)


async def _keep_silent(caller: Client) -> tuple[str, float]:
    """Call, be asked, say nothing; how and after how long the call ended."""
    started = time.monotonic()
    if caller.modern:
        # It is asked with an answer, and simply never comes back.
        answer = await caller.call("talker_ask")
        outcome = answer.result.get("resultType", answer.outcome)
        return (outcome if outcome == "input_required" else answer.outcome), time.monotonic() - started
    stream = await open_stream(caller.port, caller.call_request("talker_ask"))
    try:
        last = await _last_message(stream)
    finally:
        stream.close()
    failure = (last.get("result") or {}).get("_meta", {}).get("io.headgate/error", {})
    return failure.get("code", str(last)[:60]), time.monotonic() - started


async def _last_message(stream: EventStream) -> dict[str, Any]:
    last: dict[str, Any] = {}
    while (message := await stream.message(20)) is not None:
        last = message
    return last


async def _once(caller: Client, tool: str = "talker_ask") -> Any:
    if caller.modern:
        return await rounds(caller, tool, {})
    return await converse(caller, caller.call_request(tool))


@case(
    "M04",
    "a server dies while 20 questions of it are open",
    "every call ends at once, typed; the questions are withdrawn; the next call works",
)
async def death_with_questions(trial: Trial) -> None:
    """A client that is asked on behalf of a dead server is released."""
    count = 20
    servers = {"talker": chatty(trial.directory, "talker", timeout=20)}
    async with trial.gateway(servers, spare_lines=count) as gateway:
        await _die_on_one_line(trial, gateway, count)
        await _die_on_all_lines(trial, gateway, count)


async def _die_on_one_line(trial: Trial, gateway: AsyncGatewayProcess, count: int) -> None:
    """All questions to one client of the handshake era, on its own connection."""
    async with client(gateway.port, capabilities=FORMS) as caller:
        arguments = {"count": count, "seconds": 0.5}
        stream = await open_stream(gateway.port, caller.call_request("talker_ask_and_die", arguments))
        kinds: Counter[str] = Counter()
        last: dict[str, Any] = {}
        started = time.monotonic()
        while (message := await stream.message(10)) is not None:
            kinds[message.get("method", "answer")] += 1
            last = message
        seconds = time.monotonic() - started
        stream.close()
        failure = last.get("result", {}).get("_meta", {}).get("io.headgate/error", {})
        trial.measure(
            "one line",
            f"{failure.get('code')}/{failure.get('effect')} {seconds:.2f} s, "
            f"{kinds['elicitation/create']} asked, {kinds['notifications/cancelled']} withdrawn",
        )
        trial.check("all were asked", kinds["elicitation/create"] == count, kinds)
        trial.check("the call ends within 1 s of the death", failure and seconds < 1.5, (last, seconds))
        trial.check("each question is withdrawn", kinds["notifications/cancelled"] == count, kinds)
        again = await converse(caller, caller.call_request("talker_ask"))
        trial.check("the next call works", "green" in str(again), again)


async def _die_on_all_lines(trial: Trial, gateway: AsyncGatewayProcess, count: int) -> None:
    """One question to each of many clients of the stateless era, each on a connection of its own."""
    async with client(gateway.port, modern=True, capabilities=FORMS) as caller:
        params = {"name": "talker_ask", "arguments": {}}
        asked = await asyncio.gather(*(caller.request("tools/call", params) for _ in range(count)))
        states = [answer.result.get("requestState") for answer in asked]
        trial.check("all were asked with their answer", all(states), [a.outcome for a in asked])
        for pid in procfs.descendants(gateway.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        more = {"inputResponses": {"q1": {"action": "accept", "content": {}}}}
        answers = await asyncio.gather(
            *(caller.request("tools/call", params | more | {"requestState": state}) for state in states)
        )
        outcomes = Counter(answer.outcome for answer in answers)
        longest = max(answer.seconds for answer in answers)
        trial.measure(
            "all lines", f"{', '.join(f'{n} x {o}' for o, n in outcomes.items())} {longest:.2f} s at most"
        )
        trial.check("each retry is answered at once", longest < 1.5, longest)
        trial.check("and says what happened", all(a.failure or a.rpc_error for a in answers), outcomes)
        await gateway.wait_ready(["talker"])
        again = await rounds(caller, "talker_ask", {})
        trial.check("the next call works in this era too", "green" in str(again), again)


@case(
    "M05",
    "_meta and inputResponses that are deep, huge, or of very many keys",
    "within 4 MiB, depth 64 and 1,000 keys they arrive whole, otherwise 400 or 413; no stall",
)
async def huge_extras(trial: Trial) -> None:
    """What belongs to a request besides its arguments is bounded like them, and no dearer."""
    huge, deep = "x" * 3_900_000, _nested(40)
    few, many = ({f"k{number}": 1 for number in range(count)} for count in (900, 200_000))
    servers = {
        "old": chatty(trial.directory, "old"),
        "new": chatty(trial.directory, "new", "--era", "stateless"),
    }
    async with trial.gateway(servers, spare_files=_KEPT, spare_lines=1) as gateway:
        usage = Usage(gateway)
        for modern in (False, True):
            async with client(gateway.port, modern=modern, capabilities=FORMS) as caller:
                for server in servers:
                    await _check_meta(
                        trial, caller, server, {"huge": huge, "deep": deep, "many": few, "too many": many}
                    )
                too_deep = await caller.request(
                    "tools/call", {"name": "old_echo", "_meta": {"x": _nested(80)}}
                )
                trial.check("depth 80 is refused", too_deep.status == 400, too_deep.status)
        async with client(gateway.port, modern=True, capabilities=FORMS) as caller:
            for server in servers:
                await _check_responses(trial, caller, server, huge, many)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +128 MB", usage.peak_growth_mib <= 128, f"{usage.peak_growth_mib:.0f} MB")


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def _check_meta(trial: Trial, caller: Client, server: str, metas: dict[str, Any]) -> None:
    era = "new" if caller.modern else "old"
    for label, value in metas.items():
        meta = value if isinstance(value, dict) else {"com.example/extra": value}
        answer = await caller.request("tools/call", {"name": f"{server}_size_of", "_meta": meta})
        if label == "too many":
            trial.measure(
                f"_meta {label}, {era} to {server}", f"{answer.status} {answer.seconds * 1000:.0f} ms"
            )
            trial.check(f"_meta {label}, {era} to {server}: refused", answer.status == 400, answer.outcome)
            continue
        arrived = int(answer.text.split()[1]) if answer.ok else 0
        trial.measure(
            f"_meta {label}, {era} to {server}", f"{arrived / 1e6:.2f} MB {answer.seconds * 1000:.0f} ms"
        )
        whole = len(msgspec.json.encode(meta))
        trial.check(f"_meta {label}, {era} to {server}: arrives whole", arrived >= whole, answer.outcome)


async def _check_responses(
    trial: Trial, caller: Client, server: str, huge: str, many: dict[str, int]
) -> None:
    """Answers to questions that are as large as a body may be, of very many keys, and too large."""
    call = {"name": f"{server}_ask", "arguments": {"all": False} if server == "new" else {}}
    for label, content in (
        ("huge", {"text": huge}),
        ("many", many),
        ("too large", {"text": huge + huge[:400_000]}),
    ):
        asked = (await caller.request("tools/call", call)).result
        responses = {key: {"action": "accept", "content": content} for key in asked["inputRequests"]}
        if label == "many":
            responses |= {f"unasked{number}": {} for number in range(10_000)}
        more = {"inputResponses": responses, "requestState": asked["requestState"]}
        answer = await _post_any(caller, call | more)
        trial.measure(
            f"inputResponses {label}, to {server}", f"{answer.status} {answer.seconds * 1000:.0f} ms"
        )
        fits = label != "too large"
        trial.check(
            f"inputResponses {label}, to {server}",
            answer.ok if fits else answer.status == 413,
            answer.outcome,
        )


async def _post_any(caller: Client, params: dict[str, Any]) -> Answer:
    """A request that may be refused before all of it was sent."""
    return await caller.request("tools/call", params)
