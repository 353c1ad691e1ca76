"""One key, many callers: together, with other arguments, after a timeout, after a drop (S03-S05, S07)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from campaign.histories import said
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients import http1
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import read
from testkit.waiting import eventually

# An idle connection or two to an upstream may be kept for the next call; the ledger has eight files open.
SPARE_FILES = 10


def happened(deeds: Path, ref: str, event: str = "executed") -> int:
    """How often that happened to a call."""
    return sum(line.event == event and line.ref == ref for line in read(deeds))


@contextlib.asynccontextmanager
async def both_banks(
    trial: Trial, settings: dict[str, Any] | None = None, **entry: Any
) -> AsyncIterator[tuple[AsyncGatewayProcess, Path]]:
    """A gateway with a ledger server over stdio, one over HTTP and one of the stateless era."""
    deeds = trial.directory / "deeds"
    async with audited_http(deeds) as web, audited_http(deeds, "--stateless") as modern:
        servers = {
            "bank": audited(deeds, **entry),
            "web": web.entry(**entry),
            "modern": modern.entry(**entry),
        }
        async with trial.gateway(servers, settings=settings, spare_files=SPARE_FILES) as gateway:
            yield gateway, deeds


@case("S03", "100 concurrent calls with one key, of clients of both eras", "1 execution, 100 same answers")
async def same_key_at_once(trial: Trial) -> None:
    """A repeat of a call in flight waits for it."""
    async with both_banks(trial) as (gateway, deeds):
        callers = [Client(gateway.port, modern=number % 2 == 0) for number in range(100)]
        await asyncio.gather(*(caller.open() for caller in callers))
        for server in ("bank", "web", "modern"):
            arguments = {"ref": f"{server}-once", "before": 0.3}
            answers = await asyncio.gather(
                *(caller.call(f"{server}_pay", arguments, key=f"{server}-key") for caller in callers)
            )
            done = happened(deeds, f"{server}-once")
            told, flagged = (
                {said(a) for a in answers},
                sum(bool(a.operation.get("duplicate")) for a in answers),
            )
            trial.measure(server, f"executed {done}, answers {len(told)}, duplicates {flagged}")
            trial.check(f"{server}: 1 execution", done == 1, done)
            trial.check(f"{server}: 100 same answers", len(told) == 1 and all(a.ok for a in answers), told)
            trial.check(f"{server}: 99 duplicates", flagged == 99, flagged)
        for caller in callers:
            caller.close()


@case(
    "S04",
    "the same key with other arguments, another tool, another server; two keys in one call",
    "CONFLICT, executed 0; the first call keeps its answer",
)
async def reused_key(trial: Trial) -> None:
    """A key names one call; another call with it is refused."""
    async with both_banks(trial) as (gateway, deeds), client(gateway.port, modern=True) as caller:
        under_way = asyncio.create_task(caller.call("bank_pay", {"ref": "first", "before": 0.5}, key="k"))
        await eventually(lambda: happened(deeds, "first", "arrived"), 5, "the call to arrive")
        others = {
            "other arguments": ("bank_pay", {"ref": "other", "before": 0.5}),
            "other tool": ("bank_put", {"ref": "first", "before": 0.5}),
            "other server": ("web_pay", {"ref": "first", "before": 0.5}),
        }
        for moment in ("while it runs", "after it"):
            for label, (tool, arguments) in others.items():
                answer = await caller.call(tool, arguments, key="k")
                trial.measure(f"{label} {moment}", answer.outcome)
                trial.check(f"{label} {moment}: CONFLICT", answer.outcome == "CONFLICT/none", answer.outcome)
            first = await under_way
        again = await caller.call("bank_pay", {"before": 0.50, "ref": "first"}, key="k")
        trial.check("the order of arguments is no difference", said(again) == said(first), again.outcome)
        twice = caller.post(
            "tools/call",
            {"name": "bank_pay", "arguments": {"ref": "two"}, "_meta": {"io.headgate/idempotencyKey": "a"}},
            {"Idempotency-Key": "b"},
        )
        refused = await caller.exchange(twice)
        trial.measure("two keys", refused.outcome)
        trial.check("two keys are refused", refused.rpc_error is not None, refused.outcome)
        executed = [line.ref for line in read(deeds) if line.event == "executed"]
        trial.measure("executed", len(executed))
        trial.measure("principals", "one, until callers sign in")
        trial.check("only the first was executed", executed == ["first"], executed)


@case(
    "S05",
    "a timeout, then the answer after all: stdio, HTTP with sessions, HTTP stateless",
    "in doubt, then done; a repeat gets the answer; 1 execution",
)
async def late_answer(trial: Trial) -> None:
    """What comes too late for its caller is there when it asks again."""
    async with (
        both_banks(trial, timeout=0.5) as (gateway, deeds),
        client(gateway.port, modern=True) as caller,
    ):

        async def ask(server: str) -> None:
            arguments = {"ref": f"{server}-late", "after": 1.5}
            first = await caller.call(f"{server}_pay", arguments, key=server)
            doubt = await caller.call(f"{server}_pay", arguments, key=server)
            op_id = first.operation.get("op_id")
            trial.check(f"{server}: a timeout", first.outcome == "TIMEOUT/unknown", first.outcome)
            trial.check(f"{server}: in doubt", doubt.outcome == "IN_DOUBT/unknown", doubt.outcome)
            waited = await eventually(lambda: _is_done(caller, op_id), 8, f"the late answer of {server}")
            again = await caller.call(f"{server}_pay", arguments, key=server)
            done = [line.nonce for line in read(deeds) if line.ref == f"{server}-late" and line.nonce]
            trial.measure(server, f"{first.outcome}, then done after {waited:.1f} s, executed {len(done)}")
            trial.check(f"{server}: the repeat gets the answer", again.ok and said(again) in done, again.raw)
            trial.check(f"{server}: 1 execution", len(done) == 1, done)

        await asyncio.gather(*(ask(server) for server in ("bank", "web", "modern")))


async def _is_done(caller: Client, op_id: str | None) -> bool:
    found = await caller.call("get_operation", {"op_id": op_id})
    return bool((found.result.get("structuredContent") or {}).get("state") == "done")


async def drop(caller: Client, request: bytes, deeds: Path, ref: str) -> None:
    """Send a call and drop the connection when it has arrived."""
    async with http1.connected(caller.port) as connection:
        connection.writer.write(request)
        await connection.writer.drain()
        await eventually(lambda: happened(deeds, ref, "arrived"), 5, "the call to arrive")


@case(
    "S07",
    "clients of both eras drop a call and make it again with a new id and the same key",
    "1 execution; the answer, when they come back in time",
)
async def dropped_call(trial: Trial) -> None:
    """A client that was cut off finds its call again."""
    async with both_banks(trial, settings={"rejoin": 3}) as (gateway, deeds):

        async def ask(server: str, *, modern: bool) -> None:
            label = f"{'new' if modern else 'old'} client, {server}"
            async with client(gateway.port, modern=modern) as caller:
                arguments, key = {"ref": label, "after": 0.8}, label
                request = caller.call_request(f"{server}_pay", arguments, key=key)
                await drop(caller, request, deeds, label)
                again = await caller.call(f"{server}_pay", arguments, key=key)
            done = [line.nonce for line in read(deeds) if line.ref == label and line.nonce]
            trial.measure(label, f"{again.outcome}, executed {len(done)}")
            trial.check(f"{label}: the answer", again.ok and said(again) in done, again.raw[:300])
            trial.check(f"{label}: 1 execution", len(done) == 1, done)
            trial.check(f"{label}: not cancelled", not happened(deeds, label, "cancelled"))

        servers = ("bank", "web", "modern")
        await asyncio.gather(*(ask(server, modern=modern) for server in servers for modern in (False, True)))


@case(
    "S08",
    "many callers of one key leave in any order, by closing and by notifications/cancelled",
    "the upstream hears of one cancellation, after the last has left",
)
async def cancel_storm(trial: Trial) -> None:
    """As long as one waits, the call goes on."""
    waiters, rounds = 40, trial.size(quick=3, full=20)
    async with both_banks(trial, settings={"rejoin": 0}) as (gateway, deeds):
        callers = [Client(gateway.port, modern=number % 2 == 0) for number in range(waiters)]
        await asyncio.gather(*(caller.open() for caller in callers))
        early, late = 0, 0.0
        for number in range(rounds):
            ref = f"storm{number}"
            first, *others = [_Waiter(caller, ref) for caller in callers]
            await eventually(partial(happened, deeds, ref, "arrived"), 5, "the call to arrive")
            await asyncio.sleep(0.2)
            for waiter in others:
                await waiter.leave()
            # A moment in which a cancellation that came too early would be seen.
            await asyncio.sleep(0.2)
            early += happened(deeds, ref, "cancelled")
            await first.leave()
            seconds = await eventually(partial(happened, deeds, ref, "cancelled"), 5, "the cancellation")
            late = max(late, seconds)
            trial.check("one cancellation", happened(deeds, ref, "cancelled") == 1)
            trial.check("one execution", happened(deeds, ref, "arrived") == 1)
        for caller in callers:
            caller.close()
        trial.measure("rounds", f"{rounds} of {waiters} callers")
        trial.measure("cancelled while a caller waited", early)
        trial.measure("cancelled after the last left", late, "s at most")
        trial.check("never while a caller waits", early == 0, early)
        trial.check("within 1 s of the last", late <= 1, late)


class _Waiter:
    """A caller of a tool that does not answer."""

    def __init__(self, caller: Client, ref: str) -> None:
        self._caller = caller
        self._request = caller.call_request("bank_pay", {"ref": ref, "fault": "silent"}, key=ref)
        self._task = asyncio.create_task(caller.exchange(self._request))

    async def leave(self) -> None:
        """In the way of the client's era."""
        if not self._caller.modern:
            params = {"requestId": json.loads(self._request.split(b"\r\n\r\n", 1)[1])["id"]}
            await self._caller.tell({"method": "notifications/cancelled", "params": params})
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=5)
