"""What the ledger servers share: tools of every class, the file of all that was done, faults on command."""

import os
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

# Before it is done, or after: what then happens to the answer.
UNDONE_FAULTS: Final = ("drop", "deaf", "status", "refuse")
DONE_FAULTS: Final = ("drop_done", "half", "silent", "garbage", "status_done")
_HINTS: Final = {
    "pay": {},
    "put": {"idempotentHint": True},
    "get": {"readOnlyHint": True},
    "charge": {},
    "book": {},
    "did_book": {"readOnlyHint": True},
    "undo": {"idempotentHint": True},
}
LISTED: Final = [
    {"name": name, "inputSchema": {"type": "object"}, **({"annotations": hints} if hints else {})}
    for name, hints in _HINTS.items()
]


class AuditRecord(msgspec.Struct):
    """One line of the file."""

    event: str
    tool: str
    ref: str
    nonce: str = ""
    key: str = ""
    pid: int = 0
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """One call of a tool, with what is to go wrong with it."""

    tool: str
    ref: str
    key: str
    arguments: dict[str, Any]
    fault: str

    @property
    def before_seconds(self) -> float:
        """How long it takes to be done."""
        return float(self.arguments.get("before", 0.0))

    @property
    def after_seconds(self) -> float:
        """How long it takes to be answered after that."""
        return float(self.arguments.get("after", 0.0))


class AuditLog:
    """The ground truth: a line for every call that arrived, and a durable one for every call carried out.

    A call has the arguments `ref` (its name), `before` and `after` (seconds), `size` (so many characters more
    in the answer) and `fault`, which happens to the first `times` arrivals of that name (once, unless told).
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        self._lock = threading.Lock()
        self._arrivals: Counter[str] = Counter()
        self._by_key: dict[str, str] = {}
        self._booked: set[str] = set()
        for line in read(path):
            self._remember(line)

    def arrive(self, tool: str, arguments: dict[str, Any], key: str) -> AuditedCall:
        """A call arrives."""
        ref, fault = str(arguments.get("ref", "")), str(arguments.get("fault", ""))
        with self._lock:
            if self._arrivals[ref] >= int(arguments.get("times", 1)):
                fault = ""
            self._write(AuditRecord("arrived", tool, ref, key=key))
        return AuditedCall(tool, ref, key, arguments, fault)

    def carry_out(self, deed: AuditedCall) -> dict[str, Any]:
        """Do it, durably, and give the result."""
        with self._lock:
            if deed.tool == "did_book":
                return _result({"booked": deed.ref in self._booked}, failed=False)
            known = self._by_key.get(deed.key) if deed.tool == "charge" and deed.key else None
            nonce = known or secrets.token_hex(8)
            if known is None:
                self._write(AuditRecord("executed", deed.tool, deed.ref, nonce, deed.key))
                os.fsync(self._file)
        said = {"nonce": nonce, "ref": deed.ref, "tool": deed.tool}
        if size := int(deed.arguments.get("size", 0)):
            said["padding"] = "x" * size
        return _result(said, failed=bool(deed.arguments.get("fails")))

    def cancelled(self, ref: str) -> None:
        """The call is cancelled."""
        with self._lock:
            self._write(AuditRecord("cancelled", "", ref))

    def _write(self, line: AuditRecord) -> None:
        line.pid, line.at = os.getpid(), time.monotonic()
        os.write(self._file, msgspec.json.encode(line) + b"\n")
        self._remember(line)

    def _remember(self, line: AuditRecord) -> None:
        if line.event == "arrived":
            self._arrivals[line.ref] += 1
        elif line.event == "executed" and line.key:
            self._by_key[line.key] = line.nonce
        if line.event == "executed" and line.tool == "book":
            self._booked.add(line.ref)


def _result(said: dict[str, Any], *, failed: bool) -> dict[str, Any]:
    content = [{"type": "text", "text": msgspec.json.encode(said).decode()}]
    return {"content": content, "structuredContent": said, "isError": failed}


def read(path: Path) -> list[AuditRecord]:
    """Every line of the file that is complete."""
    data = path.read_bytes() if path.exists() else b""
    complete = data[: data.rfind(b"\n") + 1]
    return [msgspec.json.decode(line, type=AuditRecord) for line in complete.splitlines()]
