"""Every way to lose an answer, for tools of every class, with a key and without (S06)."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.histories import CLASSES, said
from campaign.trial import Trial, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client
from testkit.misbehaving_upstreams import audited, audited_http
from testkit.servers.audit_log import AuditRecord, read

# Each server has a budget of ten retries; a group of cells has a server of its own.
_ENTRY = {"breaker": {"failures": 1000}, "retry": {"attempts": 5}}


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a call goes wrong, once."""

    name: str
    arguments: dict[str, Any]
    # Whether the server has carried the call out when its answer is lost.
    done: bool
    # Whether the server may still be at work when the gateway gives up.
    at_work: bool = False
    # Whether it is certain that nothing happened.
    harmless: bool = False


_ANY = (
    Fault("lost before", {"fault": "drop"}, done=False),
    Fault("lost after", {"fault": "drop_done"}, done=True),
    Fault("half an answer", {"fault": "half"}, done=True),
    Fault("timeout before", {"fault": "deaf"}, done=False, at_work=True),
    Fault("timeout after", {"fault": "silent"}, done=True, at_work=True),
    Fault("unreadable", {"fault": "garbage"}, done=True),
)
_HTTP = (
    *(Fault(str(s), {"fault": "status", "status": s}, done=False) for s in (500, 502, 503)),
    # A proxy has given up, and the server behind it may be at work.
    Fault("504", {"fault": "status", "status": 504}, done=False, at_work=True),
    Fault("503 after", {"fault": "status_done"}, done=True),
    Fault("429", {"fault": "status", "status": 429, "retry_after": 0}, done=False, harmless=True),
)
_QUICK = ("lost before", "lost after", "timeout before", "timeout after", "503", "429")


@dataclass(frozen=True, slots=True)
class Cell:
    """One tool with one fault at one server."""

    server: str
    tool: str
    fault: Fault
    keyed: bool

    @property
    def ref(self) -> str:
        """The name of its call."""
        return f"{self.server} {self.tool}"

    def expected(self) -> tuple[str, int, int]:
        """What the promise says: the outcome, how often it is sent and how often it is carried out."""
        kind, fault = CLASSES[self.tool], self.fault
        if fault.harmless:
            return "ok", 2, 1
        if kind in ("read", "idempotent"):
            return "ok", 2, 1 + fault.done
        if kind == "keyed":
            return "ok", 2, 1
        if kind == "probeable" and self.keyed:
            if fault.done:
                return "ok", 1, 1
            if not fault.at_work:
                return "ok", 2, 1
        return "unknown", 1, int(fault.done)


@case(
    "S06",
    "answers lost in every way, for tools of five classes, with a key and without, stdio and HTTP",
    "the table of promises exactly: mismatches 0",
    quick_seconds=60,
    full_seconds=180,
)
async def ambiguous(trial: Trial) -> None:
    """What may be sent again is, and nothing else."""
    deeds = trial.directory / "deeds"
    async with audited_http(deeds) as web:
        groups, servers = dict[str, list[Cell]](), dict[str, Any]()
        for where, faults in (("s", _ANY), ("h", _ANY + _HTTP)):
            for fault in faults:
                if trial.quick and fault.name not in _QUICK:
                    continue
                for keyed in (True, False):
                    name = f"{where}{len(groups)}"
                    groups[name] = [Cell(name, tool, fault, keyed) for tool in CLASSES]
                    # A server that has ended needs a moment to be there again, and more on a busy machine.
                    entry = _ENTRY | {"timeout": 0.7 if fault.at_work else 10}
                    servers[name] = audited(deeds, **entry) if where == "s" else web.entry(**entry)
        async with (
            trial.gateway(servers, spare_files=4 * len(groups), stall_seconds=0.25) as gateway,
            client(gateway.port, modern=True) as caller,
        ):
            found = await asyncio.gather(*(_try(gateway, caller, cells) for cells in groups.values()))
            cells = [one for group in found for one in group]
            await _check(trial, caller, cells, deeds)


async def _try(gateway: AsyncGatewayProcess, caller: Client, cells: list[Cell]) -> list[tuple[Cell, Answer]]:
    answers = []
    for cell in cells:
        with contextlib.suppress(TimeoutError):
            await gateway.wait_ready([cell.server])
        answers.append((cell, await _call(caller, cell)))
    return answers


async def _call(caller: Client, cell: Cell) -> Answer:
    arguments = {"ref": cell.ref, **cell.fault.arguments}
    return await caller.call(f"{cell.server}_{cell.tool}", arguments, key=cell.ref if cell.keyed else "")


async def _check(trial: Trial, caller: Client, cells: list[tuple[Cell, Answer]], deeds: Path) -> None:
    mismatches, doubts = [], 0
    lines = read(deeds)
    for cell, answer in cells:
        seen = _seen(cell, answer, lines)
        if seen != cell.expected():
            kind = CLASSES[cell.tool]
            mismatches.append(
                f"{cell.fault.name}, {kind}, {cell.server}, key {cell.keyed}: {answer.outcome} {seen}, "
                f"not {cell.expected()}"
            )
    for cell, answer in cells:
        if cell.keyed and cell.expected()[0] == "unknown" and CLASSES[cell.tool] == "unsafe":
            again = await _call(caller, cell)
            doubts += again.outcome == "IN_DOUBT/unknown"
            if again.outcome != "IN_DOUBT/unknown":
                mismatches.append(f"{cell.fault.name}: {answer.outcome}, repeated {again.outcome}")
    after = Counter(line.ref for line in read(deeds) if line.event == "executed")
    twice = [c.ref for c, _ in cells if CLASSES[c.tool] not in ("read", "idempotent") and after[c.ref] > 1]
    trial.measure("cells", len(cells))
    trial.measure("mismatches", len(mismatches))
    trial.measure("repeats told in doubt", doubts)
    trial.check("mismatches = 0", not mismatches, mismatches[:8])
    trial.check("nothing twice that must not be", not twice, twice)


def _seen(cell: Cell, answer: Answer, lines: list[AuditRecord]) -> tuple[str, int, int]:
    counts = Counter(line.event for line in lines if line.ref == cell.ref and line.tool == cell.tool)
    outcome = "ok" if answer.ok else answer.failure.effect if answer.failure else answer.outcome
    nonces = {line.nonce for line in lines if line.ref == cell.ref and line.nonce}
    if answer.ok and said(answer) not in nonces | {""}:
        outcome = f"wrong answer {said(answer)}"
    return outcome, counts["arrived"], counts["executed"]
