"""Clients that subscribe to very many resources with very long URIs (M17)."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from campaign.streams import listen_request, open_stream
from campaign.trial import MEBIBYTE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import chatty
from testkit.waiting import eventually

_SCRIPT: dict[str, Any] = {
    "resources": [{"uri": "text://one", "name": "one"}],
    "resourceTemplates": [{"uriTemplate": "text://{+path}", "name": "any"}],
}
_SESSIONS = 25
_LONG = 7_900
# What the source allows for subscriptions in the file, and as much again for the rest of it.
_MOST_FILE_MIB = 16
_AT_ONCE = 50


@case(
    "M17",
    "25 sessions subscribe to 1,000 resources each, with URIs of 8 KB",
    "bounded in bytes, per session and in total; a refusal is one sentence; state.json stays small; "
    "others subscribe and are notified",
    quick_seconds=60.0,
)
async def many_subscriptions(trial: Trial) -> None:
    """Whatever a session subscribes to is remembered beyond a restart, so it must be bounded."""
    count = trial.size(quick=150, full=1000)
    servers = {"talker": chatty(trial.directory, "talker", script=_SCRIPT)}
    async with trial.gateway(servers, stall_seconds=0.25) as gateway:
        usage = Usage(gateway)
        callers = [Client(gateway.port, modern=False) for _ in range(_SESSIONS)]
        answers: list[Answer] = []
        for number, caller in enumerate(callers):
            await caller.open()
            answers += await _subscribe(caller, number, count)
        refusals = [_sentence(answer) for answer in answers if _sentence(answer)]
        trial.measure("accepted", f"{len(answers) - len(refusals)} of {len(answers)}")
        trial.measure("refused", f"{len(refusals)}: {Counter(refusals).most_common(1)}")
        trial.check("some are refused", refusals)
        trial.check("each in one sentence", all(text.count("; ") == 1 for text in refusals), refusals[:1])
        await _check_stateless(trial, gateway, count)
        await _check_bystander(trial, gateway)
        state = gateway.log.parent / "data" / "state.json"
        await eventually(lambda: state.exists() and _quiet(state), 10, "state.json to be written")
        trial.measure("state.json", state.stat().st_size / MEBIBYTE, "MiB")
        trial.check("state.json is small", state.stat().st_size <= _MOST_FILE_MIB * MEBIBYTE)
        trial.measure("RSS", f"+{usage.peak_growth_mib:.0f} MB")
        trial.check("RSS at most +96 MB", usage.peak_growth_mib <= 96, f"{usage.peak_growth_mib:.0f} MB")
        for caller in callers:
            caller.close()


async def _subscribe(caller: Client, number: int, count: int) -> list[Answer]:
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def once(index: int) -> Answer:
        async with at_once:
            uri = f"text://{number}-{index}/".ljust(_LONG, "x")
            return await caller.request("resources/subscribe", {"uri": uri})

    return await asyncio.gather(*(once(index) for index in range(count)))


def _sentence(answer: Answer) -> str:
    return answer.rpc_error.message if answer.rpc_error else ""


def _quiet(path: Path) -> bool:
    """Whether the file has what was changed last: nothing is waiting to replace it."""
    return not path.with_suffix(".new").exists()


async def _check_stateless(trial: Trial, gateway: AsyncGatewayProcess, count: int) -> None:
    async with client(gateway.port, modern=True) as caller:
        uris = [f"text://{index}/".ljust(3_900, "y") for index in range(count)]
        answer = await caller.request(
            "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
        )
        trial.measure("subscriptions/listen", answer.outcome)
        trial.check("a stateless client is bounded too", answer.rpc_error is not None, answer.status)


async def _check_bystander(trial: Trial, gateway: AsyncGatewayProcess) -> None:
    """A client with one short URI subscribes, and hears of it."""
    async with client(gateway.port) as caller:
        answer = await caller.request("resources/subscribe", {"uri": "text://one"})
        trial.check("others may subscribe", answer.rpc_error is None, answer.message)
        stream = await open_stream(gateway.port, listen_request(caller))
        flood = {"method": "notifications/resources/updated", "params": {"uri": "text://one"}, "count": 1}
        await caller.call("talker_tell_flood", flood)
        message: dict[str, Any] | None = {}
        while message is not None and message.get("method") != "notifications/resources/updated":
            message = await stream.message(10)
        trial.check("and are notified", message is not None)
        stream.close()
