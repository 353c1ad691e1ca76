"""A stdio MCP server that writes down every call that it carries out, and loses answers on command."""

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from testkit.servers import jsonrpc
from testkit.servers.audit_log import DONE_FAULTS, LISTED, UNDONE_FAULTS, AuditLog


class AuditedStdioServer:
    """One connection; each call has a thread."""

    def __init__(self, deeds: AuditLog) -> None:
        self._deeds = deeds
        self._refs: dict[bytes, str] = {}

    def serve(self) -> None:
        """Answer until stdin ends."""
        for line in jsonrpc.lines():
            self._receive(msgspec.json.decode(line))

    def _receive(self, message: dict[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params") or {}
        if method == "tools/call":
            self._refs[msgspec.json.encode(message["id"])] = (params.get("arguments") or {}).get("ref", "")
            threading.Thread(target=self._call, args=(message["id"], params), daemon=True).start()
        elif method == "notifications/cancelled":
            self._deeds.cancelled(self._refs.get(msgspec.json.encode(params.get("requestId")), ""))
        elif "id" in message:
            answer = jsonrpc.answer_lifecycle(message, "ledger", {"result": {"tools": LISTED}})
            self._reply(message["id"], **answer)

    def _call(self, request_id: Any, params: dict[str, Any]) -> None:
        arguments = params.get("arguments") or {}
        deed = self._deeds.arrive(params["name"], arguments, str(arguments.get("idempotency_key", "")))
        time.sleep(deed.before_seconds)
        if deed.fault in UNDONE_FAULTS:
            if deed.fault == "refuse":
                self._reply(request_id, error={"code": -32602, "message": "not like this"})
            elif deed.fault != "deaf":
                os._exit(9)
            return
        result = self._deeds.carry_out(deed)
        time.sleep(deed.after_seconds)
        if deed.fault in DONE_FAULTS:
            self._lose(deed.fault, request_id, result)
        else:
            self._reply(request_id, result=result)

    def _lose(self, fault: str, request_id: Any, result: dict[str, Any]) -> None:
        if fault == "silent":
            return
        line = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})
        if fault == "garbage":
            jsonrpc.write(line.replace(b'"nonce', b'\xff"nonce') + b"\n")
            return
        if fault == "half":
            jsonrpc.write(line[: len(line) // 2])
        os._exit(9)

    def _reply(self, request_id: Any, **members: object) -> None:
        jsonrpc.write(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **members}) + b"\n")


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deeds", type=Path, help="the file of what was done")
    parser.add_argument("--spawn-log", type=Path, help="append a line for each start")
    parser.add_argument("--start-delay", type=float, default=0.0, help="seconds before the first read")
    options = parser.parse_args()
    jsonrpc.log_start(options.spawn_log)
    time.sleep(options.start_delay)
    AuditedStdioServer(AuditLog(options.deeds)).serve()
