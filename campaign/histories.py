"""Logical calls with a key, what their callers got, and whether that agrees with what was done."""

import asyncio
import json
import secrets
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testkit.clients.async_http import Answer, Client
from testkit.servers.audit_log import AuditRecord, read

CLASSES = {"pay": "unsafe", "put": "idempotent", "get": "read", "charge": "keyed", "book": "probeable"}
# What may be carried out more than once without harm.
_HARMLESS = ("put", "get")
_BROKEN = (ConnectionError, asyncio.IncompleteReadError, OSError, TimeoutError)
_TRY_SECONDS = 15.0
_PAUSE_SECONDS = 0.03
# A probe is believed half a second after the doubt; this leaves many times that.
_MOST_TRIES = 400


@dataclass(slots=True)
class Logical:
    """One call that its caller makes until it knows what became of it."""

    server: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    ref: str = field(default_factory=lambda: secrets.token_hex(6))
    told: list[str] = field(default_factory=list)
    tries: int = 0
    broken: int = 0
    timeouts: int = 0
    doubt: bool = False
    lost: str = ""

    @property
    def key(self) -> str:
        """The idempotency key."""
        return f"key-{self.ref}"

    def agrees(self, state: str | None) -> bool:
        """Whether that state in the ledger is what the caller got; a late answer may have come since."""
        if self.told:
            return state == "done"
        return state == "in_doubt" or (state == "done" and self.timeouts > 0)

    async def attempt(self, caller: Client) -> Answer:
        """Send it once; raises when the connection breaks."""
        self.tries += 1
        async with asyncio.timeout(_TRY_SECONDS):
            return await caller.call(
                f"{self.server}_{self.tool}", {"ref": self.ref, **self.arguments}, key=self.key
            )


async def insist(call: Logical, caller: Client, up: asyncio.Event) -> None:
    """Make a call again, with its key, until there is a definite answer or it is in doubt.

    `up` is set while there is a gateway to call.
    """
    while call.tries - call.broken < _MOST_TRIES:
        await up.wait()
        try:
            answer = await call.attempt(caller)
        except _BROKEN:
            call.broken += 1
            caller.close()
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        if answer.ok:
            call.told.append(said(answer))
            call.doubt = False
            return
        call.timeouts += answer.failure is not None and answer.failure.code == "TIMEOUT"
        # Of what can be probed, the server knows more in a moment.
        call.doubt = answer.failure is not None and answer.failure.code == "IN_DOUBT"
        if call.doubt and call.tool != "book":
            return
        if answer.status == 404 and not caller.modern:
            await caller.open()
        await asyncio.sleep(_PAUSE_SECONDS)


async def repeat(call: Logical, caller: Client, up: asyncio.Event) -> None:
    """Make an acknowledged call once more: its answer has to be known still."""
    while True:
        await up.wait()
        try:
            answer = await call.attempt(caller)
            break
        except _BROKEN:
            call.broken += 1
            caller.close()
            await asyncio.sleep(_PAUSE_SECONDS)
    if not answer.ok or not answer.operation.get("duplicate"):
        call.lost = answer.outcome if not answer.ok else "not known as a duplicate"
    else:
        call.told.append(said(answer))


def said(answer: Answer) -> str:
    """The nonce of the execution in the answer; an operator's decision has none."""
    if answer.operation.get("resolved_by") in ("probe", "operator", "caller"):
        return ""
    try:
        return str(json.loads(answer.text)["nonce"])
    except (ValueError, KeyError, TypeError):
        return f"no answer of the server: {answer.text[:200]}"


@dataclass(slots=True)
class Tally:
    """What became of all calls."""

    calls: int = 0
    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    doubts: Counter[str] = field(default_factory=Counter)
    unfounded: int = 0
    open: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def in_doubt(self) -> int:
        """How many callers got an unknown outcome."""
        return sum(self.doubts.values())

    def row(self) -> str:
        """The table of the issue in one line."""
        return (
            f"lost {self.lost}, executed twice {self.twice}, in doubt {self.in_doubt}, "
            f"wrong answer {self.wrong}"
        )

    def explained(self) -> str:
        """What the file says of those in doubt."""
        return ", ".join(f"{count} {what}" for what, count in sorted(self.doubts.items())) or "none"


def judge(calls: Iterable[Logical], lines: Iterable[AuditRecord]) -> Tally:
    """Compare what callers got with what was done."""
    tally, done, arrived = Tally(), defaultdict[str, list[str]](list), Counter[str]()
    for line in lines:
        if line.event == "executed":
            done[line.ref].append(line.nonce)
        arrived[line.ref] += line.event == "arrived"
    for call in calls:
        tally.calls += 1
        _judge(tally, call, done[call.ref], arrived[call.ref])
    return tally


def _judge(tally: Tally, call: Logical, nonces: list[str], arrivals: int) -> None:
    name = f"{call.server} {call.tool} {call.ref}: told {call.told}, done {nonces}, tries {call.tries}"
    if len(nonces) > 1 and call.tool not in _HARMLESS:
        tally.twice += 1
        tally.faults.append(f"executed twice: {name}")
    if call.told:
        tally.acknowledged += 1
        if not nonces or call.lost:
            tally.lost += 1
            tally.faults.append(f"lost ({call.lost}): {name}")
        # The word of a probe names no execution.
        heard = {nonce for nonce in call.told if nonce}
        if len(heard) > 1 or not heard <= set(nonces):
            tally.wrong += 1
            tally.faults.append(f"wrong answer: {name}")
    elif call.doubt:
        what = "executed" if nonces else "arrived, not executed" if arrivals else "never arrived"
        tally.doubts[f"{call.server} {what}"] += 1
        if not (call.broken or call.timeouts) or CLASSES[call.tool] not in ("unsafe", "probeable"):
            tally.unfounded += 1
            tally.faults.append(f"in doubt without a reason: {name}")
    else:
        tally.open += 1
        tally.faults.append(f"no definite answer: {name}")


def together(tallies: Iterable[Tally]) -> Tally:
    """The sum of them."""
    total = Tally()
    for one in tallies:
        for name in ("calls", "acknowledged", "lost", "twice", "wrong", "unfounded", "open"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.doubts += one.doubts
        total.faults += one.faults
    return total


def judged(calls: Iterable[Logical], deeds: Path) -> Tally:
    """The same, with the file."""
    return judge(calls, read(deeds))


def states(data: Path) -> dict[str, str]:
    """The state of every operation in a ledger, by its key; no gateway has it open."""
    if not (data / "ledger.db").exists():
        return {}
    with sqlite3.connect(data / "ledger.db") as connection:
        found = dict(connection.execute("SELECT key, state FROM operations"))
    connection.close()
    return found
